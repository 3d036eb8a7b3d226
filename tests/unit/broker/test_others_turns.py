"""What others do while a request that names very many things waits for its next turn."""

import pytest

from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.request.context import AT_ONCE
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.enforced_cluster import Cluster
from tests.unit.broker.handler_node import GROUP, Node
from tests.unit.broker.test_transaction_handlers import ID, Producer

MANY = 2_500


class Full:
    """A disk with room for so many more topics; what it cannot keep is undone, as storage does it."""

    def __init__(self, cluster, room):
        self.room, self.kept = room, set(cluster.topics)
        cluster.changes.clear()
        cluster.on_save = self.save

    def save(self, cluster, changes):
        names = {name for kind, name, *_ in changes if kind == "topic"}
        if len(names) > self.room:
            for name in names:
                cluster.delete_topic(name)
            cluster.changes.clear()
            raise OSError("No space left on device")
        self.room -= len(names)
        self.kept |= names


def create(names):
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def test_nobody_is_told_of_topics_that_another_request_could_not_keep():
    cluster = Cluster()
    disk = Full(cluster.state, 0)
    assert cluster.send(create([f"t{number}" for number in range(MANY)])) is None
    while cluster.outcome is None and len(cluster.state.topics) < MANY / 5:
        cluster.scheduler.pass_ms(0)
    long, cluster.outcome = cluster.outcome, None
    assert cluster.send(create(["other"])).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room = MANY
    cluster.outcome = long
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    answer = cluster._response(19, 7)
    told = {topic.name for topic in answer.topics if topic.error_code == ErrorCode.NONE}
    assert told <= disk.kept & set(cluster.state.topics)


def test_who_hangs_up_in_the_midst_of_a_long_request_has_all_of_it_done():
    cluster = Cluster()
    rows = [ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(b"v", timestamp_ms=0)]))] * MANY
    request = ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=rows)])
    log = cluster.state.topics["t"].partitions[0].log
    assert cluster.send(request, 11) is None
    while not log.end_offset:
        cluster.scheduler.pass_ms(0)
    assert log.end_offset < MANY
    assert cluster.drive.cancel(), "it goes on"
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    assert log.end_offset == MANY


def test_who_hangs_up_before_a_long_fetch_would_wait_is_waited_for_no_longer():
    cluster = Cluster()
    wanted = [FetchRequest.FetchPartition(partition=0)] * MANY
    fetch = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=wanted)]
    )
    assert cluster.send(fetch, 12) is None
    assert cluster.drive.cancel()
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    assert cluster.outcome.parts == []
    assert cluster.drive.is_finished


def test_nothing_is_acknowledged_for_a_topic_that_is_gone_meanwhile():
    cluster = Cluster()
    batch = build_batch([Record(b"v", timestamp_ms=0)])
    rows = [ProduceRequest.PartitionProduceData(index=0, records=batch)] * MANY
    request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=rows)])
    assert cluster.send(request, 11) is None
    while not cluster.state.topics["t"].partitions[0].log.end_offset:
        cluster.scheduler.pass_ms(0)
    cluster.state.delete_topic("t")
    cluster.state.create_topic("t", 1)
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    parts = cluster._response(0, 11).responses[0].partition_responses
    later = [part.base_offset for part in parts[AT_ONCE:] if not part.error_code]
    assert later == list(range(cluster.state.topics["t"].partitions[0].log.end_offset))
    assert len(later) == MANY - AT_ONCE


def test_a_member_that_a_group_has_lost_meanwhile_commits_no_more():
    node = Node()
    old = node.stable()
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part] * MANY)

    def commit(member, topic):
        return OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            topics=[topic],
        )

    answers = node.start(commit(old, topic), 8)
    assert not answers
    leaver = LeaveGroupRequest.MemberIdentity(member_id=old.member_id)
    assert not node.ask(LeaveGroupRequest(group_id=GROUP, members=[leaver]), 5).members[0].error_code
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    newer = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    assert not node.ask(commit(node.stable(), newer), 8).topics[0].partitions[0].error_code
    while not answers:
        node.scheduler.pass_ms(0)
    assert answers[0].topics[0].partitions[-1].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert node.services.get(GroupService).committed(GROUP, "t", 0).offset == 7


