"""Fleets whose demand nobody could tell from their pushes: what `benchmarks.spark_truth` is asked with."""

import pytest

from benchmarks.spark_truth_fleets import fleet, pushes
from benchmarks.spark_truth_twins import LEAST, MOST, is_same, twin


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
