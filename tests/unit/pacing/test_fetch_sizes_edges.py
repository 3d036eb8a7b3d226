"""What fetches and queues are of, at and beside every bound, in numbers that were reckoned without the code."""

from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch_sizes import (
    HEADER_BYTES,
    FetchSizes,
    keeps_up,
    one_will_do,
    sizes_for,
    sizes_that_stay,
    sizes_while_learning,
    with_sizes,
)
from kclient_quota.wire import batches

LIBRDKAFKAS = FetchSizes(1_048_576, 67_108_864, by_hand=False)
LEARNING = FetchSizes(4_096, 18_432, by_hand=False)


def test_without_anything_said_sizes_are_librdkafkas_and_were_not_set_by_hand() -> None:
    assert FetchSizes() == LIBRDKAFKAS
    assert sizes_for(float("inf")) == LIBRDKAFKAS
    assert sizes_for(None) == sizes_that_stay(None) == LEARNING


def test_a_batchs_header_is_as_long_as_the_wire_has_it() -> None:
    assert HEADER_BYTES == batches.HEADER_BYTES == 61


# The configuration


def test_only_what_is_librdkafkas_own_is_not_configured() -> None:
    assert LIBRDKAFKAS.conf == {}
    for other in ((1_048_575, 67_108_864), (1_048_577, 67_108_864), (1_048_576, 67_108_863), (1_048_576, 67_108_865)):
        assert FetchSizes(*other).conf["fetch.message.max.bytes"] == other[0]
    assert FetchSizes(1_048_576, 67_108_864, by_hand=True).conf


@pytest.mark.parametrize(("fetch_bytes", "most"), [(1, 1_000), (999, 1_000), (1_000, 1_000), (1_001, 1_001)])
@pytest.mark.parametrize(
    ("queue_bytes", "kbytes", "backoff_ms"),
    [(1_024, 1, 2), (2_047, 1, 2), (2_048, 2, 2), (18_431, 17, 2), (18_432, 18, 1), (18_433, 18, 2)],
)
def test_the_configuration_in_full(fetch_bytes: int, most: int, queue_bytes: int, kbytes: int, backoff_ms: int) -> None:
    assert FetchSizes(fetch_bytes, queue_bytes).conf == {
        "fetch.message.max.bytes": fetch_bytes,
        "message.max.bytes": most,
        "fetch.max.bytes": most,
        "queued.max.messages.kbytes": kbytes,
        "fetch.queue.backoff.ms": backoff_ms,
    }


def test_only_fetches_of_one_batch_that_nobody_has_set_wait_for_no_more() -> None:
    assert FetchSizes(1, 1_024).imposed == {"fetch.min.bytes": 1}
    for other in (FetchSizes(0, 1_024), FetchSizes(2, 1_024), FetchSizes(1, 1_024, by_hand=True)):
        assert other.imposed == {}


# What can hold back, and what is alike


@pytest.mark.parametrize(
    ("queue_bytes", "byte_rate", "holds_back"),
    [
        (18_432, 0.001, True),
        (18_433, 0.001, False),
        (20_000, 1_000, True),
        (20_000, 999.9, False),
        (200_000, 10_000, True),
        (200_001, 10_000, False),
        (199_999, 10_000, True),
    ],
)
def test_a_queue_of_twenty_seconds_holds_back_and_a_small_one_always(
    queue_bytes: int, byte_rate: float, holds_back: bool
) -> None:
    assert FetchSizes(1, queue_bytes).hold_back(byte_rate) is holds_back


@pytest.mark.parametrize(
    ("mine", "wanted", "alike"),
    [
        ((4_000, 1_024), (1_000, 1_024), False),
        ((4_001, 1_024), (1_000, 1_024), False),
        ((3_999, 1_024), (1_000, 1_024), True),
        ((1_000, 1_024), (4_000, 1_024), False),
        ((1_000, 1_024), (3_999, 1_024), True),
        ((1, 73_728), (1, 1_024), False),
        ((1, 73_727), (1, 1_024), True),
        ((1, 80_000), (1, 20_000), False),
        ((1, 79_999), (1, 20_000), True),
        ((1, 20_000), (1, 30_000), True),
        ((1, 20_000), (1, 30_001), False),
        ((1, 1_024), (1, 18_432), True),
        ((1, 1_024), (1, 18_433), False),
        ((1, 12_289), (1, 18_433), True),
        ((3_999, 73_727), (1_000, 1_024), True),
    ],
)
def test_sizes_do_as_well_up_to_four_times_as_large_and_a_queue_from_two_thirds_on(
    mine: tuple[int, int], wanted: tuple[int, int], alike: bool
) -> None:
    assert FetchSizes(*mine).like(FetchSizes(*wanted)) is alike
    assert FetchSizes(*mine, by_hand=True).like(FetchSizes(*wanted))


# Sizes for a limit


