"""Tells of share groups in `__consumer_offsets`, and of partitions that they are to read in `__share_group_state`."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice, product
from typing import Final
from uuid import UUID

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.groups.assignors import by_topic_in_steps
from kclient_quota.broker.groups.consumer.group import Topics
from kclient_quota.broker.groups.coordinator_record import CoordinatorRecord
from kclient_quota.broker.groups.in_steps import Steps, mapping
from kclient_quota.broker.groups.telling import Telling
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, InternalTopic
from kclient_quota.broker.request.context import Scheduler
from kclient_quota.broker.shares.share_group import ShareGroup
from kclient_quota.broker.shares.share_group_records import Parts, ToldShareGroup, changes, farewell
from kclient_quota.broker.shares.share_state_topic import ShareStateTopic

_INITIALIZED_AT_ONCE: Final = 100
"""Of so many partitions it is told in one turn that a group is to read them: some 20 ms."""
_Initializing = tuple[Topics, Iterator[tuple[UUID, int]]]
"""For which topics of a group its partitions are initialized, and which are left."""


class ShareTelling:
    """What was told of each group, and what is to be told next.

    Args:
        groups: all share groups, by id.
        cluster: has the topics.
        scheduler: time.
        state_topic: where partitions are told of.

    Attributes:
        offsets_topic: where groups are told of.
    """

    def __init__(
        self, groups: dict[str, ShareGroup], cluster: ClusterState, scheduler: Scheduler, state_topic: ShareStateTopic
    ) -> None:
        self.offsets_topic = InternalTopic(CONSUMER_OFFSETS, cluster, scheduler)
        self._groups = groups
        self._cluster = cluster
        self._scheduler = scheduler
        self._state_topic = state_topic
        self._told: dict[str, ToldShareGroup] = {}
        self._initializing: dict[str, _Initializing] = {}
        self._telling = Telling(self.offsets_topic, scheduler, self._changes, self._forget_told)

    def tell(self, group_ids: Iterable[str]) -> None:
        """Tell of groups, now or a little later; of one that is gone now, before another of its name is told of."""
        for group_id in group_ids:
            if group_id in self._groups:
                self._telling.tell([group_id])
            else:
                self._telling.tell_now(group_id)

    def _changes(self, group_id: str) -> Iterable[CoordinatorRecord | None]:
        group = self._groups.get(group_id)
        if group is None:
            told = self._told.get(group_id)
            self._forget_told(group_id)
            return [] if told is None else farewell(told, group_id)
        told = self._told.setdefault(group_id, ToldShareGroup())
        if told.metadata is not group.metadata and self._initialize(group):
            told.metadata = group.metadata
        # what is not told to its end yet is not told as if it were
        of_states = partial(self._parts, group_id) if told.metadata is group.metadata else None
        return changes(told, group, of_states, self._scheduler.now_ms())

    def _initialize(self, group: ShareGroup) -> bool:
        """Tell of partitions that a group is to read, some at a time; whether it is done."""
        group_id, metadata = group.group_id, group.metadata
        of, rest = self._initializing.pop(group_id, (None, iter(())))
        if of is not metadata:
            rest = chain.from_iterable(product((topic_id,), range(count)) for topic_id, count in metadata.values())
        some = list(islice(rest, _INITIALIZED_AT_ONCE))
        known = self._state_topic.parts(group_id)
        for part in some:
            if part not in known and part[0] in self._cluster.topics_by_id:
                self._state_topic.initialize(group_id, part, group.epoch)
        if len(some) < _INITIALIZED_AT_ONCE:
            return True
        self._initializing[group_id] = metadata, rest
        self._scheduler.call_at(self._scheduler.now_ms(), partial(self._telling.tell, [group.group_id]))
        return False

    def _parts(self, group_id: str) -> Steps[Parts]:
        topics = self._cluster.topics_by_id
        found = yield from by_topic_in_steps(list(self._state_topic.parts(group_id)))
        there = ((topic_id, (topics[topic_id].name, indexes)) for topic_id, indexes in found if topic_id in topics)
        return (yield from mapping(there))

    def _forget_told(self, group_id: str) -> None:
        self._told.pop(group_id, None)
        self._initializing.pop(group_id, None)
