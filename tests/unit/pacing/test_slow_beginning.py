"""The first request's way may be long: a handshake, a topic that is being made. The broker's window begins after it."""

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from tests.unit.pacing.pacing_world import World


@pytest.mark.parametrize("quota", [51_200, 1_048_576])
@pytest.mark.parametrize("first_ms", [0, 20, 90, 150, 600, 1_500, 4_000])
def test_a_client_whose_first_request_comes_late_is_not_throttled(quota: int, first_ms: int) -> None:
    world = World(quota, first_ms=first_ms, jitter_ms=3, message_bytes=500).run(60_000)
    assert max(world.throttles(), default=0) <= 50
    assert world.utilisation(20_000) >= 0.97


@pytest.mark.parametrize("first_ms", [150, 600, 1_500])
def test_nor_is_one_that_comes_back_after_a_pause(first_ms: int) -> None:
    def works(_: int, at_ms: int) -> bool:
        return at_ms < 3_000 or at_ms > 23_000

    world = World(51_200, jitter_ms=3, message_bytes=500, demand=works).run(10_000)
    world.last_arrival, world.first_ms = [0], first_ms  # its connection was closed meanwhile
    world.run(60_000)
    assert max(world.throttles(), default=0) <= 20
    assert world.utilisation(40_000) >= 0.97


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


def test_a_clock_that_jumps_meanwhile_tells_nothing_of_the_way() -> None:
    pacer = Pacer(10_000.0)
    pacer.admit_at_ms(100, 100_000)
    pacer.on_sent(100, 100_000)
    pacer.on_answer(100_000, 100_600)
    pacer.admit_at_ms(100, 50_000)
    pacer.on_sent(100, 50_000)
    pacer.on_answer(50_000, 50_005)
    assert pacer.measured_rate(50_500) == pytest.approx(200 / 10.0, rel=0.1)


def test_what_seems_to_have_come_before_came_then() -> None:
    rate = SampledRate(11, 1_000)
    for now_ms in range(0, 5_000, 500):
        rate.record(10.0, now_ms)
    rate.begin_at(3_200)
    assert sorted(rate.history(5_000)) == [(3_200, 20.0)] * 4 + [(4_000, 20.0)]
    assert rate.total(14_199) == 100.0
    assert rate.total(14_200) == 40.0
