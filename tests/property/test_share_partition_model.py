"""What a share group has of a partition, beside a model that keeps each record and looks through all of them."""

from dataclasses import dataclass
from random import Random

import pytest

from kclient_quota.broker.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    SharePartition,
    ShareRules,
    Wanted,
)
from kclient_quota.broker.shares.share_records import TERMINAL, RecordState
from kclient_quota.wire.error_codes import ErrorCode

ACQUIRED, AVAILABLE = RecordState.ACQUIRED, RecordState.AVAILABLE
AFTERWARDS = {GAP: RecordState.ARCHIVED, ACCEPT: RecordState.ACKNOWLEDGED, REJECT: RecordState.ARCHIVED}


@dataclass
class Record:
    state: RecordState
    count: int
    member: str = ""
    until_ms: int = 0

    def free(self, rules: ShareRules) -> None:
        self.state = RecordState.ARCHIVED if self.count >= rules.max_deliveries else AVAILABLE
        self.member = ""


class Model:
    """Every record from `start` on by its offset."""

    def __init__(self, rules: ShareRules) -> None:
        self.rules = rules
        self.start = self.end = 0
        self.records: dict[int, Record] = {}

    def take(self, member: str, first: int, last: int, delivery: int, now_ms: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.setdefault(offset, Record(AVAILABLE, 0))
            assert record.state is AVAILABLE, "nobody is given what another has, or what is settled"
            record.state, record.member, record.count = ACQUIRED, member, record.count + 1
            record.until_ms = now_ms + self.rules.lock_ms
            assert record.count == delivery <= self.rules.max_deliveries
        self.end = max(self.end, last + 1)

    def say(self, member: str, said: list[Acknowledgement], now_ms: int) -> bool:
        those = [(one, offset) for one in said if one.last >= self.start for offset in range(one.first, one.last + 1)]
        if not all(self.records.get(offset, Record(AVAILABLE, 0)).member == member for _, offset in those):
            return False
        for one, offset in those:
            kind, record = one.type_of(offset), self.records[offset]
            if kind == RENEW:
                record.until_ms = now_ms + self.rules.lock_ms
            elif kind == RELEASE:
                record.free(self.rules)
            else:
                record.state, record.member = AFTERWARDS[kind], ""
        self.settle()
        return True

    def free(self, those: list[Record]) -> None:
        for record in those:
            record.free(self.rules)
        self.settle()

    @property
    def held(self) -> list[Record]:
        return [record for record in self.records.values() if record.state is ACQUIRED]

    def settle(self) -> None:
        self.start = min((at for at, one in self.records.items() if one.state not in TERMINAL), default=self.end)
        self.records = {at: one for at, one in self.records.items() if at >= self.start}


def same(kept: SharePartition, model: Model) -> None:
    assert kept.deliveries() == {at: (one.state, one.count) for at, one in sorted(model.records.items())}
    assert (kept.start_offset, kept.next_new) == (model.start, model.end)
    free = [at for at, one in model.records.items() if one.state is AVAILABLE]
    assert kept.next_offset() == min(free, default=model.end)
    assert kept.next_deadline_ms() == min((one.until_ms for one in model.held), default=None)


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_somebodys_anybodys_or_settled(seed: int) -> None:
    random, now_ms = Random(seed), 0
    rules = ShareRules(random.choice([1, 2, 3, 5]), 1_000, random.choice([5, 20, 60]))
    kept, model = SharePartition(0), Model(rules)
    for _ in range(120):
        member, what = random.choice("abc"), random.random()
        if what < 0.4:
            begin, sizes = (
                kept.next_offset(),
                [random.choice([1, 1, 2, 5, 10]) for _ in range(random.choice([1, 3, 9]))],
            )
            fetched = [(begin + sum(sizes[:at]), begin + sum(sizes[: at + 1]) - 1) for at in range(len(sizes))]
            wanted = Wanted(random.choice([1, 3, 7, 50]), random.choice([2, 5, 500]), random.random() < 0.3)
            acquired = kept.acquire(member, fetched, wanted, rules, now_ms)
            if wanted.strict:
                assert sum(one.last - one.first + 1 for one in acquired) <= wanted.records
            for one in acquired:
                model.take(member, *one, now_ms)
            for offset in range(model.end, kept.next_new):
                model.records[offset] = Record(AVAILABLE, 0)
            model.end = kept.next_new
        elif what < 0.75:
            own = [at for at, one in model.records.items() if one.member == member][random.choice([0, 0, 1, 2]) :]
            types = [random.choice([GAP, ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]) for _ in own]
            said = [Acknowledgement(at, at, [kind]) for at, kind in zip(own, types, strict=True)]
            if random.random() < 0.2 and model.end > model.start:
                at = random.randrange(model.start, model.end)
                said = [Acknowledgement(at, min(at + random.choice([0, 1, 5]), model.end - 1), [ACCEPT])]
            error, _ = kept.acknowledge(member, said, rules, now_ms)
            assert (error == ErrorCode.NONE) == model.say(member, said, now_ms)
        elif what < 0.85:
            now_ms += random.choice([300, 1_000])
            kept.expire(rules, now_ms)
            model.free([record for record in model.held if record.until_ms <= now_ms])
        elif what < 0.93:
            kept.release(member, rules)
            model.free([record for record in model.held if record.member == member])
        else:
            kept = SharePartition.of_state(kept.state, 1)
            for record in model.held:
                record.state, record.member, record.count = AVAILABLE, "", record.count - 1
        same(kept, model)
