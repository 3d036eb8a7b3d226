"""What the log says about throttling."""

import logging

import pytest

from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.throttle_log import QUIET_MS, WARN_EVERY_MS, ThrottleLog, words
from kclient_quota.config import Backoff, LimitSource

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


def test_when_the_latest_throttle_ends(log: ThrottleLog) -> None:
    assert log.last_ms is None
    log.on_throttle("b", 700, LIMITED, 1_000)
    log.on_throttle("b", 10, LIMITED, 1_200)
    assert log.last_ms == 1_210


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
