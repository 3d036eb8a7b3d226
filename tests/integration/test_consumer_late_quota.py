"""A quota that comes, changes and goes while a consumer reads: another client fetches, nothing is lost or doubled."""

import json
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_END, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from tests.integration.changing_quota import Changing

PARTITIONS = 3
EACH = 3_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as embedded:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": embedded.bootstrap_servers, "batch.num.messages": 10, "linger.ms": 20}
        )
        for number in range(EACH * PARTITIONS):
            producer.produce("orders", b"x" * 1_000, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        yield embedded


class Reader:
    """A consumer and what it has received."""

    def __init__(self, cluster: EmbeddedBroker, limit: float | None = None, **conf: Any) -> None:
        self.quota = Changing()
        self.quota.limit = limit
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "client.id": "app",
                "auto.offset.reset": "earliest",
                "enable.metrics.push": False,
                "client.quota.callback.class": self.quota,
                **conf,
            }
        )

    @property
    def received(self) -> int:
        return sum(self.next.values())

    def take(self, within_s: float = 0.1) -> None:
        message = self.consumer.poll(within_s)
        if message is not None:
            partition = message.partition() or 0
            assert message.error() is None
            assert message.offset() == self.next[partition]
            self.next[partition] += 1

    def until(self, condition: Any, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (self.next, self.consumer.quota_state())
            self.take()

    def positions(self) -> dict[int, int]:
        found = self.consumer.position([TopicPartition("orders", number) for number in range(PARTITIONS)])
        return {part.partition: max(0, part.offset) for part in found}


@pytest.mark.parametrize("how", ["assign", "subscribe"])
def test_it_is_followed_at_once_and_sizes_go_back_when_it_has_gone(cluster: EmbeddedBroker, how: str) -> None:
    reader = Reader(cluster)
    consumer = reader.consumer
    if how == "assign":
        consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    else:
        consumer.subscribe(["orders"])
    reader.until(lambda: reader.received >= 100)
    reader.quota.limit = 300_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    assert reader.positions() == reader.next
    # What had been prefetched was paid for, and comes at once.
    reader.until(lambda: not consumer._kq_held)
    if reader.received < EACH * PARTITIONS:
        begun, begin = reader.received, time.monotonic()
        while time.monotonic() - begin < 3 and reader.received < EACH * PARTITIONS:
            reader.take()
        rate = (reader.received - begun) * 1_010 / (time.monotonic() - begin)
        assert rate < 1.4 * 300_000
    reader.quota.limit = None
    reader.until(lambda: reader.received == EACH * PARTITIONS)
    assert reader.positions() == reader.next
    consumer.commit(asynchronous=False)
    consumer.close()
    plain = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    committed = plain.committed([TopicPartition("orders", number) for number in range(PARTITIONS)], 60)
    assert [part.offset for part in committed] == [EACH] * PARTITIONS
    plain.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_come_and_go_meanwhile(cluster: EmbeddedBroker, strategy: str) -> None:
    conf = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300}
    first, second = Reader(cluster, 100_000, **conf), Reader(cluster, 100_000, **conf)
    first.consumer.subscribe(["orders"])
    first.until(lambda: first.received >= 30)
    first.quota.limit = 6_000_000
    first.until(lambda: first.consumer._kq_fetcher is not None)
    first.quota.limit = second.quota.limit = 300_000
    seen: dict[int, set[int]] = {number: set(range(first.next[number])) for number in range(PARTITIONS)}
    second.consumer.subscribe(["orders"])
    deadline = time.monotonic() + 120
    shared = False
    while any(len(found) < EACH for found in seen.values()):
        assert time.monotonic() < deadline, {number: len(found) for number, found in seen.items()}
        for reader in (first, second):
            message = reader.consumer.poll(0.001)
            if message is not None:
                assert message.error() is None
                assert message.offset() not in seen[message.partition() or 0]
                seen[message.partition() or 0].add(message.offset() or 0)
        shared = shared or (bool(second.consumer.assignment()) and bool(first.consumer.assignment()))
        if shared:
            first.quota.limit = second.quota.limit = None
    assert shared
    second.consumer.close()
    first.consumer.close()


