"""Requests that want no answer (acks=0): under a quota and refused, on the embedded broker and on Apache Kafka."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kclient_quota.wire.messages import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from kclient_quota.wire.records import Record, build_batch
from tests.contract.wire_client import Wire, connected, create_topic

Unique = Callable[[str], str]
QUOTA = 5_000
OVER = 60_000  # 60,000 / 5,000 - 10 = 2 s and a little for what is around the record


def produce(wire: Wire, topic: str, nbytes: int, *, acks: int = 0, partition: int = 0) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = bytes(build_batch([Record(value=b"x" * nbytes, timestamp_ms=now_ms)]))
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    wire.send(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 9)


def metadata(wire: Wire) -> MetadataResponse:
    return wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


def test_nobody_is_told_of_the_throttle_and_the_connection_is_muted_all_the_same(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    create_topic(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=QUOTA)
    with connected(cluster, client_id) as muted, connected(cluster, client_id) as other:
        metadata(muted)
        metadata(other)
        begin = time.monotonic()
        produce(muted, topic, OVER)
        answer = metadata(muted)
        waited_s = time.monotonic() - begin
        assert 1.9 <= waited_s < 20
        assert answer.throttle_time_ms == 0
        # the account is the client's, whichever way it is filled
        produce(other, topic, 1_000, acks=-1)
        assert other.receive(ProduceResponse, 9).throttle_time_ms > 0


def test_the_client_is_told_nothing(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    create_topic(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=QUOTA)
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": client_id,
            "acks": 0,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    producer.produce(topic, b"x" * OVER)
    assert producer.flush(60) == 0
    # what comes next lies in the socket until the mute is over
    producer.produce(topic, b"later")
    assert producer.flush(60) == 0
    producer.poll(0.2)
    assert told == []


@pytest.mark.parametrize("partition", [0, 7])
def test_one_that_is_refused_ends_the_connection(cluster: Any, unique: Unique, partition: int) -> None:
    topic = unique("t")
    create_topic(cluster, topic)
    with connected(cluster, unique("app")) as wire:
        metadata(wire)
        produce(wire, topic, 10, partition=partition)
        if partition == 0:
            metadata(wire)
            return
        with pytest.raises((AssertionError, ConnectionError)):  # it closed the connection
            metadata(wire)
