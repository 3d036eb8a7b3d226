"""Simulated producers: the same every time, nothing made or lost, and what is known of single clients."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation import Change, DeliveryFigures, Kind, Network, Scenario, figures, parts, simulate
from kclient_quota.simulation.outcome import BIN_MS, RECORD_WIRE_BYTES, REQUEST_WIRE_BYTES, START_MS


def play(scenario, seed=1):
    return [simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}")) for part in parts(scenario)]


def played(seed=1, **scenario):
    made = Scenario(**scenario)
    return figures(made, play(made, seed))


def test_the_same_seed_is_the_same_simulation():
    scenario = Scenario(clients=3, brokers=2, quota=51_200, told=False, seconds=40)
    assert play(scenario) == play(scenario)
    assert play(scenario) != play(scenario, seed=2)


@pytest.mark.parametrize(
    ("quota", "told"),
    [(51_200, True), (51_200, False), (1_048_576, True), (1_048_576, False), (52_428_800, False)],
)
def test_one_client_gets_the_quota(quota, told):
    """One that knows of a quota of 50 MiB/s: `tests/grids/test_sending_grid.py`."""
    one_client_gets_the_quota(quota, told)


def one_client_gets_the_quota(quota, told):
    found = played(quota=quota, told=told, seconds=90)
    assert 0.94 <= found.utilisation <= 1.01
    assert found.jain == 1.0
    if told:
        assert found.throttle_max_ms == found.first_throttle_ms == 0


@pytest.fixture
def recorded(monkeypatch):
    """Every request that a broker records: (time, bytes, throttle time), by broker."""
    rows = defaultdict(list)
    on_produce = QuotaManagers.on_produce

    def noting(self, principal, client_id, nbytes, nanos, now_ms, *, acks):
        throttle = on_produce(self, principal, client_id, nbytes, nanos, now_ms, acks=acks)
        rows[id(self)].append((now_ms - START_MS, nbytes, throttle.time_ms))
        return throttle

    monkeypatch.setattr(QuotaManagers, "on_produce", noting)
    return rows


@pytest.mark.parametrize("keyed", [True, False])
def test_what_is_counted_is_what_brokers_record(recorded, keyed):
    scenario = Scenario(brokers=2, clients=3, quota=51_200, leaders=((0, 1), (1,)), keyed=keyed, seconds=60)
    (outcome,) = play(scenario)
    rows = [row for rows in recorded.values() for row in rows]
    assert sum(map(sum, outcome.bytes_by_bin)) == sum(nbytes for _, nbytes, _ in rows)
    assert outcome.requests == len(rows)
    for second in range(60):
        here = sum(nbytes for at_ms, nbytes, _ in rows if at_ms // BIN_MS == second)
        assert sum(bins[second] for bins in outcome.bytes_by_bin) == here
    late = [throttle_ms for at_ms, _, throttle_ms in rows if at_ms >= scenario.warm_up_ms]
    noted = outcome.throttles[Kind.KNOWN]
    assert sorted(noted.counts.elements()) == sorted(late)
    assert noted.first_ms == max(throttle_ms for at_ms, _, throttle_ms in rows if at_ms < 30_000)


def test_the_longest_gap_is_of_what_brokers_record(recorded):
    scenario = Scenario(clients=1, quota=20_000, told=False, seconds=60, warm_up_ms=10_000)
    (outcome,) = play(scenario)
    (rows,) = recorded.values()
    times = [10_000, *(at_ms for at_ms, _, _ in rows if at_ms > 10_000), 60_000]
    assert outcome.longest_gap_ms == [max(later - earlier for earlier, later in pairwise(times))]


def test_plain_producers_send_a_megabyte_and_wait_for_it(recorded):
    """As confluent_kafka has been seen to on Apache Kafka 4.3.1 in 300 s: 19,664 acknowledged, 3,960 twice in the log.

    Requests of B bytes into an empty window: X = B / T - W, so 9.5 s and 28.5 s in turn; the fifth of a connection
    times out after 60 s, and the broker reads one request more from the old connection.
    """
    scenario = Scenario(clients=0, plain=1, quota=51_200, seconds=300)
    (outcome,) = play(scenario)
    found = figures(scenario, [outcome])
    (rows,) = recorded.values()
    assert {nbytes for _, nbytes, _ in rows} == {990 * 1_010 + REQUEST_WIRE_BYTES}
    assert [throttle_ms for _, _, throttle_ms in rows[:4]] == [9_532, 28_531] * 2
    assert found.delivery == DeliveryFigures(pytest.approx(1.28, abs=0.03), 4, 4 * 990, 0)
    assert sum(outcome.delivery.bytes_by_bin) == pytest.approx(19_664 * 1_000, rel=0.02)
    assert found.plain is None
    assert found.longest_gap_ms == pytest.approx(23_000, abs=1_000)


def test_an_abandoned_connection_is_read_further_where_it_waits_in_the_brokers_memory(recorded):
    """As the embedded broker does in 300 s: 16,695 acknowledged, 7,920 twice in the log."""
    network = Network(socket_bytes=8_500_000, received_bytes=5_000_000)
    scenario = Scenario(clients=0, plain=1, quota=51_200, seconds=300, network=network)
    (outcome,) = play(scenario)
    delivery = outcome.delivery
    assert (delivery.timeouts, delivery.duplicates) == (4, 8 * 990)
    assert sum(delivery.bytes_by_bin) == pytest.approx(16_695 * 1_000, rel=0.02)


def test_a_quota_that_answers_within_a_minute_makes_no_duplicates():
    found = played(clients=0, plain=1, quota=204_800, seconds=200)
    assert found.delivery == DeliveryFigures(pytest.approx(1.19, abs=0.05), 0, 0, 0)


def test_plain_messages_that_are_too_old_are_lost():
    """The queue holds 100,000 messages, of which five minutes send about fifteen thousand."""
    scenario = Scenario(clients=0, plain=1, quota=51_200, seconds=330)
    (outcome,) = play(scenario)
    assert outcome.delivery.expired == pytest.approx(80_000, rel=0.05)
    few = Scenario(clients=0, plain=1, quota=51_200, demands=(20_000.0,), seconds=400)
    (outcome,) = play(few)
    assert outcome.delivery.expired == 0
    assert sum(outcome.delivery.bytes_by_bin) == pytest.approx(400 * 20_000, rel=0.05)


@pytest.mark.parametrize("demand", [float("inf"), 70_000.0])
def test_no_plain_message_is_made_or_forgotten(recorded, demand):
    scenario = Scenario(clients=0, plain=1, quota=51_200, demands=(demand,), seconds=700)
    (outcome,) = play(scenario)
    delivery = outcome.delivery
    (rows,) = recorded.values()
    requests = sum((nbytes - REQUEST_WIRE_BYTES) // 1_010 for _, nbytes, _ in rows)
    acknowledged = sum(delivery.bytes_by_bin) // 1_000
    # The last answer may still be on its way.
    assert 0 <= requests - delivery.duplicates - acknowledged <= 990
    assert delivery.timeouts > 5


def test_plain_producers_with_less_to_send_send_that():
    found = played(clients=0, plain=2, quota=51_200, demands=(5_120.0,), message_bytes=512, seconds=60)
    assert found.utilisation == pytest.approx(2 * 5_120 * (522 + 125) / 512 / 51_200, rel=0.05)
    assert found.throttle_max_ms == 0


def test_plain_producers_beside_ours_are_told_apart():
    found = played(clients=2, plain=1, quota=51_200, seconds=90)
    assert found.plain is not None
    assert 0.5 < found.plain.used < 1
    assert found.plain.throttle_p50_ms > 1_000
    assert found.jain > 0.9


def test_a_muted_connection_is_not_read(recorded):
    play(Scenario(clients=1, quota=20_000, told=False, seconds=60))
    (rows,) = recorded.values()
    muted_until_ms = 0
    throttled = 0
    for at_ms, _, throttle_ms in rows:
        assert at_ms >= muted_until_ms
        muted_until_ms = at_ms + throttle_ms
        throttled += throttle_ms > 0
    assert throttled > 5


def test_messages_reach_the_broker_after_linger_and_half_a_round_trip(recorded):
    network = Network(round_trip_ms=100, jitter_ms=0, linger_ms=40)
    play(Scenario(quota=20_000, seconds=5, ramp_ms=1, warm_up_ms=0, network=network))
    (rows,) = recorded.values()
    assert rows[0][0] == 90


def test_who_has_less_to_send_sends_that():
    found = played(clients=4, quota=51_200, demands=(5_120.0,), message_bytes=512, seconds=90)
    one = 512 + RECORD_WIRE_BYTES + REQUEST_WIRE_BYTES  # every message is a request of its own
    assert found.utilisation == pytest.approx(4 * 10 * one / 51_200, rel=0.01)
    assert found.jain >= 0.999
    assert found.throttle_max_ms == 0


def test_unequal_presence():
    scenario = Scenario(clients=2, quota=51_200, seconds=90, changes=(Change(30_000, 1), Change(60_000, -2)))
    (outcome,) = play(scenario)
    first, second, third = outcome.bytes_by_bin
    assert sum(first[:60]) > 0
    assert sum(second[:60]) > 0
    # What was on its way still arrives.
    assert sum(first[65:]) == sum(second[65:]) == sum(third[:30]) == 0
    assert sum(third[60:]) > 0


def test_steered_messages_use_both_brokers_evenly():
    found = played(brokers=2, clients=1, quota=51_200, leaders=((0, 1),), seconds=90)
    assert found.utilisation >= 0.95


def test_keyed_messages_wait_for_their_leader():
    """Three of four messages go to broker 0, so broker 1 is used a third as much."""
    found = played(brokers=2, clients=1, quota=51_200, leaders=((0, 0, 0, 1),), keyed=True, seconds=90)
    assert found.utilisation == pytest.approx((1 + 1 / 3) / 2, rel=0.05)
