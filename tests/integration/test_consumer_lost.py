"""How much of its quota a consumer throws away: next to nothing in steady state, and what a seek makes it forget."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer

QUOTA = 100_000
GROUP = "consumer-fetch-manager-metrics"


def figures(consumer: Consumer) -> dict[str, float]:
    return {found.name: value for found, value in consumer.metrics().items() if found.group == GROUP}


def read(consumer: Consumer, nbytes: int) -> None:
    deadline = time.monotonic() + 60
    while nbytes > 0:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            nbytes -= len(message)


def test_next_to_nothing_is_thrown_away_but_for_a_seek(broker: EmbeddedBroker) -> None:
    conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "filler"}
    filler = confluent_kafka.Producer({**conf, "linger.ms": 100, "batch.size": 16_384})
    for _ in range(3_000):
        filler.produce("orders", b"x" * 1_000)
    assert filler.flush(60) == 0
    consumer = Consumer({**conf, "client.id": "app", "group.id": "app", "consumer_byte_rate": QUOTA})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        read(consumer, 6 * QUOTA)
        found = figures(consumer)
        assert found["quota-fetch-lost-ratio"] < 0.01
        (state,) = consumer.quota_state().values()
        assert state.lost == found["quota-fetch-lost-bytes-total"]
        consumer.seek(TopicPartition("orders", 0, 2_900))
        consumer.unassign()
        consumer.poll(0.5)
        lost = figures(consumer)["quota-fetch-lost-bytes-total"]
        # No more than what may be queued for it.
        assert found["quota-fetch-lost-bytes-total"] <= lost < 10 * QUOTA
    finally:
        consumer.close()
