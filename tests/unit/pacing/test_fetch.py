"""The pacer against a broker and a librdkafka of brute force, in virtual time."""

import pytest

from kclient_quota.pacing.fetching.fetch import FetchPacer
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes, sizes_for
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from tests.unit.pacing.fetch_world import Broker, Quota, World, run_together

WARM_UP_MS = 15_000
SETTLED_MS = 45_000
OPEN = FetchSizes(1_048_576, 1_048_576, by_hand=True)


def _alone(byte_rate: float, batch: int, message: int, seconds: int = 75) -> tuple[float, int, World]:
    quota = Quota(byte_rate)
    world = World([Broker(1, quota, batch, message)], byte_rate)
    start_ms = world.now_ms + WARM_UP_MS
    world.run(seconds * 1000)
    return quota.utilisation(start_ms, world.now_ms), world.longest_gap_ms(start_ms), world


def small_batches_use_it_all_and_come_evenly(byte_rate: float, batch: int, message: int) -> None:
    utilisation, gap_ms, world = _alone(byte_rate, batch, message)
    assert 0.97 <= utilisation <= 1.0
    assert gap_ms <= 500
    late = [throttle for throttle in world.brokers[0].throttles if throttle[0] > 40_000]
    assert sum(ms for _, ms in late) < 1_000


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message"),
    [(100_000, 16_000, 1_000), (20_000, 1_000, 1_000)],
)
def test_batches_that_are_small_beside_the_window_use_it_all_and_come_evenly(
    byte_rate: float, batch: int, message: int
) -> None:
    """Others, among them some of a thousand and ten thousand messages a second: `tests/grids/test_fetch_grid.py`."""
    small_batches_use_it_all_and_come_evenly(byte_rate, batch, message)


@pytest.mark.parametrize(("brokers", "batch"), [(1, 600), (3, 5_000)])
def test_batches_that_are_small_from_now_on_use_it_all_within_two_windows(brokers: int, batch: int) -> None:
    small_from_now_on_use_it_all(brokers, batch)


def small_from_now_on_use_it_all(brokers: int, batch: int) -> None:
    """They were waited for as for the large ones of before: 0.14 to 0.8 of the quota, for as long as anybody looked."""
    quotas = [Quota(40_000) for _ in range(brokers)]
    world = World([Broker(node, quota, 100_000, 500) for node, quota in enumerate(quotas)], 40_000)
    world.run(45_000)
    for broker in world.brokers:
        broker.batch = batch
    world.run(25_000)
    from_ms = world.now_ms
    world.run(45_000)
    assert min(quota.utilisation(from_ms, world.now_ms) for quota in quotas) >= 0.95
    assert sum(ms for broker in world.brokers for at_ms, ms in broker.throttles if at_ms >= from_ms) <= 2_000 * brokers


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message", "least", "gap_ms"),
    [
        (100_000, 470_000, 470_000, 0.75, 7_500),
        (100_000, 235_000, 235_000, 0.80, 4_500),
        (100_000, 150_000, 10_000, 0.80, 2_500),
    ],
)
def test_batches_that_fill_much_of_the_window_are_spaced_by_it(
    byte_rate: float, batch: int, message: int, least: float, gap_ms: int
) -> None:
    large_batches_are_spaced_by_the_window(byte_rate, batch, message, least, gap_ms)


def large_batches_are_spaced_by_the_window(
    byte_rate: float, batch: int, message: int, least: float, gap_ms: int
) -> None:
    utilisation, _, world = _alone(byte_rate, batch, message, seconds=125)
    assert least <= utilisation <= 1.0
    assert world.longest_gap_ms(SETTLED_MS) <= gap_ms
    assert len([at for at, _ in world.brokers[0].throttles if at > SETTLED_MS]) <= 2


def test_plain_greed_gets_half_which_is_what_all_this_is_for() -> None:
    """The world without a pacer behaves as measured on Apache Kafka: half the quota, in lumps."""
    quota = Quota(100_000)
    sizes = FetchSizes(1_048_576, 65_536 * 1024)
    world = World([Broker(1, quota, 16_000, 1_000)], None, sizes=sizes)
    world.run(95_000)
    assert quota.utilisation(20_000, world.now_ms) < 0.7
    assert world.longest_gap_ms(20_000) > 8_000


