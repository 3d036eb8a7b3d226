"""A consumer under a quota, on the embedded broker and on Apache Kafka: the whole of it, evenly, and the stall told."""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.consuming import consumer_of, read
from tests.contract.scenes import Scene, Scenes, named
from tests.filling import fill

Unique = Callable[[str], str]
pytestmark = pytest.mark.timeout(150)


def create(cluster: Any, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)


def uses_its_quota_evenly(cluster: Any, quota: int, per_batch: int) -> None:
    name = named("even")
    create(cluster, name)
    fill(cluster, name, quota * 28 // 1000, per_batch)
    cluster.set_quota(client_id=name, consumer_byte_rate=quota)
    consumer = consumer_of(cluster, name, name)
    found = read(consumer, 12)
    (state,) = consumer.quota_state().values()
    assert (state.limit, state.source) == (quota, "cluster")
    consumer.close()
    assert [message.offset() for _, message in found] == list(range(len(found)))
    # A window lets ten seconds' worth through in any eleven, and what is in the queue comes at once.
    assert 0 < len(found) * 1_010 < 14 * quota


def is_paced_like_poll(cluster: Any) -> None:
    name = named("consume")
    create(cluster, name)
    fill(cluster, name, 3_000, 16)
    cluster.set_quota(client_id=name, consumer_byte_rate=200_000)
    consumer = consumer_of(cluster, name, name)
    offsets: list[int | None] = []
    end = time.monotonic() + 8
    first = None
    while time.monotonic() < end:
        messages = consumer.consume(500, 0.5)
        if messages and first is None:
            first = time.monotonic()
        offsets += [message.offset() for message in messages]
    consumer.close()
    assert first is not None
    assert offsets == list(range(len(offsets)))
    assert 0 < len(offsets) * 1_010 < 12 * 200_000


def two_share(cluster: Any) -> None:
    name = named("two")
    create(cluster, name, 2)
    fill(cluster, name, 5_000, 8, partitions=2)
    cluster.set_quota(client_id=name, consumer_byte_rate=150_000)
    consumers = [consumer_of(cluster, name, name, **{"group.id": f"{name}-{number}"}) for number in range(2)]
    counts, end = [0, 0], time.monotonic() + 60

    def read_on() -> None:
        assert time.monotonic() < end, counts
        for index, consumer in enumerate(consumers):
            counts[index] += consumer.poll(0.002) is not None

    try:
        # what a window lets through at once says nothing of who has to wait
        while sum(counts) * 1_010 < 150_000 * 11:
            read_on()
        counts[:] = [0, 0]
        while min(counts) < 100:
            read_on()
    finally:
        for consumer in consumers:
            consumer.close()


def reads_partitions_in_turns(cluster: Any) -> None:
    """All of them have a backlog; of the first alone it would last for as long as the scene."""
    name = named("turns")
    create(cluster, name, 12)
    fill(cluster, name, 38_400, 16, partitions=12)
    cluster.set_quota(client_id=name, consumer_byte_rate=200_000)
    consumer = consumer_of(cluster, name, name)
    found = read(consumer, 14)
    consumer.close()
    offsets: defaultdict[int | None, list[int | None]] = defaultdict(list)
    for _, message in found:
        offsets[message.partition()].append(message.offset())
    assert all(each == list(range(len(each))) for each in offsets.values())
    assert 4 <= len(offsets) < 12, {number: len(each) for number, each in offsets.items()}
    assert len(found) * 1_010 > 0.85 * 14 * 200_000


EVENLY = [
    partial(uses_its_quota_evenly, quota=200_000, per_batch=16),
    partial(uses_its_quota_evenly, quota=400_000, per_batch=80),
]
SCENES = [*EVENLY, is_paced_like_poll, two_share, reads_partitions_in_turns]


@pytest.mark.parametrize("scene", EVENLY, ids=["200000", "400000"])
def test_the_quota_is_found_and_used_evenly(scenes: Scenes, scene: Scene) -> None:
    scenes(scene)


def test_consume_is_paced_like_poll(scenes: Scenes) -> None:
    scenes(is_paced_like_poll)


def test_two_consumers_of_one_client_id_share_its_quota(scenes: Scenes) -> None:
    scenes(two_share)


def test_partitions_with_a_backlog_are_read_in_turns(scenes: Scenes) -> None:
    scenes(reads_partitions_in_turns)


def test_every_broker_gives_what_its_own_quota_allows(three_brokers: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    create(three_brokers, topic, 3)
    fill(three_brokers, topic, 6_000, 10, partitions=3)
    three_brokers.set_quota(client_id=client_id, consumer_byte_rate=100_000)
    consumer = consumer_of(three_brokers, topic, client_id)
    found = read(consumer, 8)
    deadline = time.monotonic() + 60
    while {message.partition() for _, message in found} != {0, 1, 2} and time.monotonic() < deadline:
        found += read(consumer, 1)
    states = consumer.quota_state()
    consumer.close()
    assert len(states) == 3
    for partition in range(3):
        offsets = [message.offset() for _, message in found if message.partition() == partition]
        assert offsets
        assert offsets == list(range(len(offsets)))


def stalls(consumer: Any) -> list[str]:
    return [str(state.stall) for state in consumer.quota_state().values()]


def told(stall: str) -> bool:
    """The size is reckoned from a throttle time, and up to a twentieth of a window may be something else's."""
    found = re.search(r"of about ([\d,]+) bytes", stall)
    return found is not None and 115_000 < int(found[1].replace(",", "")) < 128_000


def test_a_batch_that_never_comes_is_told_in_time(
    cluster: Any, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client_id = unique("t"), unique("app")
    create(cluster, topic)
    # first: a broker that has not heard of it yet would let the batch through
    cluster.set_quota(client_id=client_id, consumer_byte_rate=10_000)
    fill(cluster, topic, 120, 120)
    consumer = consumer_of(cluster, topic, client_id)
    begin = time.monotonic()
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        while "never be delivered" not in caplog.text or not any(map(told, stalls(consumer))):
            assert time.monotonic() - begin < 60, (caplog.text, stalls(consumer))
            assert consumer.poll(0.2) is None
    consumer.close()
