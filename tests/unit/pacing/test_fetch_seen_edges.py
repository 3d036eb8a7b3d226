"""What statistics say of fetching and of what was cut off, field by field."""

from math import inf
from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch_lost import LostFetches
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics, fetch_statistics

# Fetching


def broker(node: int, rxbytes: int, source: str = "learned") -> dict[str, Any]:
    return {"nodeid": node, "rxbytes": rxbytes, "source": source}


def partition(number: int, *, size: int = 0, count: int = 0, state: str = "active", leader: int = 1) -> dict[str, Any]:
    return {"partition": number, "fetchq_size": size, "fetchq_cnt": count, "fetch_state": state, "broker": leader}


def event(brokers: list[dict[str, Any]], **topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "brokers": {str(number): each for number, each in enumerate(brokers)},
        "topics": {
            name: {"partitions": {str(each["partition"]): each for each in partitions}}
            for name, partitions in topics.items()
        },
    }


def test_nothing_is_said_by_an_empty_event() -> None:
    assert fetch_statistics({}, {}, 7) == FetchStatistics(7, 0, 0, {}, {})


def test_each_broker_with_an_id_has_its_bytes_and_answers() -> None:
    brokers = [broker(0, 10), broker(1, 20), broker(-1, 40), broker(3, 80, "logical"), broker(4, 160, "configured")]
    found = fetch_statistics(event(brokers), {1: 5, 4: 6, -1: 7, 3: 8}, 0)
    assert found.received == {0: (10, 0), 1: (20, 5), 4: (160, 6)}


def test_the_queue_is_the_longest_that_any_partition_tells_of() -> None:
    one, two = [partition(0, size=10, count=7), partition(1, size=90, count=2)], [partition(0, size=20, count=3)]
    found = fetch_statistics(event([], a=one, b=two), {}, 0)
    assert (found.queued_bytes, found.queued_count) == (90, 7)


def test_partitions_that_are_fetched_have_a_leader() -> None:
    partitions = [
        partition(0, leader=0),
        partition(1, leader=5),
        partition(2, leader=-1),
        partition(3, state="stopped"),
        partition(-1, state="none"),
        partition(4, state="", leader=3),
        partition(5, state="zz", leader=3),
    ]
    found = fetch_statistics(event([], a=partitions, b=[partition(0, leader=2)]), {}, 0)
    assert found.leaders == {("a", 0): 0, ("a", 1): 5, ("b", 0): 2}


def test_how_far_a_partition_is_fetched_and_handed_over_and_where_it_ends() -> None:
    """An open transaction ends it, one that is its very first included."""
    told: list[dict[str, Any]] = [
        {"next_offset": 8, "app_offset": 5, "hi_offset": 9, "ls_offset": 0},
        {"next_offset": 7, "app_offset": -1001, "hi_offset": 9, "ls_offset": -1},
        {},
    ]
    found = fetch_statistics(event([], a=[{**partition(at), **each} for at, each in enumerate(told)]), {}, 0)
    assert found.positions == {("a", 0): (8, 0), ("a", 1): (7, 9), ("a", 2): (-1, -1)}
    assert found.given == {("a", 0): 5, ("a", 1): -1001, ("a", 2): -1}


def test_what_was_seen_is_a_fact() -> None:
    seen = FetchStatistics(1, 2, 3, {}, {})
    with pytest.raises(AttributeError):
        seen.at_ms = 2  # type: ignore[misc]
    assert not hasattr(seen, "__dict__")


# What was cut off


def cut(*brokers: tuple[str, int, int | None]) -> dict[str, Any]:
    return {
        "brokers": {
            name: {"nodeid": node, **({} if count is None else {"rxpartial": count})} for name, node, count in brokers
        }
    }


@pytest.mark.parametrize(
    ("fetch_bytes", "batch_bytes", "lost"),
    [
        (1_000_000, 1_000, 750),
        (1_500, 1_000, 750),
        (1_498, 1_000, 749),
        (1_000_000, float("inf"), 12_288),
        (24_574, inf, 12_287),
        (1, 1_000, 0),
        (2, 1_000, 1),
    ],
)
def test_a_cut_loses_three_quarters_of_a_batch_or_half_a_fetch(
    fetch_bytes: float, batch_bytes: float, lost: int
) -> None:
    found = LostFetches()
    found.on_statistics(cut(("a", 1, 1)), fetch_bytes, batch_bytes)
    assert found.by_broker == {1: lost}


def test_cuts_are_counted_since_the_last_event_and_from_zero_on_another_connection() -> None:
    found = LostFetches()
    totals = []
    for count in (2, 2, 3, 7, 6, 6, 0, 1):
        found.on_statistics(cut(("a", 1, count)), 2_000, 1_000)
        totals.append(found.total // 750)
    assert totals == [2, 2, 3, 7, 13, 13, 13, 14]


def test_who_tells_of_no_cut_has_none_and_who_has_no_id_loses_nothing() -> None:
    found = LostFetches()
    found.on_statistics(cut(("a", 1, None), ("b", -1, 4), ("c", 0, 0)), 2_000, 1_000)
    assert found.by_broker == {}
    found.on_statistics(cut(("a", 1, None), ("b", 2, 5), ("c", 0, 1)), 2_000, 1_000)
    assert found.by_broker == {2: 750, 0: 750}
    assert found.total == 1_500


@pytest.mark.parametrize(
    ("added", "by_broker"), [(0, {}), (-1, {}), (0.4, {3: 0}), (0.6, {3: 1}), (1, {3: 1}), (2.5, {3: 2})]
)
def test_only_what_is_more_than_nothing_is_lost_in_whole_bytes(added: float, by_broker: dict[int, int]) -> None:
    found = LostFetches()
    found.add(3, added)
    assert found.by_broker == by_broker


def test_what_is_lost_adds_up() -> None:
    found = LostFetches()
    for node, nbytes in ((3, 10), (4, 20), (3, 40)):
        found.add(node, nbytes)
    assert (found.by_broker, found.total) == ({3: 50, 4: 20}, 70)
