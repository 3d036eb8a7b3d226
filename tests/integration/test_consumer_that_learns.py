"""Consumers that nobody tells their quota, near and far: what they have of it, in bytes of messages."""

import time
from typing import Any

from kclient_quota import Consumer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.filling import fill
from kclient_quota.testing.proxies import Proxies

PARTITIONS = 12
WITHIN_S = 20.0


def received(bootstrap_servers: str, most: int, **conf: Any) -> int:
    """How many messages of a kilobyte come within twenty seconds; so many are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "app",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.metrics.push": False,
            **conf,
        }
    )
    consumer.subscribe(["t"])
    until_s, count = time.monotonic() + WITHIN_S, 0
    while time.monotonic() < until_s and count < most:
        count += consumer.poll(0.2) is not None
    consumer.close()
    return count


def test_who_may_not_ask_has_most_of_a_quota_after_his_first_burst() -> None:
    """He took 185 kB/s for all that was his, and stayed there for as long as nothing was refused."""
    with EmbeddedBroker(topics={"t": PARTITIONS}, manner="managed") as cluster:
        fill(cluster.bootstrap_servers, "t", 16_000, 1_000, 100)
        cluster.set_quota(client_id="app", consumer_byte_rate=500_000)
        # 4,300 to 4,800 before, 7,600 to 8,500 since
        assert received(cluster.bootstrap_servers, 16_000) > 6_000


def test_who_was_never_refused_reads_as_fast_as_others_however_far_away() -> None:
    """With one batch in each round trip he had 22,000 of these in twenty seconds."""
    with Proxies(1) as proxies, EmbeddedBroker(topics={"t": PARTITIONS}, manner="managed") as cluster:
        fill(cluster.bootstrap_servers, "t", 40_000, 1_000, 100)
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=40, to_client_ms=40))
        assert received(proxies.bootstrap_servers, 40_000, **{"quota.limit.source": "learned"}) == 40_000
