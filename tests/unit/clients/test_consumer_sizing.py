"""Which sizes a consumer fetches in, as it learns how far its brokers are and how large batches are."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kclient_quota.clients.consumer.sizing import LOOKS, PATIENCE, TELLING, Sizing
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import ONE_BATCH, OPEN, FetchSizes, sizes_for
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics

QUOTA = 200_000.0
LIMIT = Limit(QUOTA, None, LimitSource.CLUSTER)
FAR: dict[str, Any] = {"brokers": {"one": {"nodeid": 1, "rtt": {"min": 80_000}}}}
NEAR: dict[str, Any] = {"brokers": {"one": {"nodeid": 1, "rtt": {"min": 4}}}}
FRAMING, PARTITION = 60, 37
SECOND = 4


class Reader:
    """A consumer's statistics, four a second: so many responses came in each, of batches of so many bytes."""

    def __init__(self, sizes: Any, statistics: dict[str, Any] = FAR) -> None:
        self.sizing = Sizing(sizes, 0)
        self.cost_change = 1.0
        self.statistics = statistics
        self.now_ms = 0
        self.total = self.responses = self.offset = 0
        self.partitions = 1
        self.paces: dict[int, Any] = {1: BrokerPace(QUOTA, FetchWindow(), 0)}

    def look(self, *batches: float) -> None:
        self.elapse(250, *batches)

    def elapse(self, elapsed_ms: int, *batches: float) -> None:
        self.now_ms += elapsed_ms
        for batch in batches:
            self.total += round(batch) + FRAMING + PARTITION * self.partitions
            self.responses += 1
            self.offset += 1
        for partition in self.statistics.get("topics", {}).get("t", {"partitions": {}})["partitions"].values():
            partition["next_offset"] = 0 if partition.get("is_paused") else self.offset
            partition["hi_offset"] = self.offset + partition["more"]
        leaders = {("t", each): 1 for each in range(self.partitions)}
        seen = FetchStatistics(self.now_ms, 0, 0, {1: (self.total, self.responses)}, leaders)
        self.sizing.look(self.statistics, seen, elapsed_ms)

    def other(self, limit: Limit = LIMIT) -> Any:
        wanted = self.sizing.other(limit, self.paces.values(), self.now_ms)
        if wanted is not None:
            self.cost_change = self.sizing.change(wanted)
            self.total = self.responses = 0
        return wanted


def test_a_distant_brokers_batches_are_looked_at_before_fetches_are_made_larger() -> None:
    """Fetches of several assumed batches would cut the last of those that there are, which are larger: a third."""
    reader = Reader(sizes_for(QUOTA))
    for _ in range(5):
        reader.look()
    assert reader.other() is None
    for _ in range(LOOKS + 1):
        reader.look(100_000)
    wanted = reader.other()
    assert wanted is not None
    assert wanted.fetch_bytes == ONE_BATCH
    assert wanted.queue_bytes >= QUOTA * 0.08
    for _ in range(10 * SECOND):
        reader.look(100_000)
        assert reader.other() is None


def test_a_quota_that_comes_late_and_far_away_begins_with_fetches_that_show_how_large_batches_are() -> None:
    reader = Reader(OPEN)
    for _ in range(20):
        reader.look(1_000_000)
    assert reader.other() == sizes_for(QUOTA)
    for _ in range(5 * SECOND):
        reader.look(15_900, 15_900)
    assert reader.other() == sizes_for(QUOTA, 80, 15_900)


def test_however_large_the_quota_batches_are_looked_at_first() -> None:
    """Fetches for batches of 16 kB would throw away a tenth where they are of 250 kB."""
    limit = Limit(20_000_000.0, None, LimitSource.CLUSTER)
    reader = Reader(sizes_for(limit.byte_rate), NEAR)
    for _ in range(LOOKS + 1):
        reader.look(*[250_000] * 20)
    assert reader.other(limit) is None
    assert reader.sizing.sizes.fetch_bytes == ONE_BATCH


