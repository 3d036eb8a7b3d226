import logging
import threading
from collections.abc import Mapping
from math import inf, nan
from typing import Any

import pytest

from kclient_quota.clients import limits
from kclient_quota.clients.limits import UNKNOWN, Limit, LimitFinder, LimitWatch
from kclient_quota.cluster.limits import EffectiveLimits
from kclient_quota.config import LimitSource, split
from kclient_quota.errors import ConfigError
from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType
from kclient_quota.quota.entity import ClientQuotaEntity


class Asked:
    def __init__(self, answer: EffectiveLimits) -> None:
        self.answer = answer
        self.calls: list[tuple[str | None, str, int]] = []
        self.fresh_ms: list[int] = []

    def __call__(
        self, conf: Mapping[str, Any], user: str | None, client_id: str, deadline_ms: int, *, fresh_ms: int
    ) -> EffectiveLimits:
        self.calls.append((user, client_id, deadline_ms))
        self.fresh_ms.append(fresh_ms)
        return self.answer


class Callback(ClientQuotaCallback):
    def __init__(self) -> None:
        self.reset = False

    def quota_metric_tags(self, quota_type: Any, principal: str, client_id: str) -> Mapping[str, str]:
        return {"tenant": f"{principal}/{client_id}"}

    def quota_limit(self, quota_type: Any, metric_tags: Mapping[str, str]) -> float | None:
        return {ClientQuotaType.PRODUCE: 77.0}.get(quota_type) if metric_tags["tenant"] == "alice/c" else 1.0

    def quota_reset_required(self, quota_type: Any) -> bool:
        return self.reset


def finder(conf: dict[str, Any], ask: Asked) -> LimitFinder:
    rest, ours = split(conf)
    return LimitFinder(ours, rest, byte_rate_key="producer_byte_rate", ask=ask)


def test_by_hand_wins_and_asks_nobody() -> None:
    ask = Asked(EffectiveLimits(producer_byte_rate=5))
    found = finder({"producer_byte_rate": 100, "client.quota.callback.class": Callback}, ask).find()
    assert (found.byte_rate, found.source, ask.calls) == (100.0, LimitSource.CONFIG, [])


def test_questions_are_not_asked_at_the_cost_of_the_clients_own_request_quota() -> None:
    asked_as: list[str] = []

    def ask(
        conf: Mapping[str, Any], user: str | None, client_id: str, deadline_ms: int, *, fresh_ms: int
    ) -> EffectiveLimits:
        asked_as.append(conf["client.id"])
        assert (client_id, deadline_ms) == ("app", 7)
        return EffectiveLimits(request_percentage=0.01)

    rest, ours = split({"client.id": "app"})
    found = LimitFinder(ours, rest, byte_rate_key="producer_byte_rate", ask=ask).find(7)
    assert (found.request_percentage, asked_as, rest) == (0.01, ["kclient-quota"], {"client.id": "app"})


def test_a_callback_comes_before_the_cluster() -> None:
    ask = Asked(EffectiveLimits())
    found = finder({"client.id": "c", "quota.user": "alice", "client.quota.callback.class": Callback}, ask).find()
    assert found == Limit(77.0, None, LimitSource.CALLBACK)
    assert ask.calls == []


class Says(Callback):
    """A callback whose answers the test changes."""

    def __init__(self, answer: Any) -> None:
        self.reset = True
        self.answer = answer

    def quota_limit(self, quota_type: Any, metric_tags: Mapping[str, str]) -> float | None:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer if quota_type is ClientQuotaType.PRODUCE else None


def test_a_callback_that_says_infinite_says_that_there_is_no_limit() -> None:
    found = finder({"client.quota.callback.class": Says(inf)}, Asked(EffectiveLimits())).find()
    assert found == Limit(None, None, LimitSource.CALLBACK)
    assert found.unlimited


@pytest.mark.parametrize("answer", [0, -1.0, nan, "much"])
def test_a_callback_that_says_no_limit_that_there_can_be_is_told_so(answer: Any) -> None:
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class: quota_limit\(\) has returned"):
        finder({"client.quota.callback.class": Says(answer)}, Asked(EffectiveLimits())).find()


