"""Messages taken out of librdkafka's queue that the application has not received yet, and those that it has."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import Message, TopicPartition

MOST_MESSAGES: Final = 1_000
MOST_BYTES: Final = 8_000_000

Partition = tuple[str, int]


class HeldMessages:
    """A bounded queue. What it hands over is gone by one assignment, so that an interrupt finds all or nothing done."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._messages) - self._first

    @property
    def full(self) -> bool:
        """Whether no more should be taken before some have been handed over."""
        return len(self) >= MOST_MESSAGES or sum(map(len, self._messages[self._first :])) >= MOST_BYTES

    def add(self, messages: Iterable[Message]) -> None:
        """Hold these, in the order in which they came."""
        self._messages, self._first = [*self._messages[self._first :], *messages], 0

    def put_back(self, messages: list[Message]) -> None:
        """Hold these before everything else, as if they had not been handed over."""
        self._messages, self._first = messages + self._messages[self._first :], 0

    def count(self, paused: Collection[Partition] = ()) -> int:
        """How many could be handed over, passing over partitions that the application has paused."""
        if not paused:
            return len(self)
        return sum(1 for message in self._messages[self._first :] if not _is_paused(message, paused))

    def take(self, count: int, paused: Collection[Partition] = ()) -> list[Message]:
        """Hand over up to `count`, passing over partitions that the application has paused."""
        first, there = self._first, len(self._messages)
        end = min(first + count, there)
        if not paused:
            taken = self._messages[first:end]
            # From here on there is no call after which Python would look for signals.
            if end == there:
                self._messages, self._first = [], 0
            else:
                self._first = end
            return taken
        taken = []
        kept: list[Message] = []
        for message in self._messages[self._first :]:
            passed_over = len(taken) == count or _is_paused(message, paused)
            (kept if passed_over else taken).append(message)
        self._messages, self._first = kept, 0
        return taken

    def peek(self, count: int, paused: Collection[Partition] = ()) -> list[Message]:
        """What `take` would hand over."""
        there = self._messages[self._first :]
        return [message for message in there if not (paused and _is_paused(message, paused))][:count]

    def next_offsets(self) -> dict[Partition, int]:
        """The offset after the last one that is held of each partition."""
        there = (message for message in self._messages[self._first :] if message.error() is None)
        return {partition_of(message): offset + 1 for message in there if (offset := message.offset()) is not None}

    def first_offsets(self) -> dict[Partition, tuple[int, int | None]]:
        """The first offset that is held of each partition, with its leader epoch."""
        first: dict[Partition, tuple[int, int | None]] = {}
        for message in self._messages[self._first :]:
            offset = message.offset()
            if message.error() is None and offset is not None:
                first.setdefault(partition_of(message), (offset, message.leader_epoch()))
        return first

    def drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget what is held of these partitions, of all where none are named."""
        gone = None if partitions is None else {(part.topic, part.partition) for part in partitions}
        kept = [] if gone is None else [m for m in self._messages[self._first :] if partition_of(m) not in gone]
        self._messages, self._first = kept, 0


class ReceivedOffsets:
    """Up to where the application has received each partition.

    Needed because confluent_kafka destroys the messages of a call that a signal ends: what is missing is sought back.
    Batches are only kept until they are worth being looked at, or librdkafka is asked for its positions instead.
    """

    MOST_MESSAGES_PER_PARTITION: Final = 100
    MOST_BYTES: Final = 8_000_000

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}
        self._batches: list[list[Message]] = []
        self._count = 0
        self._bytes = 0

    def note(self, messages: list[Message]) -> None:
        """These have been received; noting the same ones again does no harm."""
        self._batches.append(messages)
        self._count += len(messages)
        self._bytes += len(messages) * len(messages[0])

    @property
    def is_due(self) -> bool:
        """Whether enough has been noted for `replace` to cost nothing in comparison."""
        most = self.MOST_MESSAGES_PER_PARTITION * max(10, len(self._next))
        return self._count >= most or self._bytes >= self.MOST_BYTES

    def replace(self, positions: Iterable[TopicPartition]) -> None:
        """Librdkafka's positions, asked for while nothing is in doubt."""
        self._next.update({(part.topic, part.partition): part.offset for part in positions if part.offset >= 0})
        self._batches, self._count, self._bytes = [], 0, 0

    def offsets(self) -> Mapping[Partition, int]:
        """The next offset of every partition that anything has been received of."""
        for batch in self._batches:
            for message in batch:
                offset = message.offset()
                if message.error() is None and offset is not None:
                    self._next[partition_of(message)] = offset + 1
        self._batches, self._count, self._bytes = [], 0, 0
        return self._next

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are read from these offsets, or from wherever librdkafka finds where they are none."""
        self.offsets()
        for part in partitions:
            if part.offset >= 0:
                self._next[part.topic, part.partition] = part.offset
            else:
                self._next.pop((part.topic, part.partition), None)

    def forget(self) -> None:
        """Nothing is assigned any more."""
        self.offsets()
        self._next.clear()


def partition_of(message: Message) -> Partition:
    """Topic and partition; ("", -1) for an event of neither."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition


def _is_paused(message: Message, paused: Collection[Partition]) -> bool:
    return message.error() is None and partition_of(message) in paused
