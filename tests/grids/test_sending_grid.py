"""What `tests/unit/simulation/test_sending.py`, and tests beside it, have some cells of, in the others as well."""

import pytest

from benchmarks.quota_worth import play
from tests.property.test_kept_lumps import SEEDS, decisions_are_those_of_one_that_keeps_nothing
from tests.unit.clients.test_shared_pace_late import slow_ones_leave_nothing_unused
from tests.unit.pacing.test_send_queue import (
    our_own_queue_is_no_distance,
    slow_hand_overs_use_the_quota,
    slow_to_answer_is_sent_what_the_quota_allows,
)
from tests.unit.simulation.test_sending import (
    QUOTA,
    alone_it_uses_all_but_the_price_of_lumps,
    five_on_their_way_are_enough,
    nearly_all_arrives_in_time,
    noise_waits_for_three_tenths,
    nothing_waits_below_four_fifths,
    popular_partitions_cost_nothing,
    strict_lane_overtakes,
    strict_lane_waits_for_one_largest,
    waits_for_two_rounds,
    waits_no_longer_for_compression,
)
from tests.unit.simulation.test_simulation_producers import one_client_gets_the_quota


@pytest.mark.parametrize("seed", range(SEEDS, 60))
def test_decisions_are_those_of_one_that_keeps_nothing(seed):
    decisions_are_those_of_one_that_keeps_nothing(seed)


@pytest.mark.parametrize("answer_ms", [300, 600])
def test_a_broker_that_has_become_slow_to_answer_is_sent_what_the_quota_allows_all_the_same(answer_ms):
    slow_to_answer_is_sent_what_the_quota_allows(1_048_576, answer_ms)


def test_one_client_gets_a_very_large_quota_that_it_knows():
    one_client_gets_the_quota(52_428_800, told=True)


def test_popular_partitions_cost_the_others_nothing():
    popular_partitions_cost_nothing(12)


@pytest.mark.parametrize(
    "cell",
    [("orders", "zstd", 3), ("noise", "none", 3), ("documents", "zstd", 3), ("readings", "lz4", 12)],
    ids=str,
)
def test_nearly_all_that_a_quota_is_worth_arrives_in_time(cell):
    nearly_all_arrives_in_time(cell)


def test_known_anchor_of_few_partitions():
    assert play(("orders", "zstd", 3, QUOTA)).ours >= 920


def test_five_requests_on_their_way_are_enough_for_a_very_large_quota_and_any_partition():
    five_on_their_way_are_enough("documents", "none", 0, 50e6)


@pytest.mark.parametrize(("data", "codec", "partitions"), [("orders", "zstd", 3), ("noise", "none", 1)])
def test_one_client_alone_uses_the_quota_less_the_price_of_its_lumps(data, codec, partitions):
    alone_it_uses_all_but_the_price_of_lumps(data, codec, partitions)


@pytest.mark.parametrize(("codec", "partitions"), [("none", 1), ("zstd", 12)])
def test_messages_that_do_not_compress_wait_for_three_tenths_of_a_second_at_most(codec, partitions):
    noise_waits_for_three_tenths(codec, partitions)


def test_strict_lane_with_nearly_half_of_the_quota_waits_for_one_largest_message_of_bulk_at_most():
    strict_lane_waits_for_one_largest("readings", "documents", "none")


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_who_compresses_what_does_not_compress_waits_no_longer_for_that(codec, partitions):
    waits_no_longer_for_compression(codec, partitions)


@pytest.mark.parametrize("partitions", [1, 12, 100])
@pytest.mark.parametrize(("data", "codec"), [("orders", "none"), ("orders", "zstd"), ("noise", "none")])
def test_below_four_fifths_of_the_quota_nothing_waits(data, codec, partitions):
    nothing_waits_below_four_fifths(data, codec, partitions)


@pytest.mark.parametrize("partitions", [1, 12])
@pytest.mark.parametrize("data", ["orders", "noise", "documents"])
def test_strict_lane_overtakes_ten_times_more_than_the_quota(data, partitions):
    strict_lane_overtakes(data, partitions)


@pytest.mark.parametrize(
    ("partitions", "round_trip_ms", "most_ms"),
    [(12, 300, 1_500), (100, 80, 2 * 1_800), (100, 300, 2 * 6_200)],
)
def test_a_message_waits_for_the_delay_allowed_or_two_rounds_of_all_partitions(partitions, round_trip_ms, most_ms):
    waits_for_two_rounds(partitions, round_trip_ms, most_ms, seeds=4)


def test_who_is_slow_to_take_its_turn_leaves_nothing_unused():
    slow_ones_leave_nothing_unused(5, 5_242_880, 4)


def test_a_machine_that_hands_over_every_millisecond_uses_the_quota():
    slow_hand_overs_use_the_quota(1)


def test_what_queues_behind_our_own_batches_is_not_taken_for_a_distance():
    our_own_queue_is_no_distance(0.5, 5, 20)