def test_seek_pause_and_resume_reach_whoever_fetches(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster)
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    reader.until(lambda: reader.received >= 100)
    consumer.pause([TopicPartition("orders", 2)])
    reader.quota.limit = 1_000_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    paused_at = reader.next[2]
    end = time.monotonic() + 1
    while time.monotonic() < end:
        reader.take()
    assert reader.next[2] == paused_at
    consumer.seek(TopicPartition("orders", 0, 7))
    reader.next[0] = 7
    consumer.resume([TopicPartition("orders", 2)])
    reader.quota.limit = None
    reader.until(lambda: reader.received == EACH * PARTITIONS)
    # The same partitions once more, from where the application says.
    consumer.assign([TopicPartition("orders", number, EACH - 50) for number in range(PARTITIONS)])
    reader.next = dict.fromkeys(range(PARTITIONS), EACH - 50)
    reader.until(lambda: reader.received == EACH * PARTITIONS)
    consumer.close()
    for call in (consumer.poll, consumer.consume, consumer.assignment):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


def test_what_the_application_had_assigned_begins_where_the_group_says_when_that_assigns_it(
    cluster: EmbeddedBroker,
) -> None:
    reader = Reader(cluster, 1_000_000, **{"enable.auto.commit": False})
    consumer = reader.consumer
    reader.next[1] = EACH - 20
    consumer.assign([TopicPartition("orders", 1, EACH - 20)])
    reader.until(lambda: reader.next[1] == EACH)
    reader.quota.limit = 30_000_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    consumer.subscribe(["orders"])
    reader.next = dict.fromkeys(range(PARTITIONS), 0)
    reader.until(lambda: min(reader.next.values()) > 0)
    consumer.close()


def test_statistics_tell_of_who_fetches(cluster: EmbeddedBroker) -> None:
    told: list[dict[str, Any]] = []
    reader = Reader(
        cluster,
        **{
            "stats_cb": lambda text: told.append(json.loads(text)),
            "statistics.interval.ms": 200,
            "auto.commit.interval.ms": 100,
            "queued.min.messages": 100,
        },
    )
    consumer = reader.consumer
    consumer.subscribe(["orders"])
    reader.until(lambda: reader.received >= 10)
    reader.quota.limit = 1_000_000

    def has_fetched() -> bool:
        time.sleep(0.005)
        return consumer._kq_fetcher is not None

    reader.until(has_fetched)
    reader.until(lambda: reader.received == EACH * PARTITIONS)

    def is_told() -> bool:
        partitions = told[-1]["topics"].get("orders", {}).get("partitions", {})
        lags = [partition["consumer_lag"] for number, partition in partitions.items() if number != "-1"]
        return lags == [0] * PARTITIONS and told[-1]["rxmsgs"] >= reader.received

    reader.until(is_told, 10)
    consumer.close()


def test_the_end_of_a_partition_is_told_once_whoever_fetches(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster, **{"enable.partition.eof": True})
    consumer = reader.consumer
    at = {0: 0, 1: EACH - 50, 2: EACH}
    consumer.assign([TopicPartition("orders", number, offset) for number, offset in at.items()])
    ends: list[int | None] = []
    reader.quota.limit = 1_000_000
    end = time.monotonic() + 60
    while consumer._kq_fetcher is None or len(ends) < PARTITIONS:
        assert time.monotonic() < end, (ends, at)
        for message in consumer.consume(1, 0.1):
            if message.error() is None:
                assert message.offset() == at[message.partition() or 0]
                at[message.partition() or 0] += 1
            else:
                assert (message.error().code(), message.offset()) == (KafkaError._PARTITION_EOF, EACH)
                ends.append(message.partition())
    assert at == dict.fromkeys(range(PARTITIONS), EACH)
    assert consumer.consume(1, 1) == []
    # Whoever comes there once more is told once more.
    consumer.seek(TopicPartition("orders", 1, EACH - 1))
    assert [message.error() is None for message in consumer.consume(2, 5)] == [True, False]
    consumer.close()
    assert sorted(ends, key=str) == [0, 1, 2]


def test_what_is_wrong_with_a_partition_is_told_once_whoever_fetches(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster, **{"auto.offset.reset": "error"})
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: reader.received >= 10)
    reader.quota.limit = 1_000_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    consumer.incremental_assign([TopicPartition("orders", 1), TopicPartition("orders", 2)])  # nothing is committed
    errors = []
    end = time.monotonic() + 3
    while time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append((message.partition(), message.error().code()))
    consumer.close()
    assert sorted(errors) == [(1, KafkaError._AUTO_OFFSET_RESET), (2, KafkaError._AUTO_OFFSET_RESET)]


