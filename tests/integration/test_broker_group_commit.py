"""`fsync="always"` on a slow disk: who changes something waits for it, and nobody else does."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.endpoint import ConnectionSettings
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ApiVersionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from kclient_quota.wire.records import Record, build_batch

WAIT_S = 60


class Slow(Disk):
    """Its syncs last until they are let through."""

    def __init__(self) -> None:
        self.goes, self.asked, self.synced, self.is_broken = threading.Event(), threading.Semaphore(0), 0, False
        self.goes.set()

    def sync(self, fd: int) -> None:
        self.asked.release()
        assert self.goes.wait(WAIT_S)
        self.synced += 1
        if self.is_broken:
            raise OSError(5, "Input/output error")
        super().sync(fd)

    def hold(self) -> None:
        """Let no sync through from now on."""
        while self.asked.acquire(blocking=False):
            pass
        self.goes.clear()

    def wait(self) -> None:
        """Until a sync has begun."""
        assert self.asked.acquire(timeout=WAIT_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr("kclient_quota.broker.storage.cluster_storage.Disk", lambda: slow)
    yield slow
    slow.goes.set()


def connect(broker: EmbeddedBroker) -> Connection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Connection(ConnectionSettings(host, int(port)), SYSTEM_CLOCK).open(WAIT_S * 1_000)


def produce(connection: Connection, value: bytes = b"v", partition: int = 0) -> int:
    data = ProduceRequest.PartitionProduceData(index=partition, records=build_batch([Record(value)]))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=WAIT_S * 1_000,
        topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
    )
    answer = connection.send(request, version=9, timeout_ms=WAIT_S * 1_000)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(connection: Connection, max_wait_ms: int = 0) -> tuple[int, bytes]:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[part])]
    )
    data = connection.send(request, version=11, timeout_ms=2 * WAIT_S * 1_000).responses[0].partitions[0]
    return int(data.high_watermark), bytes(data.records or b"")


def end_offset(connection: Connection) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    return int(connection.send(ListOffsetsRequest(topics=[topic]), version=5).topics[0].partitions[0].offset)


def commit(connection: Connection) -> int:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    answer = connection.send(request, version=8, timeout_ms=WAIT_S * 1_000)
    return int(answer.topics[0].partitions[0].error_code)


def test_only_who_changes_something_waits_for_a_slow_disk(tmp_path: Path, disk: Slow) -> None:
    with (
        EmbeddedBroker(data_dir=tmp_path, fsync="always", topics={"t": 1}) as broker,
        ThreadPoolExecutor() as threads,
        connect(broker) as producer,
        connect(broker) as member,
        connect(broker) as other,
        connect(broker) as reader,
    ):
        assert produce(producer) == 0
        disk.hold()
        produced = threads.submit(produce, producer)
        disk.wait()
        committed = threads.submit(commit, member)
        other.send(ApiVersionsRequest(), version=3)
        assert end_offset(other) == 1, "what a power cut could take is not to be seen"
        high_watermark, first = fetch(other)
        assert high_watermark == 1
        began = time.monotonic()
        assert fetch(reader, WAIT_S * 1_000)[1] == first
        assert time.monotonic() - began < WAIT_S / 2, "it had enough"
        assert not produced.done()
        assert not committed.done()
        disk.goes.set()
        assert produced.result(WAIT_S) == committed.result(WAIT_S) == 0
        assert end_offset(other) == 2
        assert len(fetch(other)[1]) == 2 * len(first)


def test_a_reader_that_waits_is_told_once_the_disk_has_it(tmp_path: Path, disk: Slow) -> None:
    with (
        EmbeddedBroker(data_dir=tmp_path, fsync="always", topics={"t": 1}) as broker,
        ThreadPoolExecutor() as threads,
        connect(broker) as producer,
        connect(broker) as other,
        connect(broker) as reader,
    ):
        disk.hold()
        fetched = threads.submit(fetch, reader, 2 * WAIT_S * 1_000)
        produced = threads.submit(produce, producer)
        disk.wait()
        assert fetch(other) == (0, b"")
        assert not fetched.done()
        disk.goes.set()
        assert produced.result(WAIT_S) == 0
        assert fetched.result(WAIT_S)[0] == 1


def test_fifty_producers_share_a_sync(tmp_path: Path, disk: Slow) -> None:
    with (
        EmbeddedBroker(data_dir=tmp_path, fsync="always", topics={"t": 1}) as broker,
        ThreadPoolExecutor(51) as threads,
    ):
        first, others = connect(broker), [connect(broker) for _ in range(50)]
        assert produce(first) == 0
        disk.hold()
        waiting = [threads.submit(produce, first)]
        disk.wait()
        before = disk.synced
        waiting += [threads.submit(produce, one, b"%d" % number) for number, one in enumerate(others)]
        while end_of_log(broker) < 52:
            pass
        assert not any(one.done() for one in waiting)
        disk.goes.set()
        assert [one.result(WAIT_S) for one in waiting] == [0] * 51
        assert disk.synced - before == 2
        for one in (first, *others):
            one.close()


def end_of_log(broker: EmbeddedBroker) -> int:
    runtime = broker._runtime
    assert runtime is not None
    return runtime.cluster.topics["t"].partitions[0].log.end_offset


def test_what_a_disk_refuses_to_sync_is_answered_as_a_storage_error(tmp_path: Path, disk: Slow) -> None:
    with EmbeddedBroker(data_dir=tmp_path, fsync="always", topics={"t": 1}) as broker, connect(broker) as producer:
        assert produce(producer) == 0
        disk.is_broken = True
        assert produce(producer) == ErrorCode.KAFKA_STORAGE_ERROR
        assert commit(producer) == ErrorCode.NOT_COORDINATOR
        with pytest.raises(ClusterError, match="Input/output error"):
            broker.create_topic("new")
        assert fetch(producer)[0] == 1
        disk.is_broken = False
        assert produce(producer) == 0
        assert fetch(producer)[0] == 3
    with EmbeddedBroker(data_dir=tmp_path) as broker, connect(broker) as reader:
        assert fetch(reader)[0] == 3
