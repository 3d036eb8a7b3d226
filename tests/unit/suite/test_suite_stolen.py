"""What others have of a machine's processors."""

import pytest

from tests.suite.stolen import Stolen, processors


def counted(*parts):
    """Readings of hundreds of ticks, of which others have had these parts."""
    total = others = 0
    yield total, others
    for part in parts:
        total += 100
        others += round(part * 100)
        yield total, others


def test_it_is_a_part_of_what_has_passed_since_the_last_call():
    readings = counted(0.0, 0.25, 1.0)
    stolen = Stolen(lambda: next(readings))
    assert [stolen.part() for _ in range(3)] == [0.0, 0.25, 1.0]


@pytest.mark.parametrize(("passed", "others", "part"), [(0, 0, 0), (49, 49, 0), (50, 50, 1)])
def test_where_nothing_is_known_or_little_time_has_passed_nothing_is_stolen(passed, others, part):
    readings = iter([(0, 0), (passed, others)])
    assert Stolen(lambda: next(readings)).part() == part


@pytest.mark.parametrize(("parts", "seconds"), [([0.5, 0.05], 1), ([0.5, 0.3, 0.06, 0.04], 3), ([0.5] * 100, 60)])
def test_it_waits_until_others_have_little_but_not_for_ever(parts, seconds):
    readings, slept = counted(*parts), []
    Stolen(lambda: next(readings), slept.append).await_calm()
    assert slept == [1.0] * seconds


def test_the_machine_s_own_numbers_grow():
    first, second = processors(), processors()
    assert 0 <= first[0] <= second[0]
    assert 0 <= first[1] <= second[1] <= second[0]
