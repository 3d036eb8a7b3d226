"""Applications that read for a moment and then work, beside a broker in virtual time: they have their quota."""

from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from tests.unit.pacing.fetch_world import Broker, Quota, World, run_together
from tests.unit.pacing.test_fetch_broker_edges import LIMIT
from tests.unit.pacing.test_fetch_broker_late import alone, away


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


@pytest.mark.parametrize(("limit", "batch"), [(10_000.0, 99_000), (10_000.0, 100_000)])
def test_a_batch_that_fills_the_window_is_waited_for_no_longer_than_the_window(limit: float, batch: int) -> None:
    """With what had been taken since it did not fit any: nothing came any more."""
    assert used(limit, batch, 300, 1_750) > 0.7


def test_a_throttle_of_what_was_read_in_a_row_is_not_taken_for_strangers_doing() -> None:
    """A quarter of an hour long it made up for nothing any more, and had 0.31 of the quota."""
    assert used(100_000.0, 16_000, 1_000, 4_000) > 0.65


def back_from_work(own_bytes: float) -> tuple[BrokerPace, int]:
    """One that has been at work twice, with so much in a window that begins 10.7 s ago."""
    pace = alone()
    now_ms = away(pace, 5_000, 5_700)
    pace.on_received(round(own_bytes), 60, now_ms)
    return pace, now_ms


def test_the_brokers_window_may_begin_a_sample_later_than_what_was_told_of_it() -> None:
    pace, now_ms = back_from_work(9.3 * LIMIT)
    pace.on_throttle(150, now_ms)
    assert pace.share.is_alone(now_ms)


def test_what_has_been_taken_since_statistics_told_is_our_own() -> None:
    for taken, is_alone in ((2 * LIMIT, False), (4 * LIMIT, True)):
        pace, now_ms = back_from_work(6 * LIMIT)
        pace.settle(taken, now_ms)
        pace.on_throttle(150, now_ms)
        assert pace.share.is_alone(now_ms) == is_alone


def test_strangers_are_met_by_who_works_between_turns_too() -> None:
    quota = Quota(20_000.0)
    works = Working([Broker(1, quota, 16_000, 1_000)], 20_000.0, 300, 1_750)
    steady = World([Broker(1, quota, 16_000, 1_000)], 20_000.0, start_ms=5_700)
    run_together([works, steady], 80_000)
    assert not any(pace.share.is_alone(works.now_ms) for pace in works.pacer.paces.values())
