"""The handlers of transactions and of KIP-848 groups in every version they advertise, through the codec."""

import pytest

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.unit.broker.handler_node import TOPIC_ID, Node, versions

ID = "x"


class Producer:
    """A transactional producer that speaks to a `Node`."""

    def __init__(self, node):
        self.node = node
        answer = node.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 5)
        assert answer.error_code == 0
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def add(self, version=3, topic="t", partitions=(0,), *, verify=False):
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if version >= 4:
            one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, verify_only=verify, topics=topics
            )
            answer = self.node.ask(AddPartitionsToTxnRequest(transactions=[one]), version)
            (result,) = answer.results_by_transaction
            return [p.partition_error_code for t in result.topic_results for p in t.results_by_partition]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = self.node.ask(request, version)
        return [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]

    def write(self, value=b"v", partition=0):
        batch = build_batch(
            [Record(key=None, value=value, timestamp_ms=1_000)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=[topic])
        error = self.node.ask(request, 11).responses[0].partition_responses[0].error_code
        self.sequence += error == 0
        return error

    def end(self, version=4, *, commit=True):
        request = EndTxnRequest(transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=commit)
        return self.node.ask(request, version).error_code

    def add_group(self, version=4, group="g"):
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return self.node.ask(request, version).error_code

    def commit_offset(self, version=4, *, offset=5, partition=0, metadata=""):
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
        request = TxnOffsetCommitRequest(
            transactional_id=ID, group_id="g", producer_id=self.id, producer_epoch=self.epoch, topics=[topic]
        )
        return self.node.ask(request, version).topics[0].partitions[0].error_code


def fetch(node, *, committed=True, offset=0):
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])],
    )
    return node.ask(request, 11).responses[0].partitions[0]


def end_offset(node, *, committed, timestamp=-1):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
    request = ListOffsetsRequest(isolation_level=int(committed), topics=[topic])
    return node.ask(request, 5).topics[0].partitions[0].offset


def committed_offset(node):
    offset = node.services.get(GroupService).committed("g", "t", 0)
    return None if offset is None else offset.offset


@versions(InitProducerIdRequest)
def test_initialize(version):
    node = Node()
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    first, second = node.ask(request, version), node.ask(request, version)
    assert (first.producer_id, first.producer_epoch) == (second.producer_id, second.producer_epoch - 1)
    request.transaction_timeout_ms = 10**9
    assert node.ask(request, version).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if version >= 3:
        request.transaction_timeout_ms = 60_000
        request.producer_id, request.producer_epoch = first.producer_id, 0
        expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert node.ask(request, version).error_code == expected
        request.producer_epoch = -1
        assert node.ask(request, version).error_code == ErrorCode.INVALID_REQUEST


@versions(AddPartitionsToTxnRequest)
def test_add_partitions(version):
    node = Node()
    producer = Producer(node)
    assert producer.add(version, partitions=(0, 1)) == [0, 0]
    assert producer.add(version, partitions=(0, 9)) == [55, 3], "one unknown partition spoils the request"
    if version >= 4:
        assert producer.add(version, partitions=(0,), verify=True) == [0]
    producer.epoch += 1
    assert producer.add(version) == [90 if version >= 2 else 47]


@pytest.mark.parametrize("version", [4, 5])
def test_verifying_adds_nothing(version):
    producer = Producer(Node())
    assert producer.add(version, verify=True) == [120 if version >= 5 else 48]
    assert producer.write() == ErrorCode.TRANSACTION_ABORTABLE


def test_the_last_epoch_is_for_the_markers():
    node = Node()
    producer = Producer(node)
    producer.add()
    transaction = node.services.get(TransactionService).coordinator.transactions[ID]
    producer.epoch = transaction.producer_epoch = 32_766
    producer.write()
    request = EndTxnRequest(transactional_id=ID, producer_id=producer.id, producer_epoch=32_766, committed=True)
    for _ in range(2):
        answer = node.ask(request, 5)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id != producer.id
    assert end_offset(node, committed=True) == 2


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_end(version, commit):
    node = Node()
    producer = Producer(node)
    assert producer.end(version, commit=commit) == ErrorCode.INVALID_TXN_STATE
    producer.add()
    assert producer.write() == 0
    assert (end_offset(node, committed=True), end_offset(node, committed=False)) == (0, 1)
    assert producer.end(version, commit=commit) == 0
    assert producer.end(version, commit=commit) == 0
    assert end_offset(node, committed=True) == 2
    producer.epoch += 1
    assert producer.end(version) == (90 if version >= 2 else 47)