@pytest.mark.parametrize(
    ("byte_rate", "round_trip_ms", "kbytes"),
    [
        (10, 0, 1),
        (204_799, 0, 1),
        (204_800, 0, 2),
        (10_239_999, 0, 99),
        (10_240_000, 0, 100),
        (1_000_000, 71.076, 99),
        (1_000_000, 71.077, 100),
        (100_000, 71.07, 9),
        (100_000, 71.08, 10),
        (1e9, 3, 13_574),
        (1e12, 3, 65_536),
    ],
)
def test_a_queue_holds_ten_milliseconds_and_one_and_three_tenths_of_a_round_trip_in_whole_kilobytes(
    byte_rate: float, round_trip_ms: float, kbytes: int
) -> None:
    assert sizes_for(byte_rate, round_trip_ms) == FetchSizes(1, kbytes * 1_024)


def test_a_round_trip_that_nobody_knows_is_three_milliseconds_and_there_is_one_partition() -> None:
    assert sizes_for(10_000_000) == FetchSizes(1, 135 * 1_024)
    assert sizes_for(10_000_000, 3, 16_384) == sizes_for(10_000_000, batch_bytes=16_384, partitions=1)


@pytest.mark.parametrize(
    ("byte_rate", "round_trip_ms", "batch_bytes", "partitions", "fetch_bytes"),
    [
        # More than fits into a round trip: sqrt(11 r (0.75 B + 60 + 37 P)), or 1.3 round trips and 10 ms.
        (1_000_000, 80, 16_384, 1, 369_100),
        (1_000_000, 80, 16_384, 7, 372_393),
        (10_000_000, 3, 16_384, 1, 1_167_197),
        (1_000_000, 1_000, 16_384, 1, 1_310_000),
        (1_000_000_000, 80, 16_384, 1, 52_428_800),
        (1_000_000_000, 0.1, 500_000, 20_000, 52_428_800),
        # One batch keeps up: 125 at least, the best at most, three quarters of a second at the very most; or one.
        (1_000_000, 0, 5_999, 1_000, 749_875),
        (1_000_000, 0, 6_000, 160, 750_000),
        (1_000_000, 0, 6_001, 160, 1),
        (1_000_001, 0, 6_000.004, 160, 750_000),
        # Fewer than 125, where framing is as much as a batch: 60 + 37 P.
        (1_000_000, 0, 6_016, 161, 750_000),
        (1_000_000, 0, 6_017, 161, 750_000),
        (1_000_000, 0, 6_018, 161, 1),
        (1_000_000, 0, 30_000, 1_000, 750_000),
        (50_000, 3, 1_100, 500, 37_500),
        (1_000_000, 0, 1_000, 1_000, 644_910),
        (1_000_000, 0, 1_000, 3_000, 750_000),
        (1_000_000, 0, 6_000, 1, 1),
    ],
)
def test_what_a_fetch_asks_for(
    byte_rate: float, round_trip_ms: float, batch_bytes: float, partitions: int, fetch_bytes: int
) -> None:
    assert sizes_for(byte_rate, round_trip_ms, batch_bytes, partitions=partitions).fetch_bytes == fetch_bytes


@pytest.mark.parametrize(
    ("byte_rate", "round_trip_ms", "batch_bytes", "does"),
    [
        (10_000, 100, 1_100, True),
        (10_000, 100, 1_099, False),
        (10_001, 100, 1_100, False),
        (20_000, 100, 2_200, True),
        (20_000, 100, 2_199.9, False),
    ],
)
def test_one_batch_in_a_round_trip_keeps_up_with_ten_elevenths_of_it(
    byte_rate: float, round_trip_ms: float, batch_bytes: float, does: bool
) -> None:
    assert keeps_up(byte_rate, round_trip_ms, batch_bytes) is does
    assert one_will_do(byte_rate, round_trip_ms, batch_bytes, partitions=1, many_bytes=1) is does


@pytest.mark.parametrize(
    ("byte_rate", "batch_bytes", "partitions", "from_bytes", "to_bytes"),
    [
        # Many lose less, with H = 60 + 37 P, between the roots of
        # (0.75 B + H) / (M + H) + M / 11r = H / (B + H) + B / 11r
        (1_000_000, 1_000, 1, 9_567.08, 963_988.61),
        (100_000, 300, 1, 1_225.43, 267_743.31),
        (1_000_000, 200, 40, 369.51, 9_733_922.67),
        (4_000_000, 4_096, 10, 36_720.52, 4_147_237.13),
    ],
)
def test_one_batch_is_better_than_few_that_are_cut_or_so_many_that_they_come_in_lumps(
    byte_rate: float, batch_bytes: float, partitions: int, from_bytes: float, to_bytes: float
) -> None:
    for many_bytes, will_do in (
        (1, True),
        (from_bytes - 1, True),
        (from_bytes + 1, False),
        (to_bytes - 1, False),
        (to_bytes + 1, True),
    ):
        assert one_will_do(byte_rate, 0, batch_bytes, partitions=partitions, many_bytes=many_bytes) is will_do


def test_where_one_loses_as_much_as_many_it_is_one() -> None:
    assert one_will_do(1_000, 0, 0, partitions=1, many_bytes=0)


