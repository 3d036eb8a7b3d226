"""Offsets speak of what the application has received, whatever the consumer has taken out of librdkafka's queue."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, Message, Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import PlainConsumer
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.consumer.receiving.held import ReceivedOffsets

HOLDS_SOON = {"session.timeout.ms": 300, "max.poll.interval.ms": 300, "heartbeat.interval.ms": 100}
"""A consumer that must serve its queue ten times a second, so that it holds messages soon."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as cluster:
        yield cluster


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with a hundred messages each, value = offset."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)
    broker.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for offset in range(100):
        for partition in range(2):
            producer.produce(name, str(offset), partition=partition)
    assert producer.flush(60) == 0
    return name


def consumer_of(broker: EmbeddedBroker, topic: str, cls: type = Consumer, **conf: Any) -> Any:
    return cls(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"group-of-{topic}",
            "client.id": topic,
            "auto.offset.reset": "earliest",
            "enable.metrics.push": False,
            **conf,
        }
    )


def committed(broker: EmbeddedBroker, topic: str, partition: int = 0) -> int:
    consumer = consumer_of(broker, topic, PlainConsumer)
    try:
        return int(consumer.committed([TopicPartition(topic, partition)], 60)[0].offset)
    finally:
        consumer.close()


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def receive(consumer: Any, count: int) -> list[Message]:
    received: list[Message] = []
    deadline = time.monotonic() + 60
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} messages came"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            received.append(message)
    return received


def hold(consumer: Consumer, count: int) -> None:
    """Keep alive until `count` messages are held and the coordinator is known.

    Of a coordinator that it does not know yet, librdkafka waits `session.timeout.ms` when a consumer is closed.
    """

    def held() -> bool:
        consumer.keep_alive()
        return len(consumer._kq_held) >= count

    until(held, 60)
    consumer.committed([TopicPartition("no-such-topic", 0)], 60)


def test_position_is_what_the_application_has_received(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, **HOLDS_SOON)
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 3)
    hold(consumer, 4)
    (position,) = consumer.position([TopicPartition(topic, 0)])
    assert (position.topic, position.partition, position.offset, position.error) == (topic, 0, 3, None)
    assert [message.offset() for message in receive(consumer, 6)] == [3, 4, 5, 6, 7, 8]
    assert consumer.position([TopicPartition(topic, 0)])[0].offset == 9
    consumer.close()


class LetsGoLate(Consumer):
    """Librdkafka goes on telling the position of before, as it does for a moment, of what is assigned anew."""

    late: list[TopicPartition] | None = None

    def _kq_positions(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if self.late is not None:
            return [TopicPartition(part.topic, part.partition, part.offset) for part in self.late if part in partitions]
        return super()._kq_positions(partitions)


def ahead_of_application(
    broker: EmbeddedBroker, topic: str
) -> tuple[LetsGoLate, list[TopicPartition], list[TopicPartition]]:
    """A consumer that has received three and holds more, what it has assigned, and librdkafka's position of that."""
    consumer = consumer_of(broker, topic, LetsGoLate, **HOLDS_SOON, **{"enable.auto.commit": False})
    mine = [TopicPartition(topic, 0, 0)]
    consumer.assign(mine)
    receive(consumer, 3)
    hold(consumer, 4)
    ahead = consumer._kq_positions(mine)
    assert ahead[0].offset > 3
    return consumer, mine, ahead


@pytest.mark.parametrize("how", ["assign", "incremental_assign"])
def test_what_was_held_of_a_partition_that_is_assigned_anew_is_not_committed(
    broker: EmbeddedBroker, topic: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, mine, ahead = ahead_of_application(broker, topic)
    if how == "incremental_assign":
        consumer.incremental_unassign(mine)
    getattr(consumer, how)([TopicPartition(topic, 0, 3)])
    consumer.late = ahead
    assert consumer.position(mine)[0].offset == OFFSET_INVALID
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)
    with monkeypatch.context() as patched:
        patched.setattr(ReceivedOffsets, "is_due", True)  # librdkafka is asked what has been received
        consumer._kq_settle()
    assert consumer._kq_received.offsets()[topic, 0] == 3
    consumer.late = None
    assert [message.offset() for message in receive(consumer, 2)] == [3, 4]
    assert [part.offset for part in consumer.commit(asynchronous=False)] == [5]
    consumer.close()
    assert committed(broker, topic) == 5


@pytest.mark.parametrize("how", ["assign", "unassign", "incremental_unassign"])
def test_what_was_held_of_a_partition_that_is_not_assigned_any_more_is_no_position(
    broker: EmbeddedBroker, topic: str, how: str
) -> None:
    consumer, mine, ahead = ahead_of_application(broker, topic)
    arguments = {"assign": [[TopicPartition(topic, 1, 0)]], "unassign": [], "incremental_unassign": [mine]}
    getattr(consumer, how)(*arguments[how])
    consumer.late = ahead
    assert consumer.position(mine)[0].offset == OFFSET_INVALID
    consumer.close()


@pytest.mark.parametrize("how", ["commit()", "commit(asynchronous=False)", "close()", "auto-commit", "unassign()"])
def test_what_is_committed_is_what_the_application_has_received(broker: EmbeddedBroker, topic: str, how: str) -> None:
    # What is committed automatically before commit() is called leaves that nothing to commit, as with a plain consumer.
    interval_ms = 200 if how == "auto-commit" else 120_000
    consumer = consumer_of(broker, topic, **{**HOLDS_SOON, "auto.commit.interval.ms": interval_ms})
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 7)
    hold(consumer, 3)
    if how == "commit()":
        consumer.commit()
    elif how == "commit(asynchronous=False)":
        assert [part.offset for part in consumer.commit(asynchronous=False)] == [7]
    elif how == "auto-commit":
        until(lambda: (consumer.keep_alive(), committed(broker, topic) == 7)[1])
    elif how == "unassign()":
        consumer.unassign()
        assert len(consumer._kq_held) == 0
    consumer.close()
    until(lambda: committed(broker, topic) == 7)


