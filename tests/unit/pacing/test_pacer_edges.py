"""What a pacer must survive: huge messages, clocks that jump, throttles of half a day, limits that come and go."""

from math import inf

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.pacer import Pacer

T0 = 1_000_000
HOURS_12 = 12 * 3600 * 1000


def send_all(pacer, nbytes, count, now):
    """Send `count` messages as soon as each is admitted, and return when each went."""
    times = []
    for _ in range(count):
        at = pacer.admit_at_ms(nbytes, now)
        while at > now:
            now = at
            at = pacer.admit_at_ms(nbytes, now)
        pacer.on_sent(nbytes, now)
        times.append(now)
    return times


@pytest.mark.parametrize("nbytes", [1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000])
def test_message_of_any_size_is_admitted_and_paid_back(nbytes):
    pacer = Pacer(20_000)
    times = send_all(pacer, nbytes, 3, T0)
    assert times[0] <= T0 + 600
    # The window must forget what is more than it can hold.
    per_message = nbytes / 20_000 * 1000
    assert times[2] - times[1] >= per_message - 600
    assert times[2] - times[1] <= max(per_message * 1.1 + 600, 12_600)


def test_asking_again_and_again_does_not_move_the_time():
    pacer = Pacer(10_000)
    now = send_all(pacer, 1_000, 5, T0)[-1]
    first = pacer.admit_at_ms(1_000, now)
    assert first > now
    for later in range(now, first):
        assert pacer.admit_at_ms(1_000, later) <= first + 1
    assert pacer.admit_at_ms(1_000, first) <= first


@pytest.mark.parametrize("limit", [20_000, None])
def test_throttle_of_half_a_day(limit):
    pacer = Pacer(limit)
    now = send_all(pacer, 1_000, 5, T0)[-1]
    pacer.on_throttle(HOURS_12, now)
    assert pacer.throttled_until_ms == now + HOURS_12
    assert pacer.admit_at_ms(1, now + 1) == now + HOURS_12
    assert pacer.admit_at_ms(1, now + HOURS_12 - 1) == now + HOURS_12
    end = now + HOURS_12
    sent = send_all(pacer, 100, 3, end)
    assert sent[-1] - end <= 10_000


def test_shorter_throttle_does_not_end_a_longer_one():
    pacer = Pacer(20_000)
    pacer.admit_at_ms(1, T0)
    pacer.on_throttle(5_000, T0)
    pacer.on_throttle(100, T0 + 10)
    assert pacer.throttled_until_ms == T0 + 5_000
    assert pacer.admit_at_ms(1, T0 + 20) == T0 + 5_000


def test_throttle_of_zero_says_nothing():
    pacer = Pacer(20_000)
    pacer.admit_at_ms(1, T0)
    rate = pacer.rate()
    pacer.on_throttle(0, T0)
    assert pacer.rate() == rate
    assert pacer.throttled_until_ms <= T0
    assert pacer._share.learnt is None


@pytest.mark.parametrize("jump_ms", [-HOURS_12, -60_000, -1_500, -500, 1_500, 60_000, HOURS_12])
@pytest.mark.parametrize("limit", [20_000, None])
def test_clock_that_jumps_stops_nothing(jump_ms, limit):
    pacer = Pacer(limit)
    now = T0 + 2 * HOURS_12
    if limit is None:
        send_all(pacer, 1_000, 10, now)
        pacer.on_throttle(100, now)
    now = send_all(pacer, 1_000, 100, now)[-1] + jump_ms
    first = pacer.admit_at_ms(1_000, now)
    assert first <= now + 2_000
    rate = pacer.rate()
    times = send_all(pacer, 1_000, 100, now)
    # A clock that is a little behind is waited for.
    assert times[-1] - times[0] <= 1.2 * 100_000 / rate * 1000 + 500


def test_throttle_outlives_a_clock_that_jumps_back():
    pacer = Pacer(20_000)
    now = send_all(pacer, 1_000, 10, T0)[-1]
    pacer.on_throttle(10_000, now)
    pacer.admit_at_ms(1, now + 4_000)
    jumped = now + 4_000 - 3_600_000
    assert pacer.admit_at_ms(1, jumped) == jumped + 6_000


