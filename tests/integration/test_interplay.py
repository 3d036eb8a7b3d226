"""A quota together with what else applications use: compression, big messages, partitions and leaders that change."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import routes
from tests.integration.made_producers import made
from tests.read_committed import ids, read_ids

PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3) as own:
        own.create_topic("orders", PARTITIONS, replication=2)
        yield own


class Delivered:
    """Reports of deliveries."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.partitions: Counter[int] = Counter()

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error.name())
        else:
            self.partitions[message.partition()] += 1


@pytest.mark.parametrize("keyed", [False, True])
def test_leaders_that_move_and_new_partitions_are_followed(
    cluster: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    monkeypatch.setattr(routes, "ROUTE_MS", 500)  # half a minute in an application
    cluster.set_quota(client_id="app", producer_byte_rate=200_000)
    producer = made({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app", "linger.ms": 0})
    delivered = Delivered()
    sent = 0

    def produce_for(seconds: float, is_done: Callable[[], bool] = lambda: True) -> None:
        nonlocal sent
        end = time.monotonic() + seconds
        while time.monotonic() < end or not is_done():
            assert time.monotonic() < end + 60
            value = b"%06d" % sent + b"x" * 494
            producer.produce("orders", value, b"%d" % sent if keyed else None, on_delivery=delivered)
            sent += 1
            producer.poll(0)

    produce_for(1)
    cluster.stop_broker(2)
    produce_for(1)
    cluster.start_broker(2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions("orders", 2 * PARTITIONS)])["orders"].result(60)
    produce_for(3, lambda: len(delivered.partitions) == 2 * PARTITIONS)
    assert producer.flush(60) == 0
    producer.close()
    assert delivered.failed == []
    assert set(delivered.partitions) == set(range(2 * PARTITIONS))
    assert read_ids(cluster, "orders", 2 * PARTITIONS) == ids(sent)


def test_a_learnt_limit_holds_for_what_librdkafka_compresses(cluster: EmbeddedBroker) -> None:
    quota = 20_000
    cluster.set_quota(client_id="app", producer_byte_rate=quota)
    conf = {"compression.type": "zstd", "quota.limit.source": "learned", "partitioner": "consistent"}
    throttles: list[float] = []
    producer = made(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "app",
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
            **conf,
        }
    )
    delivered, chance, sent = Delivered(), random.Random(1), 0
    begin = time.monotonic()

    def is_above(part: float) -> bool:
        return delivered.partitions.total() * 2_006 > part * quota * (time.monotonic() - begin)

    # More than the quota in the application's bytes, and no more than about it in the broker's.
    while time.monotonic() - begin < 5 or not is_above(1.5):
        assert time.monotonic() - begin < 60
        noise = chance.randbytes(150)
        producer.produce("orders", b"%06d" % sent + noise + b"x" * 1_850, b"one", on_delivery=delivered)
        sent += 1
        producer.poll(0)
    assert producer.flush(60) == 0
    assert delivered.failed == []
    assert throttles
    assert max(throttles) < 10
    assert read_ids(cluster, "orders", PARTITIONS) == ids(sent)


def test_messages_bigger_than_any_grant_go_one_after_the_other(cluster: EmbeddedBroker) -> None:
    cluster.set_quota(client_id="app", producer_byte_rate=300_000)
    conf = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "app",
        "message.max.bytes": 900_000,
        "max.block.ms": 30_000,
    }
    producer = made(conf)
    delivered = Delivered()
    for number in range(6):
        producer.produce("orders", b"%06d" % number + bytes(300_000), partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert delivered.failed == []
    assert read_ids(cluster, "orders", PARTITIONS) == ids(6)


def filled(cluster: EmbeddedBroker, count: int) -> None:
    writer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        writer.produce("orders", b"%06d" % number + b"x" * 94, partition=number % PARTITIONS)
    assert writer.flush(60) == 0
    writer.close()


def paced(cluster: EmbeddedBroker, **conf: Any) -> Consumer:
    own = {"client.id": "app", "group.id": "g", "auto.offset.reset": "earliest", "consumer_byte_rate": 100_000}
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, **own, **conf})


def received(consumer: Consumer, count: int) -> Counter[int]:
    """Partitions of `count` messages, and of those that come soon after."""
    seen: Counter[int] = Counter()
    deadline = time.monotonic() + 60
    while seen.total() < count and time.monotonic() < deadline:
        seen.update(message.partition() or 0 for message in consumer.consume(100, 0.2))
    seen.update(message.partition() or 0 for message in consumer.consume(100, 0.5))
    return seen


def test_assignments_that_change_bit_by_bit_are_followed(cluster: EmbeddedBroker) -> None:
    filled(cluster, 300)
    consumer = paced(cluster)
    consumer.incremental_assign([TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 90)])
    assert received(consumer, 110) == {0: 100, 1: 10}
    consumer.incremental_unassign([TopicPartition("orders", 0)])
    consumer.incremental_assign([TopicPartition("orders", 2, 50)])
    assert received(consumer, 50) == {2: 50}
    assert {(part.partition) for part in consumer.assignment()} == {1, 2}
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topics_subscribed_to_by_a_pattern_are_paced_too(cluster: EmbeddedBroker, protocol: str) -> None:
    filled(cluster, 300)
    consumer = paced(cluster, **{"group.protocol": protocol})
    consumer.subscribe(["^ord.*"])
    assert received(consumer, 300) == {0: 100, 1: 100, 2: 100}
    assert {state.source for state in consumer.quota_state().values()} == {"config"}
    consumer.close()
