"""Bytes that were fetched and thrown away."""

from math import inf

from kclient_quota.pacing.fetching.fetch_lost import LostFetches


def statistics(**cut: int) -> dict[str, object]:
    return {"brokers": {name: {"nodeid": int(name[1:]), "rxpartial": count} for name, count in cut.items()}}


def test_three_quarters_of_a_batch_are_lost_on_average_whenever_one_was_cut_off():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=0, b2=2), 250_000, 10_000)
    assert lost.by_broker == {2: 15_000}
    lost.on_statistics(statistics(b1=1, b2=2), 250_000, 20_000)
    assert lost.by_broker == {1: 15_000, 2: 15_000}
    assert lost.total == 30_000
    lost.on_statistics(statistics(b1=2, b2=2), 250_000, inf)
    assert lost.by_broker[1] == 15_000 + 12_288


def test_a_fetch_of_less_than_a_batch_loses_half_of_itself_where_it_ends_within_the_one_after_a_small_one():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=0), 8_192, 16_384)
    assert lost.total == 0
    lost.on_statistics(statistics(b1=3), 8_192, 16_384)
    assert lost.total == 3 * 4_096


def test_a_connection_made_anew_counts_from_zero():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=5), 15, 10)
    lost.on_statistics(statistics(b1=1), 15, 10)
    assert lost.by_broker == {1: 38 + 8}


def test_a_broker_that_moves_to_another_address_goes_on_counting():
    lost = LostFetches()
    for name, cut in (("h:1/1", 4), ("h:2/1", 5)):
        coordinator = {"nodeid": 1, "source": "logical", "rxpartial": 0}
        brokers = {name: {"nodeid": 1, "source": "learned", "rxpartial": cut}, "GroupCoordinator": coordinator}
        lost.on_statistics({"brokers": brokers}, 250_000, 1_000)
    assert lost.total == 5 * 750


def test_what_is_forgotten_is_added_to_its_broker_and_nothing_adds_nothing():
    lost = LostFetches()
    lost.add(3, 0)
    lost.add(3, 7.4)
    assert lost.by_broker == {3: 7}
    lost.on_statistics({}, 15, 10)
    assert lost.total == 7
