"""One run of a cluster on a directory, and a disk that fills up."""

from uuid import UUID

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.storage.cluster_storage import ClusterStorage
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.wire.batches import parse_header
from tests.unit.broker.handler_node import ManualScheduler


def batch(records, *, producer_id=-1, base_sequence=-1, transactional=0):
    epoch = 0 if producer_id >= 0 else -1
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, 1_000, None, record, [])
    return bytes(builder.build())


class Life:
    """One run of a cluster on a directory."""

    def __init__(self, path, *, brokers=1, segment_bytes=1 << 20, **changes):
        self.storage = ClusterStorage(path, **changes)
        pool = SegmentPool(segment_bytes)
        ids = iter(range(1 + len(list(path.glob("logs/*"))), 1000))
        self.cluster = ClusterState(
            cluster_id=self.storage.cluster_id("fresh"),
            brokers=[BrokerInfo(i, "127.0.0.1") for i in range(1, brokers + 1)],
            new_topic_id=lambda: UUID(int=next(ids)),
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.groups = GroupService(self.cluster, ManualScheduler())
        self.shares = ShareService(self.cluster, ManualScheduler())
        self.scheduler = ManualScheduler()
        self.transactions = TransactionService(self.cluster, self.scheduler)
        self.transactions.offsets = self.groups.offsets
        self.storage.restore(self.cluster, self.groups, self.shares, self.transactions)
        self.transactions.resume()

    def log(self, topic="t", partition=0):
        return self.cluster.topics[topic].partitions[partition].log

    def append(self, *records, topic="t", **changes):
        return self.log(topic).append(batch(records, **changes), leader_epoch=0, now_ms=5)

    def bytes(self, topic="t"):
        return b"".join(bytes(b) for b in self.log(topic).batches())

    def create(self, name="t", partitions=1):
        self.cluster.create_topic(name, partitions)
        self.cluster.save()


def offsets(log):
    return [parse_header(each).base_offset for each in log.batches()]


class Halting(Disk):
    """Takes so many bytes and is full then."""

    def __init__(self, room):
        self.room = room
        self.piece = 1 << 30
        self.refuses_to_truncate = False

    def write(self, fd, parts):
        data = b"".join(parts)[: self.piece]
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = super().write(fd, [data[: self.room]])
        self.room -= taken
        return taken

    def truncate(self, fd, size):
        if self.refuses_to_truncate:
            raise OSError(5, "Input/output error")
        super().truncate(fd, size)
