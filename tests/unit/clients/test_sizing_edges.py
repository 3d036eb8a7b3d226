"""What a consumer's fetches teach about batches, and when sizes change, just below, at and above the bounds."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota.clients.consumer.sizing import LOOKS, Sizing
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.fetching.fetch_sizes import ONE_BATCH, OPEN, FetchSizes, sizes_for, sizes_while_learning
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics

QUOTA = 200_000.0
LIMIT = Limit(QUOTA, None, LimitSource.CLUSTER)
LEARNED = Limit(None, None, LimitSource.LEARNED)
SIZES = sizes_for(QUOTA)
FRAMING = 60 + 37
"""Of a response of one partition."""
LEADERS = {("t", 0): 1}


def brokers(*shortest_us: int) -> dict[str, Any]:
    named = enumerate(shortest_us, 1)
    return {"brokers": {str(node): {"nodeid": node, "rtt": {"min": shortest}} for node, shortest in named}}


def told(rate: float, *, throttled_until_ms: int = 0) -> Any:
    """What sizing heeds of a broker's pace."""
    return SimpleNamespace(rate=rate, throttled_until_ms=throttled_until_ms, ahead_bytes=lambda _: 0.0)


class Reader:
    """Tells a consumer's sizing what came: bytes and responses of each broker since the last time."""

    def __init__(self, sizes: FetchSizes = SIZES, statistics: dict[str, Any] | None = None, now_ms: int = 0) -> None:
        self.sizing = Sizing(sizes, now_ms)
        self.statistics = statistics or {}
        self.leaders = LEADERS
        self.received: dict[int, tuple[int, int]] = {1: (0, 0)}
        self.came()

    def came(self, *, elapsed_ms: int = 250, **nodes: tuple[int, int]) -> None:
        for name, (nbytes, responses) in nodes.items():
            total, answered = self.received.get(int(name[1:]), (0, 0))
            self.received[int(name[1:])] = total + nbytes, answered + responses
        seen = FetchStatistics(0, 0, 0, dict(self.received), self.leaders)
        self.sizing.look(self.statistics, seen, elapsed_ms)

    def batches(self, count: int, batch_bytes: int) -> None:
        self.came(n1=(count * (batch_bytes + FRAMING), count))

    def other(self, limit: Limit = LIMIT, *rates: float, now_ms: int = 0) -> FetchSizes | None:
        wanted = self.sizing.other(limit, [told(rate) for rate in rates], now_ms)
        if wanted is not None:
            self.sizing.change(wanted)
        return wanted


def test_batches_are_known_after_two_looks_and_each_look_weighs_seven_eighths_at_the_next() -> None:
    reader = Reader()
    reader.batches(1, 1_000)
    assert reader.sizing.batch_bytes == inf
    reader.batches(3, 2_000)
    assert reader.sizing.batch_bytes == pytest.approx((0.875 * 1_000 + 6_000) / (0.875 + 3))
    reader.batches(1, 500)
    assert reader.sizing.batch_bytes == pytest.approx(
        (0.875**2 * 1_000 + 0.875 * 6_000 + 500) / (0.875**2 + 0.875 * 3 + 1)
    )


@pytest.mark.parametrize(("batch_bytes", "known"), [(61, False), (62, True)])
def test_what_is_no_longer_than_a_batchs_header_is_no_batch(batch_bytes: int, known: bool) -> None:
    reader = Reader()
    for _ in range(2):
        reader.batches(1, batch_bytes)
    assert reader.sizing.batch_bytes == (pytest.approx(62) if known else inf)


def test_batches_are_averaged_to_a_part_of_a_byte() -> None:
    reader = Reader()
    for _ in range(2):
        reader.came(n1=(3 * FRAMING + 1_000, 3))
    assert reader.sizing.batch_bytes == pytest.approx(1_000 / 3)


def test_bytes_without_an_answer_are_no_batch() -> None:
    reader = Reader()
    for _ in range(3):
        reader.came(n1=(5_000, 0))
    assert reader.sizing.batch_bytes == inf


