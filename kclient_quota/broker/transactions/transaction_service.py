"""Transactions as one service of the cluster: the pure coordinator, its timer, and the markers it decides on."""

import logging
from dataclasses import replace

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.groups.committed_offsets import OffsetStore
from kclient_quota.broker.log.log_config import NO_TIMESTAMP
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.broker.transactions.transaction_coordinator import MAX_TIMEOUT_MS, Ending, TransactionCoordinator
from kclient_quota.wire.records import ABORT, COMMIT, control_batch

RETRY_MS = 1_000
"""After how long a marker that could not be written is tried again."""
_LOG = logging.getLogger(__name__)


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
        self._alarm = Alarm(scheduler, self._tick)

    def finish(self, ending: Ending) -> None:
        """Write the markers and settle the offsets; readers see the transaction's end when this returns."""
        now_ms = self._scheduler.now_ms()
        marker = control_batch(
            COMMIT if ending.is_commit else ABORT,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            timestamp_ms=now_ms,
        )
        missing = frozenset(place for place in sorted(ending.partitions) if not self._mark(place, marker, now_ms))
        if missing:
            # decided it is; as in Kafka the markers follow as soon as they can be written
            rest = replace(ending, partitions=missing)
            self._scheduler.call_at(now_ms + RETRY_MS, lambda: self.finish(rest))
            return
        if ending.groups:
            self.offsets.complete(ending.producer_id, commit=ending.is_commit)
        self.coordinator.complete(ending)

    def _mark(self, place: tuple[str, int], marker: bytearray, now_ms: int) -> bool:
        """Whether a partition has its marker, or is not there any more."""
        name, index = place
        topic = self._cluster.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return True
        partition = topic.partitions[index]
        appended = partition.log.append_marker(marker, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        if appended.error:
            _LOG.error("the marker of a transaction could not be written to %s-%s: %s", *place, appended.error_message)
        return not appended.error

    def after_call(self) -> None:
        """To be called after every call to the coordinator: sets the timer."""
        self._alarm.set(self.coordinator.next_deadline_ms())

    def _tick(self) -> None:
        for ending in self.coordinator.expired(self._scheduler.now_ms()):
            self.finish(ending)
        self.after_call()


def abort_open_transactions(cluster: ClusterState) -> None:
    """Abort what is open in logs that were read back from disk: the memory of their coordinator is gone."""
    for partition in cluster.partitions():
        for producer_id in list(partition.log.transactions.ongoing):
            epoch = partition.log.producers.entries[producer_id].epoch
            marker = control_batch(ABORT, producer_id=producer_id, producer_epoch=epoch)
            appended = partition.log.append_marker(marker, leader_epoch=partition.leader_epoch, now_ms=NO_TIMESTAMP)
            if appended.error:
                _LOG.error(
                    "an open transaction could not be aborted: %s; make room in data_dir", appended.error_message
                )
