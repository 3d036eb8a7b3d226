"""Partitions that rest while others have their turns, and what the application does with them meanwhile."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from tests.consuming import consumer_of
from tests.filling import fill

PARTITIONS = 3
EACH = 3_200
SHORT = 1_120
ABORTED = 1_600
RATE = 400_000
"""A turn is of two seconds then, and a partition's backlog of eight."""

Offsets = dict[int, list[int]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": PARTITIONS, "short": PARTITIONS, "aborted": PARTITIONS}) as broker:
        fill(broker, "t", PARTITIONS * EACH, 16, PARTITIONS)
        fill(broker, "short", PARTITIONS * SHORT, 16, PARTITIONS)
        fill_with_what_is_aborted(broker, "aborted")
        broker.set_quota(client_id="app", consumer_byte_rate=RATE)
        yield broker


def fill_with_what_is_aborted(cluster: EmbeddedBroker, topic: str) -> None:
    """In the first partition one transaction of two turns, which is aborted; in the others what is read beside it."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 30_000, "batch.num.messages": 16}
    producer = Producer({**conf, "transactional.id": "a"})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(ABORTED):
        producer.produce(topic, b"x" * 1_000, partition=0)
    producer.flush()
    producer.abort_transaction()
    fill(cluster, topic, PARTITIONS * EACH, 16, PARTITIONS)


def read(consumer: Consumer, found: Offsets, end: Any, most_s: float = 30) -> None:
    """Read on until `end()`."""
    until = time.monotonic() + most_s
    while not end():
        assert time.monotonic() < until, {number: len(offsets) for number, offsets in found.items()}
        message = consumer.poll(0.05)
        if message is not None:
            assert message.error() is None
            found[message.partition()].append(message.offset())


def until_one_rests(cluster: EmbeddedBroker, topic: str = "t", **conf: Any) -> tuple[Consumer, Offsets, int]:
    """A consumer, what it has read, and the partition that rests."""
    group = f"g-{time.monotonic_ns()}"
    consumer = consumer_of(cluster, topic, "app", **{"group.id": group, **conf})
    found: Offsets = defaultdict(list)
    read(consumer, found, lambda: consumer._kq_resting)
    ((_, resting),) = consumer._kq_resting
    return consumer, found, resting


def test_nothing_is_lost_or_doubled_by_turns(cluster: EmbeddedBroker) -> None:
    consumer, found, _ = until_one_rests(cluster, "short")
    read(consumer, found, lambda: sum(map(len, found.values())) == PARTITIONS * SHORT)
    assert all(offsets == list(range(SHORT)) for offsets in found.values())
    assert consumer.poll(0.5) is None
    consumer.close()


def test_what_rests_amid_an_aborted_transaction_gets_past_it_while_others_have_more(cluster: EmbeddedBroker) -> None:
    """Nothing of it is handed over, and after a rest librdkafka begins anew where the application is."""
    consumer, found = consumer_of(cluster, "aborted", "app"), defaultdict(list)
    read(consumer, found, lambda: found[0])
    assert found[0][:1] == [ABORTED + 1]
    assert all(0 < len(found[other]) < EACH for other in (1, 2))
    read(consumer, found, lambda: len(found[0]) >= 1_000)
    assert found[0] == list(range(ABORTED + 1, ABORTED + 1 + len(found[0])))
    consumer.close()


@pytest.mark.parametrize("offset", [0, 3_000])
def test_a_seek_ends_its_rest(cluster: EmbeddedBroker, offset: int) -> None:
    consumer, found, resting = until_one_rests(cluster)
    consumer.seek(TopicPartition("t", resting, offset))
    assert not consumer._kq_resting
    found[resting].clear()
    read(consumer, found, lambda: len(found[resting]) >= 40)
    assert found[resting][:40] == list(range(offset, offset + 40))
    consumer.close()


def test_what_the_application_pauses_stays_paused_when_its_rest_ends(cluster: EmbeddedBroker) -> None:
    consumer, found, resting = until_one_rests(cluster)
    part = TopicPartition("t", resting)
    consumer.pause([part])
    before = len(found[resting])
    read(consumer, found, lambda: not consumer._kq_resting)
    end = time.monotonic() + 2
    read(consumer, found, lambda: time.monotonic() > end)
    assert len(found[resting]) == before
    consumer.resume([part])
    read(consumer, found, lambda: len(found[resting]) > before + 40)
    assert found[resting] == list(range(len(found[resting])))
    consumer.close()


def test_to_resume_what_rests_does_not_end_its_rest(cluster: EmbeddedBroker) -> None:
    consumer, found, resting = until_one_rests(cluster)
    part = TopicPartition("t", resting)
    there = consumer._kq_held
    held = sum(message.partition() == resting for message in there.messages[there.first :])
    consumer.pause([part])
    consumer.resume([part])
    before = len(found[resting])
    end = time.monotonic() + 1
    read(consumer, found, lambda: time.monotonic() > end)
    assert len(found[resting]) <= before + held
    read(consumer, found, lambda: len(found[resting]) > before + 40)
    assert found[resting] == list(range(len(found[resting])))
    consumer.close()


def test_an_assignment_begins_without_rests(cluster: EmbeddedBroker) -> None:
    """librdkafka would keep the partition paused for when it comes again."""
    consumer, found, resting = until_one_rests(cluster)
    consumer.assign([TopicPartition("t", resting, 7)])
    assert not consumer._kq_resting
    found.clear()
    read(consumer, found, lambda: len(found[resting]) >= 40)
    assert found[resting][:40] == list(range(7, 47))
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_rests_goes_to_another_member_and_comes_back(cluster: EmbeddedBroker, strategy: str) -> None:
    conf = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
    consumer, found, resting = until_one_rests(cluster, **conf, **{"group.id": f"two-{strategy}"})
    other = consumer_of(cluster, "t", "app", **conf, **{"group.id": f"two-{strategy}"})
    found_too: Offsets = defaultdict(list)
    until = time.monotonic() + 30
    while len(other.assignment()) == 0 or len(consumer.assignment()) == PARTITIONS:
        assert time.monotonic() < until
        read(consumer, found, iter([False, True]).__next__)
        read(other, found_too, iter([False, True]).__next__)
    other.close()
    read(consumer, found, lambda: len(consumer.assignment()) == PARTITIONS)
    before = {number: len(offsets) for number, offsets in found.items()}
    read(consumer, found, lambda: all(len(found[number]) > before.get(number, 0) for number in range(PARTITIONS)), 60)
    assert all(number in found for number in (*range(PARTITIONS), resting))
    for number in range(PARTITIONS):
        together = found[number] + found_too[number]
        assert set(range(max(together))) <= set(together)
    consumer.close()