@pytest.mark.parametrize(("batch_bytes", "known"), [(11_000, False), (11_001, True)])
def test_of_larger_fetches_only_a_batch_of_a_tenth_more_than_was_asked_for_tells_how_large_it_is(
    batch_bytes: int, known: bool
) -> None:
    reader = Reader(FetchSizes(10_000, 50_000))
    reader.batches(1, 50_000)
    reader.batches(1, batch_bytes)
    assert reader.sizing.batch_bytes == (pytest.approx(batch_bytes) if known else inf)
    reader.batches(1, 30_000)  # the last one is all that counts
    assert reader.sizing.batch_bytes == pytest.approx(30_000)


def test_of_two_brokers_framing_is_that_of_the_most_partitions_which_one_of_them_leads() -> None:
    reader = Reader()
    reader.leaders = {("t", 0): 1, ("t", 1): 2, ("t", 2): 2, ("u", 0): 2}
    for _ in range(2):
        reader.came(n1=(5_000, 1))
    assert reader.sizing.batch_bytes == pytest.approx(5_000 - 60 - 3 * 37)


def test_what_comes_of_a_broker_that_leads_nothing_does_not_count() -> None:
    reader = Reader(sizes_for(None))
    for _ in range(3):
        reader.came(n2=(5_000_000, 1))
    assert reader.sizing.batch_bytes == inf
    assert reader.other(LEARNED) is None


def test_a_total_that_went_back_begins_anew_with_the_next() -> None:
    reader = Reader()
    reader.batches(9, 1_000)
    reader.received[1] = 500, 1
    reader.came()
    assert reader.sizing.batch_bytes == inf
    reader.batches(1, 2_000)
    assert reader.sizing.batch_bytes == pytest.approx((0.875 * 9_000 + 2_000) / (0.875 * 9 + 1))


FULL = brokers(4)


def changes_at(*looks: tuple[int, int], rates: tuple[float, ...] = (QUOTA,)) -> int | None:
    """At which look after the batches were known sizes change, of bytes in responses."""
    reader = Reader(statistics=FULL)
    for _ in range(2):
        reader.batches(1, 300)
    assert reader.other(LIMIT, *rates) is None
    for number, look in enumerate(looks, 1):
        reader.came(n1=look)
        if reader.other(LIMIT, *rates) is not None:
            return number
    return None


HALF_OF_IT = (25_000, 49)
"""Bytes in a quarter of a second that are half of the quota, in less than 200 responses a second."""
LESS = (24_999, 49)
MANY = (20_000, 50)
"""Less than half of the quota, in 200 responses a second."""


def test_who_gets_half_of_its_quota_or_two_hundred_answers_a_second_eight_times_in_a_row_is_busy() -> None:
    assert changes_at(*[HALF_OF_IT] * 20) == 8
    assert changes_at(*[LESS] * 20) is None
    assert changes_at(*[(30_000, 60)] * 20) == changes_at(*[(20_000, 60)] * 20) == 8
    assert changes_at(*[(30_000, 45)] * 20) == 8
    assert changes_at(*[MANY] * 20) == 8
    assert changes_at(*[(20_000, 49)] * 20) is None
    assert changes_at(*[HALF_OF_IT] * 7, LESS, *[HALF_OF_IT] * 20) == 7 + 1 + 8
    assert changes_at(*[HALF_OF_IT, MANY] * 4) == 8


@pytest.mark.parametrize(("responses", "changes"), [(199, False), (200, True)])
def test_two_hundred_answers_are_counted_by_the_second(responses: int, changes: bool) -> None:
    reader = Reader(statistics=FULL)
    found = []
    for _ in range(10):
        reader.came(elapsed_ms=1_000, n1=(responses * (300 + FRAMING), responses))
        found.append(reader.other(LIMIT, QUOTA))
    assert any(found) == changes


