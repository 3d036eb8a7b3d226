"""What the pacer is made of: sizes, the window, the share, the stall watch."""

import random
from collections.abc import Callable, Sequence
from math import inf

import pytest

from benchmarks.law_scenes import fetched_parts
from kclient_quota.clients.consumer.stall import StallWatch
from kclient_quota.pacing.fetch_window import STEP_MS, FetchWindow
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_share import LEAST_RATE, MOST_LEAP, TARGET, FetchShare
from kclient_quota.pacing.fetching.fetch_sizes import (
    FRAME_BYTES,
    ONE_BATCH,
    OPEN,
    PARTITION_BYTES,
    FetchSizes,
    keeps_up,
    sizes_for,
    sizes_that_stay,
    sizes_while_learning,
    with_sizes,
)
from kclient_quota.pacing.known_share import KnownShare
from kclient_quota.quota.rate import SampledRate

# Sizes


@pytest.mark.parametrize(("byte_rate", "kbytes"), [(1_000_000, 13), (100_000, 1), (1_000, 1), (10, 1), (4_000_000, 54)])
def test_a_fetch_brings_one_batch_until_it_is_known_how_large_they_are_and_where_that_keeps_up(
    byte_rate: float, kbytes: int
) -> None:
    for sizes in (sizes_for(byte_rate), sizes_for(byte_rate, 3, 16_384)):
        conf = sizes.conf
        assert conf["fetch.message.max.bytes"] == ONE_BATCH
        assert conf["fetch.max.bytes"] == conf["message.max.bytes"] == 1_000  # librdkafka takes no less
        assert conf["queued.max.messages.kbytes"] == kbytes
        assert sizes == FetchSizes(ONE_BATCH, kbytes * 1024)
        assert sizes.hold_back(byte_rate)


@pytest.mark.parametrize(
    ("byte_rate", "round_trip_ms", "batch_bytes"),
    [(1_000_000, 80, 16_384), (20_000_000, 80, 16_384), (50_000_000, 20, 100_000), (1_000_000, 3, 2_000)],
)
def test_a_fetch_of_several_batches_keeps_up_and_loses_little(
    byte_rate: float, round_trip_ms: float, batch_bytes: float
) -> None:
    sizes = sizes_for(byte_rate, round_trip_ms, batch_bytes)
    assert not keeps_up(byte_rate, round_trip_ms, batch_bytes)
    assert min(sizes.fetch_bytes, sizes.queue_bytes) * 1_000 >= 1.2 * byte_rate * round_trip_ms
    cut, unused = batch_bytes / 2 / sizes.fetch_bytes, sizes.fetch_bytes / 11 / byte_rate
    assert cut + unused < 0.06
    assert cut <= unused * 1.01


def test_no_fetch_asks_for_more_than_a_broker_gives() -> None:
    assert sizes_for(1e12, 3, 1e6).fetch_bytes == 52_428_800


def played(fetch_bytes: int, batches: Sequence[int]) -> tuple[float, float]:
    """What part of the bytes sent is thrown away, and what is neither that nor framing."""
    return fetched_parts(fetch_bytes, batches, FRAME_BYTES + PARTITION_BYTES)[:2]


def batches_of(batch_bytes: int, spread: str) -> list[int]:
    chance = random.Random(1)
    size: dict[str, Callable[[], float]] = {
        "even": lambda: batch_bytes,
        "uniform": lambda: chance.uniform(0, 2 * batch_bytes),
        "exponential": lambda: chance.expovariate(1 / batch_bytes),
    }
    return [max(80, round(size[spread]())) for _ in range(4_000)]


@pytest.mark.parametrize("byte_rate", [20_000, 51_200, 1_048_576, 5_000_000])
@pytest.mark.parametrize("batch_bytes", [200, 1_000, 4_000, 16_384, 65_536, 250_000, 1_000_000])
@pytest.mark.parametrize("spread", ["even", "uniform", "exponential"])
def test_a_hundredth_at_most_is_thrown_away_where_fetches_of_one_batch_keep_up(
    byte_rate: float, batch_bytes: int, spread: str
) -> None:
    round_trip_ms = 0.8 * batch_bytes / byte_rate * 1_000
    batches = batches_of(batch_bytes, spread)
    sizes = sizes_for(byte_rate, round_trip_ms, sum(batches) / len(batches))
    lost, _ = played(sizes.fetch_bytes, batches)
    assert lost < 0.01


