"""What the log says about throttling."""

import json
import logging
import random
from dataclasses import dataclass
from typing import Any

import pytest

from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.throttle_log import (
    QUIET_MS,
    WARN_EVERY_MS,
    WORTH_AFTER_MS,
    WORTH_AGAIN_MS,
    WORTH_MESSAGES,
    ThrottleLog,
    WorthLog,
    words,
)
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.pacing.sending.worth import SAMPLE

LIMITED = Limit(50_000, None, LimitSource.CLUSTER, "{client-id=app}")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> ThrottleLog:
    caplog.set_level(logging.INFO, "kclient_quota")
    return ThrottleLog("app", "fetches are spaced")


def test_one_warning_at_the_beginning_of_a_stretch_and_one_word_at_its_end(
    log: ThrottleLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now_ms in range(0, 30_000, 1_000):
        log.on_throttle("b:9092/1", 800, LIMITED, now_ms)
        log.on_time(now_ms)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "b:9092/1 throttles client 'app' for 800 ms: fetches are spaced (quota: 50,000 B/s" in caplog.text
    log.on_time(29_800 + QUIET_MS - 1)
    assert len(caplog.records) == 1
    log.on_time(29_800 + QUIET_MS)
    log.on_time(60_000)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_quota_that_nobody_knew_of_is_none_only_when_last_asked_for(
    log: ThrottleLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.on_throttle("b:9092/1", 1, Limit(None, None, LimitSource.CLUSTER), 0)
    assert "for 1 ms: fetches are spaced (quota: none when it was last asked for)" in caplog.text


def test_stretches_within_a_minute_are_not_told_neither_their_end(
    log: ThrottleLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now_ms in (0, 20_000, 40_000):
        log.on_throttle("b", 100, LIMITED, now_ms)
        log.on_time(now_ms + 10_000)
    assert len(caplog.records) == 2
    log.on_throttle("b", 100, LIMITED, WARN_EVERY_MS)
    assert len(caplog.records) == 3


def test_the_limit_is_asked_for_now_and_then(log: ThrottleLog) -> None:
    assert [now_ms for now_ms in range(0, 61_000, 1_000) if log.asks(now_ms)] == [0, 30_000, 60_000]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (LIMITED, "50,000 B/s per broker, from cluster, {client-id=app}"),
        (Limit(1_000.0, None, LimitSource.CONFIG), "1,000 B/s per broker, from config"),
        (Limit(None, None, LimitSource.CLUSTER), "none"),
        (UNKNOWN, "not known, being learnt"),
    ],
)
def test_limits_in_words(limit: Limit, said: str) -> None:
    assert words(limit) == said


def test_a_client_that_does_nothing_about_throttles_does_not_say_it_would(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ThrottleLog("app", "fetches are spaced", Backoff.OFF).on_throttle("b:9092/1", 800, UNKNOWN, 0)
    assert "for 800 ms: nothing is done about it, as quota.backoff is off" in caplog.text


@dataclass
class Sent:
    """A message as the queue hands it on."""

    value: bytes | str | None
    key: str | None = None


def orders(count: int) -> list[Sent]:
    chance = random.Random(3)
    return [
        Sent(json.dumps({"order": chance.randrange(10**9), "customer": {"city": "Berlin"}, "paid": True}), str(number))
        for number in range(count)
    ]


def wait_for_quota(log: WorthLog, messages: list[Sent], from_ms: int, until_ms: int, *, waited_ms: int = 200) -> None:
    """Twenty messages leave every 100 ms."""
    for now_ms in range(from_ms, until_ms, 100):
        if not log.is_done:
            begin = now_ms // 5 % (len(messages) - 20)
            log.on_sent("orders", messages[begin : begin + 20], 0.9, waited_ms, now_ms)


def test_that_compression_would_send_much_more_is_said_once_with_its_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = WorthLog("app", "none", 1_000)
    wait_for_quota(log, orders(500), 0, WORTH_AFTER_MS)
    assert not caplog.records
    wait_for_quota(log, orders(500), WORTH_AFTER_MS, 30_000)
    (record,) = caplog.records
    assert "orders compress" in record.getMessage()
    assert "compression.type=zstd would send" in record.getMessage()
    assert vars(record)["setting"] == "compression.type=zstd"
    assert vars(record)["times"] > 1.5
    assert (vars(record)["topic"], vars(record)["client_id"]) == ("orders", "app")
    assert log.is_done


@pytest.mark.parametrize("waited_ms", [0, 49])
def test_who_has_quota_enough_is_told_nothing(waited_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    wait_for_quota(WorthLog("app", "none", 1_000), orders(500), 0, 60_000, waited_ms=waited_ms)
    assert not caplog.records


def test_who_waits_for_room_waits_for_the_quota_however_soon_messages_leave_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, messages = WorthLog("app", "none", 1_000), orders(500)
    for now_ms in range(0, 30_000, 100):
        if not log.is_done:
            if not now_ms % 900:
                log.on_full(now_ms)
            log.on_sent("orders", messages[now_ms // 100 : now_ms // 100 + 20], 0.9, 5, now_ms)
    assert [vars(record)["setting"] for record in caplog.records] == ["compression.type=zstd"]


def test_what_does_not_compress_is_looked_at_again_after_ten_minutes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr("kclient_quota.pacing.sending.worth.worth", lambda sample, **_: looked.append(len(sample)))
    noise = [Sent(random.Random(4).randbytes(1_000)) for _ in range(50)]
    wait_for_quota(WorthLog("app", "none", 1_000), noise, 0, WORTH_AFTER_MS + WORTH_AGAIN_MS + 5_000)
    assert looked == [100, 100]
    assert not caplog.records


def test_who_sends_messages_does_not_wait_until_they_have_been_compressed(caplog: pytest.LogCaptureFixture) -> None:
    """In a thread that competes for the interpreter, loading compressors held a sender up for 1.6 s."""
    calls: list[tuple[Any, ...]] = []
    log = WorthLog("app", "none", 1_000, lambda *call: calls.append(call))
    wait_for_quota(log, orders(500), 0, WORTH_AFTER_MS + 5_000)
    (call,) = calls  # not again while that goes on
    assert not caplog.records
    work, *args = call
    work(*args)
    assert "compression.type=zstd" in caplog.text
    assert log.is_done
    assert WORTH_MESSAGES == SAMPLE


def test_without_a_thread_nothing_is_said_and_messages_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def apart(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    wait_for_quota(WorthLog("app", "none", 1_000, apart), orders(500), 0, WORTH_AFTER_MS + 5_000)
    assert not caplog.records


def test_where_batches_are_small_for_want_of_time_a_longer_delay_is_what_would_help(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = WorthLog("app", "zstd", 1_000)
    messages = orders(200)
    for now_ms in range(0, 40_000, 50):
        if not log.is_done:
            begin = now_ms // 10 % 190
            log.on_sent("orders", messages[begin : begin + 3], 0.1, 400, now_ms)
    assert [vars(record)["setting"] for record in caplog.records] == ["quota.max.delay.ms=5000"]


def test_who_has_to_learn_is_told_once_who_should_ask_the_cluster(
    log: ThrottleLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.on_throttle("b", 100, LIMITED, 0)
    assert "DESCRIBE_CONFIGS" not in caplog.text
    for now_ms in (100_000, 200_000):
        log.on_throttle("b", 100, UNKNOWN, now_ms)
        log.on_time(now_ms + 50_000)
    assert caplog.text.count("DESCRIBE_CONFIGS") == 1
    off = ThrottleLog("app", "", Backoff.OFF)
    off.on_throttle("b", 100, UNKNOWN, 0)
    assert caplog.text.count("DESCRIBE_CONFIGS") == 1
