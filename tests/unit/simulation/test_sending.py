"""What a quota is worth in virtual time: some cells of the table, light use, and what `quota.max.delay.ms` does.

`make grids` plays all cells: those of the table and of weighted lanes in `tests/grids/test_quota_worth.py`, the others
by the functions that are used here in `tests/grids/test_sending_grid.py`.
"""

import random
from functools import cache

import pytest

from benchmarks.quota_worth import play
from kclient_quota.pacing.sending.lanes import Lane
from kclient_quota.simulation.batching import Batching, aged, ideal
from kclient_quota.simulation.model import Network
from kclient_quota.simulation.sending import Cell, SendingWorld, Source, quantile

QUOTA = 51_200.0


@pytest.mark.parametrize(
    "cell",
    [
        ("orders", "zstd", 12),
        ("orders", "none", 0),
        ("noise", "zstd", 1),
        ("documents", "none", 100),
    ],
    ids=str,
)
def test_nearly_all_that_a_quota_is_worth_arrives_in_time(cell):
    nearly_all_arrives_in_time(cell)


def nearly_all_arrives_in_time(cell):
    row = play((*cell, QUOTA), seconds=60)
    assert row.ratio >= 0.95
    assert row.p99_ms <= 1_200
    assert row.longest_throttle_ms <= 100


@cache
def twelve_partitions():
    return play(("orders", "zstd", 12, QUOTA))


def test_known_anchors():
    assert twelve_partitions().ours >= 910
    # a message more or less is 0.0007 of the quota here
    noise = [play(("noise", "none", 3, QUOTA), seed=seed).ours * 1_000 for seed in range(1, 5)]
    assert sum(noise) / len(noise) >= 0.94 * QUOTA


def test_popular_partitions_cost_the_others_nothing():
    popular_partitions_cost_nothing(100)


def popular_partitions_cost_nothing(partitions):
    batching = Batching("readings", "lz4")
    sent = SendingWorld(Cell(batching, partitions, QUOTA, seconds=45, keys=5 * partitions), random.Random(1)).run()
    assert sent.messages_per_s >= 0.98 * ideal(batching, QUOTA, partitions, 1_000).messages_per_s
    assert sent.latency_ms() <= 1_300


@pytest.mark.parametrize(
    ("data", "codec", "partitions", "quota"),
    [
        ("readings", "lz4", 100, QUOTA),
        ("documents", "none", 12, 1_048_576.0),
        ("documents", "none", 12, 20e6),
    ],
)
def test_five_requests_on_their_way_are_enough_however_far_the_broker_is(data, codec, partitions, quota):
    five_on_their_way_are_enough(data, codec, partitions, quota)


def five_on_their_way_are_enough(data, codec, partitions, quota):
    network = Network(round_trip_ms=80, linger_ms=10)
    cell = Cell(Batching(data, codec), partitions, quota, seconds=20, warm_up_s=8, network=network)
    sent = SendingWorld(cell, random.Random(1)).run()
    assert sent.wire_bytes / quota / sent.seconds >= 0.95


def test_a_message_waits_for_the_delay_allowed_or_two_rounds_of_all_partitions():
    """Five requests are on their way, one partition in each: a round takes a fifth of the way and linger for each."""
    waits_for_two_rounds(100, 300, 2 * 6_200, seeds=2)


def waits_for_two_rounds(partitions, round_trip_ms, most_ms, seeds):
    network = Network(round_trip_ms=round_trip_ms, linger_ms=10)
    cell = Cell(Batching("orders", "zstd"), partitions, QUOTA, seconds=60, network=network)
    plays = [SendingWorld(cell, random.Random(seed)).run() for seed in range(1, seeds + 1)]
    assert max(sent.latency_ms() for sent in plays) <= most_ms
    # which partitions are first in a round differs, and with it what is left of one where the play ends
    assert sum(sent.wire_bytes / QUOTA / sent.seconds for sent in plays) / len(plays) >= 0.95


@pytest.mark.parametrize(("data", "codec", "partitions"), [("orders", "zstd", 1), ("noise", "none", 3)])
def test_one_client_alone_uses_the_quota_less_the_price_of_its_lumps(data, codec, partitions):
    alone_it_uses_all_but_the_price_of_lumps(data, codec, partitions)


