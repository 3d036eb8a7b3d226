"""What a share group (KIP-932) has of one partition: which records are acquired, by whom, how often. Pure.

Follows Kafka's `SharePartition`: records are acquired as they are fetched, which counts as a delivery; they are locked
until they are acknowledged or the lock runs out. What has been delivered `max_deliveries` times is archived, and so is
what a consumer rejects. From half of that number on fewer and fewer are delivered together, the last time one by one,
so that one bad record does not take its neighbours with it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, Self

from kclient_quota.broker.shares.share_records import (
    NOBODY,
    TERMINAL,
    Acquired,
    RecordState,
    Run,
    Settled,
    ShareBatch,
    ShareRecord,
    merged,
    runs_of,
)
from kclient_quota.wire.error_codes import ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Kafka's `AcknowledgeType`, and 0 for offsets at which there is no record."""


_LOOKED_THROUGH: Final = 100
"""Records of a partition that are looked through as often as it takes in 40 µs."""
_AFTERWARDS: Final = {GAP: RecordState.ARCHIVED, ACCEPT: RecordState.ACKNOWLEDGED, REJECT: RecordState.ARCHIVED}


_Holder = tuple[str, int]
"""Who acquires, and until when."""


@dataclass(frozen=True, slots=True)
class ShareRules:
    """A group's configuration; Kafka's `share.*` keys and their defaults.

    Attributes:
        max_deliveries: `share.delivery.count.limit`.
        lock_ms: `share.record.lock.duration.ms`.
        max_locks: `share.partition.max.record.locks`.
    """

    max_deliveries: int = 5
    lock_ms: int = 30_000
    max_locks: int = 2_000

    @property
    def weary_at(self) -> int:
        """From how many deliveries on fewer records are delivered together."""
        return max(2, (self.max_deliveries + 1) // 2)


class Wanted(NamedTuple):
    """How much a fetch acquires.

    Attributes:
        records: how many, up to the end of a batch; exactly where it is `strict` (record_limit, KIP-1206).
        batch_size: acquired records are told of in batches of about so many.
        strict: whether no more than `records` may be acquired.
    """

    records: int
    batch_size: int
    strict: bool = False


class Acknowledgement(NamedTuple):
    """What a member says of the records from `first` to `last`: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        """What is said of one of them."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class SharePartition:
    """One partition as one group sees it.

    What a call costs grows with the records that are not settled, of which there are no more than `max_locks` and a
    batch, not with those that were settled behind one that is not.

    Args:
        start_offset: where the group begins.
        leader_epoch: of the leader that keeps it.

    Attributes:
        start_offset: everything before it is settled.
        written: start offset, and how many records after it were settled, as last written (Kafka's persister); None
            before that. What is told of a group is what was written, which is as of before the last settlement.
        next_new: everything from it on was never acquired.
        leader_epoch: as above.
    """

    def __init__(self, start_offset: int, leader_epoch: int = 0) -> None:
        self.start_offset = self.next_new = start_offset
        self.leader_epoch = leader_epoch
        self.written: tuple[int, int] | None = None
        self._unsaid: list[Run] = []
        # rising: what is new comes behind what is known
        self._open: dict[int, ShareRecord] = {}
        self._settled = Settled()

    # -- being kept

    @property
    def state(self) -> list[Any]:
        """What outlives the broker (KIP-932's `ShareGroupState`): where it begins, and what is known behind that."""
        written = None if self.written is None else list(self.written)
        return [self.start_offset, self.next_new, written, sorted([*self._settled, *runs_of(self._open.items())])]

    @classmethod
    def of_state(cls, state: Sequence[Any], leader_epoch: int) -> Self:
        """What had this `state`; its records are nobody's."""
        made = cls(state[0], leader_epoch)
        made.next_new = state[1]
        made.written = None if state[2] is None else (state[2][0], state[2][1])
        for first, last, kind, count in state[3]:
            if RecordState(kind) in TERMINAL:
                made._settled.add([first, last, kind, count])
                continue
            batch = ShareBatch(last - first + 1)
            for offset in range(first, last + 1):
                made._open[offset] = ShareRecord(RecordState(kind), count, NOBODY, 0, batch)
        return made

    def take_unsaid(self) -> list[Run]:
        """What was settled or given back since this was called last."""
        unsaid, self._unsaid = self._unsaid, []
        return unsaid

    # -- looking

    def __len__(self) -> int:
        """How much there is to look through in every call."""
        return len(self._open) + len(self._settled)

    @property
    def weight(self) -> int:
        """As how many things it counts, of which a turn sees to some: it is looked through several times."""
        return 1 + len(self) // _LOOKED_THROUGH

    def next_offset(self) -> int:
        """What is to be fetched next: what was given back before what is new."""
        free = (offset for offset, record in self._open.items() if record.state is RecordState.AVAILABLE)
        return next(free, self.next_new)

    def has_room(self, rules: ShareRules) -> bool:
        """Whether anything may be acquired now."""
        return len(self._open) < rules.max_locks or self.next_offset() < self.next_new

    def deliveries(self) -> dict[int, tuple[RecordState, int]]:
        """State and delivery count of everything between `start_offset` and `next_new`, by offset."""
        found = {offset: (record.state, record.count) for offset, record in self._open.items()}
        for first, last, state, count in self._settled:
            found |= dict.fromkeys(range(first, last + 1), (RecordState(state), count))
        return dict(sorted(found.items()))

    def next_deadline_ms(self) -> int | None:
        """When the next lock runs out."""
        held = (record.until_ms for record in self._open.values() if record.state is RecordState.ACQUIRED)
        return min(held, default=None)

    # -- acquiring

    def acquire(
        self, member: str, fetched: Sequence[tuple[int, int]], wanted: Wanted, rules: ShareRules, now_ms: int
    ) -> list[Acquired]:
        """Give a member what it has fetched and nobody has.

        Args:
            member: who fetches.
            fetched: first and last offset of each batch that was read, in order.
            wanted: how much of it.
            rules: the group's.
            now_ms: the time.
        """
        if not fetched or wanted.records <= 0:
            return []
        last = fetched[-1][1]
        room = min(wanted.records, rules.max_locks - len(self._open))
        if room <= 0:
            # no more than there is already; what was given back lies within
            begin = self.next_offset()
            if begin >= self.next_new:
                return []
            room, last = min(wanted.records, self.next_new - begin), min(last, self.next_new - 1)
        holder = member, now_ms + rules.lock_ms
        again, is_enough = self._again(fetched[0][0], last, room, wanted, rules, holder)
        if not is_enough and len(again) < room and last >= self.next_new:
            fresh = self._fresh(fetched, last, wanted._replace(records=room - len(again)), holder)
        else:
            fresh = []
        return [*merged(again), *fresh]

    def _again(
        self, first: int, last: int, room: int, wanted: Wanted, rules: ShareRules, holder: _Holder
    ) -> tuple[list[Acquired], bool]:
        """What was given back, and whether nothing may come with it."""
        found: list[Acquired] = []
        free = (
            (offset, record)
            for offset, record in self._open.items()
            if first <= offset <= last and record.state is RecordState.AVAILABLE
        )
        for batch, those in groupby(free, key=lambda one: one[1].batch):
            together = list(those)
            if len(found) >= room:
                break
            is_weary = max(record.count for _, record in together) >= rules.weary_at
            if is_weary and found:
                return found, True
            most = room - len(found) if wanted.strict else len(together)
            found += _together(together, batch.size, most, rules, holder)
            if is_weary:
                return found, True
        return found, False

    def _fresh(self, fetched: Sequence[tuple[int, int]], last: int, wanted: Wanted, holder: _Holder) -> list[Acquired]:
        """What was never acquired, in whole batches."""
        first = max(self.next_new, fetched[0][0])
        final = first + wanted.records - 1
        if final < last:
            # not into what compaction has left empty, which may be millions of offsets
            last = min(last, max(end for base, end in fetched if base <= final))
        bounds = [first]
        if not wanted.strict and last - first + 1 > wanted.batch_size:
            for base, _ in fetched:
                if first < base <= last and base - bounds[-1] >= wanted.batch_size:
                    bounds.append(base)
        if not self._open:
            self.start_offset = first
        found = []
        for begin, end in zip(bounds, [*(bound - 1 for bound in bounds[1:]), last], strict=True):
            batch = ShareBatch(end - begin + 1)
            for offset in range(begin, end + 1):
                record = self._open[offset] = ShareRecord(RecordState.AVAILABLE, 0, NOBODY, 0, batch)
                if offset <= final or not wanted.strict:
                    record.take(*holder)
            found.append(Acquired(begin, min(end, final) if wanted.strict else end, 1))
        self.next_new = last + 1
        return found

    # -- giving back

    def acknowledge(
        self, member: str, said: Sequence[Acknowledgement], rules: ShareRules, now_ms: int
    ) -> tuple[ErrorCode, str | None]:
        """Take what a member says of its records, in rising order; all of it or, with an error, nothing."""
        changes: list[tuple[int, int]] = []
        offsets = list(self._open)
        for one in said:
            if one.last < self.start_offset:
                continue
            error, message = self._look_up(member, one, offsets, changes)
            if error:
                return error, message
        changed = []
        for offset, kind in changes:
            record = self._open[offset]
            if kind == RENEW:
                record.until_ms = now_ms + rules.lock_ms
                continue
            if kind == RELEASE:
                record.free(rules.max_deliveries)
            else:
                record.state, record.member = _AFTERWARDS[kind], NOBODY
            changed.append((offset, record))
        if changes:
            self._write(changed)
        return ErrorCode.NONE, None

    def _look_up(
        self, member: str, said: Acknowledgement, offsets: list[int], changes: list[tuple[int, int]]
    ) -> tuple[ErrorCode, str | None]:
        if not offsets or said.last < offsets[0]:
            message = "Batch record not found. The request batch offsets are not found in the cache."
            return ErrorCode.INVALID_RECORD_STATE, message
        if said.last >= self.next_new:
            end = "first" if said.first >= self.next_new else "last"
            return (
                ErrorCode.INVALID_REQUEST,
                f"Batch record not found. The {end} offset in request is past acquired records.",
            )
        those = offsets[bisect_left(offsets, said.first) : bisect_right(offsets, said.last)]
        if self._settled.has_any(max(said.first, self.start_offset), said.last) or any(
            self._open[offset].member != member for offset in those
        ):
            # nobody owns what is settled or given back
            return ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset"
        changes += [(offset, said.type_of(offset)) for offset in those]
        return ErrorCode.NONE, None

    def archive(self, member: str, stretches: Sequence[tuple[int, int]]) -> None:
        """Nobody is to get what a member has just acquired in these rising stretches of offsets: it does not count."""
        firsts, archived = [first for first, _ in stretches], []
        for offset, record in self._open.items():
            place = bisect_right(firsts, offset) - 1 if record.member == member else -1
            if place >= 0 and offset <= stretches[place][1]:
                record.state, record.member = RecordState.ARCHIVED, NOBODY
                archived.append((offset, record))
        self._write(archived)

    def release(self, member: str, rules: ShareRules) -> bool:
        """A member's session has ended: others may have what it has. Whether it had anything."""
        return self._free_all([held for held in self._open.items() if held[1].member == member], rules)

    def take_back(self, member: str, acquired: Sequence[Acquired]) -> None:
        """Undo an acquisition of records that were not sent, as if it had never been, as far as it still stands."""
        for one in acquired:
            for offset in range(one.first, one.last + 1):
                record = self._open.get(offset)
                if record is not None and (record.member, record.count) == (member, one.delivery):
                    record.forsake()

    def expire(self, rules: ShareRules, now_ms: int) -> bool:
        """Free what is locked no longer; whether there was any."""
        due = [
            (offset, record)
            for offset, record in self._open.items()
            if record.state is RecordState.ACQUIRED and record.until_ms <= now_ms
        ]
        return self._free_all(due, rules)

    def move(self, leader_epoch: int) -> None:
        """Another leader keeps it: it knows what was acknowledged and freed, not what is acquired."""
        self.leader_epoch = leader_epoch
        for record in self._open.values():
            record.forsake()

    def log_ends_at(self, offset: int) -> None:
        """The log has lost everything from `offset` on; what is written there next is new."""
        self._open = {place: record for place, record in self._open.items() if place < offset}
        self._settled.end_at(offset)
        self.start_offset, self.next_new = min(self.start_offset, offset), min(self.next_new, offset)

    def log_starts_at(self, offset: int) -> None:
        """The log has lost everything before `offset`."""
        self._open = {place: record for place, record in self._open.items() if place >= offset}
        self.next_new = max(self.next_new, offset)
        self._settle(offset)

    def _free_all(self, held: Sequence[tuple[int, ShareRecord]], rules: ShareRules) -> bool:
        for _, record in held:
            record.free(rules.max_deliveries)
        if held:
            self._write(held)
        return bool(held)

    def _write(self, changed: Sequence[tuple[int, ShareRecord]]) -> None:
        """What was settled is written, then the start moves."""
        runs = runs_of(changed)
        self._unsaid += runs
        for run in runs:
            if run[2] in TERMINAL:
                self._settled.add(run)
        for offset, record in changed:
            if record.state in TERMINAL:
                del self._open[offset]
        self.written = self.start_offset, self._settled.count
        self._settle()

    def _settle(self, least: int = 0) -> None:
        """Move `start_offset` past what needs nobody any more."""
        self.start_offset = max(least, next(iter(self._open), self.next_new))
        self._settled.begin_at(self.start_offset)


def _together(
    free: Sequence[tuple[int, ShareRecord]], size: int, most: int, rules: ShareRules, holder: _Holder
) -> list[Acquired]:
    """As many records of one batch as may be delivered together."""
    found: list[Acquired] = []
    isolates = rules.max_deliveries > 2  # noqa: PLR2004 - with two there is no delivery between the first and the last
    for offset, record in free:
        if isolates and record.count == rules.max_deliveries - 1 and found:
            break
        if record.count >= rules.weary_at and not found:
            most = min(most, max(1, size >> (record.count - rules.weary_at + 1)))
        record.take(*holder)
        found.append(Acquired(offset, offset, record.count))
        if len(found) >= most or (isolates and record.count == rules.max_deliveries):
            break
    return found