@pytest.mark.parametrize("limit", [20_000, None])
@pytest.mark.parametrize("throttle_ms", [100, 10_000])
@pytest.mark.parametrize("idle_ms", [0, 900])
def test_a_clock_that_jumps_back_changes_nothing_of_what_is_remembered(limit, throttle_ms, idle_ms):
    """Two lead the same life, and the clock of one jumps."""
    pacers = [Pacer(limit), Pacer(limit)]
    hour_ms = 3_600_000
    for pacer in pacers:
        now = send_all(pacer, 1_000, 60, T0)[-1]
        pacer.on_throttle(throttle_ms, now)
        now = send_all(pacer, 1_000, 30, now + 1)[-1]
        pacer.on_throttle(throttle_ms, now)
        for after_ms in range(0, idle_ms + 1, 100):
            pacer.admit_at_ms(1, now + after_ms)
    now += idle_ms + 100  # one review later
    for pacer in pacers:
        pacer.admit_at_ms(1, now)
    pacers[1].admit_at_ms(1, now - hour_ms)
    for step in range(1, 120):
        later = now + step * 100
        steady, jumped = ((pacer, later - shift) for pacer, shift in zip(pacers, (0, hour_ms), strict=True))
        waits = [pacer.admit_at_ms(1_500, at) - at for pacer, at in (steady, jumped)]
        assert max(waits[0], 0) == max(waits[1], 0), step
        assert pacers[0].rate() == pytest.approx(pacers[1].rate()), step
        assert pacers[0].throttled_until_ms - pacers[1].throttled_until_ms == hour_ms
        if waits[0] <= 0 and step % 3:
            for pacer, at in (steady, jumped):
                pacer.on_sent(1_500, at)
                pacer.on_success(1_500, at)


def test_idle_for_a_day_sends_less_than_half_a_second_at_once():
    pacer = Pacer(10_000)
    send_all(pacer, 100, 10, T0)
    now = T0 + 24 * 3600 * 1000
    times = send_all(pacer, 100, 300, now)
    at_once = sum(1 for at in times if at == now)
    assert 38 <= at_once <= 48


@pytest.mark.parametrize(("idle_ms", "least", "most"), [(11_999, 1, 15), (12_000, 30, 48)])
def test_only_who_was_not_throttled_for_a_whole_window_makes_up_for_idling_at_once(idle_ms, least, most):
    pacer = Pacer(10_000)
    now = send_all(pacer, 100, 10, T0)[-1]
    pacer.on_throttle(1, now)
    now += 1 + idle_ms
    pacer.admit_at_ms(100, now)
    now += 1_000
    at_once = sum(at == now for at in send_all(pacer, 100, 300, now))
    assert least <= at_once <= most


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_limit_must_be_above_zero(limit):
    with pytest.raises(ConfigError, match="above 0"):
        Pacer(limit)
    with pytest.raises(ConfigError, match="above 0"):
        Pacer().set_limit(limit, T0)


def test_without_a_limit_nothing_waits():
    pacer = Pacer()
    assert send_all(pacer, 100_000, 100, T0) == [T0] * 100
    assert pacer.rate() == inf
    assert pacer.request_bytes == 1_000_000
    pacer.set_limit(9.3e18, T0)
    assert pacer.limit is None
    assert send_all(pacer, 100_000, 100, T0) == [T0] * 100


def test_limit_taken_away_lets_everything_go():
    pacer = Pacer(1_000)
    now = send_all(pacer, 1_000, 5, T0)[-1]
    assert pacer.admit_at_ms(1_000, now) > now
    pacer.set_limit(None, now)
    assert send_all(pacer, 1_000, 5, now) == [now] * 5


def test_slow_start_doubles_with_every_round_trip_and_begins_again():
    pacer = Pacer()
    window = pacer.outstanding_bytes
    assert window <= 16_384
    for _ in range(4):
        pacer.on_sent(int(window), T0)
        pacer.on_success(int(window), T0)
        assert pacer.outstanding_bytes == 2 * window
        window = pacer.outstanding_bytes
    pacer.on_throttle(1_000, T0)
    assert pacer.outstanding_bytes <= pacer.rate()
    pacer.set_limit(None, T0)
    assert pacer.outstanding_bytes <= 16_384