@pytest.mark.parametrize(
    ("byte_rate", "batch_bytes", "least"),
    [(51_200, 200, 0.98), (1_048_576, 200, 0.99), (1_048_576, 1_000, 0.99)],
)
def test_fetches_of_many_batches_where_framing_would_cost_more(
    byte_rate: float, batch_bytes: int, least: float
) -> None:
    """One by one, batches of 200 bytes would leave 0.67 for what is in them, those of 1,000 bytes 0.91."""
    sizes = sizes_for(byte_rate, 0.1, batch_bytes)
    _, used = played(sizes.fetch_bytes, batches_of(batch_bytes, "uniform"))
    assert used >= least
    assert sizes.fetch_bytes <= 0.75 * byte_rate


def test_the_more_partitions_every_response_names_the_more_batches_are_to_be_in_it() -> None:
    assert sizes_for(4_000_000, 0.1, 16_384, partitions=1).fetch_bytes == ONE_BATCH
    assert sizes_for(4_000_000, 0.1, 16_384, partitions=100).fetch_bytes > 16_384


def test_small_batches_of_many_partitions_come_together_although_the_best_fetch_would_take_too_long() -> None:
    """One by one, each of 170 bytes would come with 3,760 bytes of framing."""
    sizes = sizes_for(51_200, 0.1, 170, partitions=100)
    assert 30_000 <= sizes.fetch_bytes <= 0.75 * 51_200


def test_nothing_is_changed_where_nothing_limits() -> None:
    conf, sizes = with_sizes({"group.id": "g"}, None)
    assert conf == {"group.id": "g"}
    assert sizes == OPEN
    assert OPEN.conf == {}
    assert not sizes.hold_back(1_000_000)
    assert sizes.hold_back(100_000_000)


def test_who_must_learn_fetches_little_and_asks_for_the_next_before_the_queue_is_empty() -> None:
    conf, sizes = with_sizes({"group.id": "g"}, None, learn=True)
    assert sizes == sizes_for(None) == FetchSizes(4_096, 18 * 1_024)
    assert conf["fetch.message.max.bytes"] == conf["fetch.max.bytes"] == conf["message.max.bytes"] == 4_096
    assert (conf["queued.max.messages.kbytes"], conf["fetch.queue.backoff.ms"]) == (18, 1)
    assert sizes.hold_back(512)
    conf, sizes = with_sizes({"fetch.message.max.bytes": 500_000}, None, learn=True)
    assert "fetch.max.bytes" not in conf
    assert (sizes.fetch_bytes, sizes.by_hand) == (500_000, True)


@pytest.mark.parametrize(
    ("byte_rate", "fetch_bytes"),
    [(0, 4_096), (500_000, 4_096), (1_000_000, 16_384), (5_000_000, 65_536), (50_000_000, 262_144), (6e7, 1_048_576)],
)
def test_what_is_learnt_decides_how_much_is_fetched_in_steps(byte_rate: float, fetch_bytes: int) -> None:
    sizes = sizes_while_learning(byte_rate)
    assert sizes.fetch_bytes == fetch_bytes
    assert sizes.queue_bytes >= max(fetch_bytes, 18 * 1_024)


def test_sizes_do_as_well_as_others_that_are_not_much_larger_or_smaller() -> None:
    assert sizes_for(100_000).like(sizes_for(300_000))
    assert not sizes_for(1_000_000).like(sizes_for(1_000_000, 80))
    assert not sizes_for(20_000_000, 80).like(sizes_for(1_000_000))
    assert not sizes_for(1_000_000).like(sizes_for(1_000_000, 3, 500))
    assert not OPEN.like(sizes_for(20_000_000))
    assert sizes_for(1_000).like(sizes_for(100))
    assert FetchSizes(1, 1, by_hand=True).like(OPEN)


