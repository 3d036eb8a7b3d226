"""An idempotent producer far from its broker, without a quota: what it is told, and that the remedy is one."""

import logging
import re
import time
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies

RTT_MS = 20
RATE = 1_000
SECONDS = 4.0  # three statistics: two in a row are to say so


def send(servers: str, **more: Any) -> None:
    """A thousand messages a second, over four partitions."""
    conf = {"bootstrap.servers": servers, "client.id": "far", "enable.metrics.push": False, "log_level": 0}
    with Producer({**conf, "statistics.interval.ms": 1_200, "stats_cb": lambda _text: None, **more}) as producer:
        producer.list_topics(timeout=30)
        begin, number = time.monotonic(), 0
        while (now_s := time.monotonic() - begin) < SECONDS:
            if number < now_s * RATE:
                producer.produce("far", b"x" * 1_000, partition=number % 4)
                number += 1
            producer.poll(0 if number < now_s * RATE else 0.001)
        assert producer.flush(30) == 0


def test_who_spends_a_processor_on_distance_is_told_what_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kclient_quota")
    with Proxies(1) as proxies, EmbeddedBroker(topics={"far": 4}) as cluster:
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=RTT_MS / 2, to_client_ms=RTT_MS / 2))
        send(proxies.bootstrap_servers, **{"enable.idempotence": True})
        (said,) = (record.getMessage() for record in caplog.records if " ms away" in record.getMessage())
        caplog.clear()
        found = re.search(r"linger\.ms=(\d+) ends that", said)
        assert found
        send(proxies.bootstrap_servers, **{"enable.idempotence": True, "linger.ms": int(found[1])})
        before_s = time.process_time()
        send(proxies.bootstrap_servers)
        assert time.process_time() - before_s < SECONDS / 2  # the proxy's part included; idempotent it is all of them
    assert not [record for record in caplog.records if " ms away" in record.getMessage()]
