"""Lanes, deadlines and tenants as they are configured."""

from math import inf
from typing import Any

import pytest

from kclient_quota.clients.producer.outbox import Handed
from kclient_quota.clients.producer.sorting import Sorting
from kclient_quota.config import split
from kclient_quota.errors import ConfigError
from kclient_quota.pacing.sending.lanes import Full
from kclient_quota.pacing.sending.turns import Waiting

LANES = {"alerts": {"priority": "strict"}, "bulk": {"weight": 2, "full": "drop-oldest", "deadline.ms": 500}}


def sorting(**conf: Any) -> Sorting:
    return Sorting(split({key.replace("_", "."): value for key, value in conf.items()})[1])


def message(topic: str = "orders", key: Any = None, headers: Any = None) -> Waiting:
    return Waiting(topic, -1, 100, 1_000, Handed(b"v", key, -1, None, 0, headers), 301_000)


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"quota.lanes": ["alerts"]}, "quota.lanes=['alerts']: give a mapping of names"),
        ({"quota.lanes": LANES}, "quota.lanes needs quota.lane.of"),
        ({"quota.lane.of": {"a": "alerts"}}, "quota.lane.of needs quota.lanes"),
        ({"quota.lanes": LANES, "quota.lane.of": {"a": "alert"}}, "quota.lanes has no lane alert; it has alerts, bulk"),
        ({"quota.lanes": LANES, "quota.lane.of": 3}, "quota.lane.of=3: give a mapping of topics to lanes"),
        ({"quota.lanes": LANES, "quota.lane.of": ""}, "quota.lane.of='': give a mapping of topics to lanes"),
        ({"quota.tenant.of": "key"}, "quota.tenant.of='key': give a function of the record"),
        ({"quota.message.deadline.ms": 0}, "quota.message.deadline.ms=0: give a whole number of milliseconds above 0"),
        ({"quota.message.deadline.ms": "soon"}, "quota.message.deadline.ms='soon': give a finite number"),
        ({"quota.message.deadline.ms": 5, "quota.backoff": "off"}, "with quota.backoff=off none does"),
        ({"quota.lane": LANES}, "did you mean 'quota.lanes'?"),
        ({"quota.deadline.ms": 5}, "did you mean 'quota.message.deadline.ms'?"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_key_and_the_remedy(conf: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        split(conf)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ({"priority": "high"}, "quota.lanes: lane 'a': priority must be 'strict' or left out, not 'high'"),
        ({"weight": 0}, "quota.lanes: lane 'a': weight must be above 0, not 0.0"),
        ({"weight": "much"}, "quota.lanes: lane 'a': weight and deadline.ms must be numbers"),
        ({"full": "drop"}, "full must be one of block, raise, drop-oldest, drop-newest, not 'drop'"),
        ({"newest": "yes"}, "newest must be True or False, not 'yes'"),
        ({"deadline": 5}, "has unknown deadline; known are priority, weight, full, deadline.ms, newest"),
        ({"deadline.ms": 0}, "deadline.ms must be at least 1, not 0"),
        (3, "must be a mapping"),
    ],
)
def test_a_lane_that_cannot_be_meant_is_refused(lane: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        sorting(quota_lanes={"a": lane}, quota_lane_of={"t": "a"})
    assert said in str(error.value)


def test_lanes_by_topic_header_and_function() -> None:
    by_topic = sorting(quota_lanes=LANES, quota_lane_of={"pager": "alerts"})
    assert (by_topic.sort(message("pager")).name, by_topic.sort(message("orders")).name) == ("alerts", "")
    by_header = sorting(quota_lanes=LANES, quota_lane_of="lane")
    assert by_header.sort(message(headers=[("lane", b"bulk"), ("lane", b"alerts")])).name == "alerts"
    assert by_header.sort(message(headers={"lane": "bulk"})).name == "bulk"
    assert by_header.sort(message(headers=[("lane", None), ("x", b"y")])).name == ""
    assert by_header.sort(message(headers={"lane": b"\xff"})).name == ""
    by_function = sorting(quota_lanes=LANES, quota_lane_of=lambda record: "bulk" if record.key else None)
    assert (by_function.sort(message(key=b"k")).name, by_function.sort(message()).name) == ("bulk", "")
    wrong = sorting(quota_lanes=LANES, quota_lane_of=lambda record: "bulky")
    with pytest.raises(ConfigError, match=r"quota.lane.of says lane 'bulky', and quota.lanes has alerts, bulk"):
        wrong.sort(message())


def test_what_a_full_lane_does_is_what_backoff_says_unless_it_says_so_itself() -> None:
    raising = sorting(quota_lanes=LANES, quota_lane_of="lane", quota_backoff="raise")
    assert {lane.name: lane.full for lane in raising.lanes} == {
        "alerts": Full.RAISE,
        "bulk": Full.DROP_OLDEST,
        "": Full.RAISE,
    }
    assert [lane.full for lane in sorting().lanes] == [Full.BLOCK]


@pytest.mark.parametrize(
    ("deadline", "lane", "expected_ms"),
    [(None, "", 301_000), (2_000, "", 3_000), (2_000, "bulk", 1_500), (10**9, "", 301_000), (lambda _: 7, "", 1_007)],
)
def test_a_message_is_worth_what_its_lane_says_then_the_producer_never_more_than_its_time_out(
    deadline: Any, lane: str, expected_ms: int
) -> None:
    sorted_by = sorting(quota_lanes=LANES, quota_lane_of="lane", **{"quota.message.deadline.ms": deadline})
    waiting = message(headers={"lane": lane})
    sorted_by.sort(waiting)
    assert waiting.expires_at_ms == expected_ms


@pytest.mark.parametrize("said", ["soon", True, float("nan")])
def test_a_deadline_that_is_no_number_is_said_to_whoever_produces(said: Any) -> None:
    with pytest.raises(ConfigError, match=r"quota.message.deadline.ms says"):
        sorting(**{"quota.message.deadline.ms": lambda _: said}).sort(message())


def test_tenants_and_keys() -> None:
    lanes = {"state": {"newest": True}}
    sorted_by = sorting(quota_lanes=lanes, quota_lane_of={"s": "state"}, quota_tenant_of=lambda record: record.headers)
    waiting = message("s", key="k", headers=("acme",))
    sorted_by.sort(waiting)
    assert (waiting.key, waiting.tenant) == (b"k", ("acme",))
    with pytest.raises(TypeError, match="unhashable"):
        sorted_by.sort(message(headers=["acme"]))


@pytest.mark.parametrize(
    ("conf", "patience_ms"),
    [
        ({}, inf),
        ({"quota_backoff": "raise"}, 0),
        ({"quota_message_deadline_ms": 700}, 700),
        ({"quota_message_deadline_ms": lambda _: 700}, 0),
        ({"quota_lanes": {"alerts": {"priority": "strict"}}, "quota_lane_of": {"a": "alerts"}}, inf),
        ({"quota_lanes": {"alerts": {"deadline.ms": 500}}, "quota_lane_of": {"a": "alerts"}}, 500),
        ({"quota_lanes": {"alerts": {"full": "raise"}}, "quota_lane_of": {"a": "alerts"}}, 0),
        ({"quota_lanes": {"bulk": {"full": "drop-newest"}}, "quota_lane_of": {"a": "bulk"}}, 0),
    ],
)
def test_nobody_is_kept_waiting_who_would_be_refused_for_it(conf: dict[str, Any], patience_ms: float) -> None:
    assert sorting(**conf).patience_ms == patience_ms