def test_sizes_of_batches_are_averaged() -> None:
    """One that keeps up on average does so although most batches are small."""
    reader = Reader(sizes_for(QUOTA), NEAR)
    for _ in range(10):
        reader.look(100, 100, 100, 100, 5_000)
    assert 1_000 < reader.sizing.batch_bytes < 1_200


def test_empty_responses_are_no_batches() -> None:
    reader = Reader(sizes_for(QUOTA), NEAR)
    for _ in range(10):
        reader.look(5_000)
        reader.look(0)
    assert 4_990 < reader.sizing.batch_bytes < 5_010


def test_fetches_of_many_small_batches_only_where_the_quota_is_short() -> None:
    """To change sizes takes another client of librdkafka's: not for whom nothing holds back."""
    idle = Reader(sizes_for(QUOTA), NEAR)
    for _ in range(20 * SECOND):
        idle.look(300, 300)
        assert idle.other() is None
    busy = Reader(sizes_for(QUOTA), NEAR)
    changed = []
    for number in range(20 * SECOND):
        many = busy.sizing.sizes.fetch_bytes != ONE_BATCH
        busy.look(*([busy.sizing.sizes.fetch_bytes] * 2 if many else [300] * 120))
        if busy.other() is not None:
            changed.append((number, busy.sizing.sizes.fetch_bytes))
    assert len(changed) == 1
    assert PATIENCE <= changed[0][0] <= 2 * PATIENCE
    assert 30_000 <= changed[0][1] <= 60_000


def few(batch_bytes: float, every: int) -> Reader:
    """Of 500 partitions, whose framing takes 18.5 kB of each response, one of which comes with every so many looks."""
    reader = Reader(sizes_for(50_000), NEAR)
    reader.partitions = 500
    reader.paces = {1: BrokerPace(50_000, FetchWindow(), 0)}
    limit = replace(LIMIT, byte_rate=50_000.0)
    for number in range(8 * SECOND):
        reader.look(*[batch_bytes] * (number % every == 0))
        if reader.other(limit) is not None:
            break
    return reader


@pytest.mark.parametrize("every", [1, 2, 3])
def test_who_gets_little_but_framing_fetches_many_batches_though_few_come_a_second(every: int) -> None:
    """A response a second of 1.1 kB beside 18.5 kB: its messages are a twentieth of what the quota is used for."""
    reader = few(1_100, every)
    assert reader.sizing.sizes.fetch_bytes == 37_500
    assert reader.now_ms <= (LOOKS * every + PATIENCE + 2) * 250
    framing = FRAMING + PARTITION * 500
    assert reader.cost_change == pytest.approx((37_500 + framing) / 37_500 / ((1_100 + framing) / 1_100))


def test_who_gets_few_responses_of_large_batches_stays_with_one_each() -> None:
    reader = few(20_000, 3)
    assert (reader.sizing.sizes.fetch_bytes, reader.cost_change) == (ONE_BATCH, 1.0)


def test_a_response_stands_for_no_more_time_than_half_of_the_limit_takes_for_it() -> None:
    assert few(1_100, 4).sizing.sizes.fetch_bytes == ONE_BATCH


def test_what_was_prefetched_at_once_stands_for_no_more_than_its_last_response() -> None:
    reader = Reader(sizes_for(QUOTA), NEAR)
    reader.partitions = 500
    reader.look(*[1_100] * 3)
    reader.look(*[1_100] * 200)
    for _ in range(8 * SECOND):
        reader.look()
        assert reader.other() is None


def test_who_gets_hundreds_of_tiny_batches_a_second_gets_many_at_once() -> None:
    """A fetch takes a millisecond or two however near the broker is, and the quota would never be used."""
    limit = Limit(1_048_576.0, None, LimitSource.CLUSTER)
    reader = Reader(sizes_for(limit.byte_rate), NEAR)
    reader.paces[1] = BrokerPace(limit.byte_rate, FetchWindow(), 0)
    for _ in range(LOOKS + PATIENCE + 1):
        reader.look(*[150] * 110)
        reader.other(limit)
    assert reader.sizing.sizes.fetch_bytes > 125 * 150


