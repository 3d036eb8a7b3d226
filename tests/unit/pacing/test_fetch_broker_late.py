"""Applications that work between their turns: what they make up for, and that the broker's window has room for it."""

from kclient_quota.pacing.fetching.fetch import ONLY, FetchPacer
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes, sizes_for
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from tests.unit.pacing.test_fetch_broker_edges import LIMIT, learnt, pace_of


def works(pace: BrokerPace, late_ms: int = 2_000, reads_ms: int = 300, rounds: int = 8) -> list[float]:
    """What an application takes in each of its turns: whatever it may, and then it works for so long."""
    took, now_ms = [], 0
    pace._begun = True
    for number in range(rounds):
        took.append(0.0)
        for _ in range(reads_ms // 10):
            paid = 0.0
            while pace.settle(paid, now_ms) > 0.0 and not pace.uneven_ms(now_ms):
                paid = 1_000.0
                took[-1] += paid
            now_ms += 10
        pace.settle(0.0, now_ms)
        total = int(sum(took))
        pace.on_received(total, 1_000 * number, now_ms)
        now_ms += late_ms
    return took


def alone(limit: float = LIMIT) -> BrokerPace:
    pace = pace_of(limit)
    pace.on_received(0, 0, 0)
    pace.on_received(1_000, 1, 0)
    return pace


def test_an_application_that_works_between_its_turns_has_the_quota_all_the_same() -> None:
    """It had what 0.3 s are worth in each turn, and what it read for: a quarter."""
    took = works(alone())
    assert sum(took[2:]) / (2.3 * len(took[2:])) > 0.8 * LIMIT


def test_it_never_takes_more_than_the_brokers_window_has_room_for() -> None:
    for late_ms in (500, 2_000, 5_000, 9_000):
        pace = alone()
        works(pace, late_ms)
        now_ms = 8 * (late_ms + 300)
        assert pace.window.total(now_ms) <= LIMIT * pace.window.size_ms(now_ms) / 1_000 + 2_000


def test_who_shares_the_limit_or_has_met_strangers_saves_as_little_as_before() -> None:
    stranger = alone()
    stranger.share.on_throttle(0, 10_000, 50, 0, refused=1.0)
    learns, shares = learnt(LIMIT), alone()
    shares._part = 0.5
    for pace in (stranger, learns, shares):
        assert max(works(pace)[1:]) <= 0.62 * LIMIT


def test_whom_no_statistics_tell_of_batches_saves_as_little_as_before_and_goes_on() -> None:
    """What was taken was reckoned for ever to be what the window had not been told of yet, and nothing fitted."""
    pacer = FetchPacer(LIMIT, sizes_for(LIMIT), 0)
    taken = got = 0
    for now_ms in range(0, 120_000, 10):
        while now_ms % 2_300 < 300:
            granted, wait_ms = pacer.grant(now_ms, {ONLY: taken})
            taken = 0
            if wait_ms:
                break
            taken = max(1, int(granted / 1_000)) * 1_000
            got += taken
            pacer.on_messages(taken, taken // 1_000)
    assert got > 0.2 * LIMIT * 120


def test_what_was_saved_of_a_larger_limit_is_not_there_any_more() -> None:
    pace = alone(10_000_000.0)
    pace._begun = True
    pace.settle(300_000.0, 0)
    pace.settle(0.0, 20_000)
    assert pace._level > 50_000_000
    pace.set_limit(LIMIT)
    pace.settle(0.0, 20_010)
    assert pace._level <= 10 * LIMIT


def test_who_only_waits_for_messages_saves_no_more_than_before() -> None:
    pace = alone()
    pace._begun = True
    pace.settle(10.0, 0)
    for now_ms in range(100, 600, 100):
        pace.settle(0.0, now_ms)
    for now_ms in range(1_600, 20_000, 1_000):
        pace.settle(10.0, now_ms)
    assert pace._level <= 0.3 * LIMIT


def away(pace: BrokerPace, *lates_ms: int, now_ms: int = 0) -> int:
    """Its application is away for so long each time, and takes what has been saved when it is back."""
    pace._begun = True
    for late_ms in lates_ms:
        pace.settle(max(0.0, pace.settle(0.0, now_ms)), now_ms)
        now_ms += late_ms
        pace.settle(0.0, now_ms)
    return now_ms


def test_what_comes_while_the_application_works_again_and_again_is_fetched_ahead() -> None:
    """At 20 ms librdkafka's queue held one batch when it was back, and in 0.3 s no more came than 15 of them."""
    for lates_ms, ahead_ms in (
        ((2_000,), 0),
        ((2_000, 1_000), 1_000),
        ((2_000, 1_000, 3_000), 1_000),
        ((1_000, 2_000, 3_000), 2_000),
        ((9_000, 8_000), 5_000),
        ((200, 200, 200), 0),
    ):
        pace = alone()
        assert pace.ahead_bytes(away(pace, *lates_ms)) == pace.rate * ahead_ms / 1_000


def test_who_was_away_a_window_ago_has_nothing_fetched_ahead() -> None:
    pace = alone()
    now_ms = away(pace, 2_000, 2_000)
    assert pace.ahead_bytes(now_ms + 11_999) > 0.0
    assert pace.ahead_bytes(now_ms + 12_000) == 0.0
    for soon_ms in range(100, 12_001, 100):
        pace.settle(0.0, now_ms + soon_ms)
    assert pace.ahead_bytes(away(pace, 3_000, now_ms=now_ms + 12_000)) == 0.0


def test_when_the_clock_has_jumped_back_nothing_is_fetched_ahead_for_good() -> None:
    pace = alone()
    now_ms = away(pace, 2_000, 2_000, now_ms=10_000_000)
    pace.settle(0.0, now_ms - 9_000_000)
    assert pace.ahead_bytes(now_ms - 9_000_000) == 0.0


def test_of_a_limit_that_others_have_a_part_of_nothing_is_fetched_ahead() -> None:
    stranger, shares = alone(), alone()
    stranger.share.on_throttle(0, 10_000, 50, 0, refused=1.0)
    shares._part = 0.5
    for pace in (stranger, shares, learnt(LIMIT)):
        assert pace.ahead_bytes(away(pace, 2_000, 2_000)) == 0.0


def test_who_works_again_and_again_saves_whatever_was_left_of_the_last_turn() -> None:
    """When just so much was left as who waits for messages has, all that came meanwhile was gone."""
    pace = alone()
    now_ms = away(pace, 2_000, 2_000)
    pace._level = 0.2 * LIMIT
    assert pace.settle(0.0, now_ms + 2_000) > 2 * LIMIT


def test_what_comes_ahead_is_not_paid_before_it_is_taken() -> None:
    pace = alone()
    pace._seen_at_ms = pace._at_ms = away(pace, 2_000, 2_000)
    pace.pay_prefetch(5_000 + pace.ahead_bytes(pace._at_ms))
    assert pace._prefetched == 5_000 + pace.batch


def test_what_the_queue_has_room_for_must_fit_into_the_window_too() -> None:
    pace = alone()
    now_ms = away(pace, 2_000, 2_000)
    pace.window.received(8 * LIMIT, now_ms)
    assert pace.uneven_ms(now_ms, LIMIT) == 0
    assert pace.uneven_ms(now_ms, 5 * LIMIT) > 0


def test_a_throttle_that_has_waited_for_the_application_was_when_statistics_told_last() -> None:
    """Heard two seconds later, when the window had forgotten what it came of, it seemed to be strangers' doing."""
    pace = alone()
    now_ms = away(pace, 2_000, 2_000)
    pace.on_received(round(9.5 * LIMIT), 60, now_ms - 9_000)
    pace._seen_at_ms = now_ms - 1_700
    pace.on_throttle(500, now_ms, untold=2 * LIMIT)
    assert pace.throttled_until_ms == now_ms - 1_700 + 250 + 500
    assert pace.share.is_alone(now_ms)


def test_what_may_have_come_ahead_since_statistics_told_is_our_own() -> None:
    for untold, is_alone in ((0.0, False), (1.5 * LIMIT, True)):
        pace = alone()
        now_ms = away(pace, 2_000, 2_000)
        pace.on_received(8 * LIMIT, 60, now_ms)
        pace.on_throttle(300, now_ms, untold=untold)
        assert pace.share.is_alone(now_ms) == is_alone


def test_one_of_several_brokers_may_have_filled_all_that_the_queue_had_room_for() -> None:
    """Where one has all messages its own throttle was taken for strangers', as it was to have a third of them."""
    pace = alone()
    now_ms = away(pace, 2_000, 2_000)
    pace.on_received(3 * LIMIT, 60, now_ms)
    pace.on_throttle(300, now_ms, untold=6.5 * LIMIT)
    assert pace.share.is_alone(now_ms)


def test_a_turn_to_read_begins_when_the_window_has_room_for_a_queue_that_is_fetched_anew() -> None:
    pacer = FetchPacer(LIMIT, FetchSizes(1, 200_000), 0)
    (pace,) = pacer.paces.values()
    pace.on_received(1_000, 1, 0)
    now_ms = away(pace, 2_000, 2_000)
    assert pacer.is_low(0, now_ms)
    pace.window.received(8.5 * LIMIT, now_ms)
    assert not pacer.is_low(0, now_ms)


def test_a_queue_of_the_users_own_size_has_no_room_that_is_reckoned_with() -> None:
    assert FetchSizes(1, 200_000).room_bytes(50_000) == 150_000
    assert FetchSizes(1, 200_000).room_bytes(250_000) == 0
    assert FetchSizes(1, 200_000, by_hand=True).room_bytes(50_000) == 0


def test_a_throttle_is_told_with_what_the_queue_had_room_for() -> None:
    pacer = FetchPacer(LIMIT, FetchSizes(1, 200_000), 0)
    pacer.on_statistics(FetchStatistics(0, 50_000, 0, {}, {("t", 0): 1}))
    told: list[float] = []
    pacer.paces[1].on_throttle = lambda *_, untold, **__: told.append(untold)  # type: ignore[method-assign]
    pacer.on_throttle(1, 50, 0)
    assert told == [150_000]
