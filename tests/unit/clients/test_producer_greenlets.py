"""Greenlets run while a producer's sender, which is one of them, waits for librdkafka."""

import time

import pytest

from kclient_quota import Producer

WAIT_S = 0.0123
MOST_EVENTS = 20


def test_sender_does_not_wait_within_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    sleep.__module__ = "gevent.hub"
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(time, "sleep", sleep)
    producer.serve_librdkafka(0)
    for _ in range(MOST_EVENTS):  # it returns for each of librdkafka's at once
        producer.serve_librdkafka(WAIT_S)
    assert WAIT_S in slept
    assert 0 not in slept
