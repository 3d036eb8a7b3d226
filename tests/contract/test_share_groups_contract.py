"""Share groups (KIP-932) request by request: the same on both brokers."""

import time
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from uuid import uuid4

import confluent_kafka
import pytest

from kclient_quota.certify.filling import fill
from kclient_quota.certify.scenes.preparing import configure_group
from kclient_quota.wire.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from tests.contract.group_talk import Talk, commit, fetch_offsets

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Fetch, Acknowledge = ShareFetchRequest, ShareAcknowledgeRequest
LEFT, FINAL = -1, -1


def new_id():
    """As Java's `Uuid.toString`."""
    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


def beat(talk, group, member, epoch=0, topics=None):
    return talk.until(
        lambda: ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        ),
        lambda answer: answer.error_code,
        1,
    )


class Member:
    """Reads one partition of one topic, doing what it is told."""

    def __init__(self, cluster, stack, group, topic, topic_id, client_id="contract"):
        self.talk = Talk(cluster, stack, client_id=client_id)
        self.group, self.topic, self.topic_id, self.id = group, topic, topic_id, new_id()
        self.member_epoch, self.epoch, self.told = 0, 0, []
        self.talk.ready(group)

    def beat(self):
        answer = beat(
            self.talk, self.group, self.id, self.member_epoch, [self.topic] if not self.member_epoch else None
        )
        assert answer.error_code == 0, answer
        self.member_epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
        return answer

    def join(self):
        until(lambda: self.beat() and self.told)

    def leave(self):
        assert beat(self.talk, self.group, self.id, LEFT).error_code == 0

    def ask(self, request, version=2):
        return self.talk.ask(request, version)

    def fetch(self, *said, epoch=None, wait_ms=0, max_records=500, max_bytes=1_000_000):
        """(error, error of the acknowledgement, acquired) of one fetch."""
        batches = [Fetch.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=[k]) for a, b, k in said]
        part = Fetch.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        session = self.epoch if epoch is None else epoch
        answer = self.ask(
            Fetch(
                group_id=self.group, member_id=self.id, share_session_epoch=session, max_wait_ms=wait_ms, min_bytes=1,
                max_bytes=max_bytes, max_records=max_records, batch_size=500,
                topics=[Fetch.FetchTopic(topic_id=self.topic_id, partitions=[part])],
            )
        )  # fmt: skip
        if answer.error_code:
            return answer.error_code, 0, []
        if session != FINAL:
            self.epoch = session + 1
        rows = [row for topic in answer.responses for row in topic.partitions]
        acquired = [(a.first_offset, a.last_offset, a.delivery_count) for row in rows for a in row.acquired_records]
        self.throttle_ms = answer.throttle_time_ms
        return (
            max((r.error_code for r in rows), default=0),
            max((r.acknowledge_error_code for r in rows), default=0),
            acquired,
        )

    def fetch_some(self, *said, **more):
        """A fetch that brings something; Apache Kafka takes a moment before it does at first."""
        found = []

        def brings():
            found[:] = self.fetch(*said, **more)[2]
            return found

        until(brings)
        return found

    def acknowledge(self, *said, epoch=None, is_renew=False):
        """(error, error of the partition)."""
        batches = [
            Acknowledge.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=kinds)
            for a, b, *kinds in said
        ]
        part = Acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        session = self.epoch if epoch is None else epoch
        answer = self.ask(
            Acknowledge(
                group_id=self.group, member_id=self.id, share_session_epoch=session, is_renew_ack=is_renew,
                topics=[Acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[part])],
            )
        )  # fmt: skip
        if answer.error_code:
            return answer.error_code, 0
        if session != FINAL:
            self.epoch = session + 1
        return 0, answer.responses[0].partitions[0].error_code


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def made(cluster, unique):
    """Members of one group on a topic of 100 records in batches of ten, and how to make them."""
    group, topic = unique("share"), unique("shared")
    with ExitStack() as stack:
        talk = Talk(cluster, stack)
        topic_id = talk.create(topic)
        fill(cluster.bootstrap_servers, topic, 100, 1_000, 10)
        configure_group(cluster.bootstrap_servers, group, {"share.auto.offset.reset": "earliest"})

        def member(**settings):
            one = Member(cluster, stack, group, topic, topic_id, **settings)
            one.join()
            return one

        yield member


def configure(member, values):
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=str(value))
        for name, value in values.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32, resource_name=member.group, configs=configs
    )
    (answer,) = member.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return answer.error_code, answer.error_message


