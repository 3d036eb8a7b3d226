"""When a client asks for the first time what it is to push: after its own connections, where brokers count them."""

import weakref
from typing import Any

import pytest
from kclient_telemetry.client.runner import TelemetryRunner

from kclient_quota.clients.telemetry import reporter
from kclient_quota.clients.telemetry.reporter import NOT_ALONE_MS, ClientTelemetry
from kclient_quota.testing.clock import ManualClock


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how long each of a process that has had no client yet asks."""
    found: list[int] = []

    def start(_runner: Any, *, after_ms: int = 0) -> None:
        found.append(after_ms)

    monkeypatch.setattr(reporter, "_running", weakref.WeakSet())
    monkeypatch.setattr(TelemetryRunner, "start", start)
    return found


def telemetry() -> ClientTelemetry:
    return ClientTelemetry("producer", {"bootstrap.servers": "127.0.0.1:1"}, dict, ManualClock())


def test_one_alone_asks_at_once_and_others_when_their_own_connections_stand(started: list[int]) -> None:
    clients = [telemetry() for _ in range(3)]
    for each in clients:
        each.start()
    assert started == [0, NOT_ALONE_MS, NOT_ALONE_MS]


def test_one_that_comes_when_all_others_have_gone_is_alone(started: list[int]) -> None:
    for _ in range(2):
        client = telemetry()
        client.start()
        client._runner.abandon(0)
        reporter._running.discard(client)
    assert started == [0, 0]
