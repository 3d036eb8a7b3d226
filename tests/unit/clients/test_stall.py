"""What is called a stall where others may have filled the window: only what is proven, or stays the same."""

import pytest

from kclient_quota.clients.consumer.stall import StallWatch
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.neighbours import Part
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.test_consumer_core import gate_of, statistics

WINDOW_MS = 10_000


def refused(
    watch: StallWatch, now_ms: int, throttle_ms: int, limit: float = 10_000, *, is_shared: bool = False
) -> None:
    watch.on_throttle(
        throttle_ms,
        limit=limit,
        own_bytes=0,
        window_ms=WINDOW_MS,
        least_window_ms=WINDOW_MS,
        now_ms=now_ms,
        is_shared=is_shared,
    )


def test_others_turns_are_no_batch_that_never_comes() -> None:
    """Members of a group, with batches of 233 kB under 80,000 B/s, were told to raise the quota to 96,056 B/s."""
    watch = StallWatch()
    for second in range(0, 120, 2):
        refused(watch, second * 1_000, 1_000 if second // 8 % 2 else 3_000, 80_000)
        assert watch.check(second * 1_000 + 1_900) is None
        if second % 12 == 10:
            assert not watch.on_messages()


@pytest.mark.parametrize(("is_shared", "told_ms"), [(False, 20_000), (True, 60_000)])
def test_what_others_might_have_in_the_window_is_believed_once_it_stays(told_ms: int, *, is_shared: bool) -> None:
    """120,000 B under 10,000 B/s: X = 2 s, give or take half a second as far as the window is known."""
    watch = StallWatch()
    for now_ms in range(0, told_ms, 2_000):
        refused(watch, now_ms, 2_500 if now_ms % 4_000 else 1_500, is_shared=is_shared)
        assert watch.check(now_ms) is None
    assert watch.check(told_ms - 1) is None
    stall = watch.check(told_ms)
    assert stall is not None
    assert (stall.batch_bytes, stall.byte_rate) == (120_000, 12_600)


@pytest.mark.parametrize(("throttle_ms", "is_certain"), [(10_000, False), (10_001, True)])
def test_what_others_cannot_have_in_the_window_is_a_batch_whoever_there_is(
    throttle_ms: int, *, is_certain: bool
) -> None:
    watch = StallWatch()
    for now_ms in (0, 3_000):
        refused(watch, now_ms, throttle_ms, is_shared=True)
    assert (watch.check(3_000) is not None) == is_certain


def test_whoever_has_a_part_of_the_limit_shares_it() -> None:
    clock = ManualClock()
    gate = gate_of(clock, limit=Limit(20_000.0, None, LimitSource.CONFIG))
    gate.on_statistics(statistics(0))
    gate.core._pacer.paces[1].take(Part(10_000.0, 2), 20_000.0)
    for _ in range(10):
        gate.on_throttle("b1:9092/1", 1, 2_000)
        assert gate.state()[1].stall is None
        clock.sleep_ms(4_000)
