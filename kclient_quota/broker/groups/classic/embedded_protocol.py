"""Kafka's embedded consumer protocol: what a classic member says in JoinGroup and is told in SyncGroup, as bytes.

`ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`, versions 0 to 3, and whatever comes with later versions
behind them.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

TopicIndex = tuple[str, int]
_OWNED_SINCE, _RACK_SINCE = 1, 3
_LATEST = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member says of itself.

    Attributes:
        topics: that it subscribes to.
        owned: partitions that it has; nothing before version 1.
    """

    version: int
    topics: frozenset[str]
    owned: frozenset[TopicIndex] = frozenset()
    rack_id: str | None = None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def count(self) -> int:
        """Of an array's elements; a null array has none."""
        return max(0, self.number(">i"))

    def text(self) -> str | None:
        length = self.number(">h")
        return None if length < 0 else self._bytes(length).decode()

    def name(self) -> str:
        name = self.text()
        if name is None:
            raise ValueError("a topic without a name")
        return name

    def blob(self) -> None:
        self._bytes(max(0, self.number(">i")))

    def partitions(self) -> frozenset[TopicIndex]:
        found = set()
        for _ in range(self.count()):
            name = self.name()
            found |= {(name, self.number(">i")) for _ in range(self.count())}
        return frozenset(found)

    def _bytes(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError("it ends too early")
        self._at += length
        return self._data[self._at - length : self._at]


def read_subscription(metadata: bytes) -> Subscription | None:
    """What the metadata of a JoinGroup says, None when it cannot be read; what is missing at its end is nothing."""
    reader = _Reader(metadata)
    try:
        version = reader.number(">h")
        topics = frozenset(reader.name() for _ in range(reader.count()))
        if not reader.is_at_end:
            reader.blob()
        owned = reader.partitions() if version >= _OWNED_SINCE and not reader.is_at_end else frozenset()
        rack_id = None
        if version >= _RACK_SINCE and not reader.is_at_end:
            reader.number(">i")  # the generation in which it had them
            rack_id = reader.text()
    except (struct.error, ValueError):
        return None
    return Subscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> frozenset[TopicIndex] | None:
    """Partitions that the leader has given a member, None when they cannot be read; no bytes are no partitions."""
    if not data:
        return frozenset()
    reader = _Reader(data)
    try:
        reader.number(">h")
        return reader.partitions()
    except (struct.error, ValueError):
        return None


def write_assignment(version: int, partitions: Iterable[TopicIndex]) -> bytes:
    """What a member is told to read, in the version that it speaks."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    parts = [struct.pack(">hi", min(max(version, 0), _LATEST), len(by_topic))]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(indexes)}i", len(name), name, len(indexes), *indexes))
    return b"".join((*parts, struct.pack(">i", -1)))
