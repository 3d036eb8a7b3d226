"""`__consumer_offsets`: what groups commit and who is in them, as records that can be read as a topic.

The records are those of Apache Kafka 4.3.1: `OffsetCommitKey` 1 and `OffsetCommitValue` 4, `GroupMetadataKey` 2 and
`GroupMetadataValue` 3.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final
from uuid import UUID

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.groups.classic.group import ClassicGroup, GroupState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset, Position
from kclient_quota.broker.groups.in_steps import parts
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, InternalTopic, wire_string
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.wire.schema import ZERO_UUID
from kclient_quota.wire.writing import uvarint

_LOG = logger_of(__name__)
_AT_ONCE: Final = 250
"""Positions whose end is told in one turn: some ten milliseconds where each is of a group of its own."""


class OffsetsTopic:
    """Writes the topic.

    Args:
        cluster: has the topic.
        scheduler: the time of commits.

    Attributes:
        records: where they go.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.records = InternalTopic(CONSUMER_OFFSETS, cluster, scheduler)
        self._cluster = cluster
        self._scheduler = scheduler
        self._leaving: deque[Iterator[None]] = deque()
        self._alarm = Alarm(scheduler, self._tell_more)

    def committed(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        """Tell of a position, or with None that it is gone.

        Raises:
            OSError: it could not be kept.
        """
        if not self.records.is_told:
            return
        key = _position_key((group_id, topic, partition))
        value = None
        if committed is not None:
            known = self._cluster.topics.get(topic)
            value = _offset_value(committed, ZERO_UUID if known is None else known.topic_id, self._scheduler.now_ms())
        self.records.append(group_id, key, value)

    def gone(self, positions: Iterable[Position], is_there: Callable[[Position], bool]) -> None:
        """Tell that positions are gone, of many some in each turn of the loop.

        Args:
            positions: those of a group stand together.
            is_there: whether one has come back before it is told of, which then is not done.
        """
        if not self.records.is_told:
            return
        rest = iter(positions)
        first = list(islice(rest, _AT_ONCE))
        if not first:
            return
        self._leaving.appendleft(self._told_gone(chain(first, rest), is_there))
        if len(first) < _AT_ONCE:
            self._tell_more()
        else:
            # to find so many has been enough for one turn
            self._alarm.set(self._scheduler.now_ms())

    def tell_rest(self) -> None:
        """Tell of all that is left now; for a broker that stops."""
        for told in self._leaving:
            deque(told, maxlen=0)
        self._leaving.clear()

    def _tell_more(self) -> None:
        if self._leaving:
            told = self._leaving.popleft()
            if next(told, self) is not self:
                self._leaving.append(told)
        if self._leaving:
            self._alarm.set(self._scheduler.now_ms())

    def _told_gone(self, gone: Iterable[Position], is_there: Callable[[Position], bool]) -> Iterator[None]:
        for part in parts(gone, _AT_ONCE):
            for group_id, positions in groupby(part, key=itemgetter(0)):
                keys = [_position_key(position) for position in positions if not is_there(position)]
                try:
                    self.records.append_all(group_id, [(key, None) for key in keys])
                except OSError as refused:
                    # these records are not read back: the positions are gone all the same
                    _LOG.error("that positions of group %s are gone is not told: %s", group_id, refused)
            if len(part) == _AT_ONCE:
                yield

    def group(self, group_id: str, group: ClassicGroup | None) -> None:
        """Tell who is in a group now, if that has been settled, or with None that it is gone.

        Raises:
            OSError: it could not be kept.
        """
        if not self.records.is_told:
            return
        if group is None:
            self.records.append(group_id, _group_key(group_id), None)
        elif group.state in {GroupState.EMPTY, GroupState.STABLE}:
            self.records.check(group_id, _held(group))
            self.records.append(group_id, _group_key(group_id), _group_value(group, self._scheduler.now_ms()))


def _position_key(position: Position) -> bytes:
    group_id, topic, partition = position
    return struct.pack(">h", 1) + wire_string(group_id) + wire_string(topic) + struct.pack(">i", partition)


def _group_key(group_id: str) -> bytes:
    return struct.pack(">h", 2) + wire_string(group_id)


def _held(group: ClassicGroup) -> int:
    return sum(len(each.metadata(group.protocol_name)) + len(each.assignment) for each in group.members.values())


def _group_value(group: ClassicGroup, now_ms: int) -> bytes:
    members = [
        b"".join(
            (
                wire_string(member.member_id),
                wire_string(member.group_instance_id),
                wire_string(member.client_id),
                wire_string(member.client_host),
                struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
                _bytes(member.metadata(group.protocol_name)),
                _bytes(member.assignment),
            )
        )
        for member in group.members.values()
    ]
    head = (
        struct.pack(">h", 3) + wire_string(group.protocol_type or ""),
        struct.pack(">i", group.generation_id) + wire_string(group.protocol_name) + wire_string(group.leader_id),
        struct.pack(">qi", now_ms, len(members)),
    )
    return b"".join((*head, *members))


def _offset_value(committed: CommittedOffset, topic_id: UUID, now_ms: int) -> bytes:
    metadata = committed.metadata.encode()
    head = struct.pack(">hqi", 4, committed.offset, committed.leader_epoch) + uvarint(len(metadata) + 1)
    # the topic's id is tagged field 0, of 16 bytes
    tail = struct.pack(">q", now_ms) + (b"\x00" if topic_id == ZERO_UUID else b"\x01\x00\x10" + topic_id.bytes)
    return head + metadata + tail


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + bytes(data)