def test_each_broker_has_a_quota_of_its_own() -> None:
    quotas = [Quota(200_000), Quota(200_000)]
    world = World([Broker(n, quota, 16_000, 1_000) for n, quota in enumerate(quotas)], 200_000)
    world.run(75_000)
    for quota in quotas:
        assert quota.utilisation(20_000, world.now_ms) >= 0.93


def test_two_consumers_share_a_quota_fairly() -> None:
    quota = Quota(100_000)
    worlds = [World([Broker(1, quota, 4_000, 1_000)], 100_000) for _ in range(2)]
    run_together(worlds, 90_000)
    assert 0.9 <= quota.utilisation(35_000, worlds[0].now_ms) <= 1.0
    taken = [len([at for at in world.taken_at_ms if at > 35_000]) for world in worlds]
    assert min(taken) / max(taken) > 0.7


def test_a_lowered_quota_is_followed_without_a_long_throttle_and_a_raised_one_is_used() -> None:
    quota = Quota(400_000)
    world = World([Broker(1, quota, 8_000, 1_000)], 400_000)
    world.run(20_000)
    quota.byte_rate = 800_000.0
    world.pacer.set_limit(800_000)
    world.run(20_000)
    raised_at_ms = world.now_ms
    world.run(10_000)
    assert quota.utilisation(raised_at_ms, world.now_ms) >= 0.95
    quota.byte_rate = 200_000.0
    world.pacer.set_limit(200_000)
    # What was allowed before has the broker mute it for 34 seconds.
    world.run(40_000)
    settled_at_ms = world.now_ms
    world.run(30_000)
    assert quota.utilisation(settled_at_ms, world.now_ms) >= 0.95


def test_a_quota_that_nobody_told_is_learnt_from_throttles() -> None:
    quota = Quota(1_000_000)
    world = World([Broker(1, quota, 16_000, 1_000)], None)
    world.run(40_000)
    pace = world.pacer.paces[1]
    assert pace.share.learnt is not None
    start_ms = world.now_ms
    world.run(60_000)
    assert quota.utilisation(start_ms, world.now_ms) >= 0.95
    assert world.longest_gap_ms(start_ms) <= 3_000


def test_a_quota_is_followed_with_librdkafkas_fetch_sizes_and_a_queue_set_by_hand() -> None:
    followed_with_sizes_by_hand(100_000, 0.5, 9_000)


def followed_with_sizes_by_hand(byte_rate: float, least: float, gap_ms: int) -> None:
    """Plain gets half at 100,000 B/s, and waits for 20 s; 0.87 at 400,000 B/s, and waits for 11 s."""
    quota = Quota(byte_rate)
    world = World([Broker(1, quota, 16_000, 1_000)], byte_rate, sizes=OPEN)
    start_ms = world.now_ms + SETTLED_MS
    world.run(100_000)
    assert quota.utilisation(start_ms, world.now_ms) >= least
    assert world.longest_gap_ms(start_ms) <= gap_ms


def test_nothing_is_paced_while_nothing_limits() -> None:
    pacer = FetchPacer(None, sizes_for(None), 0)
    assert not pacer.paced
    assert pacer.grant(0, {}) == (float("inf"), 0)


def test_compression_is_learnt_so_that_the_wire_is_what_is_paced() -> None:
    pacer = FetchPacer(100_000, sizes_for(100_000), 0)
    leaders = {("t", 0): 1}
    received = 0
    for tick in range(80):
        now_ms = tick * 250
        received += 2_500
        pacer.on_statistics(FetchStatistics(now_ms, 0, 0, {1: (received, tick)}, leaders))
        pacer.grant(now_ms, {1: 10_000})
    # Four bytes of messages for one on the wire: a grant of 100 ms is four times as many bytes as uncompressed.
    granted, _ = pacer.grant(20_250, {})
    assert granted == pytest.approx(4 * 98_000 * 0.1, rel=0.1)


