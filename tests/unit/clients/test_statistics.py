from typing import Any

import pytest

from kclient_quota.clients.librdkafka.statistics import BrokerDelta, StatisticsReader, decoded


def event(*brokers: dict[str, Any]) -> dict[str, Any]:
    return {"brokers": {broker["name"]: broker for broker in brokers}}


def broker(name: str = "h:1/1", nodeid: int = 1, nodename: str = "h:1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodeid": nodeid, "nodename": nodename, **fields}


def test_totals_become_differences_and_throttles_are_windows() -> None:
    reader = StatisticsReader()
    throttle = {"cnt": 2, "sum": 300, "max": 200}
    reader.differences(event(broker(tx=10, txbytes=1000, rx=9, rxbytes=90)))
    (delta,) = reader.differences(
        event(broker(tx=15, txbytes=1600, rx=14, rxbytes=140, throttle=throttle, waitresp_cnt=1))
    )
    assert delta == BrokerDelta(1, "h:1/1", 5, 600, 5, 50, 2, 300, 200, 5)


def test_the_coordinators_connection_counts_for_the_broker_at_its_address() -> None:
    reader = StatisticsReader()
    deltas = reader.differences(event(broker(rx=1), broker("GroupCoordinator", -1, "h:1", rx=4)))
    assert [(delta.node_id, delta.responses) for delta in deltas] == [(1, 1), (1, 4)]
    assert [reader.throttling(-1, name) for name in ("h:1", "h:1/bootstrap")] == [1, 1]
    assert (reader.throttling(-1, "other:1"), reader.throttling(7, "h:1")) == (-1, 7)


def test_an_unidentified_bootstrap_broker_keeps_its_counts_until_it_is_known() -> None:
    reader = StatisticsReader()
    assert reader.differences(event(broker("b:1/bootstrap", -1, "b:1", rx=3))) == []
    deltas = reader.differences(event(broker("b:1/bootstrap", -1, "b:1", rx=3), broker("b:1/7", 7, "b:1", rx=1)))
    assert [(delta.node_id, delta.responses) for delta in deltas] == [(7, 3), (7, 1)]


def test_a_connection_made_anew_starts_from_zero() -> None:
    reader = StatisticsReader()
    reader.differences(event(broker(rx=50, tx=50)))
    (delta,) = reader.differences(event(broker(rx=2, tx=3)))
    assert (delta.responses, delta.requests) == (2, 3)


def test_a_broker_that_moves_to_another_address_goes_on_counting() -> None:
    """As one whose `advertised.listeners` are others after a restart: all that it was ever sent counted at once."""
    reader = StatisticsReader()
    reader.differences(
        event(broker(tx=70, txbytes=7_000_000, rx=70, req={"Fetch": 50}), broker("GroupCoordinator", 1, rx=9))
    )
    deltas = reader.differences(
        event(
            broker("h:2/1", 1, "h:2", tx=75, txbytes=7_000_600, rx=74, req={"Fetch": 53}),
            broker("GroupCoordinator", 1, "h:2", rx=10),
        )
    )
    assert [(delta.request_bytes, delta.responses, delta.fetches) for delta in deltas] == [(600, 4, 3), (0, 1, 1)]
    (back,) = reader.differences(event(broker(tx=76, txbytes=7_000_700, rx=75)))
    assert (back.name, back.request_bytes) == ("h:1/1", 100)


def test_one_that_is_made_anew_at_another_address_beside_the_old_one_does_not() -> None:
    reader = StatisticsReader()
    old, new = broker(txbytes=500), broker("h:2/1", 1, "h:2", txbytes=900)
    seen = [event(old), event(old, new), event(new, old), event({**new, "txbytes": 990})]
    assert [[delta.request_bytes for delta in reader.differences(each)] for each in seen] == [
        [500],
        [0, 900],
        [0, 0],
        [90],
    ]


def fetches(*found: tuple[int, int, int]) -> list[int]:
    """What is told of responses, requests that wait for theirs, and fetches sent, event by event."""
    reader = StatisticsReader()
    return [
        reader.differences(event(broker(rx=rx, waitresp_cnt=waiting, req={"Fetch": sent, "Metadata": 9})))[0].fetches
        for rx, waiting, sent in found
    ]


def test_a_fetch_is_answered_when_none_is_on_its_way_any_more() -> None:
    assert fetches((13, 1, 2), (13, 1, 2), (14, 0, 2), (16, 0, 4)) == [1, 0, 1, 2]


def test_something_else_that_waits_for_its_answer_is_no_fetch() -> None:
    assert fetches((13, 0, 2), (13, 1, 2), (14, 0, 2), (15, 1, 3), (16, 0, 3)) == [2, 0, 0, 0, 1]


def test_fetches_of_a_connection_made_anew_start_from_zero() -> None:
    assert fetches((60, 0, 50), (8, 0, 3), (9, 0, 4)) == [50, 3, 1]


def test_messages_are_told_of_once() -> None:
    reader = StatisticsReader()
    events = ({"txmsgs": 3, "txmsg_bytes": 300}, {"txmsgs": 3, "txmsg_bytes": 300}, {"txmsgs": 5, "txmsg_bytes": 310})
    assert [reader.messages(event) for event in events] == [(3, 300), (0, 0), (2, 10)]


@pytest.mark.parametrize(
    "client_id", ['shop "eu"', "a\\q", "a\tb\n", "\x1b[31m", 'a", "b', "plain", "注文", 'a\\q", "type": "b']
)
def test_names_that_librdkafka_does_not_escape_are_read_all_the_same(client_id: str) -> None:
    head = f'{{ "name": "{client_id}#producer-1", "client_id": "{client_id}", "type": "producer", "ts":5016483227792, '
    told = decoded(head + '"brokers":{ "h:1/1": {"name":"h:1/1"} } }')
    assert (told["name"], told["client_id"]) == (f"{client_id}#producer-1", client_id)
    assert (told["type"], told["ts"], list(told["brokers"])) == ("producer", 5016483227792, ["h:1/1"])


def test_what_is_no_event_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        decoded("nothing")