def test_a_callback_that_fails_is_asked_again_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    says, seen = Says(5), list[Limit]()
    watch = LimitWatch(finder({"client.quota.callback.class": says}, Asked(EffectiveLimits())), seen.append)
    for says.answer in (5, ValueError("the database is away"), SystemExit(3), 7, 0, 9):
        assert watch.check(asked=False)
    assert [limit.byte_rate for limit in seen] == [5, 7, 9]
    assert [record.getMessage() for record in caplog.records] == [
        "The quota could not be asked for; what was known before still holds"
    ] * 2


def test_the_cluster_is_asked_for_this_user_and_client_id() -> None:
    ask = Asked(
        EffectiveLimits(
            producer_byte_rate=512,
            request_percentage=10,
            deciding={"producer_byte_rate": ClientQuotaEntity.of(client_id="c")},
            samples=6,
            window_ms=500,
        )
    )
    found = finder({"client.id": "c", "sasl.username": "bob", "security.protocol": "sasl_ssl"}, ask).find()
    assert found == Limit(512, 10, LimitSource.CLUSTER, "{client-id=c}", 6, 500)
    assert ask.calls == [("bob", "c", 1000)]
    assert not found.unlimited


def test_nothing_configured_in_the_cluster_is_known_to_be_unlimited() -> None:
    ask = Asked(EffectiveLimits())
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
    ask = Asked(EffectiveLimits(producer_byte_rate=5))
    assert finder(conf, ask).find() is UNKNOWN
    assert ask.calls == []


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_certificate_that_is_not_set_hides_nobody(nothing: str | None) -> None:
    """As configurations have it whose optional keys are always there."""
    ask = Asked(EffectiveLimits(producer_byte_rate=5))
    conf = {"security.protocol": "ssl", "ssl.certificate.location": nothing, "ssl.certificate.pem": nothing}
    assert finder(conf, ask).find().byte_rate == 5
    assert ask.calls == [(None, "rdkafka", 1000)]


def test_denied_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    denied = finder({}, Asked(EffectiveLimits(denied="DescribeClientQuotas needs DESCRIBE_CONFIGS on the cluster")))
    assert denied.find() is UNKNOWN
    assert denied.find() is UNKNOWN
    assert caplog.text.count("DESCRIBE_CONFIGS") == 1


def test_what_was_known_stays_while_nobody_answers_and_each_time_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ask, seen = Asked(EffectiveLimits(producer_byte_rate=9)), list[Limit]()
    finds = finder({}, ask)
    finds.find()
    watch = LimitWatch(finds, seen.append)
    told, away = ask.answer, EffectiveLimits(denied="nobody is there", is_away=True)
    for ask.answer in (away, away, told, away, told):
        watch.check(asked=False)
    assert (finds.found.byte_rate, [limit.byte_rate for limit in seen]) == (9, [9, 9])
    text = "The quota of this client could not be asked for again, and stays as it is: nobody is there"
    assert [record.getMessage() for record in caplog.records] == [text] * 2


def test_who_was_not_answered_asks_again_soon_and_who_was_refused_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []

    class Watch(LimitWatch):
        def _sleep(self) -> None:
            slept.append(self._period_ms)
            self._stops = True

    for is_away in (True, False):
        finds = finder({}, Asked(EffectiveLimits(denied="no", is_away=is_away)))
        finds.find()
        Watch(finds, lambda _: None)._run()
    assert slept == [limits.AGAIN_MS, limits.REFRESH_MS]


def test_who_is_not_answered_rests_less_before_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[float] = []
    for is_away in (True, False):
        finds = finder({}, Asked(EffectiveLimits(denied="no", is_away=is_away)))
        watch = LimitWatch(finds, lambda _: None)

        def rest(seconds: float, watch: LimitWatch = watch) -> None:
            rested.append(seconds)
            watch._stops = True

        monkeypatch.setattr(watch, "_sleep", lambda: None)
        monkeypatch.setattr(watch._end, "wait", rest)
        watch._run()
    assert rested == [limits.CHANGED_MS / 1000, limits.MIN_REFRESH_MS / 1000]


def test_who_knows_nothing_takes_what_another_has_been_told_a_while_ago() -> None:
    """Of twenty clients whose cluster took two seconds for each answer each asked for itself, and none was told."""
    ask = Asked(EffectiveLimits(denied="nobody is there", is_away=True))
    finds = finder({}, ask)
    finds.find()
    watch = LimitWatch(finds, lambda _: None)
    away = ask.answer
    for ask.answer in (away, EffectiveLimits(producer_byte_rate=9), away):
        watch.check(asked=False)
    watch.check(asked=True)
    assert ask.fresh_ms == [0, 10_000, 10_000, 10_000, 0], "and leaves the turn to those who know nothing yet"