def offsets(member, *, named=True):
    """(error, {partition: (start, lag)}) of the group."""
    topics = None
    if named:
        topics = [
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(
                topic_name=member.topic, partitions=[0]
            )
        ]
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=member.group, topics=topics)
    (group,) = member.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), 1).groups
    return group.error_code, {
        part.partition_index: (part.start_offset, part.lag) for topic in group.topics for part in topic.partitions
    }


def test_members_share_a_partition_and_are_fenced(talk, unique):
    group, topic = unique("share"), unique("shared")
    topic_id = talk.create(topic)
    talk.ready(group)
    first, second = new_id(), new_id()
    assert beat(talk, group, first, 3).error_code == 69
    assert beat(talk, group, "", 0, [topic]).error_code == 42
    assert beat(talk, group, first).error_code == 42
    joined = beat(talk, group, first, 0, [topic])
    assert (joined.error_code, joined.heartbeat_interval_ms, joined.member_id) == (0, 5_000, first)
    epochs, told = {}, {}

    def settle():
        for member in (first, second):
            answer = beat(talk, group, member, epochs.get(member, 0), None if member in epochs else [topic])
            assert answer.error_code == 0, answer
            epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                told[member] = [(part.topic_id, list(part.partitions)) for part in answer.assignment.topic_partitions]
        return epochs[first] == epochs[second] and told.get(first) == told.get(second) == [(topic_id, [0])]

    until(settle)
    assert beat(talk, group, first, epochs[first] + 5).error_code == 110
    assert beat(talk, group, new_id(), epochs[first]).error_code == 25
    (group_seen,) = talk.ask(ShareGroupDescribeRequest(group_ids=[group])).groups
    assert (group_seen.error_code, group_seen.group_state, group_seen.assignor_name) == (0, "Stable", "simple")
    assert {m.member_id for m in group_seen.members} == {first, second}
    assert [t.topic_name for m in group_seen.members for t in m.assignment.topic_partitions] == [topic, topic]
    listed = {one.group_id: one for one in talk.ask(ListGroupsRequest(types_filter=["share"])).groups}
    assert (listed[group].protocol_type, listed[group].group_type, listed[group].group_state) == (
        "share",
        "share",
        "Stable",
    )
    assert talk.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == 68
    left = beat(talk, group, first, LEFT)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert beat(talk, group, first, LEFT).error_code == 25
    beat(talk, group, second, LEFT)
    assert talk.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == 0
    (gone,) = talk.ask(ShareGroupDescribeRequest(group_ids=[group])).groups
    assert gone.error_code == 69


def test_what_is_given_back_is_delivered_again(made):
    one, other = made(), made()
    assert offsets(one) == (0, {0: (-1, -1)})
    assert one.fetch_some(max_records=20) == [(0, 19, 1)]
    assert other.fetch_some(max_records=5) == [(20, 29, 1)]
    # a batch is acquired whole; what is released comes first, with its count
    assert one.acknowledge((0, 9, ACCEPT), (10, 14, RELEASE), (15, 19, REJECT)) == (0, 0)
    assert offsets(one) == (0, {0: (0, 85)})
    assert other.fetch(max_records=5) == (0, 0, [(10, 14, 2)])
    # by one who has it not, of what was never given
    assert one.acknowledge((20, 29, ACCEPT)) == (0, 121)
    assert one.acknowledge((90, 99, ACCEPT)) == (0, 42)
    assert other.acknowledge((10, 14, ACCEPT), (20, 29, ACCEPT)) == (0, 0)
    # what is told is as of before the last settlement
    assert offsets(one) == (0, {0: (10, 70)})
    # of what is settled nobody hears any more
    assert other.acknowledge((10, 14, ACCEPT)) == (0, 0)
    # together with a fetch
    assert one.fetch(max_records=10)[2] == [(30, 39, 1)]
    assert one.fetch((30, 34, ACCEPT), max_records=1) == (0, 0, [(40, 49, 1)])
    assert offsets(one) == (0, {0: (30, 65)})


def test_a_type_for_each_record_gaps_and_renewal(made):
    one = made()
    assert one.fetch_some(max_records=10) == [(0, 9, 1)]
    kinds = [ACCEPT, RELEASE, REJECT, GAP, ACCEPT, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT]
    assert one.acknowledge((0, 9, *kinds)) == (0, 0)
    assert offsets(one) == (0, {0: (0, 92)})
    assert one.fetch(max_records=10)[2] == [(1, 1, 2), (6, 6, 2), (10, 19, 1)]
    assert one.acknowledge((1, 6, ACCEPT)) == (0, 121)
    for wrong in ((5, 1, ACCEPT), (1, 1, 9), (1, 6, ACCEPT, ACCEPT), (1, 1, RENEW)):
        assert one.acknowledge(wrong) == (0, 42)
    assert one.acknowledge((10, 19, RENEW), is_renew=True) == (0, 0)
    assert one.acknowledge((90, 99, RENEW), is_renew=True) == (0, 42)
    assert one.acknowledge((10, 19, ACCEPT)) == (0, 0)