def test_what_was_told_of_a_partition_before_is_not_told_again_by_whoever_fetches_then(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster, **{"auto.offset.reset": "error"})
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0), TopicPartition("orders", 1)])  # nothing is committed
    errors: list[tuple[int | None, int]] = []

    def take() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append((message.partition(), message.error().code()))

    wrong = (1, KafkaError._AUTO_OFFSET_RESET)
    end = time.monotonic() + 30
    while errors != [wrong]:
        assert time.monotonic() < end
        take()
    reader.quota.limit = 1_000_000
    while consumer._kq_fetcher is None:
        assert time.monotonic() < end
        take()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        take()
    assert errors == [wrong]
    # Whoever begins it once more is told once more.
    consumer.assign([TopicPartition("orders", 1)])
    end = time.monotonic() + 30
    while len(errors) < 2:
        assert time.monotonic() < end
        take()
    consumer.close()
    assert errors == [wrong, wrong]


def test_that_its_topic_is_gone_is_told_whoever_fetches(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster, **{"topic.metadata.refresh.interval.ms": 500})
    consumer = reader.consumer
    consumer.subscribe(["orders"])
    reader.until(lambda: reader.received >= 10)
    reader.quota.limit = 1_000_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(30)
    errors = []
    end = time.monotonic() + 30
    while not errors and time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(message.error().code())
    consumer.close()
    assert errors == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_credentials_that_are_renewed_are_those_of_whoever_fetches() -> None:
    with EmbeddedBroker(topics={"orders": 1}, users={"old": "secret", "new": "other"}) as cluster:
        login = {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "old",
            "sasl.password": "secret",
        }
        reader = Reader(cluster, **login)
        consumer = reader.consumer
        consumer.assign([TopicPartition("orders", 0, 0)])
        # With the quota of now, and once more with another that is fetched in larger pieces or in smaller ones.
        for limit in (1_000_000, None):
            reader.quota.limit = limit
            before = consumer._kq_fetcher
            reader.until(lambda before=before: consumer._kq_fetcher is not before)
            consumer.set_sasl_credentials("new", "other")
            cluster.kill_connections()
            begun = len(cluster.requests)  # what the old connections asked for is not looked at, however late it came
            reader.until(lambda begun=begun: any(seen.api_key == 1 for seen in cluster.requests[begun:]))
            assert {seen.principal for seen in cluster.requests[begun:] if seen.api_key == 1} == {"new"}
        consumer.close()


@pytest.mark.parametrize("how", ["assign", "subscribe"])
def test_what_comes_after_the_end_where_it_was_begun_is_received(how: str) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as cluster:
        reader = Reader(cluster, **{"auto.offset.reset": "latest"})
        consumer = reader.consumer
        parts = [TopicPartition("orders", number, OFFSET_END) for number in range(PARTITIONS)]
        if how == "assign":
            consumer.assign(parts)
        else:
            consumer.subscribe(["orders"])

        def is_begun() -> bool:
            return len(consumer.assignment()) == PARTITIONS and all(
                consumer.get_watermark_offsets(part, cached=True)[1] == 0 for part in parts
            )

        reader.until(is_begun)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce("orders", b"x", partition=number)
        assert producer.flush(30) == 0
        # Fetches tell of an end after what nobody may read yet.
        reader.until(lambda: all(consumer.get_watermark_offsets(part, cached=True)[1] == 1 for part in parts))
        end = time.monotonic() + 2.5
        reader.until(lambda: time.monotonic() > end)
        reader.quota.limit = 1_000_000
        reader.until(lambda: consumer._kq_fetcher is not None)
        producer.commit_transaction(30)
        reader.until(lambda: reader.received == PARTITIONS, 10)
        consumer.close()


def test_ends_that_were_known_stay_known_when_another_client_fetches(cluster: EmbeddedBroker) -> None:
    reader = Reader(cluster)
    consumer = reader.consumer
    parts = [TopicPartition("orders", number, 0) for number in range(PARTITIONS)]
    consumer.assign(parts)

    def ends() -> list[int]:
        return [consumer.get_watermark_offsets(part, cached=True)[1] for part in parts]

    reader.until(lambda: ends() == [EACH] * PARTITIONS)
    consumer.pause(parts)
    reader.quota.limit = 1_000_000
    reader.until(lambda: consumer._kq_fetcher is not None)
    # Nothing is fetched of what is paused: the other client never hears of an end.
    assert ends() == [EACH] * PARTITIONS
    consumer.close()
