"""Bytes that were fetched and thrown away."""

from kclient_quota.pacing.fetch_lost import LostFetches


def statistics(**cut: int) -> dict[str, object]:
    return {"brokers": {name: {"nodeid": int(name[1:]), "rxpartial": count} for name, count in cut.items()}}


def test_what_does_not_fit_after_whole_batches_is_lost_for_each_that_was_cut_off():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=0, b2=2), 25_000, 10_000)
    assert lost.by_broker == {2: 10_000}
    lost.on_statistics(statistics(b1=1, b2=2), 27_000, 20_000)
    assert lost.by_broker == {1: 7_000, 2: 10_000}
    assert lost.total == 17_000


def test_a_fetch_of_less_than_a_batch_gets_all_of_it():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=3), 8_192, 16_384)
    assert lost.total == 0


def test_a_connection_made_anew_counts_from_zero():
    lost = LostFetches()
    lost.on_statistics(statistics(b1=5), 15, 10)
    lost.on_statistics(statistics(b1=1), 15, 10)
    assert lost.by_broker == {1: 30}


def test_what_is_forgotten_is_added_to_its_broker_and_nothing_adds_nothing():
    lost = LostFetches()
    lost.add(3, 0)
    lost.add(3, 7.4)
    assert lost.by_broker == {3: 7}
    lost.on_statistics({}, 15, 10)
    assert lost.total == 7
