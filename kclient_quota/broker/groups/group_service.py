"""Groups and their offsets as one service of the cluster: the pure coordinator, its timer and its waiting requests."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import BROKER, GROUP, ClusterState
from kclient_quota.broker.groups.classic.coordinator import GroupConfig, GroupCoordinator
from kclient_quota.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from kclient_quota.broker.groups.classic.requests import Join, JoinResult, Leaver, Pending, Sync, SyncResult
from kclient_quota.broker.groups.classic_members import ClassicMembers
from kclient_quota.broker.groups.committed_offsets import CommittedOffset, OffsetStore, PendingOffset, Position
from kclient_quota.broker.groups.consumer.coordinator import ConsumerGroupConfig, ConsumerGroupCoordinator
from kclient_quota.broker.groups.consumer.group import ConsumerGroup
from kclient_quota.broker.groups.consumer.group_records import ToldConsumerGroup, changes, farewell
from kclient_quota.broker.groups.coordinator_record import CoordinatorRecord
from kclient_quota.broker.groups.in_steps import Steps
from kclient_quota.broker.groups.migration import MigrationPolicy, to_consumer_group
from kclient_quota.broker.groups.offsets_topic import OffsetsTopic
from kclient_quota.broker.groups.one_at_a_time import OneAtATime
from kclient_quota.broker.groups.telling import Telling
from kclient_quota.broker.internal_topics import share_of
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.broker.request.promise import Promise
from kclient_quota.wire.error_codes import ErrorCode

_LOG = logger_of(__name__)

ResultT = TypeVar("ResultT", JoinResult, SyncResult)


class GroupService:
    """All groups of the cluster, whichever broker coordinates them.

    Reads Kafka's `group.*` configurations from the cluster-wide broker defaults when it is made.

    Args:
        cluster: for configurations and brokers.
        scheduler: time.

    Attributes:
        on_group: called with a KIP-848 group that may be new, or gone.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.on_group: Callable[[str], None] = lambda _group_id: None
        self.coordinator = GroupCoordinator(_config(cluster.configs.get((BROKER, ""), {})))
        self.consumer_groups = ConsumerGroupCoordinator(_consumer_config(cluster.configs.get((BROKER, ""), {})))
        self.consumer_groups.config_of = self._consumer_config_of
        self.consumer_groups.upgraded = self.upgraded
        self.consumer_groups.displace = self._displace
        self.classic_members = ClassicMembers(self.consumer_groups)
        self.one_at_a_time = OneAtATime(scheduler)
        self.topic = OffsetsTopic(cluster, scheduler)
        self._told: dict[str, ToldConsumerGroup] = {}
        self._telling = Telling(self.topic.records, scheduler, self._changes, self._forget_told)
        self.offsets = OffsetStore([self.topic.committed])
        self.offsets.forget_if_deleted = self._forget_if_deleted
        self._cluster = cluster
        self._scheduler = scheduler
        self._waiting: dict[int, Promise[JoinResult | SyncResult]] = {}
        self._topic_ids: dict[str, object] = {}
        self._alarm = Alarm(scheduler, self._tick)

    def coordinator_id(self, key: str) -> int:
        """Which broker coordinates a group or a transactional id; -1 while none is up."""
        return coordinator_id(self._cluster, key)

    def _consumer_config_of(self, group_id: str) -> ConsumerGroupConfig:
        config, own = self.consumer_groups.config, self._cluster.configs.get((GROUP, group_id))
        if not own:
            return config
        return replace(
            config,
            session_timeout_ms=int(own.get("consumer.session.timeout.ms") or config.session_timeout_ms),
            heartbeat_interval_ms=int(own.get("consumer.heartbeat.interval.ms") or config.heartbeat_interval_ms),
        )

    # -- one name, one group, of one protocol or the other

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The KIP-848 group of this name, with members or without."""
        return self.consumer_groups.groups.get(group_id)

    def make_room_for_classic_group(self, group_id: str) -> bool:
        """Whether a classic group may have this name: a KIP-848 group without members gives it up."""
        group = self.consumer_groups.groups.get(group_id)
        if group is None:
            return True
        if group.members:
            return False
        del self.consumer_groups.groups[group_id]
        self.consumer_groups.touch(group_id)
        return True

    def has_room_for_consumer_group(self, group_id: str) -> bool:
        """Whether a KIP-848 group may have this name: a classic group without members would give it up."""
        return group_id not in self.coordinator.groups or self.coordinator.validate_delete(group_id) is ErrorCode.NONE

    def make_room_for_consumer_group(self, group_id: str) -> bool:
        """The same, and a classic group without members does give it up."""
        return group_id not in self.coordinator.groups or self.coordinator.delete(group_id) is ErrorCode.NONE

    # -- members of the classic protocol, in groups of either

    async def join(self, request: Join, fresh_id: str, now_ms: int) -> JoinResult:
        """JoinGroup; `fresh_id` is a random part for a member's id."""
        group = self.consumer_group(request.group_id)
        if group is not None and group.members:
            steps = self._join_consumer_group(request, fresh_id, now_ms)
            answer = await self.one_at_a_time.done(request.group_id, steps)
            if answer is not None:
                return answer
        joined = self.coordinator.join(request, fresh_id, now_ms)
        if request.group_id in self.coordinator.groups:
            # not when it was refused before there was a group for it
            self.make_room_for_classic_group(request.group_id)
        return await self.settle(joined)

    def _join_consumer_group(self, request: Join, fresh_id: str, now_ms: int) -> Steps[JoinResult | None]:
        """The answer; None if there is none to join any more when it is this request's turn."""
        group = self.consumer_group(request.group_id)
        if group is None or not group.members:
            return None
        error = self.coordinator.validate_session(request.session_timeout_ms)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        answer = yield from self.classic_members.join(group, request, fresh_id, self._cluster.directory, now_ms)
        self.after_call()
        return answer

    async def sync(self, request: Sync, now_ms: int) -> SyncResult:
        """SyncGroup."""
        group = self.consumer_group(request.group_id)
        if group is None:
            return await self.settle(self.coordinator.sync(request, now_ms))
        answer = self.classic_members.sync(group, request, now_ms)
        self.after_call()
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat."""
        group = self.consumer_group(group_id)
        identity = member_id, group_instance_id, generation_id
        if group is None:
            error = self.coordinator.heartbeat(group_id, *identity, now_ms)
        else:
            error = self.classic_members.heartbeat(group, *identity, now_ms)
        self.after_call()
        return error

    def leave(self, group_id: str, leavers: list[Leaver], now_ms: int) -> list[ErrorCode] | ErrorCode:
        """LeaveGroup: one error per leaver, or one for the whole request."""
        group = self.consumer_group(group_id)
        try:
            if group is None:
                return self.coordinator.leave(group_id, leavers, now_ms)
            return self.classic_members.leave(group, leavers)
        finally:
            # whatever becomes of the request: a group that has turned is nowhere until it is taken up
            self.after_call()

    # -- groups that turn from one protocol to the other

    def upgraded(self, group_id: str) -> ConsumerGroup | None:
        """What the classic group of this name would be with a member of the new protocol; None if it may have none."""
        config = self.consumer_groups.config
        if not config.migration_policy.upgrades or self.has_room_for_consumer_group(group_id):
            return None
        classic = self.coordinator.groups[group_id]
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE or len(classic.members) > config.max_size:
            return None
        return to_consumer_group(classic, self._cluster.directory)

    def _displace(self, group_id: str) -> None:
        if not self.make_room_for_consumer_group(group_id):
            self.coordinator.release(group_id)
            _LOG.info("group %s has become one of the consumer protocol", group_id)

    # -- offsets

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        now_ms: int,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit, by either protocol; creates the group for a consumer without one."""
        group = self.consumer_group(group_id)
        if group is None:
            error = self.coordinator.validate_offset_commit(
                group_id, member_id, group_instance_id, generation_or_epoch, now_ms, transactional=transactional
            )
            self.after_call()
            return error
        error = self.consumer_groups.validate_epoch(group, member_id, generation_or_epoch)
        # Kafka: clients know of no stale epoch inside transactions
        stale = transactional and error is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale else error

    def commit(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Set a group's position in a topic that exists."""
        self._forget_if_deleted(topic)
        self.offsets.commit(group_id, topic, partition, committed)

    def commit_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Set a position as part of the producer's open transaction."""
        self._forget_if_deleted(topic)
        self.offsets.commit_pending(producer_id, group_id, topic, partition, committed)

    def restore_group(self, group_id: str) -> None:
        """Let a KIP-848 group be there as it was kept: without members."""
        self.consumer_groups.groups[group_id] = ConsumerGroup(group_id)

    def restore_committed(self, position: Position, committed: CommittedOffset) -> None:
        """Set a position in a topic that exists as it was kept, and let its group be there."""
        self._restore_owner(position[0])
        self.commit(*position, committed)

    def restore_pending(self, producer_id: int, position: Position, pending: PendingOffset) -> None:
        """Let a position be part of the producer's open transaction as it was kept."""
        self._forget_if_deleted(position[1])
        self._restore_owner(position[0])
        self.offsets.restore_pending(producer_id, position, pending)

    def _restore_owner(self, group_id: str) -> None:
        if self.consumer_group(group_id) is None:
            self.coordinator.get_or_create(group_id)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """A group's position, or None; those in a topic that has been deleted since are gone."""
        self._forget_if_deleted(topic)
        return self.offsets.fetch(group_id, topic, partition)

    def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group without members, of either protocol, and its positions.

        Raises:
            OSError: that cannot be kept; the group and its positions are there still.
        """
        group = self.consumer_groups.groups.get(group_id)
        if group is None:
            error = self.coordinator.validate_delete(group_id)
        else:
            error = ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        # first, as a full disk may refuse it: the group is there with all its positions then
        positions = self.offsets.delete_group(group_id)
        if group is None:
            self.coordinator.delete(group_id)
        else:
            self.make_room_for_classic_group(group_id)
        self.topic.gone(positions, self._is_committed)
        # that the group is gone is told at once, not when another one turns
        self.after_call()
        return error

    def _forget_if_deleted(self, name: str) -> None:
        """A topic of the same name may have come after the one that offsets were committed in."""
        topic = self._cluster.topics.get(name)
        current = None if topic is None else topic.topic_id
        if self._topic_ids.get(name, current) != current:
            self.topic.gone(self.offsets.delete_topic(name), self._is_committed)
            del self._topic_ids[name]
        if current is not None:
            self._topic_ids[name] = current

    def _is_committed(self, position: Position) -> bool:
        return self.offsets.fetch(*position) is not None

    # -- the coordinator's answers and its timer

    async def settle(self, answer: ResultT | Pending) -> ResultT:
        """To be awaited with the answer of every `coordinator.join` and `.sync`: hands out what became due by it."""
        if not isinstance(answer, Pending):
            self.after_call()
            return answer
        promise: Promise[JoinResult | SyncResult] = Promise()
        self._waiting[answer.ticket] = promise
        self.after_call()
        try:
            return cast("ResultT", await promise)
        finally:
            self._waiting.pop(answer.ticket, None)

    def after_call(self) -> None:
        """To be called after every other call to the coordinator: answers whoever waited for it, and sets the timer."""
        for group, rebalances in self.consumer_groups.take_turned():
            self._telling.tell_now(group.group_id)
            self._tell_of_classic_group(group.group_id, group)
            self.coordinator.adopt(group, self._scheduler.now_ms(), rebalances=rebalances)
            _LOG.info("group %s has become one of the classic protocol", group.group_id)
        self._alarm.set(self.coordinator.next_deadline_ms(), self.consumer_groups.next_deadline_ms())
        self._tell_of_groups()
        for completion in self.coordinator.take_completions():
            promise = self._waiting.get(completion.ticket)
            if promise is not None:
                promise.resolve(completion.result)

    def _tell_of_groups(self) -> None:
        touched, settled = self.consumer_groups.take_touched(), self.coordinator.take_settled()
        for group_id in touched:
            self.on_group(group_id)
            if group_id not in self.consumer_groups.groups:
                self._telling.tell_now(group_id)
        for group_id in settled:
            self._tell_of_classic_group(group_id, self.coordinator.groups.get(group_id))
        self._telling.tell(group_id for group_id in touched if group_id in self.consumer_groups.groups)

    def _tell_of_classic_group(self, group_id: str, group: ClassicGroup | None) -> None:
        try:
            self.topic.group(group_id, group)
        except OSError as error:
            # who is in a group is not read back: the group itself is none the worse
            _LOG.error("who is in group %s is not told: %s", group_id, error)

    def _changes(self, group_id: str) -> Iterable[CoordinatorRecord | None]:
        group = self.consumer_groups.groups.get(group_id)
        if group is not None:
            return changes(self._told.setdefault(group_id, ToldConsumerGroup()), group, self._scheduler.now_ms())
        told = self._told.pop(group_id, None)
        return [] if told is None else farewell(told, group_id)

    def _forget_told(self, group_id: str) -> None:
        self._told.pop(group_id, None)

    def _tick(self) -> None:
        self.coordinator.tick(self._scheduler.now_ms())
        self.consumer_groups.tick(self._scheduler.now_ms())
        self.after_call()


def coordinator_id(cluster: ClusterState, key: str) -> int:
    """The broker that leads the share `key` falls into; the next one up stands in for one that is not."""
    share = share_of(key)
    ids = sorted(cluster.brokers)
    candidates = [ids[(share + step) % len(ids)] for step in range(len(ids))]
    return next((broker_id for broker_id in candidates if cluster.brokers[broker_id].is_up), -1)


def _config(values: Mapping[str, str]) -> GroupConfig:
    default = GroupConfig()
    return GroupConfig(
        int(values.get("group.initial.rebalance.delay.ms", default.initial_rebalance_delay_ms)),
        int(values.get("group.min.session.timeout.ms", default.min_session_timeout_ms)),
        int(values.get("group.max.session.timeout.ms", default.max_session_timeout_ms)),
        int(values.get("group.max.size", default.max_size)),
    )


def _consumer_config(values: Mapping[str, str]) -> ConsumerGroupConfig:
    default = ConsumerGroupConfig()
    return ConsumerGroupConfig(
        int(values.get("group.consumer.session.timeout.ms", default.session_timeout_ms)),
        int(values.get("group.consumer.heartbeat.interval.ms", default.heartbeat_interval_ms)),
        int(values.get("group.consumer.max.size", default.max_size)),
        MigrationPolicy.of(values.get("group.consumer.migration.policy", default.migration_policy)),
        int(values.get("group.max.size", default.max_classic_size)),
    )