@pytest.mark.parametrize("key", ["fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes"])
def test_fetch_sizes_of_the_users_own_are_left_alone(key: str) -> None:
    conf, sizes = with_sizes({key: 2_000_000}, 100_000)
    assert {name: value for name, value in conf.items() if "bytes" in name and "kbytes" not in name} == {key: 2_000_000}
    assert sizes.by_hand
    assert sizes.hold_back(100_000)


def test_a_broker_does_not_wait_for_more_than_the_batch_that_a_fetch_brings() -> None:
    _, one = with_sizes({"fetch.min.bytes": 10_000}, 100_000)
    assert one.imposed == {"fetch.min.bytes": 1}
    for conf, byte_rate in (({"fetch.max.bytes": 2_000_000}, 100_000), ({}, None)):
        _, other = with_sizes({"fetch.min.bytes": 10_000, **conf}, byte_rate)
        assert other.imposed == {}
    assert sizes_for(1_000_000, 80, 500).imposed == {}


def test_a_queue_of_ours_is_filled_as_soon_as_it_has_room_whatever_suits_librdkafkas_own() -> None:
    """A second in between, librdkafka's default, left 9 % of 200 kB/s in batches of 16 kB."""
    key = "fetch.queue.backoff.ms"
    for conf in ({}, {"fetch.max.bytes": 2_000_000}):
        assert with_sizes({key: "1000", **conf}, 200_000)[0][key] == 2
        assert with_sizes({key: 1_000, **conf}, None, learn=True)[0][key] == 1
    for own in (1, 5, 10, "none"):
        assert with_sizes({key: own}, 200_000)[0][key] == own
    assert with_sizes({key: 1_000, "queued.max.messages.kbytes": 64}, 200_000)[0][key] == 1_000
    assert with_sizes({key: 1_000}, None)[0][key] == 1_000


@pytest.mark.parametrize("byte_rate", [1e11, 1e12, 2.0**63 - 1, inf])
@pytest.mark.parametrize("round_trip_ms", [0, 3, 80])
def test_a_limit_that_is_none_takes_no_more_than_librdkafkas_own_sizes(byte_rate: float, round_trip_ms: int) -> None:
    for sizes in (sizes_for(byte_rate, round_trip_ms), sizes_that_stay(byte_rate)):
        assert sizes.queue_bytes <= OPEN.queue_bytes
        assert sizes.fetch_bytes <= 52_428_800


def test_a_queue_of_the_users_own_is_left_alone() -> None:
    conf, sizes = with_sizes({"queued.max.messages.kbytes": "64"}, 1_000_000)
    assert conf["queued.max.messages.kbytes"] == "64"
    assert (sizes.queue_bytes, sizes.by_hand) == (64 * 1024, True)
    assert conf["fetch.message.max.bytes"] == 8_192


@pytest.mark.parametrize(
    ("byte_rate", "fetch_bytes"),
    [(None, 4_096), (10, 1_000), (50_000, 5_000), (100_000, 8_192), (1_000_000, 8_192)],
)
def test_sizes_that_stay_must_do_for_batches_of_any_size(byte_rate: float | None, fetch_bytes: int) -> None:
    assert sizes_that_stay(byte_rate).fetch_bytes == fetch_bytes
    assert sizes_that_stay(20_000_000).fetch_bytes > 1_000_000


def test_a_queue_that_takes_too_long_to_fill_cannot_be_followed() -> None:
    _, sizes = with_sizes({"queued.max.messages.kbytes": 4_096}, 1_000_000)
    assert sizes.hold_back(210_000)
    assert not sizes.hold_back(200_000)


def test_a_size_that_is_no_number_is_librdkafkas_to_refuse() -> None:
    conf, sizes = with_sizes({"fetch.message.max.bytes": "lots"}, 1_000_000)
    assert conf["fetch.message.max.bytes"] == "lots"
    assert sizes.fetch_bytes == 1_048_576


# Window