def test_committing_a_message_looks_at_no_other_partition(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consumer_of(broker, topic)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    message = receive(consumer, 3)[0]
    asked: list[Any] = []
    monkeypatch.setattr(consumer, "position", asked.append)
    (done,) = consumer.commit(message=message, asynchronous=False)
    consumer.commit(offsets=[TopicPartition(topic, message.partition() or 0, 2)], asynchronous=False)
    assert (done.partition, done.offset, asked) == (message.partition(), 1, [])
    monkeypatch.undo()
    consumer.close()


def test_a_plain_consumer_commits_the_same(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, PlainConsumer)
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 7)
    consumer.close()
    assert committed(broker, topic) == 7


@pytest.mark.parametrize("gated", [True, False])
def test_offsets_are_stored_as_messages_are_received(broker: EmbeddedBroker, topic: str, gated: bool) -> None:
    limit = {"consumer_byte_rate": 1_000_000} if gated else {}
    consumer = consumer_of(broker, topic, **{"auto.commit.interval.ms": 200, **limit})
    consumer.subscribe([topic])
    receive(consumer, 200)

    def seen() -> bool:
        consumer.poll(0.1)
        return committed(broker, topic) == committed(broker, topic, 1) == 100

    until(seen)
    consumer.close()


def test_a_user_who_stores_offsets_by_hand_keeps_doing_so(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, **{"enable.auto.offset.store": False, **HOLDS_SOON})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = receive(consumer, 5)
    hold(consumer, 2)
    consumer.store_offsets(messages[1])
    consumer.close()
    assert committed(broker, topic) == 2


def test_storing_by_hand_is_refused_where_the_client_stores(broker: EmbeddedBroker, topic: str) -> None:
    ours, plain = (consumer_of(broker, topic, cls) for cls in (Consumer, PlainConsumer))
    codes = []
    for consumer in (ours, plain):
        consumer.assign([TopicPartition(topic, 0, 0)])
        receive(consumer, 1)
        with pytest.raises(KafkaException) as refused:
            consumer.store_offsets(offsets=[TopicPartition(topic, 0, 1)])
        codes.append(refused.value.args[0].code())
        consumer.close()
    assert codes[0] == codes[1]


def test_a_seek_forgets_what_is_held_of_the_partition(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, **HOLDS_SOON)
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 3)
    hold(consumer, 3)
    consumer.seek(TopicPartition(topic, 0, 50))
    assert consumer.commit(asynchronous=False)[0].offset == 3
    assert [message.offset() for message in receive(consumer, 3)] == [50, 51, 52]
    consumer.close()


def test_what_is_held_of_a_paused_partition_waits_for_resume(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, **HOLDS_SOON)
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 3)
    hold(consumer, 3)
    consumer.pause([TopicPartition(topic, 0)])
    assert consumer.poll(0.3) is None
    assert consumer.consume(5, 0.2) == []
    consumer.resume([TopicPartition(topic, 0)])
    assert [message.offset() for message in receive(consumer, 97)] == list(range(3, 100))
    consumer.close()


@pytest.mark.parametrize("cls", [PlainConsumer, Consumer], ids=["plain", "ours"])
def test_a_pause_before_partitions_are_assigned_for_the_first_time_is_passed_over(
    broker: EmbeddedBroker, topic: str, cls: type
) -> None:
    consumer = consumer_of(broker, topic, cls)
    consumer.subscribe([topic], on_assign=lambda consumer, partitions: consumer.pause(partitions))
    offsets: dict[int | None, list[int | None]] = {0: [], 1: []}
    for message in receive(consumer, 200):
        offsets[message.partition()].append(message.offset())
    assert offsets == {0: list(range(100)), 1: list(range(100))}
    consumer.close()


