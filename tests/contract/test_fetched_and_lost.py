"""What of its quota a consumer fetches and throws away, on both brokers: less than a hundredth in steady state."""

import random
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from kclient_quota.clients.consumer import Consumer
from tests.consuming import consumer_of, read
from tests.contract.scenes import Scene, Scenes, named

pytestmark = pytest.mark.timeout(150)
SIZE = 1_000
PER_BATCH = (4, 10, 16, 22, 28)
"""Messages of a batch: sizes that nothing asked for at once fits."""
PARTITIONS = 3
BURST_S = 11
"""Seconds' worth of the quota that a broker lets through at once. A busy machine learns its limit later."""
SETTLED_S = 15
"""When whoever has to learn its limit has been throttled for its first burst, and fetches what the quota allows."""
LATER_S = 20
"""On a busy machine that burst is larger, and throttled for longer, by so much at most."""
MEASURED_S = 8


def fill_unevenly(cluster: Any, topic: str, total: int) -> None:
    """Batches of unequal sizes, one after the other, in each partition."""
    producers = [
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000, "batch.num.messages": count})
        for count in PER_BATCH
    ]
    chance = random.Random(13)
    while total > 0:
        number = chance.randrange(len(PER_BATCH))
        for _ in range(PER_BATCH[number]):
            producers[number].produce(topic, b"x" * SIZE, partition=total // SIZE % PARTITIONS)
        total -= PER_BATCH[number] * SIZE
    assert [producer.flush(60) for producer in producers] == [0] * len(producers)


def throws_away_next_to_nothing(cluster: Any, quota: int, source: str) -> None:
    """A learner overdraws at first, and has much cut off then; afterwards nobody does."""
    name = named("lost")
    cluster.create_topic(name, PARTITIONS)
    fill_unevenly(cluster, name, quota * (BURST_S + SETTLED_S + LATER_S + MEASURED_S))
    cluster.set_quota(client_id=name, consumer_byte_rate=quota)
    consumer = consumer_of(cluster, name, name, **{"quota.limit.source": source})
    read(consumer, SETTLED_S)
    for _ in range(LATER_S):
        if received(consumer, 1) > 0.3 * quota:
            break
    lost = lost_of(consumer)
    got = received(consumer, MEASURED_S)
    lost = lost_of(consumer) - lost
    consumer.close()
    assert got > 0.5 * quota * MEASURED_S
    assert lost < 0.01 * got


def received(consumer: Consumer, seconds: float) -> int:
    return sum(len(message) for _, message in read(consumer, seconds))


def lost_of(consumer: Consumer) -> float:
    return next(value for name, value in consumer.metrics().items() if name.name == "quota-fetch-lost-bytes-total")


SCENES: list[Scene] = [
    partial(throws_away_next_to_nothing, quota=100_000, source="auto"),
    partial(throws_away_next_to_nothing, quota=400_000, source="learned"),
]


@pytest.mark.parametrize("scene", SCENES, ids=["known", "learned"])
def test_next_to_nothing_is_fetched_and_thrown_away(scenes: Scenes, scene: Scene) -> None:
    scenes(scene)