def test_sessions_go_epoch_by_epoch_and_end_with_what_they_hold(made):
    one, other = made(), made()
    assert one.fetch(epoch=7)[0] == 122
    assert one.acknowledge((0, 0, ACCEPT), epoch=0)[0] == 123
    assert one.fetch((0, 0, ACCEPT), epoch=0)[0] == 42
    assert one.fetch_some(max_records=10) == [(0, 9, 1)]
    assert one.fetch(epoch=one.epoch + 3)[0] == 123
    assert one.acknowledge((0, 4, ACCEPT), epoch=one.epoch + 3)[0] == 123
    assert one.fetch((0, 4, ACCEPT), epoch=FINAL) == (0, 0, [])
    until(lambda: other.fetch(max_records=1)[2] == [(5, 9, 2)])
    assert one.fetch(epoch=FINAL)[0] == 122
    other.talk.connection.close()
    one.epoch = 0
    until(lambda: one.fetch(max_records=1)[2] == [(5, 9, 3)])


def test_who_was_delivered_too_often_is_archived(made):
    one = made()
    assert configure(one, {"share.delivery.count.limit": 2})[0] == 0
    for count in (1, 2):
        assert one.fetch_some(max_records=10) == [(0, 9, count)]
        assert one.acknowledge((0, 9, RELEASE)) == (0, 0)
    assert offsets(one) == (0, {0: (0, 90)})
    assert one.fetch(max_records=10)[2] == [(10, 19, 1)]
    # the end of a session counts as well
    one.fetch(epoch=FINAL)
    one.epoch = 0
    until(lambda: one.fetch(max_records=10)[2] == [(10, 19, 2)])
    one.fetch(epoch=FINAL)
    until(lambda: offsets(one) == (0, {0: (10, 80)}))


def test_the_more_often_the_fewer_together(made):
    one = made()
    assert one.fetch_some(max_records=20) == [(0, 19, 1)]
    last = 19
    for acquired in ((0, 19, 2), (0, 19, 3), (0, 9, 4), (0, 0, 5)):
        assert one.acknowledge((0, last, RELEASE)) == (0, 0)
        assert one.fetch(max_records=20)[2] == [acquired]
        last = acquired[1]


def test_configurations_have_bounds(made):
    one = made()
    wrong = {
        "share.delivery.count.limit": 50,
        "share.record.lock.duration.ms": 1_000,
        "share.partition.max.record.locks": 10,
        "share.auto.offset.reset": "yesterday",
        "share.isolation.level": "serializable",
        "share.session.timeout.ms": 1,
        "share.heartbeat.interval.ms": 1,
    }
    for name, value in wrong.items():
        assert configure(one, {name: value})[0] == 40, name


def test_offsets_are_altered_and_forgotten_while_nobody_is_there(made, unique):
    one = made()
    assert one.fetch_some(max_records=10) == [(0, 9, 1)]
    one.acknowledge((0, 9, ACCEPT))
    altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
        topic_name=one.topic,
        partitions=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=50)
        ],
    )
    alter = AlterShareGroupOffsetsRequest(group_id=one.group, topics=[altered])
    forget = DeleteShareGroupOffsetsRequest(
        group_id=one.group,
        topics=[
            DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
            for name in (one.topic, "nowhere")
        ],
    )
    assert one.ask(alter, 0).error_code == 68
    assert one.ask(forget, 0).error_code == 68
    one.fetch(epoch=FINAL)
    one.leave()
    (row,) = one.ask(alter, 0).responses[0].partitions
    assert (row.partition_index, row.error_code) == (0, 0)
    assert offsets(one) == offsets(one, named=False) == (0, {0: (50, 50)})
    assert [row.error_code for row in one.ask(forget, 0).responses] == [0, 3]
    assert [row.error_code for row in one.ask(forget, 0).responses] == [3, 3]
    assert offsets(one) == (0, {0: (-1, -1)})
    one.group = unique("share")
    one.talk.ready(one.group)
    assert one.ask(forget, 0).error_code in {0, 69}
    assert one.ask(AlterShareGroupOffsetsRequest(group_id=one.group, topics=[altered]), 0).error_code == 0
    assert offsets(one) == (0, {0: (50, 50)})