def test_the_window_fits_a_batch_when_kafkas_rate_would_accept_it() -> None:
    """Every answer of `fits_at_ms` against Kafka's own statistic, asked millisecond by millisecond."""
    window, kafka = FetchWindow(), SampledRate()
    now_ms = 1_000
    for _ in range(12):
        at_ms = window.fits_at_ms(470_000, 100_000, now_ms)
        earliest = next(ms for ms in range(now_ms, now_ms + 30_000) if sum_over(kafka, 470_000, ms) <= 100_000)
        assert earliest <= at_ms
        kafka.record(470_000, at_ms)
        assert kafka.measure(at_ms) <= 100_000
        window.received(470_000, at_ms)
        now_ms = at_ms + 10


def sum_over(rate: SampledRate, extra: float, at_ms: int) -> float:
    total, window_ms = rate.project(at_ms)
    return (total + extra) * 1000 / window_ms


def test_a_batch_larger_than_any_window_is_told_to_wait_until_everything_has_left() -> None:
    window = FetchWindow()
    assert window.fits_at_ms(10_000_000, 100_000, 0) == 12_000


def test_what_is_expected_counts_until_it_arrives_and_moves_when_it_is_throttled() -> None:
    window = FetchWindow()
    window.expect(500_000, 1_000)
    assert window.total(1_100) == 500_000
    assert window.received_total(1_100) == 0
    window.postpone(4_000)
    assert window.expected == (4_000, 500_000)
    assert window.arrived() == 4_000
    assert window.arrived() is None
    window.received(480_000, 4_000)
    assert window.total(4_100) == window.received_total(4_100) == 480_000
    assert window.fits_at_ms(700_000, 100_000, 4_100) >= 15_000 - STEP_MS


def test_old_events_are_forgotten_and_late_ones_are_taken_as_the_newest() -> None:
    window = FetchWindow()
    for second in range(100):
        window.received(1_000, second * 1_000)
    window.received(1_000, 50_000)
    assert window.total(99_000) == 12_000
    window.expect(0, 99_500)
    assert window.total(99_500) == 12_000


def test_windows_of_another_length() -> None:
    window = FetchWindow(samples=6, window_ms=2_000)
    assert window.least_window_ms == 10_000
    window.received(900_000, 0)
    assert window.fits_at_ms(200_000, 100_000, 0) >= 1_000


# Share


def test_a_known_limit_is_shared_by_the_producers_law_and_aimed_at_a_little_higher() -> None:
    share, theirs = FetchShare(100_000), KnownShare(100_000)
    assert share.rate == pytest.approx(100_000 * TARGET)
    for now_ms, throttle_ms in ((1_000, 500), (1_200, 500), (9_000, 15_000)):
        share.on_throttle(0, 10_000, throttle_ms, now_ms)
        theirs.on_throttle(0, 10_000, throttle_ms, now_ms)
    share.grow(60_000, busy=False)
    theirs.grow(60_000, busy=False)
    assert share.rate == pytest.approx(theirs.rate * TARGET / 0.98)
    assert share.rate < 99_000
    assert (share.ceiling, share.limit) == (100_000, 100_000)


def test_a_throttle_that_our_own_bytes_explain_takes_nothing() -> None:
    share = FetchShare(100_000)
    share.on_throttle(1_000_000, 10_000, 1_000, 0)
    assert share.rate == pytest.approx(99_000)
    share.on_throttle(900_000, 10_000, 1_000, 0)
    assert share.rate < 99_000


def test_a_share_that_was_given_up_stays_given_up_when_the_limit_changes() -> None:
    share = FetchShare(100_000)
    share.on_throttle(0, 10_000, 20_000, 0)
    given_up = share.rate
    share.set_limit(200_000)
    assert share.rate == pytest.approx(2 * given_up)
    share.set_limit(None)
    assert share.rate == share.ceiling == float("inf")
    share.set_limit(50_000)
    assert share.rate == pytest.approx(49_500)


def test_what_a_lowered_limit_took_before_it_was_known_is_given_back() -> None:
    share = FetchShare(100_000)
    share.grow(1_000, busy=True)
    share.on_throttle(0, 10_000, 20_000, 2_000)
    share.grow(60_000, busy=True)
    share.set_limit(50_000)
    assert share.rate == pytest.approx(49_500)


