"""Messages taken out of librdkafka's queue that the application has not received yet, and those that it has."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, Message, TopicPartition

from kclient_quota.clients.librdkafka.messages import partition_of

MOST_MESSAGES: Final = 1_000
MOST_BYTES: Final = 8_000_000

Partition = tuple[str, int]
End = tuple[int, int | None]
"""What an error of a partition says that is told once, until the partition is begun anew: its code, and an offset."""
_ENDS: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})  # noqa: SLF001 - their names


class HeldMessages:
    """A bounded queue. What it hands over is gone by one assignment, so that an interrupt finds all or nothing done.

    What had been prefetched when a quota came is held as well, some hundred thousand messages: nothing that is done for
    each call looks at all of them.

    Attributes:
        messages: what is held, after what has been handed over lately.
        first: index of the first one that is held.
        noted: index up to which `forget_handed` was told of.
        ready: index up to which messages may be handed over one by one.
        aside: what is held of partitions that are paused.
        gone: partitions that went away, were begun anew or paused, since somebody has cleared it.
    """

    __slots__ = ("aside", "first", "gone", "messages", "noted", "ready")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.first = 0
        self.noted = 0
        self.ready = 0
        self.aside: list[Message] = []
        self.gone: set[Partition] = set()

    def __len__(self) -> int:
        return self.there + len(self.aside)

    @property
    def there(self) -> int:
        """How many could be handed over."""
        # Both at once, before the call: another thread looks, too, and after a call it may be the first one's turn.
        messages, first = self.messages, self.first
        return len(messages) - first

    @property
    def full(self) -> bool:
        """Whether no more should be taken before some have been handed over."""
        return len(self) >= MOST_MESSAGES or sum(map(len, self._all)) >= MOST_BYTES

    @property
    def _all(self) -> list[Message]:
        return self.aside + self.messages[self.first :]

    def add(self, messages: Iterable[Message]) -> None:
        """Hold these, in the order in which they came."""
        self.ready = 0
        self.messages += list(messages)  # at its end: a copy of all would be made a hundred times a second

    def add_unless_gone(self, messages: list[Message]) -> set[Partition]:
        """Hold those whose partition is not `gone`, and what is told; returns the partitions of the others."""
        if not self.gone:
            self.add(messages)
            return set()
        there = _kept(messages, self.gone)
        if there:
            self.add(there)
        return {partition_of(message) for message in messages if not _is_told(message)} & self.gone

    def put_back(self, messages: list[Message]) -> None:
        """Hold these before everything else, as if they had not been handed over."""
        self._begin(messages + self.messages[self.first :], self.aside)

    def set_aside(self, partitions: Collection[Partition]) -> None:
        """Hand over nothing of these partitions until they are brought back, but what librdkafka tells of them."""
        there = self.messages[self.first :]
        kept = [message for message in there if not _is_of(message, partitions)]
        if len(kept) < len(there):
            aside = self.aside + [message for message in there if _is_of(message, partitions)]
            self.messages, self.ready, self.aside = self.messages[: self.first] + kept, 0, aside

    def bring_back(self, partitions: Collection[Partition]) -> None:
        """Hand over what was set aside of these partitions, before everything else."""
        back = [message for message in self.aside if _is_of(message, partitions)]
        if back:
            aside = [message for message in self.aside if not _is_of(message, partitions)]
            messages = self.messages[: self.first] + back + self.messages[self.first :]
            self.messages, self.ready, self.aside = messages, 0, aside

    def handed(self) -> list[Message]:
        """What has been handed over since `forget_handed`."""
        return self.messages[self.noted : self.first]

    def forget_handed(self) -> None:
        """Keep no longer what has been handed over; as long as much more is held, only tell no longer of it."""
        if self.there <= max(MOST_MESSAGES, self.first):
            self._begin(self.messages[self.first :], self.aside)
        else:
            self.noted, self.ready = self.first, 0

    def peek(self, count: int) -> list[Message]:
        """What `take` would hand over."""
        return self.messages[self.first : self.first + count]

    def take(self, count: int) -> list[Message]:
        """Hand over up to `count`."""
        end = min(self.first + count, len(self.messages))
        taken = self.messages[self.first : end]
        # From here on there is no call after which Python would look for signals.
        self.first = end
        return taken

    def first_offsets(self) -> dict[Partition, tuple[int, int | None]]:
        """The first offset that is held of each partition, with its leader epoch."""
        first: dict[Partition, tuple[int, int | None]] = {}
        for message in self._all:
            offset = message.offset()
            if message.error() is None and offset is not None:
                first.setdefault(partition_of(message), (offset, message.leader_epoch()))
        return first

    def next_offsets(self) -> dict[Partition, int]:
        """The offset after the last one of each partition, whether it is held or has just been handed over."""
        there = (message for message in self.messages + self.aside if message.error() is None)
        return {partition_of(message): offset + 1 for message in there if (offset := message.offset()) is not None}

    def ends(self) -> dict[Partition, End]:
        """The ends of partitions that are told of by what is held (`enable.partition.eof`)."""
        return {partition_of(message): end for message in self._all if (end := _end_of(message)) is not None}

    def drop(self, partitions: Iterable[TopicPartition] | None = None) -> int:
        """Forget what is held of these partitions, of all where none are named; returns its bytes.

        What is wrong with one is told once, though it goes for that: its topic is gone, or may not be read any more.
        """
        there = self._all
        gone = {partition_of(message) for message in there} if partitions is None else set(map(key_of, partitions))
        self._begin(_kept(self.messages[self.first :], gone), _kept(self.aside, gone))
        return sum(map(len, there)) - sum(map(len, self._all))

    def _begin(self, messages: list[Message], aside: list[Message]) -> None:
        """Hold these and no others."""
        self.messages, self.first, self.noted, self.ready, self.aside = messages, 0, 0, 0, aside


class ReceivedOffsets:
    """Up to where the application has received each partition.

    Needed because confluent_kafka destroys the messages of a call that a signal ends: what is missing is sought back.
    Batches are only kept until they are worth being looked at, or librdkafka is asked for its positions instead.
    """

    MOST_MESSAGES_PER_PARTITION: Final = 100
    MOST_BYTES: Final = 8_000_000

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, End] = {}  # that the application has been told of
        self._ends_again: dict[Partition, End] = {}  # that another client is going to tell of once more
        self._batches: list[list[Message]] = []
        self._count = 0
        self._bytes = 0

    def note(self, messages: list[Message]) -> None:
        """These have been received; noting the same ones again does no harm."""
        self._batches.append(messages)
        self._count += len(messages)
        value = messages[0].value()
        # an application, or a deserializer, may have put anything in its place
        self._bytes += len(messages) * (len(value) if isinstance(value, bytes) else 0)

    @property
    def is_due(self) -> bool:
        """Whether enough has been noted for `replace` to cost nothing in comparison."""
        most = self.MOST_MESSAGES_PER_PARTITION * max(10, len(self._next))
        return self._count >= most or self._bytes >= self.MOST_BYTES

    def replace(self, positions: Iterable[TopicPartition]) -> None:
        """Librdkafka's positions, asked for while nothing is in doubt."""
        found = {key_of(part): part.offset for part in positions}
        if any(offset < 0 for offset in found.values()):
            # librdkafka knows no position where it has just been made to seek: what was noted must tell.
            self.offsets()
        self._next.update({partition: offset for partition, offset in found.items() if offset >= 0})
        self._batches, self._count, self._bytes = [], 0, 0

    def offsets(self) -> Mapping[Partition, int]:
        """The next offset of every partition that anything has been received of."""
        for batch in self._batches:
            for message in batch:
                offset = message.offset()
                if message.error() is None and offset is not None:
                    self._next[partition_of(message)] = offset + 1
                elif (end := _end_of(message)) is not None:
                    self._ends[partition_of(message)] = end
        self._batches, self._count, self._bytes = [], 0, 0
        return self._next

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are read from these offsets, or from wherever librdkafka finds where they are none."""
        self.offsets()
        for part in partitions:
            self._ends.pop(key_of(part), None)
            self._ends_again.pop(key_of(part), None)
            if part.offset >= 0:
                self._next[key_of(part)] = part.offset
            else:
                self._next.pop(key_of(part), None)

    def forget(self) -> None:
        """Nothing is assigned any more."""
        self.offsets()
        self._next.clear()
        self._ends.clear()
        self._ends_again.clear()

    def ends_come_again(self, held: Mapping[Partition, End]) -> None:
        """Another client fetches from now on, and tells of ends that the first one has told of.

        Args:
            held: those that the application has yet to be told of.
        """
        self.offsets()
        self._ends_again = {**self._ends, **held}

    def without_ends_again(self, messages: list[Message]) -> list[Message]:
        """What another client gives, but for ends that are known: who counts ends has each of them once."""
        if not self._ends_again:
            return messages
        known = [self._ends_again.pop(partition_of(message), None) for message in messages]
        given = zip(messages, known, strict=True)
        return [message for message, end in given if end is None or end != _end_of(message)]


def key_of(part: TopicPartition) -> Partition:
    """Topic and partition."""
    return part.topic, part.partition


def _is_of(message: Message, partitions: Collection[Partition]) -> bool:
    return message.error() is None and partition_of(message) in partitions


def _kept(messages: list[Message], gone: Collection[Partition]) -> list[Message]:
    """What is left of these when partitions have gone."""
    return [message for message in messages if partition_of(message) not in gone or _is_told(message)]


def _is_told(message: Message) -> bool:
    """Whether an event tells of something else than where a partition ends, which is told again when it is begun."""
    return message.error() is not None and _end_of(message) is None


def _end_of(message: Message) -> End | None:
    """What of a partition's end a message tells; None where it is of something else.

    An end is what readers come to, or that nobody says where to begin (`auto.offset.reset=error`): nothing comes then.
    """
    error = message.error()
    return (error.code(), message.offset()) if error is not None and error.code() in _ENDS else None