def test_a_full_buffer_pauses_fetching_and_loses_nothing(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kclient_quota.clients.consumer.receiving.held.MOST_MESSAGES", 5)
    consumer = consumer_of(broker, topic, **HOLDS_SOON)
    consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    consumer.pause([TopicPartition(topic, 1)])
    receive(consumer, 3)
    hold(consumer, 5)
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        consumer.keep_alive()
    assert len(consumer._kq_held) == 5
    assert [message.offset() for message in receive(consumer, 97)] == list(range(3, 100))
    consumer.resume([TopicPartition(topic, 1)])
    assert {message.partition() for message in receive(consumer, 100)} == {1}
    consumer.close()


def test_a_revocation_stores_what_was_received_and_drops_what_is_held(broker: EmbeddedBroker, topic: str) -> None:
    conf = {"session.timeout.ms": 15_000, "max.poll.interval.ms": 15_000}
    consumer = consumer_of(broker, topic, **conf)
    heard: list[tuple[str, int, int]] = []

    def on_revoke(who: Any, partitions: list[TopicPartition]) -> None:
        assert who is consumer
        heard.extend(("revoke", part.partition, who.position([part])[0].offset) for part in partitions)
        who.keep_alive()

    consumer.subscribe([topic], on_revoke=on_revoke)
    receive(consumer, 5)
    hold(consumer, 1)
    expected = sum(max(0, part.offset) for part in consumer.position(consumer.assignment()))
    assert expected == 5
    consumer.unsubscribe()
    until(lambda: (consumer.keep_alive(), heard)[1])
    assert sum(offset for _, _, offset in heard if offset > 0) == 5
    assert len(consumer._kq_held) == 0
    consumer.close()
    assert sum(max(0, committed(broker, topic, partition)) for partition in range(2)) == 5


def test_two_consumers_of_a_group_get_every_message_once_when_the_second_joins(
    broker: EmbeddedBroker, topic: str
) -> None:
    conf = {"session.timeout.ms": 15_000, "max.poll.interval.ms": 15_000, "consumer_byte_rate": 3_000}
    first = consumer_of(broker, topic, **conf)
    first.subscribe([topic])
    got = [(m.partition(), m.offset()) for m in receive(first, 20)]
    hold(first, 1)
    second = consumer_of(broker, topic, **conf)
    second.subscribe([topic])
    deadline = time.monotonic() + 90
    while len(got) < 200:
        assert time.monotonic() < deadline
        for consumer in (first, second):
            message = consumer.poll(0.02)
            if message is not None:
                got.append((message.partition(), message.offset()))
    assert sorted(got) == [(partition, offset) for partition in range(2) for offset in range(100)]
    for consumer in (first, second):
        consumer.close()


def test_a_process_that_is_killed_with_a_full_buffer_loses_nothing(broker: EmbeddedBroker, topic: str) -> None:
    script = f"""
import time
from kclient_quota.clients.consumer.receiving import held
from kclient_quota.clients.consumer import Consumer
held.MOST_MESSAGES = 3
consumer = Consumer({{"bootstrap.servers": "{broker.bootstrap_servers}", "group.id": "group-of-{topic}",
    "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100, "session.timeout.ms": 6000,
    "max.poll.interval.ms": 6000}})
consumer.subscribe(["{topic}"])
received = 0
while received < 10:
    message = consumer.poll(1)
    if message is not None:
        print(message.partition(), message.offset(), flush=True)
        received += 1
while not consumer._kq_held.full:
    consumer.keep_alive()
    time.sleep(0.1)
time.sleep(1.5)
print("full", flush=True)
time.sleep(600)
"""
    received: list[tuple[int, int]] = []
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "full":
                break
            partition, offset = line.split()
            received.append((int(partition), int(offset)))
        os.kill(process.pid, signal.SIGKILL)
    assert len(received) == 10
    # What was received had time to be committed; had the held messages been, they would be missing below.
    assert sum(max(0, committed(broker, topic, partition)) for partition in range(2)) <= 10
    again = consumer_of(broker, topic, **{"session.timeout.ms": 6_000})
    again.subscribe([topic])
    seen = set(received)
    deadline = time.monotonic() + 90
    while len(seen) < 200:
        assert time.monotonic() < deadline, f"{200 - len(seen)} messages are lost"
        message = again.poll(0.5)
        if message is not None and message.error() is None:
            seen.add((message.partition(), message.offset()))
    again.close()


def test_send_offsets_to_transaction_speaks_of_what_was_received(broker: EmbeddedBroker, topic: str) -> None:
    consumer = consumer_of(broker, topic, **{"enable.auto.commit": False, **HOLDS_SOON})
    consumer.assign([TopicPartition(topic, 0, 0)])
    receive(consumer, 4)
    hold(consumer, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
    )
    producer.commit_transaction(60)
    consumer.close()
    assert committed(broker, topic) == 4