def test_what_is_taken_while_nothing_is_paced_teaches_nothing_about_the_wire() -> None:
    """Nobody tells of it, so that nothing seems to come of what was received."""
    pacer = FetchPacer(None, sizes_for(None), 0)
    leaders = {("t", 0): 1}
    for tick in range(1, 20):
        pacer.on_statistics(FetchStatistics(tick * 250, 0, 0, {1: (tick * 1_000_000, tick)}, leaders))
    pacer.set_limit(100_000)
    for tick in range(20, 24):
        pacer.on_statistics(FetchStatistics(tick * 250, 0, 0, {1: (tick * 1_000_000, tick)}, leaders))
        pacer.grant(tick * 250, {1: 1_000_000})
    assert pacer.message_bytes == pytest.approx(10, rel=0.01)


def test_a_clock_that_jumps_back_neither_blocks_nor_bursts() -> None:
    pacer = FetchPacer(100_000, sizes_for(100_000), 1_000_000)
    granted, wait_ms = pacer.grant(1_000_000, {})
    assert granted > 0
    for _ in range(5):
        granted, wait_ms = pacer.grant(10_000, {-1: 1_000})
    assert wait_ms <= 100
    total = granted = 0.0
    for now_ms in range(10_050, 15_050, 50):
        granted, wait_ms = pacer.grant(now_ms, {-1: int(granted)})
        total += granted
    assert 450_000 <= total <= 510_000


def test_a_throttle_of_an_unknown_broker_is_nobodys() -> None:
    pacer = FetchPacer(100_000, sizes_for(100_000), 0)
    pacer.on_statistics(FetchStatistics(0, 0, 0, {1: (0, 0)}, {("t", 0): 1}))
    pacer.on_throttle(7, 1_000, 100)
    assert pacer.paces[1].throttled_until_ms == 0


def _refused(pacer: FetchPacer, throttle_ms: int, queued: int, now_ms: int) -> None:
    """Two fetches were answered, one is refused: librdkafka's queue holds `queued` bytes."""
    leaders = {("t", 0): 1}
    pacer.on_statistics(FetchStatistics(now_ms - 500, 0, 0, {1: (0, 0)}, leaders))
    pacer.on_statistics(FetchStatistics(now_ms - 250, queued, queued // 1_000, {1: (40_000, 2)}, leaders))
    pacer.on_throttle(1, throttle_ms, now_ms)


def test_while_a_fetch_is_refused_the_queue_is_not_emptied_for_a_second_one() -> None:
    pacer = FetchPacer(None, sizes_for(None), 0)
    _refused(pacer, 4_000, 20_000, 1_000)
    assert pacer.grant(1_000, {}) == (0.0, 4_000)
    assert pacer.grant(4_000, {}) == (0.0, 1_000)
    # By then it may have been answered, which only a poll can tell.
    granted, wait_ms = pacer.grant(5_000, {})
    assert (granted > 0, wait_ms) == (True, 0)


def test_what_the_queue_holds_beyond_the_next_fetch_is_taken_while_one_is_refused() -> None:
    pacer = FetchPacer(None, sizes_for(None), 0)
    _refused(pacer, 4_000, 60_000, 1_000)
    granted, wait_ms = pacer.grant(2_000, {})
    assert (granted > 0, wait_ms) == (True, 0)


def test_a_refusal_for_hours_holds_back_for_no_more_than_a_window() -> None:
    pacer = FetchPacer(None, sizes_for(None), 0)
    _refused(pacer, 3_600_000, 20_000, 1_000)
    assert pacer.grant(1_000, {}) == (0.0, 10_000)
    granted, wait_ms = pacer.grant(11_000, {})
    assert (granted > 0, wait_ms) == (True, 0)


def test_one_broker_that_refuses_does_not_hold_back_what_another_one_brings() -> None:
    pacer = FetchPacer(None, sizes_for(None), 0)
    leaders = {("t", 0): 1, ("t", 1): 2}
    pacer.on_statistics(FetchStatistics(500, 0, 0, {1: (0, 0), 2: (0, 0)}, leaders))
    pacer.on_statistics(FetchStatistics(750, 20_000, 20, {1: (20_000, 1), 2: (20_000, 1)}, leaders))
    pacer.on_throttle(1, 4_000, 1_000)
    granted, wait_ms = pacer.grant(2_000, {})
    assert granted > 10
    assert wait_ms == 0