def test_offsets_of_a_transaction_that_is_over_meanwhile_wait_for_no_other():
    node = Node()
    producer = Producer(node)
    assert not producer.add_group()
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    request = TxnOffsetCommitRequest(
        transactional_id=ID, group_id="g", producer_id=producer.id, producer_epoch=producer.epoch, topics=[topic] * MANY
    )
    answers = node.start(request, 4)
    assert not answers
    fence = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    assert not node.ask(fence, 5).error_code
    while not answers:
        node.scheduler.pass_ms(0)
    assert answers[0].topics[-1].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not node.services.get(GroupService).offsets.has_pending("g", "t", 0)


def partitions(name, count, brokers=None):
    given = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index in range(count if brokers else 0)
    ]
    wanted = {"num_partitions": -1 if given else count, "replication_factor": -1 if given else 1}
    return CreateTopicsRequest.CreatableTopic(name=name, assignments=given, **wanted)


def grown(name, count, brokers=None, **known):
    more = None if brokers is None else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=brokers)] * MANY
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=more)
    return CreatePartitionsRequest(topics=[topic], **known)


@pytest.fixture
def sparing(monkeypatch):
    """A cluster and what it has made ahead."""
    cluster, made = Cluster(), []
    ahead = cluster.state.partition_ahead
    monkeypatch.setattr(cluster.state, "partition_ahead", lambda *given: made.append(given) or ahead(*given))
    return cluster, made


def answered(cluster, request):
    answer, schema = cluster.send(request), request.__schema__
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    return answer or cluster._response(schema.api_key, REGISTRY[schema.api_key].max_version)


def test_very_many_partitions_on_a_broker_that_is_none_are_refused_as_few_are(sparing):
    cluster, made = sparing
    request = CreateTopicsRequest(topics=[partitions("fine", 1), partitions("far", MANY, [99])])
    errors = [topic.error_code for topic in answered(cluster, request).topics]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    refused = answered(cluster, grown("t", MANY + 1, [99]))
    assert refused.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not made


def test_nothing_is_made_ahead_of_what_is_refused_or_only_validated(sparing):
    cluster, made = sparing
    request = CreateTopicsRequest(topics=[partitions("t", MANY)])
    assert answered(cluster, request).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not answered(cluster, grown("t", MANY, validate_only=True)).results[0].error_code
    cluster.quota(controller_mutation_rate=1)
    assert not answered(cluster, CreateTopicsRequest(topics=[partitions("few", 100)])).topics[0].error_code
    request = CreateTopicsRequest(topics=[partitions("many", MANY)])
    assert answered(cluster, request).topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answered(cluster, grown("t", MANY)).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert not made


def test_who_makes_very_many_partitions_second_hears_what_others_did_meanwhile():
    cluster = Cluster()
    assert cluster.send(CreateTopicsRequest(topics=[partitions("new", MANY)])) is None
    cluster.state.create_topic("new", 1)
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    assert cluster._response(19, 7).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    for meanwhile, error in ((5, ErrorCode.NONE), (MANY, ErrorCode.INVALID_PARTITIONS)):
        cluster.state.delete_topic("new")
        cluster.state.create_topic("new", 1)
        assert cluster.send(grown("new", MANY)) is None
        cluster.state.add_partitions(cluster.state.topics["new"], meanwhile)
        while cluster.outcome is None:
            cluster.scheduler.pass_ms(0)
        assert cluster._response(37, 3).results[0].error_code == error
        assert [part.index for part in cluster.state.topics["new"].partitions] == list(range(MANY))
    cluster.state.delete_topic("new")
    cluster.state.create_topic("new", 1)
    assert cluster.send(grown("new", MANY)) is None
    cluster.state.delete_topic("new")
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    assert cluster._response(37, 3).results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_of_very_many_partitions_goes_by_and_by_and_is_gone_at_once():
    cluster = Cluster()
    cluster.state.create_topic("many", MANY)
    logs = [partition.log for partition in cluster.state.topics["many"].partitions]
    batch = build_batch([Record(b"v", timestamp_ms=0)])
    for log in logs:
        log.append(batch, leader_epoch=0, now_ms=0)
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="many")])
    assert cluster.send(request) is None
    assert "many" not in cluster.state.topics
    held, turns = [sum(log.size_bytes > 0 for log in logs)], 0
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
        held.append(sum(log.size_bytes > 0 for log in logs))
        turns += 1
        assert turns < 20
    assert held[-1] == 0
    assert max(before - after for before, after in zip([MANY, *held], held, strict=False)) <= AT_ONCE
    assert not cluster._response(20, 6).responses[0].error_code