@pytest.mark.parametrize(("nbytes", "busy"), [(-1, False), (0, True)])
def test_answers_to_a_connection_whose_bytes_went_back_do_not_count(nbytes: int, busy: bool) -> None:
    reader = Reader(statistics=FULL)
    for _ in range(2):
        reader.batches(1, 300)
    found = []
    for _ in range(10):
        reader.came(n1=(nbytes, 50))
        found.append(reader.other(LIMIT, QUOTA))
    assert any(found) == busy


def test_nothing_has_come_as_long_as_no_time_has_passed() -> None:
    reader = Reader(statistics=FULL)
    reader.sizing = Sizing(SIZES, 0)
    for number in range(3):
        reader.received = {1: (number * (300 + FRAMING), number)}
        reader.came(elapsed_ms=0)
    assert reader.sizing.batch_bytes == pytest.approx(300)
    assert [reader.other(LIMIT, 2.0) for _ in range(20)] == [None] * 20


def test_who_receives_nothing_is_not_busy_however_small_its_part() -> None:
    reader = Reader(statistics=FULL)
    for _ in range(2):
        reader.batches(1, 300)
    for _ in range(20):
        reader.came()
        assert reader.other(LIMIT, 1.0) is None


def test_who_fetches_nothing_any_more_is_taken_for_one_partition() -> None:
    reader = Reader(FetchSizes(10_000, 50_000))
    reader.leaders = {("t", 0): 1, ("t", 1): 1, ("t", 2): 1}
    for _ in range(2):
        reader.came(n1=(20_000 + 60 + 3 * 37, 1))
    reader.leaders = {}
    reader.came()
    rate = 20_000_000.0
    assert reader.other(Limit(rate, None, LimitSource.CLUSTER), rate) == sizes_for(rate, 3, 20_000, partitions=1)
    assert sizes_for(rate, 3, 20_000, partitions=1) != sizes_for(rate, 3, 20_000, partitions=0)


def test_half_is_of_the_least_pace_and_of_the_quota_where_there_is_none() -> None:
    assert changes_at(*[(12_500, 40)] * 20, rates=(QUOTA, QUOTA / 2)) == 8
    assert changes_at(*[(12_499, 40)] * 20, rates=(QUOTA, QUOTA / 2)) is None
    assert changes_at(*[HALF_OF_IT] * 20, rates=()) == 8
    assert changes_at(*[LESS] * 20, rates=()) is None


def test_sizes_that_change_are_for_the_batches_the_distance_and_the_partitions() -> None:
    reader = Reader(statistics=FULL)
    reader.leaders = {("t", 0): 1, ("t", 1): 1}
    for _ in range(8):
        assert reader.sizing.sizes == SIZES
        reader.came(n1=(50 * (300 + 60 + 2 * 37), 50))
        changed = reader.other(LIMIT, QUOTA)
    # however near a broker is, a fetch takes a millisecond
    assert changed == reader.sizing.sizes == sizes_for(QUOTA, 1.0, 300, partitions=2)
    assert reader.sizing.sizes.fetch_bytes > ONE_BATCH


def test_the_distance_is_the_shortest_round_trip_to_the_farthest_broker_that_is_fetched_from() -> None:
    def queue_bytes(*events: dict[str, Any], leaders: dict[tuple[str, int], int] = LEADERS) -> int:
        reader = Reader()
        reader.leaders = leaders
        for event in events:
            reader.statistics = event
            for _ in range(2):
                reader.batches(1, 900_000)
        reader.other(LIMIT, QUOTA)
        return reader.sizing.sizes.queue_bytes

    def of(round_trip_ms: float) -> int:
        return sizes_for(QUOTA, round_trip_ms).queue_bytes

    assert queue_bytes(brokers(80_000)) == of(80)
    assert queue_bytes(brokers(80_000, 900_000)) == of(80)
    assert queue_bytes(brokers(80_000, 90_000), leaders={("t", 0): 1, ("t", 1): 2}) == of(90)
    assert queue_bytes(brokers(80_000), brokers(100_000)) == of(80)
    assert queue_bytes(brokers(100_000), brokers(80_000)) == of(80)
    assert queue_bytes(brokers(0)) == queue_bytes({}) == SIZES.queue_bytes
    assert queue_bytes(brokers(80_000), brokers(0)) == of(80)