def test_a_group_of_another_protocol_keeps_its_name_though_it_is_empty(talk, unique):
    group, topic = unique("share"), unique("t")
    talk.create(topic)
    talk.ready(group)
    assert commit(talk, group, topic, 7) == 0
    for asked in ({}, {"epoch": -1}, {"epoch": 3}):
        answer = beat(talk, group, new_id(), topics=None if asked else [topic], **asked)
        assert answer.error_code == 69
        assert answer.error_message == f"Group {group} is not a share group."
    assert beat(talk, group, "").error_code == 42, "a request that is none is refused as that"
    assert fetch_offsets(talk, group, topic) == (0, [(0, 7, "note", 0)])


def test_what_a_quota_empties_stays_acquired(cluster, made, unique):
    slow = unique("slow")
    cluster.set_quota(client_id=slow, consumer_byte_rate=1_500)
    one, other = made(client_id=slow), made()
    assert one.fetch_some(max_records=10, max_bytes=12_000) == [(0, 9, 1)]
    assert one.fetch((0, 9, ACCEPT), max_records=10, max_bytes=12_000) == (0, 0, [])
    assert one.throttle_ms > 0
    # nobody has 10 to 19
    assert other.fetch(max_records=10)[2] == [(20, 29, 1)]
    assert offsets(other) == (0, {0: (0, 90)})


@pytest.mark.timeout(120)
def test_confluent_kafka_acknowledges_one_by_one(cluster, made):
    one = made()
    one.leave()
    conf = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": one.group,
        "share.acknowledgement.mode": "explicit",
        "enable.metrics.push": False,
    }
    consumer = confluent_kafka.ShareConsumer(conf)
    kinds = confluent_kafka.AcknowledgeType
    counts = {}
    try:
        consumer.subscribe([one.topic])

        def done():
            for message in consumer.poll(0.5):
                assert message.error() is None
                counts.setdefault(message.offset(), []).append(message.delivery_count())
                is_first = message.offset() == 7 and message.delivery_count() == 1
                consumer.acknowledge(message, kinds.RELEASE if is_first else kinds.ACCEPT)
            consumer.commit_sync()
            return len(counts) == 100 and len(counts[7]) == 2

        until(done)
    finally:
        consumer.close()
    assert counts == {offset: [1, 2] if offset == 7 else [1] for offset in range(100)}
    until(lambda: offsets(one)[1][0][1] == 0)


def test_what_was_aborted_is_not_delivered_to_a_group_that_reads_what_is_committed(cluster, unique):
    group, topic = unique("share"), unique("shared")
    with ExitStack() as stack:
        talk = Talk(cluster, stack)
        topic_id = talk.create(topic)
        conf = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
        configure_group(cluster.bootstrap_servers, group, conf)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("tx"), "linger.ms": 100}
        )
        producer.init_transactions(60)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for _ in range(5):
                producer.produce(topic, b"v", partition=0)
            producer.flush(60)
            end(60)
        member = Member(cluster, stack, group, topic, topic_id)
        member.join()
        taken = []
        # the last marker may be a moment behind the answer to the producer
        until(lambda: taken.extend(member.fetch()[2]) or (taken and taken[-1][1] >= 16))
        delivered = {offset for first, last, _ in taken for offset in range(first, last + 1)}
        assert delivered >= {*range(5), *range(12, 17)}
        assert not delivered & set(range(6, 11)), "what was aborted"
        assert member.acknowledge(*((first, last, ACCEPT) for first, last, _ in taken)) == (0, 0)


@pytest.mark.timeout(120)
def test_fetches_of_one_batch_take_the_partitions_in_turns(cluster, unique):
    group, topic = unique("share"), unique("shared")
    cluster.create_topic(topic, 3)
    fill(cluster.bootstrap_servers, topic, 450, 1_000, 15)
    configure_group(cluster.bootstrap_servers, group, {"share.auto.offset.reset": "earliest"})
    small = {"fetch.max.bytes": 1_000, "message.max.bytes": 1_000}
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.metrics.push": False}
    consumer = confluent_kafka.ShareConsumer({**conf, **small})
    came = []
    try:
        consumer.subscribe([topic])

        def done():
            for message in consumer.poll(0.5):
                assert message.error() is None
                came.append((message.partition(), message.offset()))
            return len(came) == 450

        until(done)
    finally:
        consumer.close()
    assert len(set(came)) == 450
    assert {partition for partition, _ in came[:225]} == {0, 1, 2}
