"""poll-idle-ratio-avg, against the cases of Kafka's own test of it."""

import pytest

from kclient_quota.clients.consumer.receiving.poll_idle import PollIdle
from kclient_quota.metrics import MetricName

NAME = MetricName("poll-idle-ratio-avg", "consumer-metrics", (("client-id", "app"),))


def polled(idle: PollIdle, *polls: tuple[int, int]) -> None:
    for began_ms, ended_ms in polls:
        idle.polled(began_ms, ended_ms)


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        # 50 ms outside, none inside, after a poll of 50 ms: 0. Then 25 outside and 25 inside, as Kafka counts: 1/2.
        ([(0, 50), (100, 100)], 0.0),
        ([(0, 50), (100, 100), (125, 150)], (0.0 + 25 / 50) / 2),
        # Always in poll(): from start to start is as long as a poll.
        ([(0, 100), (100, 200), (200, 300)], 0.5),
    ],
)
def test_each_polls_part_of_its_time_and_that_since_the_last_began(
    polls: list[tuple[int, int]], expected: float
) -> None:
    idle = PollIdle()
    polled(idle, *polls)
    assert idle.metrics("app", polls[-1][1]) == {NAME: pytest.approx(expected)}


def test_the_first_poll_and_polls_that_took_no_time_say_nothing() -> None:
    idle = PollIdle()
    polled(idle, (0, 50))
    assert idle.metrics("app", 50) == {}
    idle = PollIdle()
    polled(idle, (60, 60), (60, 60))
    assert idle.metrics("app", 60) == {}


def test_it_is_a_minutes_mean() -> None:
    idle = PollIdle()
    polled(idle, (0, 10), (10, 20))
    assert idle.metrics("app", 59_000) == {NAME: 0.5}
    assert idle.metrics("app", 120_000) == {}


def test_a_clock_that_jumps_back_does_not_leave_the_range() -> None:
    idle = PollIdle()
    polled(idle, (1_000, 1_010), (500, 400), (600, 700))
    assert 0.0 <= idle.metrics("app", 700)[NAME] <= 1.0


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        ([(1_000, 1_010), (500, 400), (600, 700)], 0.5),  # what ends before the one before it began is not counted
        ([(1_000, 1_010), (990, 1_000), (990, 1_040)], 1.0),  # nor what ends when that began
        ([(100, 110), (300, 200)], 0.0),  # what ends before it begins has lasted no time
        ([(100, 110), (100, 101)], 1.0),
        ([(100, 110), (101, 101)], 0.0),
    ],
)
def test_polls_of_a_clock_that_jumps(polls: list[tuple[int, int]], expected: float) -> None:
    idle = PollIdle()
    polled(idle, *polls)
    assert idle.metrics("app", 2_000) == {NAME: expected}


def test_what_was_counted_once_is_not_counted_again() -> None:
    idle = PollIdle()
    polled(idle, (0, 10), (10, 20), (20, 20))
    idle.flush(20)
    idle.flush(20)
    polled(idle, (40, 80))
    assert idle.metrics("app", 80) == {NAME: ((0.5 + 0.0) / 2 + 40 / 60) / 2}
