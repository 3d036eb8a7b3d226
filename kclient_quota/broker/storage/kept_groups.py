"""What a journal keeps of groups: which there are, what they committed or are about to, what share groups settled.

Members are not kept. Their group is: who comes to one that is there is told UNKNOWN_MEMBER_ID and joins anew, while
GROUP_ID_NOT_FOUND is the end of a consumer or share consumer.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset, PendingOffset, Position
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.quota_key import Change
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.shares.share_sessions import Place
from kclient_quota.broker.storage.journal import Journal, Key

_LOG = logger_of(__name__)
_CONSUMER, _SHARE = "consumer", "share"


class KeptGroups:
    """Reads groups back from a journal and keeps what changes of them.

    Args:
        journal: has it.
        cluster: has its topics already.
        groups: of the classic and the consumer protocol.
        shares: share groups.
        topic_ids: of topics that are kept, by name, as they come and go.
    """

    def __init__(
        self,
        journal: Journal,
        cluster: ClusterState,
        groups: GroupService,
        shares: ShareService,
        topic_ids: Mapping[str, UUID],
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._groups = groups
        self._shares = shares
        self._topic_ids = topic_ids

    def restore(self) -> None:
        """Let groups be as they were kept, and keep what they commit from now on."""
        # first, so that what is committed belongs to a group of the right protocol
        for key, protocol in self._journal.items("group"):
            (self._shares if protocol == _SHARE else self._groups).restore_group(str(key[1]))
        for key, value in self._journal.items("offset"):
            self._restore_offset(key, value)
        offsets = self._groups.offsets
        offsets.observers.append(self._keep_offset)
        for key, value in self._journal.items("pending"):
            self._restore_pending(key, value)
        offsets.pending_observers.append(self._keep_pending)
        offsets.leave_observers.append(self._forget_positions)
        for key, value in self._journal.items("share"):
            self._restore_share(key, value)
        self._groups.on_group, self._shares.on_group = self._keep_consumer_group, self._keep_share_group

    def _restore_offset(self, key: Key, value: list[Any]) -> None:
        _, group_id, topic, partition = key
        committed_in, value = (value[3], value[:3]) if len(value) > 3 else (None, value)  # noqa: PLR2004
        current = self._cluster.topics.get(str(topic))
        if current is None or committed_in not in {None, current.topic_id.hex}:
            self._journal.set(*key, value=None, twice=False)
            return
        position = str(group_id), str(topic), int(partition or 0)
        self._groups.restore_committed(position, CommittedOffset(*value))

    def _restore_pending(self, key: Key, value: list[Any]) -> None:
        _, producer_id, group_id, topic, partition = key
        current = self._cluster.topics.get(str(topic))
        if current is None or value[1] != current.topic_id.hex:
            self._journal.set(*key, value=None, twice=False)
            return
        position = str(group_id), str(topic), int(partition or 0)
        pending = PendingOffset(value[0], CommittedOffset(*value[2:]) if value[2:] else None)
        self._groups.restore_pending(int(producer_id or 0), position, pending)

    def _restore_share(self, key: Key, value: list[Any]) -> None:
        place = _place(key)
        if place[1] in self._cluster.topics_by_id:
            self._shares.restore(place, value)
        else:
            self._journal.set(*key, value=None, twice=False)

    # -- keeping

    def keep_share(self, change: Change) -> None:
        """Keep what a share group has of a partition."""
        self._journal.set(*change, value=self._shares.state(_place(change)), twice=False)

    def undo_share(self, change: Change, value: Any) -> None:
        """Let it be as it was kept."""
        self._shares.restore(_place(change), value)

    def _keep_consumer_group(self, group_id: str) -> None:
        self._keep_group(group_id, _CONSUMER, is_there=self._groups.consumer_group(group_id) is not None)

    def _keep_share_group(self, group_id: str) -> None:
        self._keep_group(group_id, _SHARE, is_there=group_id in self._shares.coordinator.groups)

    def _keep_group(self, group_id: str, protocol: str, *, is_there: bool) -> None:
        """Classic ones are not named: whoever comes to one that is not there is told UNKNOWN_MEMBER_ID as well."""
        former = self._journal.get("group", group_id)
        if not is_there and former != protocol:
            return  # it is a group of the other protocol by now, or was never kept
        try:
            self._journal.set("group", group_id, value=protocol if is_there else None)
        except OSError as error:
            # the group itself is none the worse, and this is tried again with its next change
            _LOG.error("that there is a group %s, or none any more, could not be kept: %s", group_id, error)

    def _keep_offset(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        value = None
        if committed is not None:
            topic_id = self._topic_ids.get(topic)
            value = [committed.offset, committed.leader_epoch, committed.metadata]
            value += [] if topic_id is None else [topic_id.hex]
        self._journal.set("offset", group_id, topic, partition, value=value, twice=False)

    def _keep_pending(self, producer_id: int, position: Position, pending: PendingOffset | None) -> None:
        value: list[Any] | None = None
        topic_id = self._topic_ids.get(position[1])
        if pending is not None and topic_id is not None:
            of = pending.committed
            value = [pending.order, topic_id.hex]
            value += [] if of is None else [of.offset, of.leader_epoch, of.metadata]
        self._journal.set("pending", producer_id, *position, value=value, twice=False)

    def _forget_positions(self, positions: Iterable[Position], pending: list[tuple[int, Position]]) -> None:
        keys = [("offset", *position) for position in positions]
        self._journal.forget_at_once(
            [*keys, *(("pending", producer_id, *position) for producer_id, position in pending)]
        )


def _place(key: Key) -> Place:
    """Group, topic and partition of ("share", group, topic id, partition)."""
    return str(key[1]), UUID(hex=str(key[2])), int(key[3] or 0)
