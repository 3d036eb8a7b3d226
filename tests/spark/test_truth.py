"""The pipeline's answers beside a fleet whose demand is known: `benchmarks.spark_truth`."""

import pytest

from benchmarks.spark_truth import check
from benchmarks.spark_truth_fleets import fleet, pushes
from benchmarks.spark_truth_twins import LEAST, MOST, is_same, nearest, twin


def answers_are_those_of_the_script(spark, folder, kind, interval_s):
    found = check(spark, folder, interval_s, kind)
    assert found.total < 0.01
    assert found.within > 0.9
    assert min(found.quotas) >= 1
    assert found.of_twins >= 1
    for each in (found.small, found.asked):  # whatever it is that clients with these pushes did
        assert each.lowest <= min(each.twins)
        assert max(each.twins) <= each.highest
    # those whose clients burst, on two brokers: both users of the one fleet, one of the other
    assert found.small.untold == (0 if interval_s == 20 else {"bursty": 4, "mixed": 2}[kind])
    if kind == "bursty":  # pushes say nearly nothing of when their bytes came: no estimate can be near; this is told
        assert nearest(found.small.twins) > 0.5
    else:
        assert found.worst_total < 0.02
        assert found.small.told == pytest.approx(found.small.script, rel=0.1)


@pytest.mark.timeout(420)
def test_the_answers_are_those_of_the_script(spark, tmp_path):
    """Wrong clocks, groups, several to a quota, restarts, pushes that are lost or late."""
    answers_are_those_of_the_script(spark, tmp_path, "mixed", 20)


@pytest.mark.parametrize("kind", ["bursty", "mixed"])
def test_fleets_that_do_something_else_push_the_same(kind):
    """Every five minutes; every 20 seconds, where the rates that are told are of longer, there is only one."""
    clients = fleet(kind)
    wanted = pushes(clients, 300)
    for which in (LEAST, MOST):
        other = twin(clients, which)
        assert not is_same(clients, other)
        assert pushes(other, 300) == wanted
    pushes(clients, 20)
    assert is_same(clients, twin(clients, MOST))
