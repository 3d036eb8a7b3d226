"""Applications that read for a moment and then work, beside a broker in virtual time: they have their quota."""

from typing import Any

import pytest

from tests.unit.pacing.fetch_world import Broker, Quota, World, run_together


class Working(World):
    """One whose application works for so long after each turn to read."""

    def __init__(self, brokers: list[Broker], limit: float, reads_ms: int, works_ms: int, **rest: Any) -> None:
        super().__init__(brokers, limit, **rest)
        self.reads_ms, self.round_ms = reads_ms, reads_ms + works_ms

    def _take(self) -> None:
        into_ms = self.now_ms % self.round_ms
        if into_ms < self.reads_ms:
            super()._take()
        else:
            self._wait_until_ms = max(self._wait_until_ms, self.now_ms + self.round_ms - into_ms)


def used(limit: float, batch: int, reads_ms: int, works_ms: int) -> float:
    quota = Quota(limit)
    world = Working([Broker(1, quota, batch, 1_000)], limit, reads_ms, works_ms)
    world.run(80_000)
    return quota.utilisation(20_000, 80_000)


@pytest.mark.parametrize(
    ("limit", "batch", "reads_ms", "works_ms"),
    [(20_000.0, 16_000, 300, 1_750), (100_000.0, 100_000, 50, 1_750)],
)
def test_who_works_between_turns_has_the_quota_where_a_batch_fills_much_of_the_window(
    limit: float, batch: int, reads_ms: int, works_ms: int
) -> None:
    """It had one batch in each turn, whatever the window had room for: 0.4 and 0.28 of the quota."""
    assert used(limit, batch, reads_ms, works_ms) > 0.7


def test_strangers_are_met_by_who_works_between_turns_too() -> None:
    quota = Quota(20_000.0)
    works = Working([Broker(1, quota, 16_000, 1_000)], 20_000.0, 300, 1_750)
    steady = World([Broker(1, quota, 16_000, 1_000)], 20_000.0, start_ms=5_700)
    run_together([works, steady], 80_000)
    assert not any(pace.share.is_alone(works.now_ms) for pace in works.pacer.paces.values())
