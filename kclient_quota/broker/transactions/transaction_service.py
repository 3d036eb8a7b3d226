"""Transactions as one service of the cluster: the pure coordinator, its timer, and the markers it decides on.

What the coordinator changes is kept before anybody hears of it: who may write, what a transaction has written to, and
how it ends. So a restart finds an open transaction open, and one whose end was decided is ended.
"""

import struct
from collections.abc import Iterable
from typing import Any

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.groups.committed_offsets import OffsetStore
from kclient_quota.broker.internal_topics import TRANSACTION_STATE, InternalTopic
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.broker.request.on_disk import on_disk
from kclient_quota.broker.request.promise import Drive, Promise, Turn
from kclient_quota.broker.transactions.kept_transactions import by_topic, kept, log_key, log_value, restored
from kclient_quota.broker.transactions.transaction_coordinator import (
    MAX_TIMEOUT_MS,
    SECOND_PROTOCOL,
    Ending,
    TopicPartition,
    Transaction,
    TransactionCoordinator,
    TransactionState,
)
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import ABORT, COMMIT, control_batch

AT_ONCE = 50
"""How many markers or positions are written, and transactions ended, before others have their turn."""
EXPIRATION_MS = 604_800_000
"""Kafka's default of `transactional.id.expiration.ms`."""
LOOKS_EVERY_MS = 3_600_000
"""Kafka's default of `transaction.remove.expired.transaction.cleanup.interval.ms`."""
_EXPIRATION_KEY = "transactional.id.expiration.ms"
_LOOKS_KEY = "transaction.remove.expired.transaction.cleanup.interval.ms"
RETRY_MS = 1_000
"""After how long an end that could not be written is tried again."""
_LOG = logger_of(__name__)


