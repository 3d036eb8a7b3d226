"""Partitions that are paused while the application receives nothing leave meanwhile, and come again: they are read.

librdkafka keeps a pause over `unassign()` and `assign()`, be it ours or the application's.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import PlainConsumer
from kclient_quota.clients.consumer import Consumer
from tests.integration.changing_quota import Changing

EACH = 60
FIRST, SECOND = (TopicPartition("orders", number, 0) for number in range(2))
BOTH = [FIRST, SECOND]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(2 * EACH):
            producer.produce("orders", b"x", partition=number % 2)
        assert producer.flush(60) == 0
        yield cluster


def conf_of(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.metrics.push": False,
        "log_level": 0,
        **more,
    }


def fill_up(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stay in the group without receiving anything until there is no room for more."""
    monkeypatch.setattr("kclient_quota.clients.consumer.receiving.held.MOST_MESSAGES", 2)
    monkeypatch.setattr(consumer._kq_core.heartbeat, "poll_every", lambda _: None)
    consumer._kq_core.heartbeat._unpolled_ms = 50
    end = time.monotonic() + 30
    while not consumer._kq_paused_by_us:
        consumer.keep_alive()
        assert time.monotonic() < end
        time.sleep(0.01)


def receive(consumer: Any, wanted: int, within_s: float = 10.0) -> dict[int, list[int]]:
    """Offsets by partition."""
    offsets: dict[int, list[int]] = {0: [], 1: []}
    end = time.monotonic() + within_s
    while sum(map(len, offsets.values())) < wanted and time.monotonic() < end:
        for message in consumer.consume(10, 0.1):
            assert message.error() is None
            offsets[message.partition()].append(message.offset())
    return offsets


def _again(consumer: Consumer) -> None:
    consumer.unassign()
    consumer.assign(BOTH)


def _in_place_of_them(consumer: Consumer) -> None:
    consumer.assign(BOTH)


def _one_by_one(consumer: Consumer) -> None:
    for part in BOTH:
        consumer.incremental_unassign([part])
        consumer.incremental_assign([part])


def _by_and_by(consumer: Consumer) -> None:
    consumer.incremental_unassign(BOTH)
    consumer.poll(0.2)
    consumer.incremental_assign(BOTH)


@pytest.mark.parametrize("by_another", [False, True], ids=["itself", "another"])
@pytest.mark.parametrize("leave_and_come", [_again, _in_place_of_them, _one_by_one, _by_and_by])
def test_what_is_assigned_anew_is_read(
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    leave_and_come: Callable[[Consumer], None],
    by_another: bool,
) -> None:
    quota = Changing()
    consumer = Consumer(conf_of(broker, **{"client.quota.callback.class": quota}))
    consumer.assign(BOTH)
    if by_another:
        quota.limit = 1_000_000
        end = time.monotonic() + 20
        while consumer._kq_fetcher is None and time.monotonic() < end:
            consumer.poll(0.1)
        for part in BOTH:
            consumer.seek(part)
    fill_up(consumer, monkeypatch)
    leave_and_come(consumer)
    whole = list(range(EACH))
    assert receive(consumer, 2 * EACH) == {0: whole, 1: whole}
    consumer.close()


GROUPS = [
    {"partition.assignment.strategy": "range"},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
]


@pytest.mark.parametrize("group", GROUPS, ids=["eager", "cooperative", "consumer"])
def test_what_the_group_gives_back_is_read(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, group: dict[str, Any]
) -> None:
    consumer = Consumer(conf_of(broker, **group))
    consumer.subscribe(["orders"])
    fill_up(consumer, monkeypatch)
    with PlainConsumer(conf_of(broker, **group)) as other:
        other.subscribe(["orders"])
        end = time.monotonic() + 30
        while not (len(consumer.assignment()) == len(other.assignment()) == 1):
            consumer.keep_alive()
            other.poll(0.1)
            assert time.monotonic() < end
    read: set[tuple[int, int]] = set()
    end = time.monotonic() + 30
    while len(read) < 2 * EACH:  # an eager group begins what it has read once more, as nothing is committed
        read |= {(number, offset) for number, offsets in receive(consumer, 1).items() for offset in offsets}
        assert time.monotonic() < end
    consumer.close()


def test_what_the_application_has_paused_stays_so(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(conf_of(broker))
    consumer.assign(BOTH)
    assert receive(consumer, 2 * EACH)
    consumer.pause([FIRST])
    consumer.assign(BOTH)
    fill_up(consumer, monkeypatch)
    whole = list(range(EACH))
    assert receive(consumer, 2 * EACH, 2) == {0: [], 1: whole}
    consumer.assign(BOTH)
    fill_up(consumer, monkeypatch)
    consumer.pause([SECOND])
    consumer.assign(BOTH)
    assert receive(consumer, 1, 2) == {0: [], 1: []}
    consumer.resume(BOTH)
    assert receive(consumer, 2 * EACH) == {0: whole, 1: whole}
    consumer.close()
