"""Committed offsets of every group, and those that a transaction has not made final yet.

Follows Kafka 4's `OffsetMetadataManager`. Offsets never expire here (Kafka: `offsets.retention.minutes`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

MAX_METADATA_LENGTH = 4096
NO_LEADER_EPOCH = -1

Position = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position: the next offset to read, as the consumer gave it."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """A position that an open transaction is about to set.

    Attributes:
        order: the later commit has the higher one.
        committed: the position; None once a later commit has become final, which wins.
    """

    order: int
    committed: CommittedOffset | None


OffsetObserver = Callable[[str, str, int, CommittedOffset | None], None]
PendingObserver = Callable[[int, Position, PendingOffset | None], None]
LeaveObserver = Callable[[Iterable[Position], list[tuple[int, Position]]], None]


class OffsetStore:
    """Committed offsets by group, topic and partition.

    Args:
        observers: told of every change (group, topic, partition, offset or None when it is deleted), so that an
            adapter can keep them across restarts. Offsets of an open transaction are not told before it commits.

    Attributes:
        pending_observers: told of what open transactions are about to set (producer id, position, offset or None when
            there is nothing any more). What an observer raises as OSError has not happened.
        leave_observers: told of all that goes with a group or a topic at once (positions; producer ids and positions
            that are pending), in place of the others: all of it is gone, or with an OSError none.
        forget_if_deleted: called with a topic before positions in it become final; deletes what is of one that was
            deleted, which may have been made anew meanwhile.
    """

    def __init__(self, observers: Iterable[OffsetObserver] = ()) -> None:
        self.observers = list(observers)
        self.pending_observers: list[PendingObserver] = []
        self.leave_observers: list[LeaveObserver] = []
        self.forget_if_deleted: Callable[[str], None] = lambda _: None
        self._offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._pending: dict[Position, dict[int, PendingOffset]] = {}
        self._pending_of: dict[int, dict[Position, None]] = {}
        self._order = 0

    def commit(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Set a group's position; the later commit wins."""
        self._set((group_id, topic, partition), self._next_order(), committed)

    def fetch(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """A group's position in one partition, or None."""
        return self._offsets.get(group_id, {}).get((topic, partition))

    def fetch_all(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All positions that a group has now: (topic, partition, offset); whatever is changed while they are read."""
        offsets = self._offsets.get(group_id, {})
        return ((*place, committed) for place, committed in zip(list(offsets), list(offsets.values()), strict=True))

    def groups(self) -> list[str]:
        """Groups that have committed something."""
        return list(self._offsets)

    def delete(self, group_id: str, topic: str, partition: int) -> None:
        """Forget a position, also one that a transaction is about to set."""
        if (topic, partition) in self._offsets.get(group_id, {}):
            self._changed(group_id, topic, partition, None)
            del self._offsets[group_id][topic, partition]
        self._forget_pending((group_id, topic, partition))

    def delete_group(self, group_id: str) -> Iterator[Position]:
        """Forget all positions of a group; which there were, each freed as it is named.

        Raises:
            OSError: that cannot be kept; all are there still.
        """
        places = self._offsets.get(group_id, {})
        self._leave(lambda: ((group_id, *place) for place in places), lambda pending: pending[0] == group_id)
        self._offsets.pop(group_id, None)
        return ((group_id, *places.popitem()[0]) for _ in range(len(places)))

    def delete_topic(self, topic: str) -> list[Position]:
        """Forget all positions in a topic that has been deleted; which there were.

        Raises:
            OSError: that cannot be kept; all are there still.
        """
        positions = [(group_id, *place) for group_id, of in self._offsets.items() for place in of if place[0] == topic]
        self._leave(lambda: positions, lambda pending: pending[1] == topic)
        for group_id, _, partition in positions:
            del self._offsets[group_id][topic, partition]
        return positions

    def _leave(self, positions: Callable[[], Iterable[Position]], is_meant: Callable[[Position], bool]) -> None:
        """Tell that these go, and let those pending that are meant go with them."""
        pending = [(one, where) for where, of in self._pending.items() if is_meant(where) for one in of]
        for observer in self.leave_observers:
            observer(positions(), pending)
        for producer_id, position in pending:
            self._take_pending(producer_id, position, None)

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
        self._set_pending(producer_id, (group_id, topic, partition), PendingOffset(self._next_order(), committed))

    def complete(self, producer_id: int, *, commit: bool, at_most: int | None = None) -> bool:
        """End the producer's transaction: its positions become final, unless a later commit has overtaken them.

        What an observer raises leaves the rest pending: it may be called again.

        Args:
            producer_id: whose transaction.
            commit: or abort.
            at_most: positions to see to in this call, None for all.

        Returns:
            Whether all of them are final.
        """
        positions = tuple(islice(self._pending_of.get(producer_id, ()), at_most))
        for topic in {topic for _, topic, _ in positions}:
            self.forget_if_deleted(topic)
        for position in positions:
            pending = self._pending.get(position, {}).get(producer_id)
            if pending is None:
                continue
            if commit and pending.committed is not None:
                self._set(position, pending.order, pending.committed)
            self._set_pending(producer_id, position, None)
        return producer_id not in self._pending_of

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to set this position."""
        return (group_id, topic, partition) in self._pending

    def pending_producers(self) -> list[int]:
        """Whose open transactions are about to set positions."""
        return list(self._pending_of)

    def restore_pending(self, producer_id: int, position: Position, pending: PendingOffset) -> None:
        """Let a position be pending as it was when it was told."""
        self._order = max(self._order, pending.order)
        self._take_pending(producer_id, position, pending)

    # -- one position

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _set(self, position: Position, order: int, committed: CommittedOffset) -> None:
        # told first: what cannot be kept is not so
        self._changed(*position, committed)
        group_id, topic, partition = position
        self._offsets.setdefault(group_id, {})[topic, partition] = committed
        for producer_id, pending in tuple(self._pending.get(position, {}).items()):
            if pending.order < order and pending.committed is not None:
                self._set_pending(producer_id, position, replace(pending, committed=None))

    def _changed(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        for observer in self.observers:
            observer(group_id, topic, partition, committed)

    def _set_pending(self, producer_id: int, position: Position, pending: PendingOffset | None) -> None:
        for observer in self.pending_observers:
            observer(producer_id, position, pending)
        self._take_pending(producer_id, position, pending)

    def _take_pending(self, producer_id: int, position: Position, pending: PendingOffset | None) -> None:
        if pending is not None:
            self._pending.setdefault(position, {})[producer_id] = pending
            self._pending_of.setdefault(producer_id, {})[position] = None
            return
        del self._pending[position][producer_id], self._pending_of[producer_id][position]
        if not self._pending[position]:
            del self._pending[position]
        if not self._pending_of[producer_id]:
            del self._pending_of[producer_id]

    def _forget_pending(self, position: Position) -> None:
        for producer_id in tuple(self._pending.get(position, ())):
            self._set_pending(producer_id, position, None)