class TransactionService:
    """All transactions of the cluster, whichever broker coordinates them.

    Args:
        cluster: its logs get the markers.
        scheduler: time.

    Attributes:
        coordinator: decides.
        offsets: get the positions that transactions commit; set by whoever serves groups.
        records: where `__transaction_state` is told.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.coordinator = TransactionCoordinator(cluster.next_producer_id)
        self.offsets = OffsetStore()
        self.records = InternalTopic(TRANSACTION_STATE, cluster, scheduler)
        self._cluster = cluster
        self._scheduler = scheduler
        self._alarm = Alarm(scheduler, self._tick)
        self._cleaning = Alarm(scheduler, self._forget_idle)
        self._under_way: set[str] = set()
        cluster.on_config.append(lambda resource_type, _: self._configure() if resource_type == BROKER else None)
        self._configure()

    def _configure(self) -> None:
        longest_ms = self._cluster.config(BROKER, "", "transaction.max.timeout.ms")
        self.coordinator.max_timeout_ms = int(longest_ms or MAX_TIMEOUT_MS)

    def _setting(self, key: str, default: int) -> int:
        return int(self._cluster.config(BROKER, "", key) or default)

    # -- requests

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        partitions: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
        bumps: bool = False,
    ) -> ErrorCode:
        """As the coordinator's `add`; it is kept before anything is written to a partition.

        Raises:
            OSError: it could not be kept, and has been undone.
        """
        error = self.coordinator.add(
            transactional_id, producer_id, producer_epoch, now_ms, partitions=partitions, groups=groups, bumps=bumps
        )
        self.keep()
        return error

    def finish(self, ending: Ending) -> Promise[None]:
        """Keep what was decided, write the markers and settle the offsets; readers see it when that is resolved.

        Very many are written by and by, while others have their turns. What cannot be written now follows as soon as it
        can be.

        Raises:
            OSError: the decision could not be kept, and has been undone.
        """
        self.keep()
        return self._complete(ending.transactional_id)

    def keep(self) -> None:
        """To be called after every call to the coordinator: keeps and tells what it has changed, and sets the timer.

        Raises:
            OSError: it could not be kept, and has been undone.
        """
        changed, now_ms = self.coordinator.take_changed(), self._scheduler.now_ms()
        for transactional_id in changed:
            transaction = self.coordinator.transactions.get(transactional_id)
            if transaction is not None:
                transaction.updated_ms = now_ms
            self._cluster.changed("transaction", transactional_id)
        if changed:
            self._cluster.save()
        # before anything is told: what is kept has its time-out whatever becomes of the telling
        self._set_alarms()
        for transactional_id in changed:
            self._tell(transactional_id)

    # -- ending

    def _complete(self, transactional_id: str) -> Promise[None]:
        """Do what is left of an end that was decided; resolved when that is done, or put off."""
        done = Promise[None]()
        if transactional_id in self._under_way:
            done.resolve(None)
            return done
        self._under_way.add(transactional_id)

        def over(error: Exception | None = None) -> None:
            self._under_way.discard(transactional_id)
            if error is not None:
                _LOG.error("transaction %.100s could not be ended: %s", transactional_id, error, exc_info=error)
                self._complete_later(transactional_id)
            done.resolve(None)

        Drive(self._end(transactional_id), over, over)
        return done

    async def _end(self, transactional_id: str) -> None:
        ending = self.coordinator.ending_of(transactional_id)
        if ending is None:
            return
        try:
            # what is decided is there before any marker is, and all markers before it is said to be done: nothing that
            # a power cut takes leaves one partition committed and another aborted
            await on_disk(self._cluster)
            if self.coordinator.ending_of(transactional_id) is None:
                return
            is_done = await self._mark_all(ending) and await self._settle(ending)
            await on_disk(self._cluster)
        except OSError as error:
            _LOG.error("the positions of a transaction could not be kept: %s", error)
            is_done = False
        if self.coordinator.ending_of(transactional_id) is None:
            return
        if not is_done:
            # decided it is; as in Kafka the rest follows as soon as it can be written
            self._complete_later(transactional_id)
            return
        self.coordinator.complete(transactional_id)
        try:
            self.keep()
        except OSError as error:
            # it is decided still, and is ended once more
            _LOG.error("the end of a transaction could not be kept: %s", error)

    def _complete_later(self, transactional_id: str) -> None:
        def again() -> None:
            self._complete(transactional_id)

        self._scheduler.call_at(self._scheduler.now_ms() + RETRY_MS, again)

    async def _others_turn(self) -> None:
        turn = Turn()
        self._scheduler.call_at(self._scheduler.now_ms(), lambda: turn.resolve(None))
        await turn

    async def _mark_all(self, ending: Ending) -> bool:
        """Whether every partition has its marker now."""
        now_ms = self._scheduler.now_ms()
        marker = control_batch(
            COMMIT if ending.is_commit else ABORT,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            timestamp_ms=now_ms,
        )
        is_done = True
        places = [(topic, index) for topic, indexes in by_topic(ending.partitions) for index in indexes]
        for number, place in enumerate(places):
            if number and number % AT_ONCE == 0:
                await self._others_turn()
                if self.coordinator.ending_of(ending.transactional_id) is None:
                    return False
            if self._mark(place, marker, now_ms):
                self.coordinator.marked(ending.transactional_id, place)
            else:
                is_done = False
        return is_done

    async def _settle(self, ending: Ending) -> bool:
        """The positions of groups are what the transaction says.

        Raises:
            OSError: some could not be kept.
        """
        while not self.offsets.complete(ending.producer_id, commit=ending.is_commit, at_most=AT_ONCE):
            await self._others_turn()
        return True

    def _mark(self, place: TopicPartition, marker: bytearray, now_ms: int) -> bool:
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

    # -- being kept

    def state(self, transactional_id: str) -> dict[str, Any] | None:
        """What is to be kept of a transactional id, None where there is nothing."""
        transaction = self.coordinator.transactions.get(transactional_id)
        return None if transaction is None else kept(transaction)

    def restore(self, transactional_id: str, value: dict[str, Any] | None) -> None:
        """Let a transactional id be as it was kept, None for unknown."""
        now_ms = self._scheduler.now_ms()
        transaction = None if value is None else restored(transactional_id, value, now_ms)
        self.coordinator.restore(transactional_id, transaction, now_ms + RETRY_MS)
        self._set_alarms()
        if self.coordinator.ending_of(transactional_id) is not None:
            self._complete_later(transactional_id)

    def resume(self) -> None:
        """Go on after a restart: what was decided is ended, and what no transaction knows of does not stay open."""
        for transactional_id in list(self.coordinator.transactions):
            self._complete(transactional_id)
        self._end_unknown()
        known = {one.producer_id for one in self.coordinator.transactions.values() if one.groups}
        for producer_id in self.offsets.pending_producers():
            if producer_id not in known:
                self._forget_pending(producer_id)

    def _forget_pending(self, producer_id: int) -> None:
        try:
            self.offsets.complete(producer_id, commit=False)
        except OSError as error:
            _LOG.error("positions of a transaction that is unknown could not be forgotten: %s", error)

    def _end_unknown(self) -> None:
        """End what is open in logs and in no transaction: its marker is damaged, or the memory of it is gone."""
        transactions = self.coordinator.transactions.values()
        known = {(one.producer_id, place) for one in transactions for place in one.partitions}
        committed = {
            one.producer_id if one.former is None else one.former[0]: one
            for one in transactions
            if one.state is TransactionState.COMPLETE_COMMIT
        }
        now_ms = self._scheduler.now_ms()
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                place = topic.name, partition.index
                for producer_id in [one for one in partition.log.transactions.ongoing if (one, place) not in known]:
                    epoch = partition.log.producers.entries[producer_id].epoch
                    last = committed.get(producer_id)
                    verdict = COMMIT if last is not None and _is_of(last, partition.log, producer_id) else ABORT
                    marker = control_batch(verdict, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=now_ms)
                    self._mark(place, marker, now_ms)

    def _tell(self, transactional_id: str) -> None:
        """What is kept is told; without a reader the transaction is none the worse."""
        transaction = self.coordinator.transactions.get(transactional_id)
        if not self.records.is_told:
            return
        try:
            value = None if transaction is None else log_value(transaction)
            self.records.append(transactional_id, log_key(transactional_id), value)
        except (OSError, ValueError, struct.error) as error:
            # the latter two: a value that Kafka's record has no room for
            _LOG.error("what has become of transaction %.100s is not told: %s", transactional_id, error)

    # -- time

    def _set_alarms(self) -> None:
        self._alarm.set(self.coordinator.next_deadline_ms())
        if self.coordinator.transactions:
            self._cleaning.set(self._scheduler.now_ms() + self._setting(_LOOKS_KEY, LOOKS_EVERY_MS))

    def _forget_idle(self) -> None:
        """Kafka: `TransactionStateManager.removeExpiredTransactionalIds`."""
        now_ms = self._scheduler.now_ms()
        forgotten = self.coordinator.forget_idle(now_ms - self._setting(_EXPIRATION_KEY, EXPIRATION_MS), AT_ONCE)
        try:
            self.keep()
        except OSError as error:
            _LOG.error("transactional ids that have expired could not be forgotten: %s", error)
        else:
            # where there are more, in the next turn
            self._cleaning.set(now_ms if forgotten == AT_ONCE else None)

    def _tick(self) -> None:
        try:
            for ending in self.coordinator.expired(self._scheduler.now_ms(), AT_ONCE):
                self._finish_late(ending)
        finally:
            # at once, where there are more
            self._alarm.set(self.coordinator.next_deadline_ms())

    def _finish_late(self, ending: Ending) -> None:
        """One transaction's failure does not keep the others open."""
        try:
            self.finish(ending)
        except OSError as error:
            _LOG.error("a transaction that takes too long could not be ended: %s", error)
        except Exception:  # noqa: BLE001 - whatever it is, the others go on
            _LOG.exception("transaction %.100s takes too long and could not be ended", ending.transactional_id)


def _is_of(committed: Transaction, log: PartitionLog, producer_id: int) -> bool:
    """Whether what a producer has open in a log belongs to the transaction that it is known to have committed.

    It may be of a later one too, whose beginning the journal has lost in a power cut. Where epochs end with
    transactions the epoch tells; else only a marker that is damaged says that there was one.
    """
    if committed.client_version == SECOND_PROTOCOL and committed.former is not None:
        return log.producers.entries[producer_id].epoch == committed.former[1]
    first_offset = log.transactions.ongoing[producer_id]
    return any(last_damaged >= first_offset for _, last_damaged in log.damaged)