def test_the_part_of_a_throttle_that_the_refused_fetch_explains_takes_no_more_than_the_least() -> None:
    crowd, fetch, least = FetchShare(100_000), FetchShare(100_000), FetchShare(100_000)
    crowd.on_throttle(0, 10_000, 2_000, 0)
    fetch.on_throttle(0, 10_000, 2_000, 0, refused=200_000)
    least.on_throttle(0, 10_000, 1, 0)
    assert crowd.rate < fetch.rate == least.rate


def _play(share: FetchShare, throttle_ms: int, *, from_ms: int, seconds: int, fetch: float = 20_000) -> None:
    """A fetch every half a second, each refused, or none."""
    for now_ms in range(from_ms, from_ms + seconds * 1_000, 500):
        if throttle_ms:
            share.on_throttle(share.rate * 10, 10_000, throttle_ms, now_ms, refused=fetch)
        else:
            share.on_free(now_ms)
        share.grow(now_ms, busy=True)


def test_a_learnt_share_begins_with_what_was_received_and_says_so() -> None:
    share = FetchShare(None)
    share.on_throttle(0, 10_000, 500, 0)
    assert share.rate == share.ceiling == inf
    share.on_throttle(1_200_000, 10_000, 2_000, 0, refused=20_000)
    assert share.learnt == share.rate == 100_000
    assert share.ceiling == inf
    for now_ms in range(0, 60_000, 100):
        share.grow(now_ms, busy=False)
    assert share.rate == 100_000


def test_for_the_same_throttles_everybody_aims_at_the_same_rate() -> None:
    """A fetch of 20,000 B is refused for 250 ms on average: 20,000 x PRICE / 0.25**3 = 76,800 B/s."""
    poor, rich = FetchShare(None), FetchShare(None)
    poor.on_throttle(1_200_000, 10_000, 400, 0, refused=20_000)
    rich.on_throttle(12_000_000, 10_000, 400, 0, refused=20_000)
    for share in (poor, rich):
        _play(share, 250, from_ms=100, seconds=300)
    assert poor.rate == pytest.approx(76_800, rel=0.01)
    assert rich.rate == pytest.approx(76_800, rel=0.01)
    _play(poor, 500, from_ms=300_100, seconds=300)
    assert poor.rate == pytest.approx(9_600, rel=0.01)


def test_no_throttle_makes_a_learnt_rate_less_than_the_least() -> None:
    share = FetchShare(None)
    share.on_throttle(1_200_000, 10_000, 500, 0, refused=1_000)
    for now_ms in range(0, 300_000, 500):
        share.on_throttle(1_000, 10_000, 100_000, now_ms, refused=1_000)
        share.grow(now_ms, busy=True)
    assert share.rate == LEAST_RATE


def test_while_there_are_throttles_a_rate_leaps_no_further_than_what_was_received() -> None:
    share = FetchShare(None)
    for now_ms in range(0, 60_000, 1_000):
        share.on_throttle(1_000_000, 10_000, 1, now_ms, refused=20_000)
        share.on_free(now_ms + 500)
        share.grow(now_ms + 500, busy=True)
    assert share.rate == pytest.approx(100_000 * MOST_LEAP, rel=0.01)


def test_who_fetches_so_rarely_that_nobody_refuses_him_rises_all_the_same() -> None:
    """Refused before anything had come, he learnt a rate at which the next fetch would be an hour away."""
    share = FetchShare(None)
    share.on_throttle(26, 10_000, 900, 0, refused=0.0)
    assert share.rate == LEAST_RATE
    for now_ms in range(1_000, 40_000, 500):
        share.grow(now_ms, busy=True)
    assert share.rate > 100 * LEAST_RATE


def test_a_learnt_share_that_meets_no_limit_any_more_is_none() -> None:
    share = FetchShare(None)
    share.on_throttle(1_200_000, 10_000, 2_000, 0)
    _play(share, 0, from_ms=2_000, seconds=12)
    assert 200_000 < share.rate < 2_000_000
    _play(share, 0, from_ms=14_000, seconds=60)
    assert share.rate == inf
    assert share.learnt is None


