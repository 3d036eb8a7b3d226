"""A consumer at a request quota of 0.01 percent joins its group, and says why while it waits; on both brokers."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kclient_quota.clients.consumer import Consumer

Unique = Callable[[str], str]
JOIN_S = 100
TOLD_S = 10
"""Throttles begin with the first answer but one, five seconds later it is told; the rest is for a slow machine."""


def test_a_consumer_joins_at_a_hundredth_of_a_percent_and_says_what_holds_it_up(
    cluster: Any, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    apps = {protocol: unique(f"app-{protocol}") for protocol in ("classic", "consumer")}
    joined_s: dict[str, float] = {}
    begin = time.monotonic()
    is_over = threading.Event()

    def poll(protocol: str, member: Consumer) -> None:
        def on_assign(_consumer: Any, partitions: list[Any]) -> None:
            assert len(partitions) == 2
            joined_s[protocol] = time.monotonic() - begin

        member.subscribe([apps[protocol]], on_assign=on_assign)
        while not is_over.is_set():
            member.poll(0.1)
        member.close()

    threads = []
    for protocol, app in apps.items():
        cluster.create_topic(app, 2)
        cluster.set_quota(client_id=app, request_percentage=0.01)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "group.id": app}
        member = Consumer({**conf, "group.protocol": protocol, "enable.metrics.push": False})
        threads.append(threading.Thread(target=poll, args=(protocol, member), daemon=True))
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        for thread in threads:
            thread.start()
        while len(joined_s) < len(apps) and time.monotonic() - begin < JOIN_S:
            time.sleep(0.05)
        is_over.set()
        for thread in threads:
            thread.join(60)
    said = [record.getMessage() for record in caplog.records]
    for protocol, app in apps.items():
        told = [line for line in said if f"{app!r} fetches nothing yet" in line]
        assert protocol in joined_s, said
        assert len(told) <= 1
        assert told or joined_s[protocol] < TOLD_S
        why = f"request quota (request_percentage=0.01 per broker, from cluster, {{client-id={app}}})"
        assert all(why in line for line in told)
    assert [line for line in said if "next batch" in line or "sizes" in line] == []
