"""Groups, offsets and transactions request by request: the same error codes and values on both brokers."""

import threading
import time
import uuid
from contextlib import ExitStack

import pytest

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from kclient_quota.wire.records import Record, build_batch

RETRIABLE = {6, 14, 15, 16, 51}
"""Not the leader; loading, not available, not the coordinator, concurrent transactions: what a client waits out."""


class Talk:
    """Speaks single requests to one broker, waiting out what a client would."""

    def __init__(self, cluster, stack):
        host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
        self._settings = ConnectionSettings(host, int(port))
        self._stack = stack
        self.connection = self.open()

    def open(self):
        return self._stack.enter_context(Connection(self._settings, SYSTEM_CLOCK))

    def ask(self, request, version=None, *, connection=None):
        return (connection or self.connection).send(request, version=version, timeout_ms=20_000)

    def until(self, make, error_of, version=None):
        """Repeat while the error is one that a client waits out."""
        deadline = time.monotonic() + 20
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
        deadline = time.monotonic() + 20
        while True:
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            (found,) = self.ask(asked, 12).topics
            if found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions):
                return found.topic_id
            assert time.monotonic() < deadline


@pytest.fixture
def talk(cluster):
    with ExitStack() as stack:
        yield Talk(cluster, stack)


# -- classic groups


def join_request(group, member_id="", *, instance=None, protocols=(("range", b"m"),), **changes):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=changes.pop("session_timeout_ms", 10_000),
        rebalance_timeout_ms=20_000,
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


def test_a_member_from_join_to_leave(talk, unique):
    group = unique("g")
    talk.ready(group)
    first = join(talk, group)
    assert (first.error_code, first.generation_id, first.leader, first.members) == (79, -1, "", [])
    joined = join(talk, group, first.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name) == (
        0,
        1,
        "consumer",
        "range",
    )
    assert (joined.leader, joined.skip_assignment) == (joined.member_id, False)
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, b"m")]
    assert heartbeat(talk, group, joined.member_id, 1) == 0
    synced = sync(talk, group, joined, {joined.member_id: b"all"})
    assert (synced.error_code, synced.protocol_name, synced.assignment) == (0, "range", b"all")
    assert heartbeat(talk, group, joined.member_id, 1) == 0
    assert heartbeat(talk, group, joined.member_id, 2) == 22
    assert heartbeat(talk, group, joined.member_id, 0) == 22
    assert heartbeat(talk, group, "who", 1) == 25
    assert heartbeat(talk, unique("other"), "who", 1) == 25
    assert leave(talk, group, ("who", None), (joined.member_id, None)) == (0, [25, 0])
    assert heartbeat(talk, group, joined.member_id, 1) == 25


def test_joins_that_are_refused(talk, unique):
    group = unique("g")
    stable(talk, group)
    assert join(talk, group, protocols=(("sticky", b""),)).error_code == 23
    assert join(talk, group, protocols=()).error_code == 23
    assert join(talk, group, protocol_type="connect").error_code == 23
    assert join(talk, group, session_timeout_ms=1).error_code == 26
    assert join(talk, group, session_timeout_ms=1_800_001).error_code == 26
    assert join(talk, group, "who").error_code == 25
    assert join(talk, group, "who", instance="i").error_code == 25
    assert join(talk, unique("other"), "who").error_code == 25
    assert join(talk, "").error_code == 24
    assert join(talk, unique("empty"), protocols=()).error_code == 23


def test_syncs_that_are_refused(talk, unique):
    group = unique("g")
    joined = stable(talk, group)
    assert sync(talk, group, joined, generation=7).error_code == 22
    assert sync(talk, group, joined, protocol_type="connect").error_code == 23
    assert sync(talk, group, joined, protocol_name="sticky").error_code == 23
    assert sync(talk, group, joined).assignment == b"all"
    joined.member_id = "who"
    assert sync(talk, group, joined).error_code == 25
    assert sync(talk, unique("other"), joined).error_code == 25


