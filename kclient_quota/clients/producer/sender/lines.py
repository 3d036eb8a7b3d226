"""Messages that librdkafka has from the sender, by partition, each of which reports in order; and how it gets them.

But for a purge: that reports what is on its way later than what has not been sent, or not at all.
"""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.producer.routes import Broker
from kclient_quota.clients.producer.sender.answers import code_of
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Partition, Waiting
from kclient_quota.pacing.sending.way import MOST_WAY_MS

if TYPE_CHECKING:
    from kclient_quota.clients.producer.caller.waiting import WaitingProducer
    from kclient_quota.clients.producer.outbox import Handed

NOT_THERE: Final = {
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - confluent_kafka's name
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - confluent_kafka's name
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""What says that a topic is not what it was."""
OVERTAKEN: Final = 2.0
"""So many times as long as what was delivered lately has taken a message may be overtaken before it is said to stay
behind. Librdkafka has five requests under way, each of one partition, and takes partitions as they come, not in turns:
of a hundred partitions 400 ms away one has to wait for eight seconds on average, though its leader is there."""

AT_ONCE: Final = 5
"""So many messages of a partition an idempotent producer of librdkafka has on their way before it sends no more of it:
it takes them for requests (`rd_kafka_toppar_producer_serve`), of which it has as many under way to a broker."""
SILENCE_MS: Final = 1_000
"""Who has not answered for so long may never."""


class Gone(NamedTuple):
    """A message, whom it was handed over for, when, and as which one."""

    broker: Broker
    message: Waiting
    at_ms: int
    number: int


class PartitionLine:
    """Messages of one partition.

    Attributes:
        gone: they, in order.
        strays: so many of the first of them nobody waits for: librdkafka has no leader to send them to.
        is_stray: whether that goes for what comes next, too.
        purged: the last of them when librdkafka was purged: if that has dropped any, it has dropped this one.
    """

    __slots__ = ("gone", "is_stray", "purged", "strays")

    def __init__(self) -> None:
        self.gone: deque[Gone] = deque()
        self.strays = 0
        self.is_stray = False
        self.purged: Gone | None = None

    def add(self, gone: Gone) -> None:
        """To the end."""
        self.gone.append(gone)
        if self.is_stray:
            self._stray(gone)

    def reported(self, now_ms: int) -> Iterator[tuple[Gone, bool]]:
        """Take those that have been reported from the front, each afterwards, and whether somebody waits for it."""
        if self.purged is not None and self.purged.message.payload.report:
            self.purged = None
            self._bring_forward()
        told = None
        while self.gone and self.gone[0].message.payload.report:
            gone = self.gone[0]
            has_arrived = None in gone.message.payload.report
            if has_arrived:
                self.is_stray = False
                if told != (tells := (gone.broker, gone.at_ms, not self.strays)):  # once, of those that went together
                    told = tells
                    gone.broker.on_served(gone.at_ms, now_ms, is_waited_for=not self.strays)
            is_stray = self.strays > 0
            if is_stray:
                self.strays -= 1
                pace = gone.broker.queue.pace
                pace.on_stray_over(gone.message.raw_bytes, gone.at_ms, now_ms, arrived=has_arrived)
            try:
                yield gone, not is_stray
            finally:  # not before: whoever looks finds it here, or told of
                self.gone.popleft()

    def _bring_forward(self) -> None:
        """What was purged stands behind what is on its way, and is not to wait until that is answered.

        Strays stay apart: the first ones are counted as such.
        """
        gone = list(self.gone)
        parts = gone[: self.strays], gone[self.strays :]
        self.gone = deque(chain.from_iterable(sorted(part, key=_is_open) for part in parts))

    def is_full(self, now_ms: int) -> bool:
        """Whether an idempotent producer of librdkafka waits for an answer before it sends any more."""
        if len(self.gone) < AT_ONCE or self.is_stray:
            return False
        return abs(now_ms - self.gone[0].at_ms) < SILENCE_MS

    def look(self) -> bool:
        """Whether they are found to stay behind now: what was handed over much later is delivered."""
        if self.is_stray or not self.gone:
            return False
        broker, _, at_ms, _ = self.gone[0]
        if broker.served_ms - at_ms < max(MOST_WAY_MS, OVERTAKEN * broker.slowest_ms):
            return False
        self.is_stray = True
        for gone in list(self.gone)[self.strays :]:
            self._stray(gone)
        return True

    def _stray(self, gone: Gone) -> None:
        self.strays += 1
        gone.broker.queue.pace.on_stray(gone.message.raw_bytes)


def _is_open(gone: Gone) -> bool:
    return not gone.message.payload.report


class PartitionLines:
    """Those of all partitions.

    Attributes:
        handed: so many messages have been handed over.
    """

    def __init__(self) -> None:
        self.handed = 0
        self._lines: dict[Partition, PartitionLine] = {}
        self._busy: dict[Partition, PartitionLine] = {}

    def purge(self) -> None:
        """Librdkafka is about to be purged: of what it has in its queue, maybe, and not of what is on its way."""
        for line in self._busy.values():
            if line.gone:
                line.purged = line.gone[-1]

    def of(self, place: Partition) -> PartitionLine:
        """That of one, which is looked at from now on."""
        found = self._lines.get(place)
        if found is None:
            found = self._lines[place] = PartitionLine()
        self._busy[place] = found
        return found

    def add(self, place: Partition, broker: Broker, message: Waiting, now_ms: int) -> None:
        """One has been handed over."""
        self.of(place).add(Gone(broker, message, now_ms, self.handed))
        self.handed += 1

    def has_before(self, place: Partition, number: int) -> bool:
        """Whether one of those before this number is not reported. From any thread.

        One that librdkafka chooses a partition for may be of this one. Where it has no leader for that, and may not for
        minutes, it is taken for another's.
        """
        lines = [self._lines.get(place), self._lines.get((place[0], ANY_PARTITION))]
        if lines[1] is not None and lines[1].strays:
            del lines[1]
        for line in lines:
            with suppress(IndexError):  # just now
                if line is not None and line.gone and line.gone[0].number < number:
                    return True
        return False

    def full(self, now_ms: int) -> set[Partition]:
        """The partitions of which more is to wait for an answer; not where librdkafka is to choose one.

        Nor where a broker has requests for others to wait for: what comes while it does leaves with what is there.
        """
        busy = [(place, line) for place, line in self._busy.items() if line.gone]
        count = Counter(line.gone[0].broker for _, line in busy)
        return {
            place
            for place, line in busy
            if place[1] != ANY_PARTITION and count[line.gone[0].broker] <= AT_ONCE and line.is_full(now_ms)
        }

    def __iter__(self) -> Iterator[tuple[Partition, PartitionLine]]:
        """Those that anything is under way in: of thousands of partitions mostly few, and each step looks at them."""
        for place, line in list(self._busy.items()):
            yield place, line
            if not line.gone:
                del self._busy[place]


def hand_over(producer: "WaitingProducer", message: Waiting, partition: int) -> int:
    """Hand a message to librdkafka; returns the partition it was told."""
    handed: Handed = message.payload
    try:
        producer.hand_to_librdkafka(message.topic, partition, handed)
    except KafkaException as error:
        if partition == handed.partition or code_of(error) not in NOT_THERE:
            raise
        # The topic has fewer than when we looked. Who has not asked for this one gets one that there is.
        partition = handed.partition
        producer.hand_to_librdkafka(message.topic, partition, handed)
    return partition
