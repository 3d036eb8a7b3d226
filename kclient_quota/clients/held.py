"""Messages taken out of librdkafka's queue that the application has not received yet."""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import Message, TopicPartition

MOST_MESSAGES: Final = 1_000
MOST_BYTES: Final = 8_000_000

Partition = tuple[str, int]


class HeldMessages:
    """A bounded queue that knows up to where the application has received each partition."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """Whether no more should be taken before some have been handed over."""
        return len(self._messages) >= MOST_MESSAGES or self._bytes >= MOST_BYTES

    def add(self, messages: Iterable[Message]) -> None:
        """Hold these, in the order in which they came."""
        for message in messages:
            self._messages.append(message)
            self._bytes += len(message)

    def take(self, count: int, paused: Collection[Partition] = ()) -> list[Message]:
        """Hand over up to `count`, passing over partitions that the application has paused."""
        taken: list[Message] = []
        kept: deque[Message] = deque()
        while self._messages and len(taken) < count:
            message = self._messages.popleft()
            if paused and message.error() is None and partition_of(message) in paused:
                kept.append(message)
            else:
                taken.append(message)
                self._bytes -= len(message)
        self._messages.extendleft(reversed(kept))
        return taken

    def first_offsets(self) -> dict[Partition, tuple[int, int | None]]:
        """The first offset that is held of each partition, with its leader epoch."""
        first: dict[Partition, tuple[int, int | None]] = {}
        for message in self._messages:
            offset = message.offset()
            if message.error() is None and offset is not None:
                first.setdefault(partition_of(message), (offset, message.leader_epoch()))
        return first

    def drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget what is held of these partitions, of all where none are named."""
        if not self._messages:
            return
        gone = None if partitions is None else {(part.topic, part.partition) for part in partitions}
        kept = [] if gone is None else [message for message in self._messages if partition_of(message) not in gone]
        self._messages = deque(kept)
        self._bytes = sum(map(len, kept))


def partition_of(message: Message) -> Partition:
    """Topic and partition; ("", -1) for an event of neither."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition
