"""What a consumer does when its broker throttles for hours, vanishes, or is killed in mid-throttle."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer as PacedProducer
from tests.filling import fill

pytestmark = pytest.mark.usefixtures("patiently_asked")
LONG_MS = 50_000
"""Longer than anybody here waits, and no longer than a throttle counts, by `longest_throttle_ms()`."""
FETCH = 1


def started(broker: EmbeddedBroker, **conf: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "client.id": "app",
            "auto.offset.reset": "earliest",
            "enable.metrics.push": False,
            **conf,
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def drain(consumer: Any, count: int, seconds: float = 60) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def test_a_throttle_of_half_a_day_leaves_every_call_bounded_and_close_prompt(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 20)
    consumer = started(broker, consumer_byte_rate=100_000)
    drain(consumer, 5)
    broker.throttle_next(FETCH, LONG_MS)
    deadline = time.monotonic() + 60
    while not any(state.throttled_until_ms for state in consumer.quota_state().values()):
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    (state,) = consumer.quota_state().values()
    assert LONG_MS - 40_000 < state.throttled_until_ms <= LONG_MS
    begin = time.monotonic()
    consumer.poll(0.3)
    assert time.monotonic() - begin < 60
    begin = time.monotonic()
    consumer.close()
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("limit", [10, 1_000_000, None], ids=["waiting", "gated", "aside"])
def test_ctrl_c_ends_an_endless_poll_whenever_it_comes(broker: EmbeddedBroker, limit: int | None) -> None:
    """Many times, because an interrupt that meets a callback is the one that gets lost."""
    fill(broker, "orders", 2)
    script = f"""
import signal
from kclient_quota.clients.consumer import Consumer
limit = {limit}
is_waiting = has_come = has_raised = False
def interrupt(*_):
    global has_come, has_raised
    has_come = True
    if is_waiting:
        has_raised = True
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
consumer = Consumer({{"bootstrap.servers": "{broker.bootstrap_servers}", "group.id": "g", "client.id": "app",
    "auto.offset.reset": "earliest", "enable.metrics.push": False,
    **({{"consumer_byte_rate": limit}} if limit else {{}})}})
consumer.subscribe(["orders"])
consumer.poll()
print("waits", flush=True)
for _ in range(12):
    try:
        is_waiting = True
        while not has_come:  # between two tries, where nothing would catch it
            consumer.poll()
    except KeyboardInterrupt:
        said = "stopped"
    else:
        said = "lost" if has_raised else "stopped"
    is_waiting = has_come = has_raised = False
    print(said, flush=True)
consumer.close()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "waits"
        for attempt in range(12):
            time.sleep(0.2 + attempt * 0.023)
            begin = time.monotonic()
            os.kill(process.pid, signal.SIGINT)
            assert process.stdout.readline().strip() == "stopped"
            assert time.monotonic() - begin < 60
        assert process.wait(60) == 0


def test_connections_killed_in_mid_throttle_change_nothing_about_the_pace(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 300)
    broker.set_quota(client_id="app", consumer_byte_rate=20_000)
    consumer = started(broker)
    seen = [message.offset() for message in drain(consumer, 20)]
    broker.throttle_next(FETCH, 800)
    deadline = time.monotonic() + 60
    while not any(state.throttled_until_ms for state in consumer.quota_state().values()):
        assert time.monotonic() < deadline
        message = consumer.poll(0.05)
        if message is not None:
            seen.append(message.offset())
    assert broker.kill_connections("app") >= 1
    begin = time.monotonic()
    seen += [message.offset() for message in drain(consumer, 100)]
    assert time.monotonic() - begin > 3.5
    assert seen == list(range(len(seen)))
    assert next(iter(consumer.quota_state().values())).limit == 20_000
    consumer.close()


def test_a_broker_that_comes_back_is_read_on(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 60)
    consumer = started(broker, consumer_byte_rate=50_000, **{"reconnect.backoff.max.ms": 500})
    seen = [message.offset() for message in drain(consumer, 10)]
    broker.stop_broker(1)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append(message.offset())
    broker.start_broker(1)
    seen += [message.offset() for message in drain(consumer, 60 - len(seen))]
    assert seen == list(range(60))
    consumer.close()


def test_a_batch_that_can_never_come_is_told_with_the_quota_that_would_let_it(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """120 kB under 10 kB/s: X = 2 s, for ever."""
    fill(broker, "orders", 120, per_batch=120)
    broker.set_quota(client_id="app", consumer_byte_rate=10_000)
    with caplog.at_level(logging.INFO, "kclient_quota"):
        consumer = started(broker)
        begin = time.monotonic()
        while not any(state.stall for state in consumer.quota_state().values()):
            assert time.monotonic() - begin < 60
            assert consumer.poll(0.2) is None
        (state,) = consumer.quota_state().values()
        assert "can never be delivered" in str(state.stall)
        assert "can never be delivered" in caplog.text
        metrics = {name.name: value for name, value in consumer.metrics().items() if name.tag("node-id") is None}
        assert metrics["fetch-stalled-brokers"] == 1.0
        assert metrics["fetch-throttle-time-max"] > 1_500
        named = int(str(state.stall).partition("raise consumer_byte_rate to ")[2].partition(" B/s")[0].replace(",", ""))
        assert 12_000 < named < 13_500
        broker.set_quota(client_id="app", consumer_byte_rate=named)
        drain(consumer, 1)
        deadline = time.monotonic() + 60
        while any(state.stall for state in consumer.quota_state().values()):
            assert time.monotonic() < deadline
            consumer.poll(0.05)
    assert "messages come again" in caplog.text
    assert caplog.text.count("throttles client") == 1
    consumer.close()


def test_a_topic_that_does_not_exist_is_said_so(broker: EmbeddedBroker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "consumer_byte_rate": 1_000,
            "allow.auto.create.topics": False,
        }
    )
    consumer.subscribe(["absent"])
    deadline = time.monotonic() + 60
    message = None
    while message is None:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
    error = message.error()
    assert error is not None
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"
    consumer.close()


@pytest.mark.parametrize("rate", [None, 100_000])
def test_a_topic_that_goes_is_said_so_to_who_waits_for_many_messages(broker: EmbeddedBroker, rate: int | None) -> None:
    """It is told just before its partitions are revoked, both within one call."""
    fill(broker, "orders", 60)
    broker.set_quota(client_id="app", consumer_byte_rate=rate)
    consumer = started(broker, **{"topic.metadata.refresh.interval.ms": 500})
    drain(consumer, 60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(30)
    deadline = time.monotonic() + 30
    told: list[Message] = []
    while not told:
        assert time.monotonic() < deadline
        told = consumer.consume(50, 0.5)
    assert [error.name() for message in told if (error := message.error())] == ["UNKNOWN_TOPIC_OR_PART"]
    consumer.close()


def test_a_producer_that_waits_keeps_its_consumer_in_the_group(broker: EmbeddedBroker) -> None:
    """Waiting goes on for longer than `max.poll.interval.ms`; nothing is lost, nobody is expelled."""
    fill(broker, "orders", 60)
    broker.create_topic("copies")
    revoked: list[Any] = []
    consumer = started(broker, **{"session.timeout.ms": 12_000, "max.poll.interval.ms": 12_000})
    consumer.subscribe(["orders"], on_revoke=lambda _, parts: revoked.append(parts))
    producer = PacedProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "copier", "producer_byte_rate": 500},
        heartbeat=consumer,
    )
    seen = [message.offset() for message in drain(consumer, 1)]
    begin = time.monotonic()
    for size in (500, 8_000, 1, 8_000, 8_000):
        producer.produce("copies", b"x" * size)
    assert time.monotonic() - begin > 13
    for _ in range(20):
        seen += [message.offset() for message in drain(consumer, 1)]
    assert not revoked
    assert seen == list(range(len(seen)))
    position = consumer.position(consumer.assignment())[0].offset
    assert position == len(seen)
    assert not revoked
    producer.purge()
    producer.flush(1)
    consumer.close()


def test_many_threads_may_ask_about_the_state_while_one_polls(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 100)
    consumer = started(broker, consumer_byte_rate=100_000)
    stop = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                consumer.metrics()
                consumer.quota_state()
                time.sleep(0.001)
        except BaseException as error:  # noqa: BLE001 - any failure in a thread is this test's
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    drain(consumer, 100)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    consumer.close()
