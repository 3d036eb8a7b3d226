"""What drivers are told, what they tell, and what is heard on the road."""

import json

import pytest

from kclient_quota.certify.driver import Assignment, Event, parse
from kclient_quota.certify.seen import Sent
from kclient_quota.certify.tap import Tap


def test_an_assignment_is_an_environment_of_text() -> None:
    told = Assignment("produce", 7, keys=3, config={"acks": "all"}).environment("host:1", "scene")
    assert told["CERTIFY_BOOTSTRAP_SERVERS"] == "host:1"
    assert told["CERTIFY_TOPIC"] == told["CERTIFY_GROUP"] == told["CERTIFY_CLIENT_ID"] == "scene"
    assert (told["CERTIFY_MESSAGES"], told["CERTIFY_KEYS"], told["CERTIFY_VALUE_BYTES"]) == ("7", "3", "1000")
    assert json.loads(told["CERTIFY_CONFIG"]) == {"acks": "all"}


def test_lines_are_events() -> None:
    assert parse('{"event": "sent", "id": 3}', 9) == Event(9, "sent", 3)
    assert parse('{"event": "failed", "id": 3, "error": "late"}', 9) == Event(9, "failed", 3, "late")
    assert parse('{"event": "received", "id": 3, "partition": 2}', 9) == Event(9, "received", 3, "", 2)
    assert parse('{"event": "received", "id": 3, "partition": 2, "delivery": 4}', 9) == Event(
        9, "received", 3, "", 2, 4
    )
    assert parse('{"event": "closed"}', 9) == Event(9, "closed")


@pytest.mark.parametrize(
    "line",
    ["", "hello", "[]", "7", '{"event": "flown"}', '{"event": "sent"}', '{"event": "sent", "id": true}',
     '{"event": "sent", "id": -1}', '{"event": "sent", "id": "3"}'],
)  # fmt: skip
def test_what_is_no_event_is_named(line: str) -> None:
    assert isinstance(parse(line, 0), str)


def frame(api_key: int, size: int) -> bytes:
    return (size + 2).to_bytes(4, "big") + api_key.to_bytes(2, "big") + b"x" * size


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 1_000])
def test_requests_are_heard_however_their_bytes_are_cut(step: int) -> None:
    road, tap = frame(0, 30) + frame(3, 0) + frame(72, 200), Tap()
    for at in range(0, len(road), step):
        tap.heard(1, road[at : at + step], at)
        tap.heard(2, b"", at)
    assert [(sent.connection, sent.api_key) for sent in tap.sent] == [(1, 0), (1, 3), (1, 72)]


def test_connections_are_told_apart() -> None:
    tap, whole = Tap(), frame(1, 20)
    tap.heard(4, whole[:10], 1)
    tap.heard(5, whole, 2)
    tap.heard(4, whole[10:], 3)
    assert tap.sent == [Sent(1, 4, 1), Sent(2, 5, 1)]