@pytest.mark.parametrize(
    ("byte_rate", "fetch_bytes", "kbytes"),
    [
        (10, 1_000, 1),
        (10_000, 1_000, 1),
        (10_009, 1_000, 1),
        (10_010, 1_001, 1),
        (81_910, 8_191, 1),
        (81_920, 8_192, 1),
        (1_000_000, 8_192, 13),
        (10_000_000, 1_167_197, 135),
    ],
)
def test_sizes_that_stay_are_for_half_a_usual_batch_or_a_tenth_of_a_second(
    byte_rate: float, fetch_bytes: int, kbytes: int
) -> None:
    assert sizes_that_stay(byte_rate) == FetchSizes(fetch_bytes, kbytes * 1_024)


@pytest.mark.parametrize(
    ("byte_rate", "fetch_bytes", "queue_bytes"),
    [
        (0, 4_096, 18_432),
        (819_199, 4_096, 18_432),
        (819_200, 16_384, 18_432),
        (3_276_799, 16_384, 18_432),
        (3_276_800, 65_536, 65_536),
        (13_107_200, 262_144, 262_144),
        (52_428_799, 262_144, 262_144),
        (52_428_800, 1_048_576, 4_194_304),
    ],
)
def test_who_learns_fetches_four_times_as_much_at_each_step_of_what_twenty_milliseconds_bring(
    byte_rate: float, fetch_bytes: int, queue_bytes: int
) -> None:
    assert sizes_while_learning(byte_rate) == FetchSizes(fetch_bytes, queue_bytes)


# Beside what the user has set

FETCHES = ("fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes")


@pytest.mark.parametrize(
    ("conf", "byte_rate", "learn", "sizes"),
    [
        ({}, None, False, LIBRDKAFKAS),
        ({}, None, True, LEARNING),
        ({}, 1_000_000, False, FetchSizes(1, 13_312)),
        ({}, 1_000_000, True, FetchSizes(1, 13_312)),
        ({"fetch.message.max.bytes": 7_000}, None, False, FetchSizes(7_000, 67_108_864, by_hand=True)),
        ({"max.partition.fetch.bytes": "7000"}, None, False, FetchSizes(7_000, 67_108_864, by_hand=True)),
        ({"fetch.max.bytes": 7_000}, 1_000_000, False, FetchSizes(1_048_576, 13_312, by_hand=True)),
        ({"message.max.bytes": 7_000_000}, 1_000_000, False, FetchSizes(1, 13_312)),
        ({"message.max.bytes": 7_000_000}, None, True, LEARNING),
        ({"message.max.bytes": 7_000_000}, None, False, LIBRDKAFKAS),
        ({"queued.max.messages.kbytes": 3}, None, False, FetchSizes(1_048_576, 3_072, by_hand=True)),
        ({"queued.max.messages.kbytes": 3}, 1_000_000, False, FetchSizes(8_192, 3_072, by_hand=True)),
        ({"queued.max.messages.kbytes": 3}, None, True, FetchSizes(4_096, 3_072, by_hand=True)),
        ({"fetch.min.bytes": 7_000}, 1_000_000, False, FetchSizes(1, 13_312)),
    ],
)
def test_the_sizes_that_hold_beside_the_users(
    conf: dict[str, Any], byte_rate: float | None, learn: bool, sizes: FetchSizes
) -> None:
    _, found = with_sizes(conf, byte_rate, learn=learn)
    assert found == sizes
    assert isinstance(found.queue_bytes, int)
    if not learn:
        assert with_sizes(conf, byte_rate)[1] == sizes


@pytest.mark.parametrize("key", FETCHES)
def test_who_sets_a_fetch_keeps_all_of_them_and_gets_a_queue(key: str) -> None:
    merged, _ = with_sizes({key: 7_000, "a": 1}, 1_000_000)
    assert merged == {key: 7_000, "a": 1, "queued.max.messages.kbytes": 13, "fetch.queue.backoff.ms": 2}


def test_how_large_messages_may_be_is_no_size_of_a_fetch() -> None:
    large = {"message.max.bytes": 10_485_760}
    assert with_sizes(large, 1_000_000) == with_sizes({}, 1_000_000)
    assert with_sizes({**large, "queued.max.messages.kbytes": 3}, 1_000_000) == with_sizes(
        {"queued.max.messages.kbytes": 3}, 1_000_000
    )
    assert with_sizes(large, None)[0] == large
    assert with_sizes({**large, "fetch.max.bytes": 20_000_000}, 1_000_000)[0].items() >= large.items()


@pytest.mark.parametrize("wrong", ["x", 5, "1e6", True, 10**10])
def test_what_librdkafka_refuses_is_left_for_it_to_refuse(wrong: Any) -> None:
    assert with_sizes({"message.max.bytes": wrong}, 1_000_000)[0]["message.max.bytes"] is wrong


def test_who_sets_the_queue_gets_fetches() -> None:
    merged, _ = with_sizes({"queued.max.messages.kbytes": 3}, 1_000_000)
    assert merged == {
        "queued.max.messages.kbytes": 3,
        "fetch.message.max.bytes": 8_192,
        "message.max.bytes": 8_192,
        "fetch.max.bytes": 8_192,
        "fetch.queue.backoff.ms": 2,
    }
