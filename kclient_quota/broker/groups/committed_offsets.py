"""Committed offsets of every group, and those that a transaction has not made final yet.

Follows Kafka 4's `OffsetMetadataManager`. Offsets never expire here (Kafka: `offsets.retention.minutes`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

MAX_METADATA_LENGTH = 4096
NO_LEADER_EPOCH = -1

Position = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position: the next offset to read, as the consumer gave it."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


OffsetObserver = Callable[[str, str, int, CommittedOffset | None], None]


class OffsetStore:
    """Committed offsets by group, topic and partition.

    Args:
        observers: told of every change (group, topic, partition, offset or None when it is deleted), so that an
            adapter can keep them across restarts. Offsets of an open transaction are not told before it commits.
    """

    def __init__(self, observers: Iterable[OffsetObserver] = ()) -> None:
        self.observers = list(observers)
        self._offsets: dict[str, dict[tuple[str, int], tuple[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[Position, tuple[int, CommittedOffset]]] = {}
        self._order = count()

    def commit(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Set a group's position; the later commit wins."""
        self._set(group_id, topic, partition, (next(self._order), committed))

    def fetch(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """A group's position in one partition, or None."""
        entry = self._offsets.get(group_id, {}).get((topic, partition))
        return None if entry is None else entry[1]

    def fetch_all(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All positions of a group: (topic, partition, offset)."""
        for (topic, partition), (_, committed) in self._offsets.get(group_id, {}).items():
            yield topic, partition, committed

    def groups(self) -> list[str]:
        """Groups that have committed something."""
        return list(self._offsets)

    def delete(self, group_id: str, topic: str, partition: int) -> None:
        """Forget a position, also one that a transaction is about to set."""
        if (topic, partition) in self._offsets.get(group_id, {}):
            self._changed(group_id, topic, partition, None)
            del self._offsets[group_id][topic, partition]
        for positions in self._pending.values():
            positions.pop((group_id, topic, partition), None)

    def delete_group(self, group_id: str) -> None:
        """Forget all positions of a group."""
        for topic, partition in tuple(self._offsets.get(group_id, ())):
            self.delete(group_id, topic, partition)
        self._offsets.pop(group_id, None)
        for positions in self._pending.values():
            for position in [p for p in positions if p[0] == group_id]:
                del positions[position]

    def delete_topic(self, topic: str) -> None:
        """Forget all positions in a topic that has been deleted."""
        for group_id, positions in self._offsets.items():
            for _, partition in [key for key in positions if key[0] == topic]:
                self.delete(group_id, topic, partition)

    # -- transactions

    def commit_pending(
        self,
        producer_id: int,
        group_id: str,
        topic: str,
        partition: int,
        committed: CommittedOffset,
    ) -> None:
        """Set a position as part of the producer's open transaction."""
        positions = self._pending.setdefault(producer_id, {})
        positions[group_id, topic, partition] = (next(self._order), committed)

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """End the producer's transaction: its positions become final, unless a later commit has overtaken them."""
        for (group_id, topic, partition), entry in self._pending.pop(producer_id, {}).items():
            current = self._offsets.get(group_id, {}).get((topic, partition))
            if commit and (current is None or current[0] < entry[0]):
                self._set(group_id, topic, partition, entry)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to set this position."""
        return any((group_id, topic, partition) in positions for positions in self._pending.values())

    def _set(self, group_id: str, topic: str, partition: int, entry: tuple[int, CommittedOffset]) -> None:
        # told first: what cannot be kept is not so
        self._changed(group_id, topic, partition, entry[1])
        self._offsets.setdefault(group_id, {})[topic, partition] = entry

    def _changed(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        for observer in self.observers:
            observer(group_id, topic, partition, committed)