def alone_it_uses_all_but_the_price_of_lumps(data, codec, partitions):
    cell = Cell(Batching(data, codec), partitions, QUOTA)
    world = SendingWorld(cell, random.Random(1))
    sent = world.run()
    lump_s = max(size for at_ms, size in sent.records if at_ms >= 15_000) / QUOTA
    lump_s = max(lump_s, 0.1)  # several small batches make one lump
    assert sent.wire_bytes / QUOTA / sent.seconds >= 0.995 * (1 - lump_s / 11) - 0.002


def waits_no_longer_for_compression(codec, partitions):
    """Names of topic and client.id as long as they usually are; statistics come while batches are on their way."""
    packed, plain = (play(("noise", each, partitions, QUOTA), names_bytes=66) for each in (codec, "none"))
    assert packed.p99_ms <= 1.15 * plain.p99_ms
    assert packed.ours >= 0.99 * plain.ours


def test_who_compresses_what_does_not_compress_waits_no_longer_for_that():
    waits_no_longer_for_compression("zstd", 0)


@pytest.mark.parametrize(("codec", "partitions"), [("zstd", 3), ("none", 100)])
def test_messages_that_do_not_compress_wait_for_three_tenths_of_a_second_at_most(codec, partitions):
    noise_waits_for_three_tenths(codec, partitions)


def noise_waits_for_three_tenths(codec, partitions):
    row = play(("noise", codec, partitions, QUOTA), seconds=45)
    assert row.p99_ms <= 300
    assert row.ratio >= 0.95


def test_small_max_delay_gives_short_waits():
    row = play(("orders", "zstd", 12, QUOTA), max_delay_ms=100)
    assert row.p99_ms <= 250
    assert row.ours < twelve_partitions().ours


def nothing_waits_below_four_fifths(data, codec, partitions):
    """At nearly four fifths of what messages alone in their batches need, p99 is linger, the way and 20 ms."""
    batching = Batching(data, codec)
    demand = 0.79 * QUOTA / batching.request_bytes(1)
    cell = Cell(batching, partitions, QUOTA, sources=(Source(lambda _: demand),), seconds=45)
    sent = SendingWorld(cell, random.Random(1)).run()
    assert sent.latency_ms() <= 5 + 4 + 20
    assert sent.wait_ms() <= 2  # the application wakes up so late
    assert not sent.throttles


@pytest.mark.parametrize(("data", "codec", "partitions"), [("orders", "zstd", 12), ("noise", "none", 100)])
def test_below_four_fifths_of_the_quota_nothing_waits(data, codec, partitions):
    nothing_waits_below_four_fifths(data, codec, partitions)


def test_ideal_is_bounded_by_what_arrives_for_a_partition():
    batching = Batching("orders", "zstd")
    few, many = (ideal(batching, QUOTA, partitions, 1_000) for partitions in (1, 100))
    assert few.messages_per_s > many.messages_per_s
    assert many.batch * 100 <= many.messages_per_s
    assert batching.request_bytes(1) < batching.request_bytes(3) < 3 * batching.request_bytes(1)
    assert batching.request_bytes(4_096) == 2 * batching.request_bytes(2_048)


def at(messages_per_s):
    return lambda _: messages_per_s


def test_older_batches_take_fewer_bytes_a_message_and_send_fewer_for_their_lumps():
    batching, ages_ms = Batching("orders", "zstd"), (300, 1_200, 3_000, 60_000)
    found = [aged(batching, QUOTA, 12, age_ms) for age_ms in ages_ms]
    sizes = [batching.request_bytes(each.batch) / each.batch for each in found]
    assert sizes == sorted(sizes, reverse=True)
    assert found[0].messages_per_s < found[2].messages_per_s > found[3].messages_per_s
    assert found[2].messages_per_s <= ideal(batching, QUOTA, 12, 3_000).messages_per_s


