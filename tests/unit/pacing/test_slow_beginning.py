"""The first request's way may be long: a handshake, a topic that is being made. The broker's window begins after it."""

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from tests.unit.pacing.pacing_world import World

LATE_MS = (0, 20, 90, 150, 600, 1_500, 4_000)


@pytest.mark.parametrize(
    ("quota", "first_ms"), [*((51_200, first_ms) for first_ms in LATE_MS), (1_048_576, 90), (1_048_576, 1_500)]
)
def test_a_client_whose_first_request_comes_late_is_not_throttled(quota: int, first_ms: int) -> None:
    """The larger quota with every first way: `tests/grids/test_known_share_grid.py`."""
    first_that_is_late_is_not_throttled(quota, first_ms)


def first_that_is_late_is_not_throttled(quota: int, first_ms: int) -> None:
    world = World(quota, first_ms=first_ms, jitter_ms=3, message_bytes=500).run(60_000)
    assert max(world.throttles(), default=0) <= 50
    assert world.utilisation(20_000) >= 0.97


WORKED_S, PAUSES_S = (3, 20), (11.2, 12, 13, 30, 120)


@pytest.mark.parametrize("worked_s", WORKED_S)
@pytest.mark.parametrize(
    ("pause_s", "first_ms"), [(11.2, 0), (11.2, 600), (12, 150), (12, 1_500), (13, 600), (30, 1_500), (120, 150)]
)
def test_nor_is_one_that_comes_back_after_a_pause(worked_s: int, pause_s: float, first_ms: int) -> None:
    who_comes_back_is_not_throttled(worked_s, pause_s, first_ms)


def who_comes_back_is_not_throttled(worked_s: int, pause_s: float, first_ms: int) -> None:
    """And it has the quota in the fifteen seconds that follow: what it sent before the pause is forgotten."""
    back_ms = int((worked_s + pause_s) * 1_000)

    def works(_: int, at_ms: int) -> bool:
        return at_ms < worked_s * 1_000 or at_ms >= back_ms

    world = World(51_200, jitter_ms=3, message_bytes=500, demand=works).run(worked_s * 1_000 + 2_000)
    world.last_arrival, world.first_ms = [0], first_ms  # its connection was closed meanwhile
    world.run(back_ms + 60_000)
    came = [(at_ms - world.start_ms, nbytes) for at_ms, _, nbytes, _ in world.sent]
    begin_ms = min(at_ms for at_ms, _ in came if at_ms >= back_ms)
    assert max(world.throttles(), default=0) <= 20
    assert sum(nbytes for at_ms, nbytes in came if begin_ms <= at_ms < begin_ms + 15_000) >= 0.95 * 15 * world.quota


def begun(first_until_ms: int, way_ms: int) -> Pacer:
    """One that sent 100 bytes every 100 ms for three seconds, then had the answer of all, and asked once more."""
    pacer = Pacer(10_000.0)
    for now_ms in range(0, 3_000, 100):
        pacer.on_sent(100, now_ms)
    for now_ms in range(0, 3_000, 100):
        pacer.on_answer(now_ms, first_until_ms)
    pacer.on_sent(100, first_until_ms + 100)
    pacer.on_answer(first_until_ms + 100, first_until_ms + 100 + way_ms)
    return pacer


@pytest.mark.parametrize("way_ms", [0, 5, 200])
def test_the_window_begins_when_the_first_of_it_came_if_its_way_was_longer_than_usual(way_ms: int) -> None:
    arrived_ms = 4_000 - way_ms
    pacer = begun(4_000, way_ms)
    assert pacer.measured_rate(arrived_ms + 10_999) == pytest.approx(3_100 / 10.999)
    assert pacer.measured_rate(arrived_ms + 11_000) == pytest.approx(100 / 10.0, rel=0.2)


def test_a_way_as_long_as_usual_changes_nothing() -> None:
    assert begun(3_000, 3_000).measured_rate(10_500) == pytest.approx(3_100 / 10.5)


