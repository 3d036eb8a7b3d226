import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kclient_quota.clients.limits import UNKNOWN, Limit, LimitFinder, LimitWatch
from kclient_quota.config import LimitSource, split


@dataclass
class Answer:
    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    decided_by: str | None = None
    samples: int = 11
    window_ms: int = 1000
    denied: str | None = None


class Asked:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[tuple[str | None, str, int]] = []

    def __call__(self, conf: Mapping[str, Any], user: str | None, client_id: str, deadline_ms: int) -> Answer:
        self.calls.append((user, client_id, deadline_ms))
        return self.answer


class Callback:
    def __init__(self) -> None:
        self.reset = False

    def quota_metric_tags(self, quota_type: Any, principal: str, client_id: str) -> Mapping[str, str]:
        return {"tenant": f"{principal}/{client_id}"}

    def quota_limit(self, quota_type: Any, metric_tags: Mapping[str, str]) -> float | None:
        return {"PRODUCE": 77.0}.get(quota_type) if metric_tags["tenant"] == "alice/c" else 1.0

    def quota_reset_required(self, quota_type: Any) -> bool:
        return self.reset


def finder(conf: dict[str, Any], ask: Asked, callback: Callback | None = None) -> LimitFinder:
    rest, ours = split(conf)
    types = ("PRODUCE", "REQUEST")
    return LimitFinder(ours, rest, byte_rate_key="producer_byte_rate", quota_types=types, callback=callback, ask=ask)


def test_by_hand_wins_and_asks_nobody() -> None:
    ask = Asked(Answer(producer_byte_rate=5))
    found = finder({"producer_byte_rate": 100}, ask, Callback()).find()
    assert (found.byte_rate, found.source, ask.calls) == (100.0, LimitSource.CONFIG, [])


def test_a_callback_comes_before_the_cluster() -> None:
    ask = Asked(Answer())
    found = finder({"client.id": "c", "quota.user": "alice"}, ask, Callback()).find()
    assert found == Limit(77.0, None, LimitSource.CALLBACK)
    assert ask.calls == []


def test_the_cluster_is_asked_for_this_user_and_client_id() -> None:
    ask = Asked(
        Answer(producer_byte_rate=512, request_percentage=10, decided_by="client-id=c", samples=6, window_ms=500)
    )
    found = finder({"client.id": "c", "sasl.username": "bob"}, ask).find()
    assert found == Limit(512, 10, LimitSource.CLUSTER, "client-id=c", 6, 500)
    assert ask.calls == [("bob", "c", 1000)]
    assert not found.unlimited


def test_nothing_configured_in_the_cluster_is_known_to_be_unlimited() -> None:
    ask = Asked(Answer())
    assert finder({}, ask).find().unlimited
    assert ask.calls == [(None, "rdkafka", 1000)]


@pytest.mark.parametrize(
    "conf",
    [
        {"quota.limit.source": "learned"},
        {"security.protocol": "ssl", "ssl.certificate.location": "client.pem"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
    ],
)
def test_what_cannot_be_known_is_learnt(conf: dict[str, Any]) -> None:
    ask = Asked(Answer(producer_byte_rate=5))
    assert finder(conf, ask).find() is UNKNOWN
    assert ask.calls == []


def test_denied_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    denied = finder({}, Asked(Answer(denied="DescribeClientQuotas needs DESCRIBE_CONFIGS on the cluster")))
    assert denied.find() is UNKNOWN
    assert denied.find() is UNKNOWN
    assert caplog.text.count("DESCRIBE_CONFIGS") == 1


def test_a_watch_answers_when_told_to_and_stops() -> None:
    ask = Asked(Answer(producer_byte_rate=9))
    answered = threading.Event()
    seen: list[Limit] = []

    def on_limit(limit: Limit) -> None:
        seen.append(limit)
        answered.set()

    watch = LimitWatch(finder({}, ask), on_limit)
    watch.start()
    watch.ask_soon()
    assert answered.wait(5)
    watch.close(timeout_ms=5_000)
    assert [limit.byte_rate for limit in seen] == [9]
    assert not any(thread.name == "kclient-quota-limit" for thread in threading.enumerate())
