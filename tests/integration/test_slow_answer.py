"""A cluster that takes messages at once and is slow to say which quota applies, as a busy one is."""

import asyncio
import time
from contextlib import suppress

import confluent_kafka
import pytest

from kclient_quota import AIOProducer, Producer, QuotaThrottledError, ShareConsumer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.scenes.preparing import configure_group

MESSAGE = b"x" * 1_000
ASKS_AS = "kclient-quota"


def conf(broker, name):
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "log_level": 0, "linger.ms": 5}


@pytest.mark.parametrize("late_ms", [1_500, 2_500])
def test_what_comes_before_the_answer_is_not_sent_at_once(late_ms):
    name = f"late-{late_ms}"
    with EmbeddedBroker(topics={name: 2}) as broker:
        broker.set_quota(client_id=name, producer_byte_rate=51_200)
        broker.faults.delay_on("DescribeClientQuotas", late_ms, count=2)
        throttles = [0.0]
        producer = Producer({**conf(broker, name), "throttle_cb": lambda event: throttles.append(event.throttle_time)})
        producer.produce(name, MESSAGE)
        assert not producer.flush(5)  # what comes before is not bounded: nobody knows whether there is a cluster
        end = time.monotonic() + 8
        while time.monotonic() < end:
            producer.produce(name, MESSAGE)
        assert [state.limit for state in producer.quota_state().values()] == [51_200]
        assert not producer.flush(30)
        producer.close()
        assert max(throttles) < 0.5, throttles


@pytest.mark.parametrize("flushes", [None, (), (5,)], ids=["alone", "flush", "flush-5"])
def test_an_asyncio_producer_waits_for_the_answer_as_well(flushes):
    """What it asks of its inner producer is never waited for there, and its flushes are made of many short ones."""
    throttles = [0.0]

    async def hear(event):
        throttles.append(event.throttle_time)

    async def produce(broker):
        producer = AIOProducer({**conf(broker, "aio"), "throttle_cb": hear}, batch_size=1)
        await (await producer.produce("aio", MESSAGE))
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for _ in range(20):
                await producer.produce("aio", MESSAGE)
            if flushes is not None:
                await producer.flush(*flushes)
        assert [state.limit for state in producer.quota_state().values()] == [51_200]
        await producer.close()

    with EmbeddedBroker(topics={"aio": 2}) as broker:
        broker.set_quota(client_id="aio", producer_byte_rate=51_200)
        broker.faults.delay_on("DescribeClientQuotas", 1_500, count=2)
        asyncio.run(produce(broker))
    assert max(throttles) < 0.5, throttles


def test_an_asyncio_flush_that_has_less_time_leaves_nothing():
    async def produce(broker):
        producer = AIOProducer(conf(broker, "brief"), batch_size=1)
        await (await producer.produce("brief", MESSAGE))
        for _ in range(45):
            await producer.produce("brief", MESSAGE)
        assert not await producer.flush(2.5)
        await producer.close()

    with EmbeddedBroker(topics={"brief": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        asyncio.run(produce(broker))


def test_one_that_never_answers_is_not_waited_for_long():
    with EmbeddedBroker(topics={"silent": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        producer = Producer(conf(broker, "silent"))
        began = time.monotonic()
        for _ in range(2_000):
            producer.produce("silent", MESSAGE)
        assert time.monotonic() - began < 6, "callers wait for three seconds"
        assert not producer.flush(20)
        producer.close()


LANES = {"quota.lane.of": {"lazy": "hurry"}}


@pytest.mark.parametrize(
    "hasty",
    [
        {"quota.backoff": "raise"},
        {"max.block.ms": 500},
        {"quota.message.deadline.ms": 500},
        {"quota.message.deadline.ms": lambda _: 500},
        {**LANES, "quota.lanes": {"hurry": {"deadline.ms": 500}}},
        {**LANES, "quota.lanes": {"hurry": {"full": "drop-oldest"}}},
        {**LANES, "quota.lanes": {"hurry": {"full": "raise"}}},
    ],
    ids=["raise", "block", "deadline", "deadlines", "lane-deadline", "lane-drops", "lane-raises"],
)
def test_nothing_is_refused_or_given_up_meanwhile(hasty):
    with EmbeddedBroker(topics={"lazy": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        producer = Producer({**conf(broker, "lazy"), **hasty})
        failed = []
        for _ in range(200):
            with suppress(QuotaThrottledError):
                producer.produce("lazy", MESSAGE, on_delivery=lambda error, _: failed.append(error))
            producer.poll(0.001)
        assert not producer.flush(20)
        producer.close()
        assert failed == [None] * 200


def test_a_short_transaction_comes_to_its_end_meanwhile():
    with EmbeddedBroker(topics={"short": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        producer = Producer({**conf(broker, "short"), "transactional.id": "short", "transaction.timeout.ms": 2_000})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(60):
            producer.produce("short", MESSAGE)
        producer.commit_transaction()
        producer.close()


def begun(conf, after_s):
    time.sleep(after_s)
    producer = Producer(conf)
    producer.produce("many", MESSAGE)
    assert not producer.flush(5)
    return producer


def test_who_shares_a_quota_waits_for_nobody_that_is_made_later():
    with EmbeddedBroker(topics={"many": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        first, other = (begun(conf(broker, "many"), after_s) for after_s in (0, 3))
        for producer in other, first:
            for _ in range(40):
                producer.produce("many", MESSAGE)
        assert not first.flush(1.5)
        for producer in first, other:
            producer.close()


def test_a_flush_that_has_less_time_leaves_nothing():
    with EmbeddedBroker(topics={"brief": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        producer = Producer(conf(broker, "brief"))
        for _ in range(45):
            producer.produce("brief", MESSAGE)
        began = time.monotonic()
        assert not producer.flush(2.5)
        assert time.monotonic() - began < 2
        producer.close()


def test_what_would_grow_too_old_meanwhile_is_sent():
    with EmbeddedBroker(topics={"hasty": 2}) as broker:
        broker.faults.blackhole_client(ASKS_AS)
        failed = []
        producer = Producer({**conf(broker, "hasty"), "message.timeout.ms": 3_000})
        for _ in range(200):
            producer.produce("hasty", MESSAGE, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert not producer.flush(20)
        producer.close()
        assert failed == []


def full_of(broker, name, count):
    plain = confluent_kafka.Producer({**conf(broker, name), "client.id": "fills", "batch.num.messages": 16})
    for _ in range(count):
        plain.produce(name, MESSAGE)
    assert not plain.flush(30)


def test_a_share_consumer_waits_for_the_answer_as_its_sizes_stay():
    with EmbeddedBroker(topics={"shared": 1}) as broker:
        full_of(broker, "shared", 3_000)
        configure_group(broker.bootstrap_servers, "shared", {"share.auto.offset.reset": "earliest"})
        broker.set_quota(client_id="shared", consumer_byte_rate=51_200)
        broker.faults.delay_on("DescribeClientQuotas", 1_500, count=2)
        throttles = [0.0]
        hears = {"throttle_cb": lambda event: throttles.append(event.throttle_time)}
        given = {**conf(broker, "shared"), "group.id": "shared", **hears}
        del given["linger.ms"]
        consumer = ShareConsumer(given)
        consumer.subscribe(["shared"])
        end, count = time.monotonic() + 8, 0
        while time.monotonic() < end:
            count += sum(message.error() is None for message in consumer.poll(0.1))
        consumer.close()
        assert max(throttles) < 0.5, throttles
        assert count > 300
