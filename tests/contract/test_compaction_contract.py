"""What a client sees of compaction, on the embedded broker and on Apache Kafka."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kclient_quota.wire.batches import parse_header
from kclient_quota.wire.messages import (
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
)
from kclient_quota.wire.records import Record, build_batch, without_records
from tests.contract.group_talk import Talk
from tests.contract.wire_client import connected

Unique = Callable[[str], str]
Rows = list[tuple[int, bytes, bytes | None]]
BACKOFF = "log.cleaner.backoff.ms"
FILLER = b"filler"
pytestmark = pytest.mark.timeout(120)


def _alter_backoff(admin: AdminClient, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(BACKOFF, value, incremental_operation=operation)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])]
    ).values()
    done.result(60)


@pytest.fixture
def admin(cluster: Any) -> Iterator[AdminClient]:
    """Of a cluster whose cleaner looks for work without a pause."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    _alter_backoff(client, "50")
    yield client
    _alter_backoff(client, None)


class Table:
    """A compacted topic whose segments end 50 ms after they have begun."""

    def __init__(self, cluster: Any, admin: AdminClient, topic: str, **config: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.topic = topic
        rolling = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01", **config}
        admin.create_topics([NewTopic(topic, 1, 1, config=rolling)])[topic].result(60)
        self.producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})

    def write(self, *pairs: tuple[bytes, bytes | None]) -> None:
        for key, value in pairs:
            self.producer.produce(self.topic, value, key)
            assert self.producer.flush(60) == 0

    def end_segment(self) -> None:
        time.sleep(0.1)
        self.write((FILLER, b""))

    def read(self) -> Rows:
        conf = {"bootstrap.servers": self.servers, "group.id": "none", "enable.partition.eof": True}
        consumer = Consumer(conf)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        rows: Rows = []
        while True:
            message = consumer.poll(60)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return [row for row in rows if row[1] != FILLER]
            rows.append((message.offset() or 0, message.key() or b"", message.value()))

    def until(self, wanted: Rows) -> None:
        """Write on and on, so that there is something dirty, until the topic holds just this."""
        deadline = time.monotonic() + 60
        while (found := self.read()) != wanted:
            assert time.monotonic() < deadline, found
            self.end_segment()


def test_of_each_key_the_newest_stays_where_it_was(cluster: Any, unique: Unique, admin: AdminClient) -> None:
    table = Table(cluster, admin, unique("t"))
    table.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", b"2"), (b"a", b"3"))
    table.until([(3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")])
    # who begins in a gap goes on behind it, and the log still begins where it began
    consumer = Consumer({"bootstrap.servers": table.servers, "group.id": unique("g")})
    consumer.assign([TopicPartition(table.topic, 0, 1)])
    message = consumer.poll(60)
    assert message is not None
    assert (message.offset(), message.value()) == (3, b"1")
    assert consumer.get_watermark_offsets(TopicPartition(table.topic, 0), 60)[0] == 0
    consumer.close()


def test_a_tombstone_goes_after_its_time_and_takes_its_key_along(
    cluster: Any, unique: Unique, admin: AdminClient
) -> None:
    table = Table(cluster, admin, unique("t"), **{"delete.retention.ms": "300"})
    table.write((b"a", b"1"), (b"b", b"1"), (b"a", None))
    table.until([(1, b"b", b"1")])


def test_a_tombstone_stays_as_long_as_it_may(cluster: Any, unique: Unique, admin: AdminClient) -> None:
    table = Table(cluster, admin, unique("t"))
    table.write((b"a", b"1"), (b"b", b"1"), (b"a", None))
    table.until([(1, b"b", b"1"), (2, b"a", None)])
    table.end_segment()
    time.sleep(1)
    assert table.read() == [(1, b"b", b"1"), (2, b"a", None)]


def test_records_of_what_is_only_compacted_cannot_be_deleted(cluster: Any, unique: Unique, admin: AdminClient) -> None:
    table = Table(cluster, admin, unique("undeleted"))
    table.write((b"k", b"1"))
    for offset in (1, 9):
        (deleted,) = admin.delete_records([TopicPartition(table.topic, 0, offset)]).values()
        with pytest.raises(KafkaException) as refused:
            deleted.result(60)
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    both = Table(cluster, admin, unique("deleted"), **{"cleanup.policy": "compact,delete"})
    both.write((b"k", b"1"))
    (deleted,) = admin.delete_records([TopicPartition(both.topic, 0, 1)]).values()
    assert deleted.result(60).low_watermark == 1


def test_the_last_batch_of_a_producer_is_left_empty(cluster: Any, unique: Unique, admin: AdminClient) -> None:
    table = Table(cluster, admin, unique("t"))
    with ExitStack() as stack:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        given = Talk(cluster, stack).until(lambda: asked, lambda answer: answer.error_code, 4)
        assert given.error_code == 0
        wire = stack.enter_context(connected(cluster))
        now_ms = time.time_ns() // 1_000_000
        known = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch, "base_sequence": 0}
        records = [Record(value, b"a", timestamp_ms=now_ms) for value in (b"1", b"2", b"3")]
        batch = build_batch(records, compression=1, **known)

        def produce() -> tuple[int, int]:
            part = ProduceRequest.PartitionProduceData(index=0, records=batch)
            data = ProduceRequest.TopicProduceData(name=table.topic, partition_data=[part])
            answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), ProduceResponse, 8)
            told = answer.responses[0].partition_responses[0]
            return told.error_code, told.base_offset

        def first_batch() -> memoryview:
            part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = FetchRequest.FetchTopic(topic=table.topic, partitions=[part])
            request = FetchRequest(max_wait_ms=1_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            found = wire.ask(request, FetchResponse, 11).responses[0].partitions[0].records
            assert found is not None
            return memoryview(bytes(found))

        assert produce() == (0, 0)
        table.write((b"a", b"4"))
        table.until([(3, b"a", b"4")])
        batch_left = first_batch()
        header = parse_header(batch_left)
        assert bytes(batch_left[: header.size]) == bytes(without_records(header._replace(**_sent(batch))))
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 0)
        assert produce() == (0, 0), "it is a repetition"


def _sent(batch: bytes | bytearray) -> dict[str, int]:
    """What of a batch is to be found in what is left of it."""
    header = parse_header(batch)
    names = ("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "last_offset_delta")
    return {name: getattr(header, name) for name in names}