def test_a_watch_answers_when_told_to_and_stops() -> None:
    ask = Asked(EffectiveLimits(producer_byte_rate=9))
    answered = threading.Event()
    seen: list[Limit] = []

    def on_limit(limit: Limit) -> None:
        seen.append(limit)
        answered.set()

    others = set(threading.enumerate())
    watch = LimitWatch(finder({}, ask), on_limit)
    watch.start()
    watch.ask_soon()
    assert answered.wait(60)
    watch.close()
    watch._thread.join(60)
    assert [limit.byte_rate for limit in seen] == [9]
    assert set(threading.enumerate()) <= others


def test_whoever_tells_a_watch_to_ask_while_it_does_has_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 0)
    ask, twice = Asked(EffectiveLimits(producer_byte_rate=9)), threading.Event()
    seen: list[Limit] = []

    def on_limit(limit: Limit) -> None:
        seen.append(limit)
        if len(seen) == 1:
            watch.ask_soon()
        else:
            twice.set()

    watch = LimitWatch(finder({}, ask), on_limit)
    watch.start()
    watch.ask_soon()
    assert twice.wait(30)
    watch.close()
    watch._thread.join(60)
    assert len(seen) == 2


@pytest.mark.parametrize("anew", [True, False])
def test_whoever_wants_any_answer_has_the_one_that_comes(anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, asked = LimitWatch(finder({}, Asked(EffectiveLimits())), lambda _: None), list[bool]()

    def check(*, asked: bool, into: list[bool] = asked) -> bool:
        into.append(asked)
        watch.ask_soon(anew=anew)  # just now
        return False

    def sleep() -> None:
        watch._stops = len(asked) == 2

    monkeypatch.setattr(watch, "check", check)
    monkeypatch.setattr(watch, "_sleep", sleep)
    watch._run()
    assert asked == [False, anew]


def test_what_has_changed_is_looked_at_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 0)
    monkeypatch.setattr(limits, "CHANGED_MS", 1)
    rates, done = iter((9, 20, 20, 30)), threading.Event()
    seen: list[float | None] = []

    def ask(*_: Any, **__: Any) -> EffectiveLimits:
        return EffectiveLimits(producer_byte_rate=next(rates, 30))

    def on_limit(limit: Limit) -> None:
        seen.append(limit.byte_rate)
        if limit.byte_rate == 30:
            done.set()

    finds = finder({}, Asked(EffectiveLimits(producer_byte_rate=5)))
    finds.find()
    finds._ask = ask
    watch = LimitWatch(finds, on_limit)
    watch.start()
    watch.ask_soon()
    assert done.wait(30), "without being told to"
    watch.close()
    watch._thread.join(60)
    assert seen[:4] == [9, 20, 20, 30]


@pytest.mark.parametrize("declared", ["no.such.Callback", object(), "collections.Counter"])
def test_what_is_no_callback_says_so(declared: Any) -> None:
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class"):
        finder({"client.quota.callback.class": declared}, Asked(EffectiveLimits()))


@pytest.mark.parametrize("source", ["auto", "config"])
def test_the_other_sides_limit_by_hand_says_nothing_about_this_one(source: str) -> None:
    conf = {"consumer_byte_rate": 10, "quota.limit.source": source}
    found = finder(conf, Asked(EffectiveLimits(producer_byte_rate=5))).find()
    assert found == (Limit(5, None, LimitSource.CLUSTER) if source == "auto" else UNKNOWN)
    assert not found.unlimited


def test_a_percentage_by_hand_leaves_the_byte_rate_to_the_cluster() -> None:
    found = finder({"request_percentage": 7}, Asked(EffectiveLimits(producer_byte_rate=5, request_percentage=9))).find()
    assert (found.byte_rate, found.request_percentage, found.source) == (5, 7, LimitSource.CLUSTER)


@pytest.mark.parametrize(
    ("conf", "changes"),
    [
        ({}, True),
        ({"consumer_byte_rate": 10}, True),
        ({"producer_byte_rate": 10}, False),
        ({"quota.limit.source": "learned"}, False),
        ({"client.quota.callback.class": Callback}, True),
    ],
)
def test_only_what_somebody_can_be_asked_for_is_watched(conf: dict[str, Any], changes: bool) -> None:
    assert finder(conf, Asked(EffectiveLimits())).may_change is changes