def test_learns_its_share_from_one_throttle():
    """V bytes in W ms and a throttle of X ms: V / (W + X), which for a client alone is the quota."""
    pacer = Pacer()
    pacer.on_sent(300_000, T0)
    pacer.on_throttle(5_000, T0)
    assert pacer._share.learnt == pytest.approx(20_000)
    assert pacer.rate() == pytest.approx(20_000, rel=0.03)


def test_sizes_for_requests_and_what_is_on_its_way():
    pacer = Pacer(1_000_000)
    pacer.admit_at_ms(1, T0)
    assert pacer.request_bytes == pytest.approx(100_000, rel=0.03)
    assert pacer.outstanding_bytes == pytest.approx(500_000, rel=0.03)
    assert pacer.measured_rate(T0) == 0
    pacer.on_sent(50_000, T0)
    assert pacer.measured_rate(T0) == 5_000
    assert Pacer(50 << 20).request_bytes == 1_000_000


def test_whoever_waits_for_a_learnt_rate_looks_again_within_a_second():
    """The rate grows only while it is asked for; a huge message must not wait for what a tiny one was worth."""
    pacer = Pacer()
    pacer.on_sent(100_000, T0)
    pacer.on_throttle(HOURS_12, T0)
    now = T0 + HOURS_12
    times = []
    while len(times) < 3:
        at = pacer.admit_at_ms(100_000, now)
        assert at - now <= 1_000
        if at <= now:
            pacer.on_sent(100_000, now)
            times.append(now)
        now = max(at, now)
    assert times[-1] - times[0] < 2 * 100_000 / 512 * 1_000 / 3


@pytest.mark.parametrize("known_after_ms", [10, 500, 5_000, 10_900])
@pytest.mark.parametrize("part", [1.0, 0.4], ids=["alone", "beside strangers"])
def test_a_throttle_that_came_of_a_lowered_quota_leaves_the_share_that_it_shows(part, known_after_ms):
    """400 kB at 10 MB/s, and then 20 kB/s: the throttle is long since the quota is another, not for strangers' sake."""
    pacer = Pacer(10_000_000)
    now = send_all(pacer, 10_000, int(40 * part), T0)[-1] + 300
    pacer.on_sent(100, now)
    pacer.on_throttle(10_641, now)
    end = now + 10_641
    now += known_after_ms
    pacer.set_limit(20_000, now)
    # What is foretold is what there will be when the window has forgotten.
    assert pacer.usual_rate() >= 0.9 * part * 20_000
    if now < end:
        now = pacer.admit_at_ms(200, now)
        assert now == end
    now = send_all(pacer, 200, 1, now)[0]
    assert now <= end + 500
    assert pacer.rate() >= 0.9 * part * 20_000
    # A broker whose window has forgotten the first burst finds no more than the quota.
    send_all(pacer, 200, 1_000, now)
    assert pacer.measured_rate(now + 11_000) <= 20_000


def test_a_throttle_of_long_ago_says_nothing_of_a_quota_that_is_changed_now():
    pacer = Pacer(20_000)
    now = send_all(pacer, 1_000, 30, T0)[-1]
    pacer.on_throttle(3_000, now)
    yielded = pacer.usual_rate()
    pacer.set_limit(10_000, now + 3_000 + 10_000)
    assert pacer.usual_rate() <= yielded


def test_what_the_window_has_forgotten_is_not_paid_back() -> None:
    # Fifty seconds' worth, as when what compressed twenty to one does not any more.
    pacer = Pacer(40_000)
    pacer.admit_at_ms(1, 0)
    pacer.on_sent(2_000_000, 0)
    for now_ms in range(500, 10_000, 500):
        assert pacer.admit_at_ms(1_000, now_ms) > now_ms
    waits = [now_ms for now_ms in range(10_000, 60_000, 500) if pacer.admit_at_ms(1_000, now_ms) > now_ms]
    assert max(waits) < 14_000


@pytest.mark.parametrize("limit", [100_000, 10_000, 100])
def test_large_requests_under_a_limit_that_has_fallen_leave_a_rate_above_nothing(limit):
    pacer = Pacer(1_000_000)
    for now_ms in range(0, 10_000, 50):
        if pacer.admit_at_ms(450_000, now_ms) <= now_ms:
            pacer.on_sent(450_000, now_ms)
    pacer.set_limit(limit, 10_000)
    assert 0.9 * limit <= pacer.usual_rate() <= limit
    assert pacer.request_bytes >= 1
    assert pacer.outstanding_bytes > 0