def test_a_second_member_and_the_leaders_rejoin(talk, unique):
    group = unique("g")
    leader = stable(talk, group)
    second_id = join(talk, group).member_id
    answers, other = [], talk.open()
    waiting = threading.Thread(
        target=lambda: answers.append(talk.ask(join_request(group, second_id), 9, connection=other))
    )
    waiting.start()
    deadline = time.monotonic() + 10
    while heartbeat(talk, group, leader.member_id, 1) != 27:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sync(talk, group, leader).error_code == 27
    again = join(talk, group, leader.member_id)
    waiting.join(10)
    assert (again.generation_id, again.leader) == (2, leader.member_id)
    assert {m.member_id for m in again.members} == {leader.member_id, second_id}
    assert (answers[0].generation_id, answers[0].leader, answers[0].members) == (2, leader.member_id, [])
    assert join(talk, group, second_id).generation_id == 2, "a follower that asks again is told again"
    assert leave(talk, group, (leader.member_id, None), (second_id, None)) == (0, [0, 0])


def test_a_static_member_returns(talk, unique):
    group = unique("g")
    first = stable(talk, group, instance="i")
    again = join(talk, group, instance="i")
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.leader == again.member_id != first.member_id
    assert sync(talk, group, again, instance="i").assignment == b"all"
    assert heartbeat(talk, group, first.member_id, 1, "i") == 82
    assert heartbeat(talk, group, first.member_id, 1) == 25
    assert sync(talk, group, first, instance="i").error_code == 82
    assert join(talk, group, first.member_id, instance="i").error_code == 82
    older = join(talk, group, version=8, instance="i")
    assert (older.error_code, older.leader) == (0, again.member_id)
    assert leave(talk, group, ("", "nobody"), (again.member_id, "i"), ("", "i")) == (0, [25, 82, 0])


def test_describing_listing_and_deleting(talk, unique):
    group = unique("g")
    joined = stable(talk, group)

    def describe(name, version):
        (found,) = talk.ask(DescribeGroupsRequest(groups=[name]), version).groups
        return found

    found = describe(group, 5)
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.member_metadata, member.member_assignment) == (joined.member_id, b"m", b"all")
    unknown = unique("nope")
    assert (describe(unknown, 5).group_state, describe(unknown, 5).error_code) == ("Dead", 0)
    assert (describe(unknown, 6).group_state, describe(unknown, 6).error_code) == ("Dead", 69)

    def listed(**filters):
        found = talk.ask(ListGroupsRequest(**filters), 5).groups
        return [(g.protocol_type, g.group_state, g.group_type.lower()) for g in found if g.group_id == group]

    assert listed() == listed(states_filter=["stable"]) == listed(types_filter=["classic"])
    assert listed() == [("consumer", "Stable", "classic")]
    assert listed(states_filter=["Empty"]) == listed(types_filter=["consumer"]) == []

    def delete(*names):
        results = talk.ask(DeleteGroupsRequest(groups_names=list(names)), 2).results
        return {r.group_id: r.error_code for r in results}

    assert delete(group, unknown) == {group: 68, unknown: 69}
    leave(talk, group, (joined.member_id, None))
    assert delete(group) == {group: 0}
    assert delete(group) == {group: 69}


# -- offsets


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


def test_offsets_of_a_group_without_members(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic)
    talk.ready(group)
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    assert fetch_offsets(talk, group) == (0, [])
    assert commit(talk, group, topic, member_id="m", generation=3, version=8) == 22
    assert commit(talk, group, topic, member_id="m", generation=3, version=9) == 69
    assert commit(talk, group, topic) == 0
    assert commit(talk, group, topic, partition=7) == 3
    assert commit(talk, group, unique("nope")) == 3
    assert commit(talk, group, uuid.uuid4(), version=10) == 100
    assert commit(talk, group, topic, metadata="x" * 4097) == 12
    assert fetch_offsets(talk, group, topic) == fetch_offsets(talk, group) == (0, [(0, 5, "note", 0)])
    assert commit(talk, group, topic_id, 6, version=10) == 0
    assert fetch_offsets(talk, group, topic_id, version=10) == (0, [(0, 6, "note", 0)])
    assert fetch_offsets(talk, group, uuid.uuid4(), version=10)[1][0][3] == 100
    assert commit(talk, group, topic, member_id="m", generation=3) == 25


