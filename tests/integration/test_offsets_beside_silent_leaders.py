"""`send_offsets_to_transaction()` while a partition's leader answers nothing, as behind a connection that is half open.

librdkafka finds out after `socket.timeout.ms`, on each connection by itself: whoever goes on meanwhile, as plain
confluent_kafka does, waits for all of them at once.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kclient_quota import AIOProducer
from kclient_quota.broker.request.controls import IGNORE, Intercepted
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.integration.made_producers import made

AGES_S = 60
COORDINATOR, LEADER = 1, 3
OFFSETS = [TopicPartition("orders", 0, 1)]


@pytest.fixture
def cluster() -> Iterator[KafkaBroker]:
    with KafkaBroker(brokers=3, topics={"orders": 3}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=1_000_000)
        yield cluster


def conf(cluster: KafkaBroker) -> dict[str, Any]:
    """Long enough for everybody else to have answered, on a busy machine as well."""
    names = {"client.id": "app", "transactional.id": "t", "log_level": 0}
    return {"bootstrap.servers": cluster.bootstrap_servers, **names, "socket.timeout.ms": 15_000, "linger.ms": 0}


def silence_one_connection(cluster: KafkaBroker) -> None:
    asked = []

    def once(seen: Intercepted) -> Any:
        if seen.broker_id != LEADER or asked:
            return None
        asked.append(seen)
        return IGNORE

    cluster.control("Produce", once, times=None)


def offsets_are_sent(cluster: KafkaBroker) -> bool:
    return any(seen.api_name == "TxnOffsetCommit" and seen.broker_id == COORDINATOR for seen in cluster.requests)


def test_a_leader_that_is_silent_does_not_hold_up_offsets(cluster: KafkaBroker, group: Any) -> None:
    silence_one_connection(cluster)
    producer = made(conf(cluster))
    producer.init_transactions(AGES_S)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=LEADER - 1)
    producer.send_offsets_to_transaction(OFFSETS, group, AGES_S)
    assert offsets_are_sent(cluster)
    assert len(producer) == 1
    producer.commit_transaction(AGES_S)
    assert len(cluster.records("orders")) == 1


def test_nor_those_of_an_asyncio_producer(cluster: KafkaBroker, group: Any) -> None:
    silence_one_connection(cluster)

    async def play() -> None:
        producer = AIOProducer(conf(cluster))
        await producer.init_transactions(AGES_S)
        await producer.begin_transaction()
        delivered = await producer.produce("orders", b"v", partition=LEADER - 1)
        await producer.send_offsets_to_transaction(OFFSETS, group, AGES_S)
        assert offsets_are_sent(cluster)
        assert not delivered.done()
        await producer.commit_transaction(AGES_S)
        await delivered
        await producer.close()

    asyncio.run(play())
    assert len(cluster.records("orders")) == 1
