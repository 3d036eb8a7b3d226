import json
from typing import Any

from kclient_quota.clients.librdkafka.statistics import BrokerDelta, StatisticsReader


def event(*brokers: dict[str, Any]) -> str:
    return json.dumps({"brokers": {broker["name"]: broker for broker in brokers}})


def broker(name: str = "h:1/1", nodeid: int = 1, nodename: str = "h:1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodeid": nodeid, "nodename": nodename, **fields}


def test_totals_become_differences_and_throttles_are_windows() -> None:
    reader = StatisticsReader()
    throttle = {"cnt": 2, "sum": 300, "max": 200}
    reader.read(event(broker(tx=10, txbytes=1000, rx=9, rxbytes=90)))
    (delta,) = reader.read(event(broker(tx=15, txbytes=1600, rx=14, rxbytes=140, throttle=throttle, waitresp_cnt=1)))
    assert delta == BrokerDelta(1, "h:1/1", 5, 600, 0, 5, 50, 0, 0, 2, 300, 200, 1)


def test_the_coordinators_connection_counts_for_the_broker_at_its_address() -> None:
    reader = StatisticsReader()
    deltas = reader.read(event(broker(rx=1), broker("GroupCoordinator", -1, "h:1", rx=4)))
    assert [(delta.node_id, delta.responses) for delta in deltas] == [(1, 1), (1, 4)]
    assert reader.node_id("h:1") == 1
    assert reader.node_id("other:1") is None


def test_an_unidentified_bootstrap_broker_keeps_its_counts_until_it_is_known() -> None:
    reader = StatisticsReader()
    assert reader.read(event(broker("b:1/bootstrap", -1, "b:1", rx=3))) == []
    deltas = reader.read(event(broker("b:1/bootstrap", -1, "b:1", rx=3), broker("b:1/7", 7, "b:1", rx=1)))
    assert [(delta.node_id, delta.responses) for delta in deltas] == [(7, 3), (7, 1)]


def test_a_connection_made_anew_starts_from_zero() -> None:
    reader = StatisticsReader()
    reader.read(event(broker(rx=50, tx=50)))
    (delta,) = reader.read(event(broker(rx=2, tx=3)))
    assert (delta.responses, delta.requests) == (2, 3)
