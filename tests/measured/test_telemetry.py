"""Pushes come when they are due while the broker throttles, and a broker that is silent holds nobody up."""

import threading
import time
from itertools import pairwise
from typing import Any

import confluent_kafka

from kclient_quota import Producer
from kclient_quota.broker import IGNORE, EmbeddedBroker
from tests.measured.scenes import EVEN, Figures, Played

GET_TELEMETRY_SUBSCRIPTIONS = 71
SECONDS, INTERVAL_MS = 15, 1_000


def due(cluster: EmbeddedBroker, client_id: str) -> list[int]:
    return [push.at_ms for push in cluster.pushes if push.client_id == client_id]


def floods(_cluster: Any) -> Figures:
    """Flat out over a quota, ours and plain: what came of their pushes."""
    with EmbeddedBroker(topics={"t": 2}) as cluster:
        cluster.set_client_metrics("all", interval_ms=INTERVAL_MS)
        cluster.set_quota(default_client_id=True, producer_byte_rate=20_000)
        # More than is sent in that time, and no more: to drop a hundred thousand would disturb who is measured beside.
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.messages": 1_000}
        plain = confluent_kafka.Producer({**conf, "client.id": "plain"})
        # Nothing but the telemetry differs.
        off = {"quota.backoff": "off", "max.block.ms": 100, "enable.idempotence": False}
        ours = Producer({**conf, "client.id": "ours", **off})
        stop = time.monotonic() + SECONDS

        def flood(producer: confluent_kafka.Producer) -> None:
            while time.monotonic() < stop:
                try:
                    producer.produce("t", b"x" * 1_000)
                except BufferError:
                    producer.poll(0.05)

        threads = [threading.Thread(target=flood, args=(producer,)) for producer in (plain, ours)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        came = due(cluster, "ours")
        plain.purge()
        ours.close()
        return {
            "longest_ms": max(later - earlier for earlier, later in pairwise(came)),
            "ours": len(came),
            "plain": len(due(cluster, "plain")),
        }


ROUND = EVEN
ON_THEIR_OWN = [floods]


def test_pushes_arrive_while_the_broker_throttles_and_librdkafka_is_silent(played: Played) -> None:
    """librdkafka's telemetry waits on the muted connection, ours does not."""
    figures = played(floods)
    assert figures["longest_ms"] < 2 * INTERVAL_MS, figures
    assert figures["ours"] >= SECONDS - 3, figures
    assert figures["plain"] <= figures["ours"] // 3, figures


def test_a_broker_that_does_not_answer_delays_neither_the_start_nor_the_end() -> None:
    with EmbeddedBroker(topics={"t": 2}) as cluster:
        cluster.control(GET_TELEMETRY_SUBSCRIPTIONS, lambda _: IGNORE, times=None)
        began = time.monotonic()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mute"})
        producer.produce("t", b"x")
        assert producer.flush(5) == 0
        producer.close()
        assert time.monotonic() - began < 2.5
