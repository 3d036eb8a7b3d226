"""Share groups (KIP-932) as one service of the cluster: members, partitions and their locks."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import BROKER, GROUP, ClusterState, Partition, Topic
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.groups.in_steps import Steps, gathered
from kclient_quota.broker.groups.one_at_a_time import OneAtATime
from kclient_quota.broker.groups.timers import Timers
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.broker.shares.share_group import ShareGroup, ShareGroupConfig, ShareGroupCoordinator
from kclient_quota.broker.shares.share_partition import SharePartition, ShareRules
from kclient_quota.broker.shares.share_records import TERMINAL
from kclient_quota.broker.shares.share_sessions import RELEASED_AT_ONCE, Place, ShareSessions
from kclient_quota.broker.shares.share_state_topic import ShareStateTopic, Written
from kclient_quota.broker.shares.share_telling import ShareTelling
from kclient_quota.wire.error_codes import ErrorCode

_LOG = logger_of(__name__)
_FORGOTTEN_AT_ONCE: Final = 1_000
_SPECIFIC_DURATION: Final = "by_duration:"


class ShareService:
    """All share groups of the cluster, whichever broker coordinates them or leads their partitions.

    Args:
        cluster: topics and configurations.
        scheduler: time.

    Attributes:
        coordinator: members and assignments.
        one_at_a_time: heartbeats of one group.
        telling: tells of groups.
        sessions: who reads from which broker.
        partitions: what each group has of each partition that it has begun to read, or was told where to begin.
        on_group: called with a group that may be new, or gone.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.coordinator = ShareGroupCoordinator(_config(cluster.configs.get((BROKER, ""), {})))
        self.coordinator.config_of = self._config_of
        self.on_group: Callable[[str], None] = lambda _group_id: None
        self.one_at_a_time = OneAtATime(scheduler)
        self.partitions: dict[Place, SharePartition] = {}
        self._cluster = cluster
        self._scheduler = scheduler
        self.sessions = ShareSessions(self.partitions, self._release, self._keep, scheduler)
        self._reading: set[str] = set()
        self._leaving: set[str] = set()
        self._locks: Timers[Place] = Timers()
        self._watchers: dict[Place, list[Callable[[], None]]] = {}
        self._alarm = Alarm(scheduler, self._tick)
        self.state_topic = ShareStateTopic(cluster, scheduler)
        self.telling = ShareTelling(self.coordinator.groups, cluster, scheduler, self.state_topic)
        cluster.on_topic_gone.append(self._topic_gone)

    # -- configuration

    def setting(self, group_id: str, key: str, default: str) -> str:
        """A group's own `share.*` value, else the brokers' `group.share.*`, else Kafka's default."""
        own = self._cluster.configs.get((GROUP, group_id), {}).get(key)
        return own or self._cluster.config(BROKER, "", f"group.{key}") or default

    def rules(self, group_id: str) -> ShareRules:
        """How its records are delivered."""
        return ShareRules(
            int(self.setting(group_id, "share.delivery.count.limit", "5")),
            int(self.setting(group_id, "share.record.lock.duration.ms", "30000")),
            int(self.setting(group_id, "share.partition.max.record.locks", "2000")),
        )

    def _config_of(self, group_id: str) -> ShareGroupConfig:
        config = self.coordinator.config
        return replace(
            config,
            session_timeout_ms=int(self.setting(group_id, "share.session.timeout.ms", str(config.session_timeout_ms))),
            heartbeat_interval_ms=int(
                self.setting(group_id, "share.heartbeat.interval.ms", str(config.heartbeat_interval_ms))
            ),
        )

    # -- one name, one group, of one protocol

    def is_taken(self, group_id: str, groups: GroupService) -> bool:
        """Whether a group of another protocol has this name, as in Kafka also one without members."""
        if group_id in self.coordinator.groups:
            return False
        return group_id in groups.coordinator.groups or groups.consumer_group(group_id) is not None

    def delete_group(self, group_id: str) -> Steps[ErrorCode | None]:
        """Delete a share group without members and what it has; None where there is no share group of this name.

        Until it is done nobody joins it (`is_leaving`). Whoever gives it up in the midst may begin anew.
        """
        group = self.coordinator.groups.get(group_id)
        if group is None:
            return None
        if self.is_leaving(group_id):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if group.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._leaving.add(group_id)
        try:
            yield from self.sessions.forget(group_id)
            # some may come meanwhile, by what was begun before
            while places := (yield from self._places(group_id)):
                yield from self._forgotten(places)
        finally:
            self._leaving.discard(group_id)
        del self.coordinator.groups[group_id]
        self._reading.discard(group_id)
        self.coordinator.touch(group_id)
        self.after_call()
        held = list(chain(group.metadata.values(), *group.target.values()))
        del group
        yield from let_go(held)
        return ErrorCode.NONE

    def _places(self, group_id: str) -> Steps[list[Place]]:
        """Of what a group has something, or was told to have."""
        begun = (place for place in list(self.partitions) if place[0] == group_id)
        told = ((group_id, *part) for part in list(self.state_topic.parts(group_id)))
        return (yield from gathered(chain(begun, told)))

    def is_leaving(self, group_id: str) -> bool:
        """Whether it is just being deleted."""
        return group_id in self._leaving

    def _forgotten(self, places: list[Place]) -> Steps[None]:
        while places:
            for _ in range(min(len(places), _FORGOTTEN_AT_ONCE)):
                self.forget(places.pop())
            if places:
                yield

    # -- partitions

    def partition(self, group_id: str, topic: Topic, partition: Partition, now_ms: int) -> SharePartition:
        """What a group has of a partition, as of now."""
        place = group_id, topic.topic_id, partition.index
        self.sessions.release_first(place)
        kept = self.partitions.get(place)
        if kept is None:
            kept = SharePartition(self._begin(group_id, partition, now_ms), partition.leader_epoch)
            if topic.topic_id in self._cluster.topics_by_id:
                # nothing is kept of a topic that is gone: nobody would ever take it away
                self.partitions[place] = kept
                self._reading.add(group_id)
                self._note(place)
        if kept.leader_epoch != partition.leader_epoch:
            kept.move(partition.leader_epoch)
        if partition.log.start_offset > kept.start_offset:
            kept.log_starts_at(partition.log.start_offset)
        return kept

    def begin_at(self, place: Place, offset: int, leader_epoch: int) -> None:
        """Let a group begin anew at `offset`."""
        kept = self.partitions[place] = SharePartition(offset, leader_epoch)
        kept.written = offset, 0
        self._reading.add(place[0])
        self._locks.cancel(place)
        self._note(place)
        self.state_topic.begin(place[0], place[1:], offset, self.coordinator.groups[place[0]].epoch)
        self.coordinator.touch(place[0])

    def forget(self, place: Place) -> None:
        """A group has nothing of a partition any more."""
        if self.partitions.pop(place, None) is not None:
            self._note(place)
        self._locks.cancel(place)
        self.state_topic.forget(place[0], place[1:])
        self.coordinator.touch(place[0])

    def _release(self, member_id: str, place: Place) -> None:
        """What a member has of a partition is anybody's."""
        kept = self.partitions.get(place)
        if kept is not None and kept.release(member_id, self.rules(place[0])):
            self.changed(place)

    def _topic_gone(self, topic: Topic) -> None:
        for group_id in self._reading.union(self.coordinator.groups):
            told = self.state_topic.parts(group_id)
            for partition in topic.partitions:
                place = group_id, topic.topic_id, partition.index
                if place in self.partitions or place[1:] in told:
                    self.forget(place)
        self.after_call()

    def watch(self, place: Place, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever records were given back; returns how to end that."""
        self._watchers.setdefault(place, []).append(callback)

        def unwatch() -> None:
            watchers = self._watchers[place]
            watchers.remove(callback)
            if not watchers:
                del self._watchers[place]

        return unwatch

    def locked(self, place: Place) -> None:
        """To be called when records were acquired or their locks were renewed."""
        kept = self.partitions.get(place)
        deadline_ms = None if kept is None else kept.next_deadline_ms()
        if deadline_ms is None:
            self._locks.cancel(place)
        else:
            self._locks.schedule(place, deadline_ms)
        self.after_call()

    def changed(self, place: Place) -> None:
        """To be called when records were acknowledged or given back."""
        self._note(place)
        self._tell_of_state(place)
        self.locked(place)
        for callback in list(self._watchers.get(place, ())):
            # not from within this request, which answers for what it has changed: whoever wakes saves what there is
            self._scheduler.call_at(self._scheduler.now_ms(), callback)

    def _begin(self, group_id: str, partition: Partition, now_ms: int) -> int:
        """`share.auto.offset.reset`."""
        wanted = self.setting(group_id, "share.auto.offset.reset", "latest")
        log = partition.log
        if wanted == "earliest":
            return log.start_offset
        if wanted.startswith(_SPECIFIC_DURATION):
            batch = log.batch_at(now_ms - _duration_ms(wanted.removeprefix(_SPECIFIC_DURATION)))
            begin = log.high_watermark if batch is None else int.from_bytes(bytes(batch[:8]), "big")
            return min(begin, log.high_watermark)
        return log.high_watermark

    # -- being kept

    def state(self, place: Place) -> list[Any] | None:
        """What is to be kept of a partition (KIP-932's persister), None where there is nothing."""
        kept = self.partitions.get(place)
        return None if kept is None else kept.state

    def restore_group(self, group_id: str) -> None:
        """Let a group be there as it was kept: without members."""
        self.coordinator.groups.setdefault(group_id, ShareGroup(group_id))

    def restore(self, place: Place, state: list[Any] | None) -> None:
        """Let a partition be as it was kept, and its group be there; with None there is nothing of it."""
        self._locks.cancel(place)
        self.partitions.pop(place, None)
        self.state_topic.mistold(place[0], place[1:])
        topic = self._cluster.topics_by_id.get(place[1])
        if state is not None and topic is not None and place[2] < len(topic.partitions):
            partition = topic.partitions[place[2]]
            kept = self.partitions[place] = SharePartition.of_state(state, partition.leader_epoch)
            self._reading.add(place[0])
            self.restore_group(place[0])
            end = partition.log.end_offset
            if kept.next_new > end:
                _LOG.warning(
                    "share group %s was at offset %s of %s-%s, whose log ends at %s: it goes on from there",
                    place[0],
                    kept.next_new,
                    topic.name,
                    place[2],
                    end,
                )
                kept.log_ends_at(end)
                self._note(place)

    # -- being told

    def _tell_of_state(self, place: Place) -> None:
        kept = self.partitions.get(place)
        if kept is None or kept.written is None:
            return
        changed = kept.take_unsaid()
        if changed and self.state_topic.records.is_told:
            if place[1:] not in self.state_topic.parts(place[0]):
                self.coordinator.touch(place[0])  # which tells of which partitions there is something
            written = Written(*kept.written, kept.leader_epoch, changed)
            self.state_topic.write(place[0], place[1:], written, partial(_everything, kept))

    def tell_all(self) -> None:
        """To be called once what was kept has been read back: tell of all of it anew."""
        for place, kept in self.partitions.items():
            self.state_topic.write(place[0], place[1:], _everything(kept), partial(_everything, kept))
            self.coordinator.touch(place[0])
        self.state_topic.forget_former()
        self.after_call()

    def _note(self, place: Place) -> None:
        group_id, topic_id, index = place
        self._cluster.changed("share", group_id, topic_id.hex, index)

    def _keep(self) -> None:
        """Keep what no request has changed."""
        try:
            self._cluster.save()
        except OSError as error:
            # what was given back by it is given back by the restart as well
            _LOG.error("what share groups have given back could not be kept: %s", error)

    # -- time

    def after_call(self) -> None:
        """To be called after every call to the coordinator: tells of what has changed, and sets the timer."""
        touched = self.coordinator.take_touched()
        for group_id in touched:
            self.on_group(group_id)
        self.telling.tell(touched)
        self._alarm.set(self.coordinator.next_deadline_ms(), self._locks.next_deadline_ms())

    def _tick(self) -> None:
        now_ms = self._scheduler.now_ms()
        self.coordinator.tick(now_ms)
        seen = 0
        while seen < RELEASED_AT_ONCE and (place := self._locks.pop_due(now_ms)) is not None:
            kept = self.partitions.get(place)
            if kept is not None:
                seen += kept.weight
                kept.expire(self.rules(place[0]), now_ms)
                self.changed(place)
        if self._cluster.changes:
            self._keep()
        self.after_call()


def _everything(kept: SharePartition) -> Written:
    start_offset, _, _, runs = kept.state
    complete = sum(last - first + 1 for first, last, state, _ in runs if state in TERMINAL)
    return Written(start_offset, complete, kept.leader_epoch, runs)


def _config(values: Mapping[str, str]) -> ShareGroupConfig:
    default = ShareGroupConfig()
    return ShareGroupConfig(
        int(values.get("group.share.session.timeout.ms", default.session_timeout_ms)),
        int(values.get("group.share.heartbeat.interval.ms", default.heartbeat_interval_ms)),
        int(values.get("group.share.max.size", default.max_size)),
    )


def _duration_ms(text: str) -> int:
    """Days, hours, minutes and seconds of ISO 8601 ("P1DT2H"), as Kafka's `Duration.parse`; checked when it was set."""
    days, _, time = text.removeprefix("P").partition("T")
    found, number = 0.0, ""
    for letter in days + time:
        if letter.isdigit() or letter == ".":
            number += letter
        else:
            found += float(number or 0) * {"D": 86_400, "H": 3_600, "M": 60, "S": 1}.get(letter, 0)
            number = ""
    return round(found * 1000)