def test_who_may_commit_to_a_group_with_members(talk, unique):
    group, topic = unique("g"), unique("t")
    talk.create(topic)
    member = stable(talk, group).member_id
    assert commit(talk, group, topic, member_id=member, generation=1) == 0
    assert commit(talk, group, topic, member_id=member, generation=2) == 22
    assert commit(talk, group, topic, member_id="who", generation=1) == 25
    assert commit(talk, group, topic) == 25


def test_deleting_offsets(talk, unique):
    group, topic = unique("g"), unique("t")
    talk.create(topic)
    talk.ready(group)
    commit(talk, group, topic)

    def delete(name):
        parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i) for i in (0, 9)]
        topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        answer = talk.ask(OffsetDeleteRequest(group_id=name, topics=topics), 0)
        return answer.error_code, sorted((p.partition_index, p.error_code) for t in answer.topics for p in t.partitions)

    assert delete(unique("nope"))[0] == 69
    assert delete(group) == (0, [(0, 0), (9, 3)])
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    other = unique("connect")
    talk.ready(other)
    first = join(talk, other, protocol_type="connect")
    join(talk, other, first.member_id, protocol_type="connect")
    assert delete(other)[0] == 68


# -- transactions


class Producer:
    """A transactional producer made of single requests."""

    def __init__(self, talk, transactional_id, **initialize):
        self.talk, self.transactional_id = talk, transactional_id
        talk.ready(transactional_id, 1)
        answer = talk.until(
            lambda: InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000, **initialize
            ),
            lambda answer: answer.error_code,
            4,
        )
        self.error, self.id, self.epoch = answer.error_code, answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def add(self, topic, *partitions):
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        answer = self.talk.until(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            3,
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [p.partition_error_code for p in sorted(results, key=lambda p: p.partition_index)]

    def write(self, topic, partition=0, version=11):
        batch = build_batch(
            [Record(key=None, value=b"v", timestamp_ms=1_000)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=5000, topic_data=[named])
        answer = self.talk.until(
            lambda: request, lambda answer: answer.responses[0].partition_responses[0].error_code, version
        )
        error = answer.responses[0].partition_responses[0].error_code
        self.sequence += error == 0
        return error

    def end(self, *, commit):
        return self.talk.until(
            lambda: EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            lambda answer: answer.error_code,
            3,
        ).error_code

    def add_group(self, group):
        return self.talk.until(
            lambda: AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, group_id=group
            ),
            lambda answer: answer.error_code,
            3,
        ).error_code

    def commit_offset(self, group, topic, offset=5, *, version=3, **member):
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])
        return (
            self.talk.until(
                lambda: TxnOffsetCommitRequest(
                    transactional_id=self.transactional_id,
                    group_id=group,
                    producer_id=self.id,
                    producer_epoch=self.epoch,
                    topics=[named],
                    **member,
                ),
                lambda answer: answer.topics[0].partitions[0].error_code,
                version,
            )
            .topics[0]
            .partitions[0]
            .error_code
        )


def read_log(talk, topic, *, committed):
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    data = talk.ask(request, 11).responses[0].partitions[0]
    aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or []]
    return data.high_watermark, data.last_stable_offset, len(bytes(data.records or b"")), aborted


def end_of_log(talk, topic, *, committed):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[named])
    return talk.ask(request, 5).topics[0].partitions[0].offset


def eventually(function, expected):
    """Markers are written in Apache Kafka after EndTxn has been answered."""
    deadline = time.monotonic() + 10
    while (found := function()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_transaction_in_the_log(talk, unique):
    topic = unique("t")
    talk.create(topic)
    producer = Producer(talk, unique("x"))
    assert (producer.error, producer.epoch) == (0, 0)
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic) == 0
    size = read_log(talk, topic, committed=False)[2]
    assert read_log(talk, topic, committed=True) == (1, 0, 0, [])
    assert (end_of_log(talk, topic, committed=True), end_of_log(talk, topic, committed=False)) == (0, 1)
    assert producer.end(commit=False) == 0
    eventually(lambda: read_log(talk, topic, committed=True)[1], 2)
    high, stable_offset, bytes_there, aborted = read_log(talk, topic, committed=True)
    assert (high, stable_offset, aborted) == (2, 2, [(producer.id, 0)])
    assert bytes_there >= size
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic) == 0
    assert producer.end(commit=True) == 0
    eventually(lambda: end_of_log(talk, topic, committed=True), 4)
    assert producer.end(commit=True) == 0
    assert producer.end(commit=False) == 48