@pytest.mark.parametrize("limit", [100_000, None])
def test_a_clock_that_jumps_back_does_not_keep_a_share_from_growing(limit: float | None) -> None:
    share = FetchShare(limit)
    share.on_throttle(600_000, 10_000, 500, 1_000_000)
    share.rebase(-990_000)
    yielded = share.rate
    for now_ms in range(10_000, 30_000, 1_000):
        share.on_free(now_ms)
        share.grow(now_ms, busy=True)
    assert share.rate > yielded


# Stall


def _throttle(watch: StallWatch, now_ms: int, throttle_ms: int, limit: float | None = 20_000, own: float = 0) -> None:
    watch.on_throttle(throttle_ms, limit=limit, own_bytes=own, window_ms=10_000, least_window_ms=10_000, now_ms=now_ms)


def test_a_batch_that_can_never_come_is_named_with_the_quota_that_would_let_it() -> None:
    """470,000 B under 20,000 B/s: Kafka says X = 470,000 / 20,000 - 10 s = 13.5 s, again and again."""
    watch = StallWatch()
    _throttle(watch, 0, 13_500)
    assert watch.check(10_000) is None
    _throttle(watch, 13_500, 13_500)
    stall = watch.check(13_500)
    assert stall is not None
    assert (stall.batch_bytes, stall.byte_rate) == (470_000, 49_350)
    words = stall.words(20_000)
    assert "470,000" in words
    assert "49,350" in words
    assert "never" in words
    assert watch.check(14_000) is None


def test_one_long_throttle_is_enough_after_twenty_seconds() -> None:
    watch = StallWatch()
    _throttle(watch, 0, 60_000)
    assert watch.check(19_999) is None
    assert watch.check(20_000) is not None


def test_a_throttle_that_our_own_bytes_explain_is_no_stall() -> None:
    watch = StallWatch()
    for now_ms in range(0, 60_000, 5_000):
        _throttle(watch, now_ms, 4_000, own=150_000)
    assert watch.check(60_000) is None


def test_messages_end_a_stall() -> None:
    watch = StallWatch()
    assert not watch.on_messages()
    _throttle(watch, 0, 13_500)
    assert not watch.on_messages()
    assert watch.check(60_000) is None
    _throttle(watch, 60_000, 13_500)
    assert watch.check(90_000) is not None
    assert watch.on_messages()
    assert watch.stall is None


def test_a_stall_under_an_unknown_quota_is_told_without_numbers() -> None:
    watch = StallWatch()
    _throttle(watch, 0, 13_500, limit=None)
    _throttle(watch, 13_500, 13_500, limit=None)
    stall = watch.check(14_000)
    assert stall is not None
    assert stall.batch_bytes is None
    assert "quota x window" in stall.words(None)


# A broker that answers late


@pytest.mark.parametrize(("limit", "is_paced"), [(None, False), (1_000_000.0, True)])
def test_where_throttled_answers_bring_messages_only_a_known_limit_is_paced(
    limit: float | None, is_paced: bool
) -> None:
    """Event Hubs and Redpanda slow fetches down by themselves; Kafka answers empty, and what then comes is counted."""
    pace = BrokerPace(limit, FetchWindow(11, 1_000), 0)
    pace.on_received(0, 0, 0)
    pace.on_received(1_000_000, 1, 250)
    pace.on_throttle(500, 300)
    pace.on_received(1_000_100, 1, 500)
    assert pace.rate < inf
    pace.on_received(2_000_100, 1, 750)
    assert pace.rate < inf
    pace.on_received(3_000_100, 1, 1_000)
    assert (pace.rate < inf) is is_paced


def test_empty_answers_are_no_messages_even_if_nothing_else_has_come() -> None:
    """Who comes to a crowd is refused first, again and again: that is Kafka's own way."""
    pace = BrokerPace(None, FetchWindow(11, 1_000), 0)
    for tick in range(20):
        pace.on_received(21 * tick, 0, tick * 250)
        pace.on_throttle(1_000, tick * 250)
    assert pace.batch == 0
    pace.on_received(20_000, 1, 5_000)
    assert pace.batch == pytest.approx(20_000, rel=0.05)
    pace.on_throttle(500, 5_100)
    for tick in range(20):
        pace.on_received(20_000 + 21 * tick, 1, 5_250 + tick * 250)
    assert pace.rate < inf