def strict_lane_overtakes(data, partitions):
    """Its share is two fifths of the quota; besides, there is time for one message of bulk."""
    batching = Batching(data, "none")
    alone = QUOTA / batching.request_bytes(1)
    sources = (Source(at(0.4 * alone), "alerts"), Source(at(10 * alone), "bulk"))
    lanes = (Lane("alerts", strict=True), Lane("bulk"))
    sent = SendingWorld(Cell(batching, partitions, QUOTA, sources=sources, lanes=lanes), random.Random(1)).run()
    largest_ms = 1000 / alone
    assert quantile(sent.lane_latencies_ms["alerts"], 0.99) <= 150 + largest_ms
    # Bulk takes the rest.
    assert sent.wire_bytes / QUOTA / sent.seconds >= 0.96
    assert sent.lane_bytes["bulk"] >= 0.5 * QUOTA * sent.seconds


@pytest.mark.parametrize(("data", "partitions"), [("noise", 12), ("documents", 1)])
def test_strict_lane_overtakes_ten_times_more_than_the_quota(data, partitions):
    strict_lane_overtakes(data, partitions)


def test_strict_lane_with_nearly_half_of_the_quota_waits_for_one_largest_message_of_bulk_at_most():
    strict_lane_waits_for_one_largest("orders", "noise", "zstd")


def strict_lane_waits_for_one_largest(alerts, bulk, codec):
    urgent, large = Batching(alerts, codec), Batching(bulk, codec)
    sources = (
        Source(at(0.49 * QUOTA / urgent.request_bytes(1)), "alerts", batching=urgent),
        Source(at(10 * QUOTA / large.request_bytes(1)), "bulk", batching=large),
    )
    lanes = (Lane("alerts", strict=True), Lane("bulk"))
    sent = SendingWorld(Cell(large, 12, QUOTA, sources=sources, lanes=lanes, seconds=45), random.Random(1)).run()
    assert quantile(sent.lane_latencies_ms["alerts"], 0.99) <= 150 + 1000 * large.request_bytes(1) / QUOTA
    assert len(sent.lane_latencies_ms["alerts"]) == pytest.approx(30 * 0.49 * QUOTA / urgent.request_bytes(1), rel=0.02)
    assert sent.wire_bytes / QUOTA / sent.seconds >= 0.96


@pytest.mark.parametrize(("data", "codec", "partitions"), [("orders", "none", 1), ("documents", "none", 100)])
def test_weighted_lanes_divide_bytes_on_the_wire_by_their_weights(data, codec, partitions):
    """Batches of a lane with three times the weight hold three times as much, and so take less for each message."""
    lanes = (Lane("orders", weight=3), Lane("bulk"), Lane("logs", weight=2))
    sources = tuple(Source(lane=lane.name) for lane in lanes)
    cell = Cell(Batching(data, codec), partitions, QUOTA, sources=sources, lanes=lanes, seconds=45)
    sent = SendingWorld(cell, random.Random(1)).run()
    total = sum(sent.lane_bytes.values())
    for lane in lanes:
        assert sent.lane_bytes[lane.name] / total == pytest.approx(lane.weight / 6, rel=0.05)


def test_what_one_lane_leaves_the_others_take():
    lanes = (Lane("orders", weight=9), Lane("bulk"))
    sources = (Source(at(20), "orders"), Source(lane="bulk"))
    cell = Cell(Batching("orders", "none"), 3, QUOTA, sources=sources, lanes=lanes, seconds=45)
    sent = SendingWorld(cell, random.Random(1)).run()
    assert len(sent.lane_latencies_ms["orders"]) == pytest.approx(20 * 30, rel=0.02)
    assert sent.wire_bytes / QUOTA / sent.seconds >= 0.95


def test_tenant_who_offers_a_hundred_times_more_takes_nothing_from_the_others():
    batching = Batching("orders", "none")
    fair = QUOTA / batching.request_bytes(8) * 8 / 4
    sources = (
        Source(at(100 * fair), tenant="greedy"),
        Source(at(2 * fair), tenant="busy"),
        Source(at(0.5 * fair), tenant="modest"),
        Source(at(0.1 * fair), tenant="quiet"),
    )
    sent = SendingWorld(Cell(batching, 3, QUOTA, sources=sources), random.Random(1)).run()
    messages = sent.tenant_messages
    assert messages["modest"] / sent.seconds == pytest.approx(0.5 * fair, rel=0.05)
    assert messages["quiet"] / sent.seconds == pytest.approx(0.1 * fair, rel=0.05)
    assert messages["greedy"] == pytest.approx(messages["busy"], rel=0.05)
    assert sent.wire_bytes / QUOTA / sent.seconds >= 0.96