def test_less_than_a_request_s_time_more_than_usual_changes_nothing() -> None:
    assert begun(3_000, 2_901).measured_rate(10_500) == pytest.approx(3_100 / 10.5)
    assert begun(3_000, 2_900).measured_rate(10_500) == pytest.approx(3_100 / 10.4)


def test_what_was_sent_before_a_pause_tells_nothing_of_the_way_after_it() -> None:
    pacer = Pacer(10_000.0)
    pacer.on_sent(100, 0)
    for now_ms in range(20_000, 21_000, 100):
        pacer.on_sent(100, now_ms)
    pacer.on_answer(0, 20_500)
    pacer.on_answer(20_000, 21_000)
    pacer.on_sent(100, 21_100)
    pacer.on_answer(21_100, 21_105)
    assert pacer.measured_rate(31_994) == pytest.approx(1_100 / 10.999)
    assert pacer.measured_rate(30_500) == pytest.approx(1_100 / 10.0, rel=0.06)


def test_a_window_that_holds_something_has_begun() -> None:
    pacer = Pacer(10_000.0)
    for sent_ms, answered_ms in ((0, 5), (100, 105), (6_000, 6_600), (6_700, 6_705)):
        pacer.on_sent(100, sent_ms)
        pacer.on_answer(sent_ms, answered_ms)
    assert pacer.measured_rate(10_500) == pytest.approx(400 / 10.5)


@pytest.mark.parametrize("back_ms", [2_000, 60_000, 3_600_000])
def test_a_clock_that_jumps_back_while_a_request_is_under_way_tells_nothing_of_it(back_ms: int) -> None:
    pacer = Pacer(10_000.0)
    at_ms = 4_000_000
    pacer.admit_at_ms(100, at_ms)
    pacer.on_sent(100, at_ms)
    pacer.on_answer(at_ms, at_ms + 600)
    pacer.on_sent(100, at_ms + 700)
    pacer.on_answer(at_ms + 700, at_ms + 705 - back_ms)
    pacer.admit_at_ms(100, at_ms + 800 - back_ms)
    assert pacer.measured_rate(at_ms + 1_000 - back_ms) == pytest.approx(200 / 10.0, rel=0.1)
    assert pacer.measured_rate(at_ms + 12_000 - back_ms) == 0


@pytest.mark.parametrize("late_ms", [2_000, 9_000])
def test_nor_when_the_former_time_is_reached_again(late_ms: int) -> None:
    """What the window holds an hour later began then, and not with the request that the jump left without an answer."""
    hour_ms = 3_600_000
    pacers = [Pacer(10_000.0), Pacer(10_000.0)]
    for pacer in pacers:
        pacer.admit_at_ms(100, hour_ms)
        pacer.on_sent(100, hour_ms)
        for now_ms in range(0, hour_ms + 20_000, 1_000):
            pacer.admit_at_ms(100, now_ms)
            pacer.on_sent(100, now_ms)
    asked, told = pacers
    sent_ms = hour_ms + 10_000
    told.on_answer(sent_ms, sent_ms + late_ms)
    told.on_answer(sent_ms + late_ms, sent_ms + late_ms)
    for now_ms in range(hour_ms + 20_000, hour_ms + 40_000, 500):
        assert told.measured_rate(now_ms) == asked.measured_rate(now_ms)


def test_what_seems_to_have_come_before_came_then() -> None:
    rate = SampledRate(11, 1_000)
    for now_ms in range(-60_000, -50_000, 500):
        rate.record(1_000.0, now_ms)  # is forgotten, and stays it
    for now_ms in range(0, 5_000, 500):
        rate.record(10.0, now_ms)
    rate.begin_at(3_200)
    assert sorted(rate.history(5_000)) == [(3_200, 20.0)] * 4 + [(4_000, 20.0)]
    assert rate.total(14_199) == 100.0
    assert rate.total(14_200) == 40.0
