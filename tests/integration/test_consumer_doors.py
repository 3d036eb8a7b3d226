"""The consumer's doors are confluent_kafka's: signatures, callbacks, events, interceptors; no quota, no detour."""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import PlainConsumer
from kclient_quota.clients.consumer import Consumer
from kclient_quota.metrics import MetricName
from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType
from tests.filling import fill

MESSAGES = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as cluster:
        yield cluster


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)
    broker.create_topic(name, 1)
    fill(broker, name, MESSAGES, 100, size=100)
    return name


def conf_of(broker: EmbeddedBroker, topic: str, **conf: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": topic,
        "client.id": topic,
        "auto.offset.reset": "earliest",
        "enable.metrics.push": False,
        **conf,
    }


def started(broker: EmbeddedBroker, topic: str, **conf: Any) -> Consumer:
    consumer = Consumer(conf_of(broker, topic, **conf))
    consumer.subscribe([topic])
    return consumer


def drain(consumer: Any, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        if message is not None:
            found.append(message)
    return found


def goes_straight_on(consumer: Consumer) -> bool:
    assert type(consumer) is Consumer
    return consumer._kq_credit == float("inf")


def limit_of(consumer: Consumer) -> float | None:
    return next((state.limit for state in consumer.quota_state().values()), None)


LIMITS: list[dict[str, Any]] = [{}, {"consumer_byte_rate": 1_000_000}]


@pytest.mark.parametrize("limit", LIMITS, ids=["free", "paced"])
def test_messages_and_the_end_of_a_partition_come_as_from_the_plain_consumer(
    broker: EmbeddedBroker, topic: str, limit: dict[str, Any]
) -> None:
    seen = []
    for cls, extra in ((PlainConsumer, {}), (Consumer, limit)):
        consumer = cls(conf_of(broker, topic, **{"enable.partition.eof": True, "enable.auto.commit": False, **extra}))
        consumer.subscribe([topic])
        events = drain(consumer, MESSAGES + 1)
        error = events[-1].error()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF
        seen.append([(m.topic(), m.partition(), m.offset(), m.value()) for m in events[:-1]])
        consumer.close()
    assert seen[0] == seen[1]
    assert len(seen[0]) == MESSAGES


def test_consume_takes_many_and_waits_no_longer_than_it_was_told(broker: EmbeddedBroker, topic: str) -> None:
    consumer = started(broker, topic, consumer_byte_rate=1_000_000)
    got: list[Message] = []
    deadline = time.monotonic() + 60
    while len(got) < MESSAGES and time.monotonic() < deadline:
        got += consumer.consume(20, timeout=0.5)
    assert [message.offset() for message in got] == list(range(MESSAGES))
    begin = time.monotonic()
    assert consumer.consume(20, 0.3) == []
    assert 0.25 < time.monotonic() - begin < 60
    assert consumer.consume(0, 0) == []
    with pytest.raises(ValueError, match="1000000"):
        consumer.consume(1_000_001)
    consumer.close()


@pytest.mark.parametrize("call", ["poll", "consume"])
@pytest.mark.parametrize("timeout", [0, 0.05, 0.35])
def test_a_paced_call_never_outlasts_its_timeout(broker: EmbeddedBroker, topic: str, call: str, timeout: float) -> None:
    """100 B/s lets a message of 108 bytes through every second or so: most calls have to wait."""
    consumer = started(broker, topic, consumer_byte_rate=100)
    assert drain(consumer, 1)
    took: list[float] = []
    end = time.monotonic() + 2
    while time.monotonic() < end or len(took) < 5:
        begin = time.monotonic()
        if call == "poll":
            consumer.poll(timeout)
        else:
            consumer.consume(5, timeout)
        took.append(time.monotonic() - begin)
    assert sorted(took)[len(took) // 2] < timeout + 0.7, "most calls wait for a second if they wait for the quota"
    consumer.close()


def test_what_is_paced_comes_at_the_pace_of_the_limit(broker: EmbeddedBroker, topic: str) -> None:
    """Whatever this broker allows: the limit by hand is lower."""
    fill(broker, topic, 400, 50, size=100)  # longer ones are handed over as they come
    consumer = started(broker, topic, consumer_byte_rate=10_000)
    drain(consumer, 20)
    took: list[float] = []
    for _ in range(200):
        begin = time.monotonic()
        drain(consumer, 1)
        took.append(time.monotonic() - begin)
    assert sum(took) > 1.8 or max(took) > 1, "what was not used while the machine stood still may follow at once"
    # of a message that takes longer the machine has taken the rest
    assert sum(min(each, 0.5) for each in took) < 5
    consumer.close()


def test_poll_without_end_waits_for_the_quota(broker: EmbeddedBroker, topic: str) -> None:
    consumer = started(broker, topic, consumer_byte_rate=1_000)
    assert all(consumer.poll() is not None for _ in range(12))
    assert all(consumer.poll(timeout=-1) is not None for _ in range(2))
    consumer.close()


def test_calls_go_straight_on_while_nothing_limits_and_wait_when_something_does(
    broker: EmbeddedBroker, topic: str
) -> None:
    class Changing(ClientQuotaCallback):
        limit: float | None = None
        changed = True

        def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
            return {"client-id": client_id}

        def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
            return self.limit if quota_type is ClientQuotaType.FETCH else None

        def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
            return self.changed

    callback = Changing()
    consumer = started(broker, topic, **{"client.quota.callback.class": callback})
    assert goes_straight_on(consumer)
    drain(consumer, 1)
    callback.limit = 50_000_000
    wait_for(lambda: (consumer.poll(0.05), limit_of(consumer) == 50_000_000)[1])
    assert not goes_straight_on(consumer)
    callback.limit = None
    wait_for(lambda: (consumer.poll(0.05), goes_straight_on(consumer))[1])
    consumer.close()


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_the_part_of_its_time_spent_in_poll_is_measured(broker: EmbeddedBroker, topic: str) -> None:
    """An application that works for 40 ms of every 60: from start to start 60 ms, in poll() 20, hence 20 / 80."""
    consumer = started(broker, topic)
    drain(consumer, MESSAGES)
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        consumer.poll(0.02)
        time.sleep(0.04)
    name = MetricName("poll-idle-ratio-avg", "consumer-metrics", (("client-id", topic),))
    # Wide for a busy machine, where both take longer.
    assert 0.1 < consumer.metrics()[name] < 0.45
    consumer.close()


def test_a_users_override_is_never_stepped_over(broker: EmbeddedBroker, topic: str) -> None:
    class Counting(Consumer):
        polls = 0

        def poll(self, timeout: float = -1) -> Message | None:
            self.polls += 1
            return super().poll(timeout)

    consumer = Counting(conf_of(broker, topic))
    consumer.subscribe([topic])
    drain(consumer, 3)
    assert consumer.polls >= 3
    consumer.close()


def test_sizes_by_hand_that_cannot_follow_a_later_quota_are_said_so_once(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(ClientQuotaCallback):
        limit: float | None = None

        def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
            return {"client-id": client_id}

        def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
            return self.limit

        def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
            return True

    callback = Late()
    by_hand = {"queued.max.messages.kbytes": 1_024}
    consumer = started(broker, topic, **{"client.quota.callback.class": callback, **by_hand})
    drain(consumer, 1)
    callback.limit = 20_000
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        wait_for(lambda: (consumer.poll(0.05), "sizes" in caplog.text)[1])
    wait_for(lambda: (consumer.poll(0.05), goes_straight_on(consumer))[1])
    fill(broker, topic, 30, 100, size=100)
    assert len(drain(consumer, 30)) == 30
    assert caplog.text.count("cannot be followed with") == 1
    consumer.close()


def test_the_users_callbacks_are_still_called(broker: EmbeddedBroker, topic: str) -> None:
    heard: dict[str, list[Any]] = {"stats": [], "throttle": [], "commit": []}
    broker.set_quota(client_id=topic, consumer_byte_rate=300)
    begin = time.monotonic()
    consumer = started(
        broker,
        topic,
        **{
            "quota.limit.source": "learned",
            "statistics.interval.ms": 700,
            "stats_cb": heard["stats"].append,
            "throttle_cb": heard["throttle"].append,
            "on_commit": lambda error, offsets: heard["commit"].append((error, offsets)),
            "auto.commit.interval.ms": 300,
        },
    )
    while time.monotonic() - begin < 60 and (len(heard["stats"]) < 3 or not heard["throttle"]):
        consumer.poll(0.1)
    assert 3 <= len(heard["stats"]) <= 1 + (time.monotonic() - begin) / 0.7
    assert '"brokers"' in heard["stats"][0]
    assert heard["throttle"][0].throttle_time > 0
    consumer.commit()
    consumer.close()
    broker.set_quota(client_id=topic)


def test_rebalance_callbacks_are_called_with_the_consumer_and_partitions(broker: EmbeddedBroker, topic: str) -> None:
    consumer = Consumer(conf_of(broker, topic))
    heard: list[tuple[str, Any, list[tuple[str, int]]]] = []

    def hear(name: str) -> Any:
        return lambda who, parts: heard.append((name, who, [(part.topic, part.partition) for part in parts]))

    consumer.subscribe([topic], on_assign=hear("assign"), on_revoke=hear("revoke"), on_lost=hear("lost"))
    drain(consumer, 1)
    consumer.close()
    assert heard == [("assign", consumer, [(topic, 0)]), ("revoke", consumer, [(topic, 0)])]


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_what_is_no_callback_is_refused_as_by_the_plain_consumer(broker: EmbeddedBroker, name: str) -> None:
    for cls in (Consumer, PlainConsumer):
        consumer = cls(conf_of(broker, "refused"))
        with pytest.raises(TypeError, match=f"{name} expects a callable"):
            consumer.subscribe(["refused"], **{name: 3})
        consumer.close()


def test_an_exception_in_a_rebalance_callback_reaches_the_caller(broker: EmbeddedBroker, topic: str) -> None:
    def explode(consumer: Any, partitions: Any) -> None:
        raise LookupError("mine")

    consumer = Consumer(conf_of(broker, topic))
    consumer.subscribe([topic], on_assign=explode)
    with pytest.raises(LookupError, match="mine"):
        drain(consumer, 1)
    consumer.close()


def test_interceptors_see_and_change_what_is_consumed_and_hear_of_commits(broker: EmbeddedBroker, topic: str) -> None:
    class Watching:
        def __init__(self) -> None:
            self.consumed: list[int | None] = []
            self.committed: list[int] = []
            self.configured: Mapping[str, Any] = {}
            self.closed = 0

        def configure(self, configs: Mapping[str, Any]) -> None:
            self.configured = configs

        def on_consume(self, records: list[Message]) -> list[Message]:
            self.consumed += [record.offset() for record in records]
            return [record for record in records if (record.offset() or 0) % 2 == 0]

        def on_commit(self, offsets: list[TopicPartition]) -> None:
            self.committed += [part.offset for part in offsets]

        def close(self) -> None:
            self.closed += 1

    watching = Watching()
    consumer = started(
        broker, topic, **{"interceptor.classes": [watching], "enable.partition.eof": True, "enable.auto.commit": False}
    )
    got = drain(consumer, MESSAGES // 2 + 1)
    assert [message.offset() for message in got[:-1]] == list(range(0, MESSAGES, 2))
    assert got[-1].error() is not None
    assert watching.consumed == list(range(MESSAGES))
    assert consumer.commit(asynchronous=False)[0].offset == MESSAGES
    assert watching.committed == [MESSAGES]
    assert watching.configured["group.id"] == topic
    consumer.close()
    consumer.close()
    assert watching.closed == 1


def test_as_a_context_manager_it_closes_and_a_closed_one_says_so(broker: EmbeddedBroker, topic: str) -> None:
    with started(broker, topic, consumer_byte_rate=10_000) as consumer:
        drain(consumer, 3)
    consumer.keep_alive()
    for call in (consumer.poll, consumer.consume, consumer.commit, consumer.assignment, consumer.unsubscribe):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()
    with PlainConsumer(conf_of(broker, topic)) as plain:
        assert plain.committed([TopicPartition(topic, 0)], 60)[0].offset == 3


def test_the_state_and_the_metrics_speak_kafkas_names(broker: EmbeddedBroker, topic: str) -> None:
    consumer = started(broker, topic, consumer_byte_rate=10_000)
    drain(consumer, MESSAGES)
    (state,) = consumer.quota_state().values()
    assert list(consumer.quota_state()) == [1]
    assert (state.limit, state.source, state.stall) == (10_000, "config", None)
    assert 9_000 < state.rate < 10_000
    assert state.admitted > 5_000
    tags = (("client-id", topic),)
    metrics = consumer.metrics()
    group = "consumer-fetch-manager-metrics"
    assert metrics[MetricName("fetch-throttle-time-avg", group, tags)] == 0.0
    assert metrics[MetricName("fetch-throttle-time-max", group, tags)] == 0.0
    assert metrics[MetricName("fetch-stalled-brokers", group, tags)] == 0.0
    assert metrics[MetricName("last-poll-seconds-ago", "consumer-metrics", tags)] < 60
    assert 200_000 < metrics[MetricName("poll-headroom-ms", "consumer-metrics", tags)] <= 300_000
    assert any(name.tag("node-id") == "node-1" for name in metrics)
    consumer.close()
