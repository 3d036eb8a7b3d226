"""Lanes at the bounds of what they may be, and what waits in one, counted to the byte."""

from math import inf, nan
from typing import Any

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.sending.lanes import DEFAULT_LANE, Full, Lane, LaneState, Waits, lanes_of
from kclient_quota.pacing.sending.turns import Waiting


def test_a_lane_of_which_nothing_is_said() -> None:
    assert DEFAULT_LANE == ""
    assert Lane() == Lane("", strict=False, weight=1.0, full=Full.BLOCK, deadline_ms=None, newest=False)
    assert lanes_of({}) == ()
    assert lanes_of({"a": {}}) == (Lane("a"),)


@pytest.mark.parametrize("full", list(Full))
def test_only_what_drops_drops_and_only_what_raises_raises(full: Full) -> None:
    assert Lane(full=full).raises is (full is Full.RAISE)
    assert Lane(full=full).drops is (full in {Full.DROP_OLDEST, Full.DROP_NEWEST})
    assert [each.value for each in Full] == ["block", "raise", "drop-oldest", "drop-newest"]


@pytest.mark.parametrize("weight", [0, 0.0, -0.001, -1, inf, -inf, nan])
def test_a_weight_is_a_number_above_zero(weight: float) -> None:
    with pytest.raises(ConfigError) as raised:
        Lane("a", weight=weight)
    assert str(raised.value) == f"lane 'a': weight must be above 0, not {weight}"
    assert Lane(weight=1e-9).weight == 1e-9
    assert Lane(weight=0.5).weight == 0.5


def test_a_deadline_is_a_millisecond_at_least() -> None:
    for deadline_ms in (0, -1):
        with pytest.raises(ConfigError) as raised:
            Lane("a", deadline_ms=deadline_ms)
        assert str(raised.value) == f"lane 'a': deadline.ms must be at least 1, not {deadline_ms}"
    assert Lane(deadline_ms=1).deadline_ms == 1


def test_what_lanes_are_is_settled_when_they_are_made() -> None:
    for fact, name in ((Lane(), "weight"), (LaneState(1, 2, 3), "messages")):
        with pytest.raises(AttributeError):
            setattr(fact, name, 2)
        assert not hasattr(fact, "__dict__")


def test_everything_that_a_lane_may_say() -> None:
    said: dict[str, Any] = {"priority": "strict", "weight": "2.5", "full": "drop-oldest", "deadline.ms": "7"}
    (lane,) = lanes_of({"a": {**said, "newest": True}})
    assert lane == Lane("a", strict=True, weight=2.5, full=Full.DROP_OLDEST, deadline_ms=7, newest=True)
    assert lane.full is Full.DROP_OLDEST
    (lane,) = lanes_of({"a": {"priority": None, "deadline.ms": None, "newest": False}})
    assert lane == Lane("a")