def test_batches_that_have_become_larger_than_fetches_are_fetched_one_by_one() -> None:
    reader = Reader(sizes_for(QUOTA), NEAR)
    for _ in range(5 * SECOND):
        reader.look(*[300] * 120)
        reader.other()
    assert reader.sizing.sizes.fetch_bytes > ONE_BATCH
    for _ in range(6 * SECOND):
        reader.look(100_000)
        reader.other()
    assert reader.sizing.sizes.fetch_bytes == ONE_BATCH


def test_what_comes_while_the_application_works_has_room_in_the_queue_unless_batches_are_long() -> None:
    for batch, ahead_bytes in ((16_000, 400_000), (150_000, 0)):
        reader = Reader(sizes_for(QUOTA))
        reader.paces[1].ahead_bytes = lambda _: 400_000.0
        for _ in range(5 * SECOND):
            reader.look(*[batch] * (1 + reader.now_ms % 500 // 250))
            reader.other()
        there = reader.sizing.sizes
        assert there.queue_bytes == pytest.approx(ahead_bytes + sizes_for(QUOTA, 80).queue_bytes, abs=1_024)
        assert there.fetch_bytes * 1_000 < 750 * QUOTA


@pytest.mark.parametrize(("brokers", "ahead_s"), [(1, 5), (2, 10), (6, 10)])
def test_what_comes_ahead_of_many_brokers_leaves_the_queue_short_enough_to_hold_fetches_back(brokers, ahead_s):
    """Of six it was thirty seconds of the limit of one: nothing was paced any more."""
    reader = Reader(sizes_for(QUOTA))
    reader.paces = {node: BrokerPace(QUOTA, FetchWindow(), 0) for node in range(brokers)}
    for pace in reader.paces.values():
        pace.ahead_bytes = lambda _: 5 * QUOTA  # type: ignore[method-assign]
    for _ in range(5 * SECOND):
        reader.look(*[16_000] * (1 + reader.now_ms % 500 // 250))
        reader.other()
    there = reader.sizing.sizes
    assert there.hold_back(QUOTA)
    assert there.queue_bytes == pytest.approx(ahead_s * QUOTA + sizes_for(QUOTA, 80).queue_bytes, rel=0.02)


ACTIVE: dict[str, Any] = {"broker": 1, "fetch_state": "active", "ls_offset": -1}


def at(shortest_ms: float, *, more: int = 10, usual_ms: float | None = None, **of_partition: Any) -> dict[str, Any]:
    """Statistics of a broker so far away, which has more messages than were fetched, or has not."""
    usual_us = (shortest_ms if usual_ms is None else usual_ms) * 1_000
    return {
        "brokers": {"one": {"nodeid": 1, "rtt": {"min": shortest_ms * 1_000, "avg": usual_us}}},
        "topics": {"t": {"partitions": {"0": {**ACTIVE, "more": more, **of_partition}}}},
    }


def test_a_broker_that_has_become_farther_away_is_fetched_from_several_batches_at_a_time() -> None:
    reader = Reader(sizes_for(QUOTA), at(2))
    for _ in range(10 * SECOND):
        reader.look(*[16_000] * 3)
        assert reader.other() is None, "one batch in a round trip keeps up"
    reader.statistics = at(90)
    found = []
    for _ in range(15 * SECOND):
        reader.look(*[16_000] * 3)
        found += [(reader.now_ms, wanted) for wanted in [reader.other()] if wanted is not None]
    ((at_ms, wanted),) = found
    assert at_ms <= 10_000 + 10_500
    assert wanted.fetch_bytes > 5 * 16_000
    reader.statistics = at(2)
    near = []
    for _ in range(2 * TELLING):  # those that were begun of are over first
        reader.look(90_000)
        near += [wanted.fetch_bytes for wanted in [reader.other()] if wanted is not None]
    assert near == [ONE_BATCH], "it is near again"


def test_where_ways_jitter_the_usual_one_decides_and_not_the_shortest_of_five_seconds() -> None:
    """Each way takes 0 to 100 ms: one batch in each round trip is less than the quota allows, and that stayed so."""
    random = Random(3)
    reader = Reader(sizes_for(QUOTA), at(0.1))
    found: list[FetchSizes] = []

    def play(*batches: float) -> None:
        for _ in range(60 * SECOND):
            ways = sorted(random.uniform(0, 100) + random.uniform(0, 100) for _ in range(2 + len(batches)))
            reader.statistics = at(ways[0], usual_ms=sum(ways) / len(ways))
            reader.look(*batches)
            found.extend(wanted for wanted in [reader.other()] if wanted is not None)

    play(16_000, 16_000)
    (wanted,) = found
    assert wanted.fetch_bytes > 5 * 16_000
    play(100_000)
    assert found == [wanted], "it does not go back as soon as one way is short"


def test_how_long_large_fetches_took_is_not_mixed_with_how_long_those_of_one_batch_take() -> None:
    reader = Reader(sizes_for(QUOTA), at(2))
    reader.sizing.sizes = sizes_for(QUOTA, 80, 16_000)
    for _ in range(TELLING - 1):
        reader.statistics = at(500)
        reader.look(90_000)
    assert reader.other() == sizes_for(QUOTA), "whatever the distance asks for"
    reader.statistics = at(2)
    for _ in range(30 * SECOND):
        reader.look(*[16_000] * 3)
        assert reader.other() is None


def test_a_coordinator_who_has_members_wait_for_each_other_is_not_far_away() -> None:
    statistics = at(2)
    waits = {"nodeid": 1, "source": "logical", "rtt": {"min": 300_000, "avg": 3_000_000}}
    reader = Reader(sizes_for(QUOTA), {**statistics, "brokers": {**statistics["brokers"], "coordinator": waits}})
    for _ in range(30 * SECOND):
        reader.look(*[16_000] * 3)
        assert reader.other() is None


def test_a_mute_that_is_over_by_now_says_nothing_of_the_distance() -> None:
    """What was asked just after a throttle is answered when that is over, without one."""
    reader = Reader(sizes_for(QUOTA), at(2))
    for each in range(60 * SECOND):
        reader.statistics = at(2, usual_ms=400 if each % 3 == 0 else 2)
        reader.look(*[16_000] * 3)
        assert reader.other() is None


@pytest.mark.parametrize(
    "statistics",
    [
        at(500, more=0),
        at(500, ls_offset=10),
        at(500, is_paused=True),
        {**at(500), "brokers": {"one": {"nodeid": 1, "rtt": {"min": 500_000}, "throttle": {"max": 900}}}},
    ],
    ids=["its end", "a transaction", "what is paused", "its throttle"],
)
def test_what_waits_for_messages_says_nothing_of_the_distance(statistics: dict[str, Any]) -> None:
    reader = Reader(sizes_for(QUOTA), at(2))
    for _ in range(10 * SECOND):
        reader.look(*[16_000] * 3)
    reader.statistics = statistics
    for _ in range(60 * SECOND):
        reader.look(16_000)
        assert reader.other() is None


def test_one_round_trip_of_a_consumer_that_is_polled_seldom_says_nothing_of_the_distance() -> None:
    """Every six seconds its fetches were made 25 times as large, and five seconds later small again."""
    reader = Reader(sizes_for(QUOTA), at(2))
    for _ in range(10 * SECOND):
        reader.look(*[16_000] * 3)
    for _ in range(5):
        reader.statistics = at(500)
        reader.elapse(6_000, 16_000)
        assert reader.other() is None
        reader.statistics = at(2)
        for _ in range(2):
            reader.look(*[16_000] * 3)
            assert reader.other() is None
