"""Requests that name as much of a cluster as there is, each made when the one before it has been answered."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kclient_quota.wire import messages as m
from kclient_quota.wire.records import Record, build_batch
from kclient_quota.wire.schema import Request

Named = tuple[str, Callable[[Any], Request]]
QUIET = "("
"""So begin names of requests that are no matter of interest."""
_MEMBERS = 20
_TOPICS_AT_ONCE = 10_000
_ENTITIES = 10_000
_CLASSIC_METADATA = 10_000_000


def requests_of(topics: int, partitions: int) -> Iterator[Named]:
    """Their names, and how each is made from the answer before it.

    Args:
        topics: how many there are, which these requests make first and delete in the end.
        partitions: of each.
    """
    names = [f"topic-{number:06d}" for number in range(topics)]
    parts = [names[start : start + _TOPICS_AT_ONCE] for start in range(0, topics, _TOPICS_AT_ONCE)]
    for part in parts:
        yield f"CreateTopics of {len(part):,}", _made(_creating, part, partitions)
    yield "Metadata", lambda _: m.MetadataRequest(topics=None)
    yield "Metadata again", lambda _: m.MetadataRequest(topics=None)
    known: dict[str, Any] = {}

    def named(answer: Any) -> Request:
        known.update({topic.name: topic.topic_id for topic in answer.topics})
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        return m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

    yield "Metadata by name", named
    yield "DescribeTopicPartitions", lambda _: _described(names)
    yield "DescribeTopicPartitions of all", lambda _: _described([])
    yield "DescribeConfigs of all keys", lambda _: _configs(names[:_TOPICS_AT_ONCE])
    yield from _of_partitions(names, range(partitions), known)
    yield from _of_groups(names)
    yield from _of_share_groups(names, range(partitions), known)
    yield from _of_entities()
    for part in parts:
        yield f"DeleteTopics of {len(part):,}", _made(_deleting, part)


def _made(make: Callable[..., Request], *given: Any) -> Callable[[Any], Request]:
    return lambda _: make(*given)


def _creating(names: list[str], partitions: int) -> Request:
    topic = m.CreateTopicsRequest.CreatableTopic
    made = [topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return m.CreateTopicsRequest(topics=made, timeout_ms=60_000)


def _deleting(names: list[str]) -> Request:
    topics = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return m.DeleteTopicsRequest(topics=topics, timeout_ms=60_000)


def _described(names: list[str]) -> Request:
    topics = [m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    return m.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=1_000_000)


def _configs(names: list[str]) -> Request:
    resources = [m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=one) for one in names]
    return m.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def _of_partitions(names: list[str], indexes: range, ids: dict[str, Any]) -> Iterator[Named]:
    batch = build_batch([Record(b"value", timestamp_ms=0)])

    def offsets(timestamp: int) -> Request:
        asked = [
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes
        ]
        return m.ListOffsetsRequest(
            topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=asked) for name in names]
        )

    def produced(_: Any) -> Request:
        rows = [m.ProduceRequest.PartitionProduceData(index=index, records=batch) for index in indexes]
        data = m.ProduceRequest.TopicProduceData
        return m.ProduceRequest(
            acks=-1,
            timeout_ms=60_000,
            topic_data=[data(name=name, topic_id=ids[name], partition_data=rows) for name in names],
        )

    def fetched(max_wait_ms: int) -> Request:
        rows = [m.FetchRequest.FetchPartition(partition=index, partition_max_bytes=1_000) for index in indexes]
        topic = m.FetchRequest.FetchTopic
        return m.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms == 0 else 1 << 30,
            topics=[topic(topic=name, topic_id=ids[name], partitions=rows) for name in names],
        )

    def committed(_: Any) -> Request:
        row = m.OffsetCommitRequest.OffsetCommitRequestPartition
        rows = [row(partition_index=index, committed_offset=1, committed_metadata="") for index in indexes]
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [topic(name=name, topic_id=ids[name], partitions=rows) for name in names]
        return m.OffsetCommitRequest(group_id="committed", generation_id_or_member_epoch=-1, topics=topics)

    def positions(*, is_all: bool) -> Request:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics
        rows = [topic(name=name, topic_id=ids[name], partition_indexes=list(indexes)) for name in names]
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="committed", topics=None if is_all else rows)
        return m.OffsetFetchRequest(groups=[group])

    yield "ListOffsets, latest", lambda _: offsets(-1)
    yield "Produce", produced
    yield "ListOffsets, by time", lambda _: offsets(0)
    yield "ListOffsets, largest time", lambda _: offsets(-3)
    yield "Fetch", lambda _: fetched(0)
    yield "Fetch that waits", lambda _: fetched(500)
    yield "OffsetCommit", committed
    yield "OffsetFetch", lambda _: positions(is_all=False)
    yield "OffsetFetch of all", lambda _: positions(is_all=True)
    yield "OffsetDelete", lambda _: _positions_deleted(names, indexes)
    yield "(positions again)", committed
    yield "DeleteGroups of one with all positions", lambda _: m.DeleteGroupsRequest(groups_names=["committed"])
    yield "(positions again)", committed


def _positions_deleted(names: list[str], indexes: range) -> Request:
    rows = [m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topics = [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows) for name in names]
    return m.OffsetDeleteRequest(group_id="committed", topics=topics)


def _of_groups(names: list[str]) -> Iterator[Named]:
    for group, assignor in (("u", "uniform"), ("r", "range")):
        for member in range(_MEMBERS):
            yield (
                f"ConsumerGroupHeartbeat, {assignor}, member {member + 1}",
                _made(_joining, group, f"{group}{member}", names, assignor),
            )
            if member == 0:
                yield f"ConsumerGroupHeartbeat, {assignor}, that owns all", _owning
        yield f"ConsumerGroupDescribe, {assignor}", _made(_groups_described, group)
    for member in range(3):
        yield (
            f"ConsumerGroupHeartbeat, unlike, member {member + 1}",
            _made(_joining, "n", f"m{member}", names[member:], "uniform"),
        )
    for member in range(3):
        yield (
            f"ConsumerGroupHeartbeat, pattern, member {member + 1}",
            _made(_joining, "p", f"m{member}", [], "uniform", "topic-.*"),
        )
    yield (
        "ConsumerGroupHeartbeat, one that leaves",
        lambda _: m.ConsumerGroupHeartbeatRequest(group_id="u", member_id="u0", member_epoch=-1),
    )
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0" * _CLASSIC_METADATA)

    def joining(member_id: str) -> Request:
        return m.JoinGroupRequest(
            group_id="c",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=45_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )

    yield "JoinGroup, 10 MB of metadata", lambda _: joining("")
    yield "JoinGroup, 10 MB of metadata, again", lambda answer: joining(answer.member_id)
    yield "SyncGroup, 10 MB", _synced
    yield "DescribeGroups, 10 MB", lambda _: m.DescribeGroupsRequest(groups=["c"])
    groups = [f"group-{number}" for number in range(_ENTITIES)]
    for group in groups:
        yield "(a group)", _made(_creating_group, group)
    yield "DescribeGroups of 10,000", lambda _: m.DescribeGroupsRequest(groups=groups)
    yield "ListGroups of 10,000", lambda _: m.ListGroupsRequest()
    yield "DeleteGroups of 10,000", lambda _: m.DeleteGroupsRequest(groups_names=groups)


def _groups_described(*group_ids: str) -> Request:
    return m.ConsumerGroupDescribeRequest(group_ids=list(group_ids))


def _joining(group: str, member: str, names: list[str], assignor: str, regex: str | None = None) -> Request:
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=[],
    )


def _owning(joined: Any) -> Request:
    owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions
    rows = [owned(topic_id=one.topic_id, partitions=one.partitions) for one in joined.assignment.topic_partitions]
    member_id, epoch = joined.member_id, joined.member_epoch
    return m.ConsumerGroupHeartbeatRequest(
        group_id=member_id[0], member_id=member_id, member_epoch=epoch, topic_partitions=rows
    )


def _synced(joined: Any) -> Request:
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=b"\0" * _CLASSIC_METADATA
    )
    return m.SyncGroupRequest(
        group_id="c", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )


def _creating_group(group: str) -> Request:
    return m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[])


def _of_share_groups(names: list[str], indexes: range, ids: dict[str, Any]) -> Iterator[Named]:
    def beating(member: str, epoch: int = 0) -> Request:
        wanted = names if epoch == 0 else None
        return m.ShareGroupHeartbeatRequest(
            group_id="s", member_id=member, member_epoch=epoch, subscribed_topic_names=wanted
        )

    def fetched(epoch: int) -> Request:
        rows = [m.ShareFetchRequest.FetchPartition(partition_index=index) for index in indexes]
        topics = [m.ShareFetchRequest.FetchTopic(topic_id=ids[name], partitions=rows) for name in names]
        return m.ShareFetchRequest(
            group_id="s",
            member_id=str(UUID(int=1)),
            share_session_epoch=epoch,
            max_bytes=1_000_000,
            max_records=500,
            batch_size=500,
            topics=topics if epoch == 0 else [],
        )

    def altered(_: Any) -> Request:
        row = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
        rows = [row(partition_index=index, start_offset=0) for index in indexes]
        topic = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        return m.AlterShareGroupOffsetsRequest(
            group_id="t", topics=[topic(topic_name=name, partitions=rows) for name in names]
        )

    def described(_: Any) -> Request:
        group = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        return m.DescribeShareGroupOffsetsRequest(groups=[group(group_id="t", topics=None)])

    def deleted(_: Any) -> Request:
        topic = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        return m.DeleteShareGroupOffsetsRequest(group_id="t", topics=[topic(topic_name=name) for name in names])

    members = [str(UUID(int=number)) for number in range(1, 4)]
    for number, member in enumerate(members, 1):
        yield f"ShareGroupHeartbeat, member {number}", _made(beating, member)
    yield "ShareGroupDescribe", lambda _: m.ShareGroupDescribeRequest(group_ids=["s"])
    yield "ShareFetch", lambda _: fetched(0)
    yield "ShareFetch again", lambda _: fetched(1)
    yield "ShareGroupHeartbeat, one that leaves", _made(beating, members[2], -1)
    yield "ShareGroupHeartbeat, after that", _made(beating, members[0])
    yield "AlterShareGroupOffsets", altered
    yield "DescribeShareGroupOffsets of all", described
    yield "DeleteShareGroupOffsets", deleted
    for member in members[:2]:
        yield "(leaves)", _made(beating, member, -1)
    yield "DeleteGroups of a share group", lambda _: m.DeleteGroupsRequest(groups_names=["s"])


def _of_entities() -> Iterator[Named]:
    creation = m.CreateAclsRequest.AclCreation
    acls = [
        creation(
            resource_type=2,
            resource_name=f"r{number}",
            resource_pattern_type=3,
            principal=f"User:u{number}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(_ENTITIES)
    ]
    yield "CreateAcls of 10,000", lambda _: m.CreateAclsRequest(creations=acls)
    yield (
        "DescribeAcls of 10,000",
        lambda _: m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
    )
    yield (
        "DeleteAcls by 10,000 filters that mean nothing",
        lambda _: m.DeleteAclsRequest(
            filters=[
                m.DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=f"none{number}",
                    pattern_type_filter=3,
                    operation=1,
                    permission_type=1,
                )
                for number in range(_ENTITIES)
            ]
        ),
    )
    yield (
        "DeleteAcls of 10,000",
        lambda _: m.DeleteAclsRequest(
            filters=[
                m.DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
                )
            ]
        ),
    )
    entry, entity, op = (
        m.AlterClientQuotasRequest.EntryData,
        m.AlterClientQuotasRequest.EntityData,
        m.AlterClientQuotasRequest.OpData,
    )
    ops = [op(key="producer_byte_rate", value=1e6, remove=False), op(key="consumer_byte_rate", value=1e6, remove=False)]
    entries = [
        entry(entity=[entity(entity_type="client-id", entity_name=f"c{number}")], ops=ops)
        for number in range(_ENTITIES)
    ]
    yield "AlterClientQuotas of 10,000", lambda _: m.AlterClientQuotasRequest(entries=entries)
    component = m.DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=2, match=None)
    yield "DescribeClientQuotas of 10,000", lambda _: m.DescribeClientQuotasRequest(components=[component])
