"""Transactions as one service of the cluster: the pure coordinator, its timer, and the markers it decides on."""

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.groups.committed_offsets import OffsetStore
from kclient_quota.broker.log.log_config import NO_TIMESTAMP
from kclient_quota.broker.request.context import Cancellable, Scheduler
from kclient_quota.broker.transactions.transaction_coordinator import MAX_TIMEOUT_MS, Ending, TransactionCoordinator
from kclient_quota.wire.records import ABORT, COMMIT, control_batch


class TransactionService:
    """All transactions of the cluster, whichever broker coordinates them.

    Args:
        cluster: its logs get the markers.
        scheduler: time.

    Attributes:
        coordinator: decides.
        offsets: get the positions that transactions commit; set by whoever serves groups.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        longest_ms = cluster.config(BROKER, "", "transaction.max.timeout.ms")
        self.coordinator = TransactionCoordinator(cluster.next_producer_id, int(longest_ms or MAX_TIMEOUT_MS))
        self.offsets = OffsetStore()
        self._cluster = cluster
        self._scheduler = scheduler
        self._timer: tuple[int, Cancellable] | None = None

    def finish(self, ending: Ending) -> None:
        """Write the markers and settle the offsets; readers see the transaction's end when this returns."""
        now_ms = self._scheduler.now_ms()
        marker = control_batch(
            COMMIT if ending.is_commit else ABORT,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            timestamp_ms=now_ms,
        )
        for name, index in sorted(ending.partitions):
            topic = self._cluster.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                partition = topic.partitions[index]
                partition.log.append_marker(marker, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        if ending.groups:
            self.offsets.complete(ending.producer_id, commit=ending.is_commit)
        self.coordinator.complete(ending)

    def after_call(self) -> None:
        """To be called after every call to the coordinator: sets the timer."""
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer[0] <= deadline_ms):
            return
        if self._timer is not None:
            self._timer[1].cancel()
        self._timer = (deadline_ms, self._scheduler.call_at(deadline_ms, self._tick))

    def _tick(self) -> None:
        self._timer = None
        for ending in self.coordinator.expired(self._scheduler.now_ms()):
            self.finish(ending)
        self.after_call()


def abort_open_transactions(cluster: ClusterState) -> None:
    """Abort what is open in logs that were read back from disk: the memory of their coordinator is gone."""
    for partition in cluster.partitions():
        for producer_id in list(partition.log.transactions.ongoing):
            epoch = partition.log.producers.entries[producer_id].epoch
            marker = control_batch(ABORT, producer_id=producer_id, producer_epoch=epoch)
            partition.log.append_marker(marker, leader_epoch=partition.leader_epoch, now_ms=NO_TIMESTAMP)