def test_a_distance_of_less_than_a_millisecond_is_a_distance() -> None:
    reader = Reader(OPEN, brokers(1))
    assert reader.other(LIMIT, QUOTA) == sizes_for(QUOTA, 0.001) != sizes_for(QUOTA, 3)


def test_as_long_as_no_batch_is_known_sizes_are_for_no_more_than_three_milliseconds() -> None:
    assert Reader(OPEN, brokers(80_000)).other(LIMIT, QUOTA) == sizes_for(QUOTA, 3)
    assert Reader(OPEN, brokers(500)).other(LIMIT, QUOTA) == sizes_for(QUOTA, 0.5)


def test_sizes_change_at_once_and_then_not_for_five_seconds() -> None:
    reader = Reader(OPEN, now_ms=100)
    assert reader.other(now_ms=99) is None
    assert reader.other(now_ms=100) == SIZES
    hundredfold = Limit(100 * QUOTA, None, LimitSource.CLUSTER)
    assert reader.other(hundredfold, now_ms=5_099) is None
    assert reader.other(hundredfold, now_ms=5_100) == sizes_for(100 * QUOTA)


def test_sizes_that_were_set_by_hand_stay() -> None:
    assert Reader(FetchSizes(by_hand=True)).other() is None


def test_counts_begin_anew_after_a_change() -> None:
    reader = Reader(OPEN)
    reader.batches(1, 5_000_000)
    reader.other()
    reader.came(n1=(1_000, 1))  # another client of librdkafka's has told about its cluster
    reader.batches(1, 900)
    assert reader.sizing.batch_bytes == pytest.approx((0.875 * 5_000_000 + 900) / 1.875)


@pytest.mark.parametrize(("nbytes", "grows"), [(204_800, True), (204_799, False)])
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_who_knows_no_limit_fetches_more_once_a_fiftieth_of_a_second_brings_four_fetches(
    nbytes: int, grows: bool, node: str
) -> None:
    """Of 4,096 bytes: 819,200 bytes a second of the broker that sends most."""
    reader = Reader(sizes_for(None), brokers(1_000, 1_000))
    reader.leaders = {("t", 0): 1, ("t", 1): 2}
    reader.came(n2=(0, 0))
    reader.came(**{node: (nbytes, 50)})
    assert reader.other(LEARNED) == (sizes_while_learning(819_200) if grows else None)


def test_two_events_at_once_leave_the_rate_as_it_was() -> None:
    reader = Reader(sizes_for(None))
    reader.came(n1=(204_800, 50))
    reader.came(elapsed_ms=0)
    assert reader.other(LEARNED) == sizes_while_learning(819_200)
    reader = Reader(sizes_for(None))
    reader.came(elapsed_ms=1, n1=(820, 1))
    assert reader.other(LEARNED) == sizes_while_learning(820_000)


def test_who_knows_no_limit_does_not_fetch_less_again() -> None:
    reader = Reader(FetchSizes(262_144, 262_144))
    reader.came(n1=(1_000, 1))
    assert reader.other(LEARNED) is None


@pytest.mark.parametrize("limit", [Limit(None, None, LimitSource.CLUSTER), UNKNOWN])
def test_librdkafkas_own_sizes_are_for_whom_nothing_limits_and_stay_as_long_as_nothing_is_learnt(limit: Limit) -> None:
    assert Reader(OPEN).other(limit, inf) is None
    assert Reader(SIZES).other(limit, inf) == (OPEN if limit.known else sizes_while_learning(0))


def test_a_limit_that_is_learnt_is_that_of_the_least_broker() -> None:
    assert Reader(OPEN).other(LEARNED, 4_000_000.0, 1_000.0) == FetchSizes(
        ONE_BATCH, sizes_while_learning(1_000).queue_bytes
    )
    assert Reader(OPEN).other(LEARNED, inf, inf) is None


