"""The Python partitioners put every key where librdkafka puts it."""

import random
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.librdkafka.partitioner import Partitioner

PARTITIONS = 7


@pytest.mark.parametrize(
    "name", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
)
def test_keys_go_where_librdkafka_sends_them(name: str) -> None:
    draw = random.Random(name)
    keys: list[Any] = [draw.randbytes(draw.randrange(1, 40)) for _ in range(200)] + ["täxt", "x"]
    if not name.endswith("_random"):
        keys += [None, b""]
    elif name != "consistent_random":
        keys += [b""]
    partitioner = Partitioner(name)
    went: dict[int, int] = {}
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "partitioner": name, "enable.metrics.push": False}
        )
        producer.list_topics("orders", timeout=60)
        for number, key in enumerate(keys):

            def report(error: Any, message: Any, number: int = number) -> None:
                assert error is None
                went[number] = message.partition()

            producer.produce("orders", b"x", key=key, on_delivery=report)
        assert producer.flush(60) == 0
        producer.close()
    assert [went[number] for number in range(len(keys))] == [partitioner.partition(key, PARTITIONS) for key in keys]
