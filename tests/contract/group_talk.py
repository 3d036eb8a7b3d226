"""Single requests about groups and offsets, as a client would send them."""

import time
import uuid

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.messages import (
    CreateTopicsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

RETRIABLE = {6, 14, 15, 16, 51}
"""Not the leader; loading, not available, not the coordinator, concurrent transactions: what a client waits out."""


class Talk:
    """Speaks single requests to one broker, waiting out what a client would."""

    def __init__(self, cluster, stack, **settings):
        host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
        self._settings = ConnectionSettings(host, int(port), **settings)
        self._stack = stack
        self.connection = self.open()

    def open(self):
        return self._stack.enter_context(Connection(self._settings, SYSTEM_CLOCK))

    def ask(self, request, version=None, *, connection=None):
        return (connection or self.connection).send(request, version=version, timeout_ms=60_000)

    def until(self, make, error_of, version=None):
        """Repeat while the error is one that a client waits out."""
        deadline = time.monotonic() + 60
        while True:
            answer = self.ask(make(), version)
            if error_of(answer) not in RETRIABLE:
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def ready(self, key, kind=0):
        """Wait until the coordinator of a group or transactional id is there."""
        self.until(
            lambda: FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
            lambda answer: answer.coordinators[0].error_code,
            4,
        )

    def create(self, name, partitions=1):
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0
        deadline = time.monotonic() + 60
        while True:
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            (found,) = self.ask(asked, 12).topics
            if found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions):
                return found.topic_id
            assert time.monotonic() < deadline


def join_request(group, member_id="", *, instance=None, protocols=(("range", b"m"),), **changes):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=changes.pop("session_timeout_ms", 60_000),
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=changes.pop("protocol_type", "consumer"),
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
    )


def join(talk, group, member_id="", version=9, **changes):
    return talk.until(lambda: join_request(group, member_id, **changes), lambda answer: answer.error_code, version)


def sync(talk, group, joined, assignments=None, version=5, **changes):
    given = assignments or {}
    request = SyncGroupRequest(
        group_id=group,
        generation_id=changes.get("generation", joined.generation_id),
        member_id=joined.member_id,
        group_instance_id=changes.get("instance"),
        protocol_type=changes.get("protocol_type", "consumer"),
        protocol_name=changes.get("protocol_name", "range"),
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given.items()],
    )
    return talk.ask(request, version)


def heartbeat(talk, group, member_id, generation, instance=None):
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )
    return talk.ask(request, 4).error_code


def leave(talk, group, *members):
    identities = [LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
    answer = talk.ask(LeaveGroupRequest(group_id=group, members=identities), 5)
    return answer.error_code, [m.error_code for m in answer.members]


def stable(talk, group, **changes):
    """A stable group of one member."""
    talk.ready(group)
    first = join(talk, group, **changes)
    if first.error_code == 79:
        first = join(talk, group, first.member_id, **changes)
    assert first.error_code == 0
    synced = sync(talk, group, first, {first.member_id: b"all"}, instance=changes.get("instance"))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return first


def commit(talk, group, topic, offset=5, *, partition=0, member_id="", generation=-1, version=9, metadata="note"):
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    named = OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[part])
    if isinstance(topic, uuid.UUID):
        named.topic_id = topic
    else:
        named.name = topic
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=[named]
    )
    return talk.ask(request, version).topics[0].partitions[0].error_code


def fetch_offsets(talk, group, topic=None, *, version=9, **asked):
    topics = None
    if topic is not None:
        named = OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=[0])
        if isinstance(topic, uuid.UUID):
            named.topic_id = topic
        else:
            named.name = topic
        topics = [named]
    one = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics, **asked)
    found = talk.ask(OffsetFetchRequest(groups=[one], require_stable=False), version).groups[0]
    return found.error_code, [
        (p.partition_index, p.committed_offset, p.metadata, p.error_code) for t in found.topics for p in t.partitions
    ]