def test_fetches_of_many_go_back_to_one_batch_where_that_does_for_twice_what_was_learnt() -> None:
    """20,000 bytes in each round trip of 10 ms and a tenth: 1,818,181 bytes a second."""

    def fetch_bytes(learnt: float, fetch_bytes: int) -> int:
        reader = Reader(FetchSizes(fetch_bytes, 100_000), brokers(10_000))
        for _ in range(2):
            reader.batches(1, 20_000)
        reader.other(LEARNED, learnt)
        return reader.sizing.sizes.fetch_bytes

    most = 20_000 / 1.1 / 0.010
    assert fetch_bytes(most - 1, ONE_BATCH) == ONE_BATCH
    assert fetch_bytes(most + 1, ONE_BATCH) > ONE_BATCH
    assert fetch_bytes(most / 2 - 1, 4_096) == ONE_BATCH
    assert fetch_bytes(most / 2 + 1, 4_096) > ONE_BATCH


def two_apart(*told: dict[str, Any]) -> FetchSizes | None:
    """The sizes wanted once so much was told of two brokers, each of which leads a partition of the same batches."""
    reader = Reader()
    reader.leaders = {("t", 0): 1, ("t", 1): 2}
    for statistics in told:
        reader.statistics = statistics
        reader.batches(2, 10_000)
    return reader.other(LIMIT, QUOTA, QUOTA)


def test_a_far_broker_that_has_not_answered_between_two_looks_is_as_far_as_before() -> None:
    """Taken to be as near as the others it had 16 % of a megabyte a second, 80 ms away, for good."""
    wanted = sizes_for(QUOTA, 80, 10_000)
    assert two_apart(brokers(1_000, 80_000), brokers(1_000, 80_000)) == wanted
    assert two_apart(brokers(1_000, 80_000), brokers(1_000, 0)) == wanted
    assert two_apart(brokers(1_000, 0), brokers(1_000, 80_000)) == wanted
    assert two_apart(brokers(1_000, 0), brokers(0, 80_000)) == wanted


def test_how_far_a_broker_is_may_be_told_before_anything_is_fetched_from_it_by_what_waits_for_no_messages() -> None:
    reader = Reader()
    reader.leaders = {}
    reader.statistics = brokers(1_000, 1_000)
    reader.came()
    reader.leaders = {("t", 0): 1, ("t", 1): 2}
    reader.statistics = brokers(1_000, 500_000)
    for _ in range(LOOKS):
        reader.batches(2, 10_000)
    assert reader.other(LIMIT, QUOTA, QUOTA) is None


def test_a_far_broker_that_leads_nothing_any_more_is_forgotten() -> None:
    reader = Reader(statistics=brokers(1_000, 80_000))
    reader.leaders = {("t", 0): 1, ("t", 1): 2}
    reader.batches(2, 10_000)
    reader.leaders = LEADERS
    reader.batches(2, 10_000)
    assert reader.other(LIMIT, QUOTA, QUOTA) is None


def other_while_muted(limit: Limit, muted_ms: int) -> FetchSizes | None:
    return Reader(OPEN).sizing.other(limit, [told(inf), told(4_000_000.0, throttled_until_ms=700 + muted_ms)], 700)


def test_who_learns_and_is_muted_for_longer_than_by_a_crowd_makes_no_other_client() -> None:
    """Its first fetch would be muted, too, and that connection be given up only after the one that there is."""
    assert other_while_muted(LEARNED, 2_001) is None
    assert other_while_muted(LEARNED, 2_000) is not None
    twice = replace(LEARNED, window_ms=2 * LEARNED.window_ms)
    assert other_while_muted(twice, 4_001) is None
    assert other_while_muted(twice, 4_000) is not None


def test_a_limit_that_is_known_is_followed_by_another_client_even_while_muted() -> None:
    """What was set by mistake, and undone, has muted only the connection that there is."""
    assert other_while_muted(LIMIT, 800_000) is not None
