"""A consumer whose quota comes when it has fetched for a while."""

import time
from typing import Any

import pytest

from kclient_quota.clients import limits
from tests.conftest import BROKERS
from tests.consuming import consumer_of
from tests.filling import fill
from tests.measured.scenes import longest_gap_s, named
from tests.measured.test_consumers import MEASURED_S, WINDOW_S, WIRE_BYTES, polled


@pytest.fixture(params=BROKERS)
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_quota_that_comes_late_is_followed(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are those of an un-throttled consumer, so the README promises less: 0.68 to 0.81."""
    monkeypatch.setattr(limits, "REFRESH_MS", 1_000)
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 200)
    topic, quota = named("late"), 1_000_000
    cluster.create_topic(topic)
    fill(cluster, topic, 100, 100)
    consumer = consumer_of(cluster, topic, topic)
    came: list[float] = []
    while len(came) < 100:
        came += [time.monotonic() for _ in polled(consumer)]
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    fill(cluster, topic, quota // 1_000 * 40, 100)
    begin = time.monotonic()
    while time.monotonic() < begin + 2 * WINDOW_S + MEASURED_S:
        came += [time.monotonic() for _ in polled(consumer)]
    consumer.close()
    steady = [at for at in came if at >= begin + 2 * WINDOW_S]
    assert 0.6 <= len(steady) * WIRE_BYTES / MEASURED_S / quota <= 1.1
    assert longest_gap_s(steady) < 5
