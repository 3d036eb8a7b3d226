"""Applications that work between their turns: what they make up for, and that the broker's window has room for it."""

from kclient_quota.pacing.fetching.fetch import ONLY, FetchPacer
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import sizes_for
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
