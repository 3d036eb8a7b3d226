"""Lanes, deadlines, newest values and tenants of a real producer, at ten times the quota, on the embedded broker."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from tests.integration.made_producers import made

QUOTA = 100_000
TURNS_PER_S = 50


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "producer_byte_rate": QUOTA, **more}


def offer(producer: Producer, seconds: float, turn: Callable[[int], None]) -> float:
    """Play turns at their times, and poll between them; how long that took.

    What a busy machine was late with it does not make up for: nobody offers more in any second than the test says.
    """
    began = due = time.monotonic()
    for number in range(round(seconds * TURNS_PER_S)):
        turn(number)
        due = max(due + 1 / TURNS_PER_S, time.monotonic())
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.poll(0)
    return time.monotonic() - began


def stored(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """All values that the broker has."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


def test_a_strict_lane_loses_nothing_while_ten_times_the_quota_comes(broker: EmbeddedBroker) -> None:
    lanes = {"alerts": {"priority": "strict"}, "bulk": {"full": "drop-newest"}}
    producer = made(conf(broker, **{"quota.lanes": lanes, "quota.lane.of": "lane"}))
    alerts: Counter[str] = Counter()
    bulk: Counter[str] = Counter()

    def turn(_number: int) -> None:
        for _ in range(QUOTA * 10 // TURNS_PER_S // 1_000):
            producer.produce(
                "orders",
                b"b" * 1_000,
                headers={"lane": b"bulk"},
                on_delivery=lambda error, _: bulk.update(["ok" if error is None else error.name()]),
            )
        producer.produce(
            "orders",
            b"a" * 300,
            headers={"lane": b"alerts"},
            on_delivery=lambda error, _: alerts.update(["ok" if error is None else error.name()]),
        )

    took_s = offer(producer, 8, turn)
    assert producer.flush(60) == 0
    assert alerts == {"ok": 8 * TURNS_PER_S}
    assert bulk["_QUEUE_FULL"] == producer.metric("quota-messages-dropped-total")
    assert 0 < bulk["ok"] * 1_000 < 1.5 * QUOTA * (took_s + 3)  # the rest waits for a second, and then is sent
    assert sum(bulk.values()) == 8 * QUOTA * 10 // 1_000


@pytest.mark.parametrize("full", ["drop-oldest", "drop-newest"])
def test_lanes_divide_the_quota_by_their_weights(broker: EmbeddedBroker, full: str) -> None:
    lanes = {"three": {"weight": 3, "full": full}, "one": {"full": full}}
    producer = made(conf(broker, **{"quota.lanes": lanes, "quota.lane.of": lambda record: record.key}))
    sent: Counter[str] = Counter()

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            sent[message.key().decode()] += len(message.value())

    def turn(_number: int) -> None:
        for key in ("three", "one"):
            for _ in range(10):
                producer.produce("orders", b"x" * 900, key, on_delivery=on_delivery)

    offer(producer, 12, turn)
    producer.flush(60)
    assert sent["three"] / sent.total() == pytest.approx(0.75, rel=0.1)
    assert sent.total() > 0.2 * 12 * QUOTA  # how much of a quota is used is measured elsewhere, alone


def test_what_is_not_worth_sending_any_more_costs_no_quota(broker: EmbeddedBroker) -> None:
    # Each message is a second of the quota, and worth a third of that.
    producer = made(conf(broker, **{"quota.message.deadline.ms": 300, "producer_byte_rate": 5_000}))
    became: dict[str, list[bytes]] = defaultdict(list)

    def on_delivery(error: Any, message: Any) -> None:
        became["ok" if error is None else error.name()].append(message.value())

    for number in range(15):
        producer.produce("orders", b"%03d" % number + b"x" * 5_000, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert became["ok"] == stored(broker, "orders")
    assert len(became["_MSG_TIMED_OUT"]) == producer.metric("quota-messages-expired-total") >= 5
    assert len(became["ok"]) + len(became["_MSG_TIMED_OUT"]) == 15


def test_of_each_key_the_newest_value_arrives_and_every_other_is_reported(broker: EmbeddedBroker) -> None:
    lanes = {"": {"newest": True}}
    producer = made(conf(broker, **{"quota.lanes": lanes, "producer_byte_rate": 10_000}))
    became: Counter[str] = Counter()

    def turn(number: int) -> None:
        for key in range(20):
            producer.produce(
                "orders",
                b"%d %d" % (key, number),
                b"key-%d" % key,
                on_delivery=lambda error, _: became.update(["ok" if error is None else error.name()]),
            )

    offer(producer, 4, turn)
    assert producer.flush(60) == 0
    newest: dict[int, int] = {}
    for value in stored(broker, "orders"):
        key, number = map(int, value.split())
        assert newest.get(key, -1) < number
        newest[key] = number
    assert newest == dict.fromkeys(range(20), 4 * TURNS_PER_S - 1)
    assert set(became) == {"ok", "_PURGE_QUEUE"}
    assert became.total() == 20 * 4 * TURNS_PER_S


def test_a_tenant_that_offers_a_hundred_times_more_takes_nothing_from_another(broker: EmbeddedBroker) -> None:
    lanes = {"": {"full": "drop-oldest"}}
    producer = made(conf(broker, **{"quota.lanes": lanes, "quota.tenant.of": lambda record: record.key}))
    became: Counter[tuple[bytes, bool]] = Counter()
    turns = 6 * TURNS_PER_S

    def on_delivery(error: Any, message: Any) -> None:
        became[message.key(), error is None] += 1

    def turn(number: int) -> None:
        # The quiet one has half a second of its messages on their way at most: were they to wait among the loud
        # one's, each would take a hundred times its share of the quota, and all of them a minute and a half.
        while number - became[b"quiet", True] - became[b"quiet", False] > TURNS_PER_S / 2:
            assert time.monotonic() < until, f"the quiet one has to wait behind the loud one: {became}"
            producer.poll(0.02)
        for key, count in ((b"loud", 100), (b"quiet", 1)):
            for _ in range(count):
                producer.produce("orders", b"x" * 300, key, on_delivery=on_delivery)

    until = time.monotonic() + 45
    offer(producer, 6, turn)
    assert producer.flush(60) == 0
    assert became[b"quiet", True] == turns
    assert became[b"loud", False] > became[b"loud", True] > turns
    assert became.total() == turns * 101
