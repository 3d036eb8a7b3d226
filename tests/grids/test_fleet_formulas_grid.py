"""The article's formulas, for planners, in every cell; `make test` has some of them."""

import pytest

from tests.unit.simulation.test_fleet_formulas import (
    have_the_smaller_by_clients,
    keyed_messages_get_as_much,
    one_gets_what_the_other_leaves,
    topics_divide_brokers,
    uneven_leaders_hold_back,
)


@pytest.mark.parametrize("partitions", [1, 3, 6])
@pytest.mark.parametrize("clients", [1, 2, 4])
def test_the_smaller_of_brokers_and_partitions_times_the_quota_by_clients(partitions, clients):
    have_the_smaller_by_clients(partitions, clients)


@pytest.mark.parametrize("partitions", [1, 3, 6])
def test_keyed_messages_get_as_much_where_leaders_are_even(partitions):
    keyed_messages_get_as_much(partitions)


@pytest.mark.parametrize("leaders", [(0, 0, 1), (0, 1, 2, 0), (0, 0, 0, 1, 1, 2)], ids=str)
def test_uneven_leaders_hold_keyed_messages_back(leaders):
    uneven_leaders_hold_back(leaders)


@pytest.mark.parametrize("topics", [(3, 1), (3, 2), (2, 1, 1)], ids=str)
def test_topics_that_share_brokers_divide_each_of_them(topics):
    topics_divide_brokers(topics)


def test_what_one_leaves_the_other_gets():
    one_gets_what_the_other_leaves(0.4)