def test_transactional_requests_that_are_refused(talk, unique):
    topic = unique("t")
    talk.create(topic)
    producer = Producer(talk, unique("x"))
    assert producer.end(commit=True) == 48
    assert producer.add(topic, 0, 9) == [55, 3]
    assert producer.add(topic, 0) == [0]
    right, producer.epoch = producer.epoch, 7
    assert (producer.add(topic, 0), producer.end(commit=True), producer.add_group("g")) == ([90], 90, 90)
    producer.epoch = right
    right, producer.id = producer.id, producer.id + 1000
    assert (producer.add(topic, 0), producer.end(commit=True), producer.add_group("g")) == ([49], 49, 49)
    producer.id = right
    assert producer.end(commit=True) == 0
    answer = talk.ask(InitProducerIdRequest(transactional_id=unique("y"), transaction_timeout_ms=2**31 - 1), 4)
    assert answer.error_code == 50
    answer = talk.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
    assert answer.error_code == 42


def test_a_new_producer_fences_the_former(talk, unique):
    topic, transactional_id = unique("t"), unique("x")
    talk.create(topic)
    former = Producer(talk, transactional_id)
    former.add(topic, 0)
    assert former.write(topic) == 0
    latter = Producer(talk, transactional_id)
    assert (latter.id, latter.epoch) == (former.id, 2), "one epoch for the fence, one for the new producer"
    eventually(lambda: read_log(talk, topic, committed=True)[3], [(former.id, 0)])
    assert former.end(commit=True) == 90
    assert former.write(topic) == 47
    again = Producer(talk, transactional_id, producer_id=latter.id, producer_epoch=latter.epoch)
    assert (again.error, again.epoch) == (0, 3)
    assert Producer(talk, transactional_id, producer_id=former.id, producer_epoch=former.epoch).error == 90


def test_writing_outside_the_transaction(talk, unique):
    topic, group = unique("t"), unique("g")
    talk.create(topic)
    talk.ready(group)
    producer = Producer(talk, unique("x"))
    assert producer.write(topic, version=10) == 48
    assert producer.write(topic, version=11) == 120
    assert producer.commit_offset(group, topic, version=3) == 48
    assert producer.commit_offset(group, topic, version=4) == 120
    assert read_log(talk, topic, committed=False)[0] == 0


def test_offsets_in_a_transaction(talk, unique):
    topic, group = unique("t"), unique("g")
    talk.create(topic)
    talk.ready(group)
    producer = Producer(talk, unique("x"))
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic) == 0
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    assert producer.end(commit=True) == 0
    eventually(lambda: fetch_offsets(talk, group, topic), (0, [(0, 5, "", 0)]))
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic, 9) == 0
    assert producer.end(commit=False) == 0
    assert fetch_offsets(talk, group, topic) == (0, [(0, 5, "", 0)])
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic, member_id="m", generation_id=3) == 25
    joined = stable(talk, group)
    assert producer.commit_offset(group, topic, 7, member_id=joined.member_id, generation_id=1) == 0
    assert producer.commit_offset(group, topic, 7, member_id=joined.member_id, generation_id=2) == 22
    assert producer.commit_offset(group, topic, 7) == 0, "a producer that names no member is let through"


# -- KIP-848


def beat(talk, group, member_id, epoch=0, **said):
    def request():
        made = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
        if epoch == 0:
            made.rebalance_timeout_ms, made.topic_partitions = 20_000, []
        for name, value in said.items():
            setattr(made, name, value)
        return made

    return talk.until(request, lambda answer: answer.error_code, 1)


class Reader:
    """A KIP-848 member that does what it is told."""

    def __init__(self, talk, group, topic, topic_id, member_id, **said):
        self.talk, self.group, self.topic_id = talk, group, topic_id
        self.said = said
        first = beat(talk, group, member_id, subscribed_topic_names=[topic], **said)
        assert first.error_code == 0, first
        self.member_id, self.epoch, self.told, self.owned = first.member_id, first.member_epoch, (), ()
        self._take(first)

    def _take(self, answer):
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = tuple(i for t in answer.assignment.topic_partitions for i in t.partitions)

    def beat(self):
        owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self.topic_id, partitions=list(self.owned))]
        answer = beat(self.talk, self.group, self.member_id, self.epoch, topic_partitions=owned, **self.said)
        assert answer.error_code == 0, answer
        self._take(answer)