def test_lanes_keep_their_order_and_a_full_one_does_as_all_do_unless_it_says() -> None:
    configured: dict[str, dict[str, Any]] = {"b": {}, "a": {"full": "block"}, "c": {"full": Full.DROP_NEWEST}}
    found = [(lane.name, lane.full) for lane in lanes_of(configured, Full.RAISE)]
    assert found == [("b", Full.RAISE), ("a", Full.BLOCK), ("c", Full.DROP_NEWEST)]
    assert [lane.full for lane in lanes_of(configured)] == [Full.BLOCK, Full.BLOCK, Full.DROP_NEWEST]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "quota.lanes: lane 'a' must be a mapping as {'weight': 3}, not 3"),
        (
            {"z": 1, "colour": 2},
            "quota.lanes: lane 'a' has unknown colour, z; known are priority, weight, full, deadline.ms, newest",
        ),
        ({"priority": "high"}, "quota.lanes: lane 'a': priority must be 'strict' or left out, not 'high'"),
        ({"priority": ""}, "quota.lanes: lane 'a': priority must be 'strict' or left out, not ''"),
        (
            {"full": "drop"},
            "quota.lanes: lane 'a': full must be one of block, raise, drop-oldest, drop-newest, not 'drop'",
        ),
        ({"newest": 1}, "quota.lanes: lane 'a': newest must be True or False, not 1"),
        ({"newest": "yes"}, "quota.lanes: lane 'a': newest must be True or False, not 'yes'"),
        ({"weight": 0}, "quota.lanes: lane 'a': weight must be above 0, not 0.0"),
        ({"deadline.ms": 0}, "quota.lanes: lane 'a': deadline.ms must be at least 1, not 0"),
        (
            {"weight": None},
            (
                "quota.lanes: lane 'a': weight and deadline.ms must be numbers: "
                "float() argument must be a string or a real number, not 'NoneType'"
            ),
        ),
        (
            {"weight": "x"},
            "quota.lanes: lane 'a': weight and deadline.ms must be numbers: could not convert string to float: 'x'",
        ),
        (
            {"deadline.ms": inf},
            "quota.lanes: lane 'a': weight and deadline.ms must be numbers: cannot convert float infinity to integer",
        ),
    ],
)
def test_what_cannot_be_understood_is_named(given: Any, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        lanes_of({"a": given})
    assert str(raised.value) == words
    assert raised.value.__cause__ is None


# What waits


def waiting(key: object = None, raw_bytes: int = 10, topic: str = "t", partition: int = 0) -> Waiting:
    return Waiting(topic, partition, raw_bytes, 0, key=key)


def test_nothing_waits_at_first() -> None:
    waits = Waits(Lane("a"))
    assert (waits.lane, waits.length, waits.raw_bytes, waits.tenants, waits.newest) == (Lane("a"), 0, 0, {}, {})
    assert len(waits.fair) == 0


@pytest.mark.parametrize("tenant", [None, "x", 0, ""])
def test_a_tenant_has_one_line_until_it_leaves(tenant: Any) -> None:
    waits = Waits(Lane())
    assert waits.find(tenant) is None
    line = waits.line_of(tenant)
    line.append(waiting())
    assert waits.line_of(tenant) is line
    assert waits.find(tenant) is line
    assert len(waits.fair) == 1
    assert waits.fair.first() == (() if tenant is None else tenant)
    assert list(waits.tenants) == [() if tenant is None else tenant]


def test_nobody_and_somebody_have_lines_of_their_own() -> None:
    waits = Waits(Lane())
    lines = [waits.line_of(tenant) for tenant in (None, 0, "")]
    assert len({id(line) for line in lines}) == 3
    assert [waits.find(tenant) for tenant in (None, 0, "")] == lines


def test_who_leaves_has_no_turn_and_his_line_is_the_next_ones() -> None:
    waits = Waits(Lane())
    first, second = waits.line_of("x"), waits.line_of("y")
    waits.leave("x")
    assert (waits.find("x"), len(waits.fair), waits.fair.first()) == (None, 1, "y")
    assert waits.line_of("z") is first
    waits.drop("y")
    assert (waits.find("y"), len(waits.fair)) == (None, 2)
    assert waits.line_of("w") is second
    assert waits.line_of("v") not in {first, second}


def test_a_thousand_empty_lines_are_kept_and_no_more() -> None:
    waits = Waits(Lane())
    for tenant in range(1_002):
        waits.line_of(tenant)
    kept = []
    for tenant in range(1_002):
        waits.leave(tenant)
        kept.append(len(waits._spare))
    assert kept == [*range(1, 1_001), 1_000, 1_000]
    waits.line_of("x")
    assert len(waits._spare) == 999


def test_what_does_not_wait_any_more_is_counted_off_and_only_its_own_entry_as_the_newest_goes() -> None:
    waits = Waits(Lane(newest=True))
    waits.length, waits.raw_bytes = 5, 100
    old, new, other = waiting("k"), waiting("k", 30), waiting("k", partition=1)
    waits.newest = {(new.place, "k"): new, (other.place, "k"): other}
    waits.forget(old)
    assert (waits.length, waits.raw_bytes) == (4, 90)
    assert waits.newest == {(("t", 0), "k"): new, (("t", 1), "k"): other}
    waits.forget(new)
    assert (waits.length, waits.raw_bytes) == (3, 60)
    assert waits.newest == {(("t", 1), "k"): other}
    waits.forget(waiting(None, 1))
    assert (waits.length, waits.raw_bytes) == (2, 59)
