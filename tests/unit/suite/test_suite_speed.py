"""A budget of seconds is for the same work on every machine."""

import pytest

from tests.suite.speed import REFERENCE_S, Speed


@pytest.mark.parametrize(
    ("taken", "factor"),
    [([], 1), ([0.5], 1), ([1], 1), ([1.5], 1.5), ([1, 2], 1.5), ([0.5, 3.5], 2), ([40], 3)],
)
def test_a_slow_machine_has_as_much_more_and_a_quick_one_no_less(taken, factor):
    readings = iter([reading for each in taken for reading in (0.0, each * REFERENCE_S)])
    speed = Speed(lambda: next(readings))
    for _ in taken:
        speed.take()
    assert speed.factor() == pytest.approx(factor)


def test_the_work_is_a_few_milliseconds_by_the_cpu():
    speed = Speed()
    for _ in range(20):
        speed.take()
    assert 1 <= speed.factor() <= 3