def settle(condition, *readers, comply=True):
    """Heartbeats until the condition holds; Apache Kafka computes assignments a little later than it is asked."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, [(r.epoch, r.owned, r.told) for r in readers]
        for reader in readers:
            reader.beat()
            if comply:
                reader.owned = reader.told
        time.sleep(0.05)


def test_a_kip848_group_step_by_step(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(first.owned) == [0, 1], first)
    second = Reader(talk, group, topic, topic_id, "b" * 22)
    settle(lambda: len(first.told) == 1, first, second, comply=False)
    epoch = first.epoch
    first.beat()
    assert (first.epoch, second.told) == (epoch, ()), "who has not given up yet keeps its epoch, and its partition"
    settle(lambda: len(second.owned) == 1, first, second)
    assert first.epoch == second.epoch > epoch
    assert sorted(first.owned + second.owned) == [0, 1]
    (shown,) = talk.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Stable", first.epoch, first.epoch)
    assert shown.assignor_name == "uniform"
    assert beat(talk, group, first.member_id, -1).error_code == 0
    assert beat(talk, group, first.member_id, first.epoch).error_code == 25
    settle(lambda: sorted(second.owned) == [0, 1], second)
    assert beat(talk, group, second.member_id, -1).error_code == 0


def test_kip848_heartbeats_that_are_refused(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic)
    talk.ready(group)
    names = {"subscribed_topic_names": [topic]}
    assert beat(talk, unique("nope"), "m" * 22, 1).error_code == 69
    assert beat(talk, group, "m" * 22, rebalance_timeout_ms=-1, **names).error_code == 42
    assert beat(talk, group, "m" * 22, topic_partitions=None, **names).error_code == 42
    assert beat(talk, group, "m" * 22).error_code == 42
    assert beat(talk, group, "m" * 22, server_assignor="best", **names).error_code == 112
    assert beat(talk, group, "m" * 22, -3, **names).error_code == 42
    assert beat(talk, group, "m" * 22, subscribed_topic_regex="(", **names).error_code == 128
    reader = Reader(talk, group, topic, topic_id, "m" * 22)
    settle(lambda: reader.owned == (0,), reader)
    member, epoch = reader.member_id, reader.epoch
    assert beat(talk, group, member, 99).error_code == 110
    assert beat(talk, group, "x" * 22, 1).error_code == 25
    assert commit(talk, group, topic, member_id=member, generation=epoch) == 0
    assert commit(talk, group, topic, member_id=member, generation=epoch + 1) == 113
    assert commit(talk, group, topic, member_id="x" * 22, generation=epoch) == 25
    assert commit(talk, group, topic) == 25
    assert commit(talk, group, topic, member_id=member, generation=epoch, version=8) == 35
    assert fetch_offsets(talk, group, topic, member_id=member, member_epoch=epoch) == (0, [(0, 5, "note", 0)])
    assert fetch_offsets(talk, group, topic, member_id=member, member_epoch=epoch + 1)[0] == 113
    assert fetch_offsets(talk, group, topic, member_id="x" * 22, member_epoch=epoch)[0] == 25


def test_a_static_kip848_member(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22, instance_id="i")
    settle(lambda: sorted(first.owned) == [0, 1], first)
    names = {"subscribed_topic_names": [topic], "instance_id": "i"}
    assert beat(talk, group, "b" * 22, **names).error_code == 111
    away = beat(talk, group, first.member_id, -2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    again = Reader(talk, group, topic, topic_id, "b" * 22, instance_id="i")
    assert (again.epoch, sorted(again.told)) == (first.epoch, [0, 1]), "at once and without a new epoch"
    assert beat(talk, group, first.member_id, 1, instance_id="i").error_code == 82
    assert beat(talk, group, "c" * 22, 1, instance_id="j").error_code == 25


def test_a_fenced_kip848_member_comes_back_under_its_id(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(first.owned) == [0, 1], first)
    again = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(again.owned) == [0, 1], again)