def test_what_read_committed_is_given():
    node = Node()
    producer = Producer(node)
    producer.add()
    producer.write(b"a")
    producer.end(commit=False)
    producer.add()
    producer.write(b"b")
    data = fetch(node)
    assert (data.high_watermark, data.last_stable_offset) == (3, 2)
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(producer.id, 0)]
    assert [r.value for r in iterate_records(data.records)] == [b"a"], "the client leaves it out, being told so"
    assert len(fetch(node, committed=False).records) > len(data.records)
    assert fetch(node, committed=False).aborted_transactions is None
    assert len(fetch(node, offset=2).records) == 0
    assert end_offset(node, committed=True, timestamp=1_000) == 0
    producer.end(commit=True)
    assert [r.value for r in iterate_records(fetch(node, offset=2).records)] == [b"b"]
    assert fetch(node, offset=2).aborted_transactions == []


def test_a_timestamp_in_an_open_transaction_is_not_found_yet():
    node = Node()
    producer = Producer(node)
    producer.add()
    producer.write()
    assert end_offset(node, committed=True, timestamp=500) == -1
    assert end_offset(node, committed=False, timestamp=500) == 0


def test_nothing_is_written_outside_the_transaction():
    node = Node()
    producer = Producer(node)
    assert producer.write() == ErrorCode.TRANSACTION_ABORTABLE
    producer.add(partitions=(1,))
    assert producer.write() == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.write(partition=1) == 0
    zombie = Producer(node)
    zombie.epoch = producer.epoch
    assert zombie.write(partition=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_producer_aborts_what_was_open():
    node = Node()
    producer = Producer(node)
    producer.add()
    producer.write()
    again = Producer(node)
    assert again.epoch == producer.epoch + 2
    assert len(fetch(node).aborted_transactions) == 1
    assert producer.end() == ErrorCode.PRODUCER_FENCED


def test_a_transaction_times_out_by_the_brokers_clock():
    node = Node()
    producer = Producer(node)
    producer.add()
    producer.write()
    node.scheduler.pass_ms(59_999)
    assert end_offset(node, committed=True) == 0
    node.scheduler.pass_ms(1)
    assert end_offset(node, committed=True) == 2
    assert producer.end() == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", range(5))
def test_offsets_in_a_transaction(version):
    node = Node()
    producer = Producer(node)
    outside = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert producer.commit_offset(version) == outside
    assert producer.add_group() == 0
    assert producer.commit_offset(version) == 0
    assert producer.commit_offset(version, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset(version, metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed_offset(node) is None
    assert producer.end() == 0
    assert committed_offset(node) == 5
    producer.add_group()
    producer.commit_offset(version, offset=9)
    assert producer.end(commit=False) == 0
    assert committed_offset(node) == 5
    producer.epoch -= 1
    assert producer.commit_offset(version) == ErrorCode.INVALID_PRODUCER_EPOCH


@versions(AddOffsetsToTxnRequest)
def test_add_offsets(version):
    producer = Producer(Node())
    assert producer.add_group(version) == 0
    producer.id += 1
    assert producer.add_group(version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_another_broker_is_not_the_coordinator_of_transactions():
    node = Node(brokers=3)
    service = node.services.get(GroupService)
    node.broker = node.cluster.brokers[service.coordinator_id(ID)]
    producer = Producer(node)
    node.broker = node.cluster.brokers[service.coordinator_id(ID) % 3 + 1]
    code = ErrorCode.NOT_COORDINATOR
    assert node.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1), 5).error_code == code
    assert producer.add() == [code]
    assert producer.add_group() == code
    assert producer.end() == code
    described = node.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
    assert described.transaction_states[0].error_code == code


@versions(ListTransactionsRequest)
def test_looking_on(version):
    node = Node()
    producer = Producer(node)
    producer.add(partitions=(0, 1))
    node.scheduler.pass_ms(5_000)
    described, unknown = node.ask(DescribeTransactionsRequest(transactional_ids=[ID, "nobody"]), 0).transaction_states
    assert (described.transaction_state, described.producer_id, described.transaction_timeout_ms) == (
        "Ongoing",
        producer.id,
        60_000,
    )
    assert [(t.topic, t.partitions) for t in described.topics] == [("t", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def listed(**filters):
        return [s.transactional_id for s in node.ask(ListTransactionsRequest(**filters), version).transaction_states]

    assert listed() == [ID]
    assert listed(state_filters=["Ongoing"]) == [ID]
    assert listed(state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[producer.id + 1]) == []
    if version >= 1:
        assert listed(duration_filter=4_000) == [ID]
        assert listed(duration_filter=6_000) == []


# -- KIP-848


def beat(node, version, epoch=0, *, member_id="m", owned=(), group="g", **said):
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 30_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    for name, value in said.items():
        setattr(request, name, value)
    return node.ask(request, version)


@versions(ConsumerGroupHeartbeatRequest)
def test_a_kip848_group(version):
    node = Node()
    joined = beat(node, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == (0, "m", 1, 5000)
    assert [(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions] == [(TOPIC_ID, [0, 1])]
    assert beat(node, version, 1).assignment is None
    refused = beat(node, version, 7)
    assert (refused.error_code, refused.heartbeat_interval_ms) == (ErrorCode.FENCED_MEMBER_EPOCH, 0)
    assert "greater member epoch (7)" in refused.error_message
    node.scheduler.pass_ms(45_000)
    assert beat(node, version, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@versions(ConsumerGroupDescribeRequest)
def test_describing_a_kip848_group(version):
    node = Node()
    beat(node, 1, rack_id="r")
    request = ConsumerGroupDescribeRequest(group_ids=["g", "nope"], include_authorized_operations=True)
    group, unknown = node.ask(request, version).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", 3400)
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.client_host) == ("m", "r", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    for assignment in (member.assignment, member.target_assignment):
        assert [(t.topic_name, t.partitions) for t in assignment.topic_partitions] == [("t", [0, 1])]
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found.")


def test_one_protocol_keeps_the_other_out_until_the_group_is_empty():
    node = Node()
    beat(node, 1)
    joined = node.join(9)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (listed,) = node.ask(ListGroupsRequest(), 5).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    assert node.ask(DescribeGroupsRequest(groups=["g"]), 6).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert node.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert beat(node, 1, -1).error_code == 0
    node.stable()
    assert beat(node, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [g.group_type for g in node.ask(ListGroupsRequest(), 5).groups] == ["classic"]


def test_committing_and_reading_with_a_member_epoch():
    node = Node()
    beat(node, 1)

    def commit(version, epoch, member_id="m"):
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=3, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
        )
        return node.ask(request, version).topics[0].partitions[0].error_code

    assert commit(9, 1) == 0
    assert commit(9, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(9, 1, "x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(8, 1) == ErrorCode.UNSUPPORTED_VERSION

    def read(**member):
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics, **member)
        return node.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0]

    assert read().topics[0].partitions[0].committed_offset == 3
    assert read(member_id="m", member_epoch=1).error_code == 0
    assert read(member_id="m", member_epoch=0).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert read(member_id="x", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_broker_is_not_the_coordinator_of_a_kip848_group():
    node = Node(brokers=3)
    service = node.services.get(GroupService)
    node.broker = node.cluster.brokers[service.coordinator_id("g") % 3 + 1]
    assert beat(node, 1).error_code == ErrorCode.NOT_COORDINATOR
    described = node.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0]
    assert described.error_code == ErrorCode.NOT_COORDINATOR


def listed_groups(node):
    return [(g.group_id, g.group_type, g.group_state) for g in node.ask(ListGroupsRequest(), 5).groups]


def empty_consumer_group():
    node = Node()
    beat(node, 1)
    committed = CommittedOffset(5, -1, "")
    node.service.commit("g", "t", 0, committed)
    beat(node, 1, -1)
    return node


def test_an_empty_kip848_group_stays_one_whoever_reads_or_sets_its_positions():
    node = empty_consumer_group()
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    (read,) = node.ask(OffsetFetchRequest(groups=[asked]), 9).groups
    assert read.topics[0].partitions[0].committed_offset == 5
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    for version in (2, 9):
        assert node.ask(commit, version).topics[0].partitions[0].error_code == 0
    delete = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t")])
    assert node.ask(delete, 0).error_code == 0
    assert listed_groups(node) == [("g", "consumer", "Empty")]
    assert beat(node, 1).member_epoch == 3, "its epoch goes on: it is the same group"


def test_a_classic_member_may_have_an_empty_kip848_group_and_its_positions():
    node = empty_consumer_group()
    node.joined()
    assert [row[1] for row in listed_groups(node)] == ["classic"]
    assert node.service.committed("g", "t", 0) == CommittedOffset(5, -1, "")


def test_an_empty_kip848_group_is_deleted_with_its_positions_and_a_full_one_is_not():
    node = empty_consumer_group()
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert node.ask(delete, 2).results[0].error_code == 0
    assert (listed_groups(node), list(node.service.offsets.fetch_all("g"))) == ([], [])
    beat(node, 1)
    assert node.ask(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP


class FullDisk:
    def append(self, batch, *, begins_segment):
        raise OSError(28, "No space left on device")

    def start_moved(self):
        pass


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_finds_the_disk_full_is_written_when_there_is_room(commit, caplog):
    node = Node()
    producer = Producer(node)
    producer.add()
    producer.add_group()
    producer.commit_offset(offset=5)
    assert producer.write() == 0
    log = node.cluster.topics["t"].partitions[0].log
    log.store = FullDisk()
    assert producer.end(commit=commit) == 0
    node.scheduler.pass_ms(5_000)
    assert (end_offset(node, committed=True), node.service.committed("g", "t", 0)) == (0, None)
    assert producer.add() == [ErrorCode.CONCURRENT_TRANSACTIONS]
    log.store = None
    node.scheduler.pass_ms(1_000)
    assert (end_offset(node, committed=True), node.service.committed("g", "t", 0) is not None) == (2, commit)
    assert [batch for batch in caplog.messages if "t-0" in batch]
    assert producer.add() == [0]


def test_followers_tell_who_writes_as_well():
    node = Node(brokers=2)
    node.cluster.create_topic("copied", 1, replication_factor=2, assignment={0: [2, 1]})
    node.cluster.create_topic("elsewhere", 1, assignment={0: [2]})
    asked = [
        DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name in ("copied", "elsewhere")
    ]
    copied, elsewhere = node.ask(DescribeProducersRequest(topics=asked), 0).topics
    assert copied.partitions[0].error_code == 0
    assert elsewhere.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_partitions_of_a_request_are_taken_into_the_transaction_at_once(monkeypatch):
    node = Node()
    node.cluster.create_topic("many", 20)
    producer, service = Producer(node), node.services.get(TransactionService)
    saved = []
    monkeypatch.setattr(node.cluster, "save", lambda: saved.append(1))
    batch = build_batch(
        [Record(b"v", timestamp_ms=1_000)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    parts = [ProduceRequest.PartitionProduceData(index=index, records=bytes(batch)) for index in range(21)]
    parts[3].records = b""
    topics = [
        ProduceRequest.TopicProduceData(name="t", partition_data=parts[:1]),
        ProduceRequest.TopicProduceData(name="many", partition_data=parts),
    ]
    request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=topics)
    answer = node.ask(request, 12)
    wrong = [(one.index, one.error_code) for one in answer.responses[1].partition_responses if one.error_code]
    assert [index for index, _ in wrong] == [3, 20]
    expected = {("t", 0)} | {("many", index) for index in range(20) if index != 3}
    assert service.coordinator.transactions[ID].partitions == expected
    assert len(saved) == 1
