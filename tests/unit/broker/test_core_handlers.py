"""Topics, records, quotas and configurations: every handler in every version it advertises, and Kafka's words."""

from uuid import UUID

import pytest

from kclient_quota.broker.cluster_state import TOPIC
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.core_cluster import Cluster, versions, write


@pytest.fixture
def cluster():
    return Cluster()


@pytest.mark.parametrize("version", versions(ApiVersionsRequest))
def test_api_versions_advertises_the_registry(cluster, version):
    known = {"client_software_name": "n", "client_software_version": "1"} if version >= 3 else {}
    response = cluster.send(ApiVersionsRequest(**known), version)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert advertised == {key: (entry.min_version, entry.max_version) for key, entry in REGISTRY.items()}
    assert cluster.connection.client_software == (("n", "1") if version >= 3 else ("", ""))


@pytest.mark.parametrize("version", versions(MetadataRequest))
def test_metadata_describes_all_topics_or_those_asked_for(cluster, version):
    everything = MetadataRequest(topics=[] if version == 0 else None)
    response = cluster.send(everything, version)
    assert {(broker.node_id, broker.port) for broker in response.brokers} == {(1, 9091), (2, 9092)}
    (topic,) = response.topics
    assert [(p.partition_index, p.leader_id, p.replica_nodes) for p in topic.partitions] == [(0, 1, [1]), (1, 2, [2])]
    wanted = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "new", "a b")],
    )
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    for new in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):
        # as Apache Kafka 4.3 does: the topic is made, and the next answer has it
        response = cluster.send(wanted, version)
        assert [topic.error_code for topic in response.topics] == [0, new, refused]
        assert [len(topic.partitions) for topic in response.topics] == [2, 0 if new else 1, 0]


@pytest.mark.parametrize("version", [10, 12, 13])
def test_metadata_finds_topics_by_id(cluster, version):
    ids = [cluster.topic.topic_id, UUID(int=99)]
    asked = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    found = cluster.send(MetadataRequest(topics=asked), version).topics
    assert [(topic.name, topic.error_code) for topic in found] == [
        ("t", 0),
        (None if version >= 12 else "", ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_metadata_creates_nothing_where_it_may_not(cluster):
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=False)
    assert cluster.send(wanted).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted.allow_auto_topic_creation = True
    cluster.state.is_auto_create_enabled = False
    assert cluster.send(wanted).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stopped_broker_leads_nothing_and_is_not_listed(cluster):
    both = cluster.state.create_topic("both", 2, replication_factor=2)
    cluster.state.set_broker_up(2, is_up=False)
    response = cluster.send(MetadataRequest(topics=None))
    assert [broker.node_id for broker in response.brokers] == [1]
    parts = {topic.name: topic.partitions for topic in response.topics}
    assert (parts["t"][1].leader_id, parts["t"][1].error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert [(part.leader_id, part.isr_nodes, part.offline_replicas) for part in parts["both"]] == [(1, [1], [2])] * 2
    cluster.state.set_broker_up(2, is_up=True)
    assert sorted(partition.leader for partition in both.partitions) == [1, 2]
    assert sorted(partition.leader_epoch for partition in both.partitions) == [0, 2]


@pytest.mark.parametrize("version", versions(ProduceRequest))
def test_produce_answers_each_partition(cluster, version):
    parts = [
        ProduceRequest.PartitionProduceData(index=index, records=build_batch([Record(b"x", timestamp_ms=5)]))
        for index in (0, 1, 2)
    ]
    name = {"topic_id": cluster.topic.topic_id} if version >= 13 else {"name": "t"}
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(partition_data=parts, **name)]
    )
    (topic,) = cluster.send(request, version).responses
    assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
        (0, 0, 0),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_produce_wants_acks_that_exist_and_replicas_enough(cluster):
    def produce(acks):
        data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(b"x", timestamp_ms=5)]))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        response = cluster.send(ProduceRequest(acks=acks, timeout_ms=1, topic_data=[topic]), 9)
        return response.responses[0].partition_responses[0].error_code

    assert produce(2) == ErrorCode.INVALID_REQUIRED_ACKS
    cluster.state.set_config(TOPIC, "t", "min.insync.replicas", "2")
    assert produce(-1) == 0  # it has one replica, which is all that can be asked for
    cluster.state.reassign(cluster.topic, cluster.topic.partitions[0], [1, 2])
    assert produce(-1) == 0
    cluster.state.set_broker_up(2, is_up=False)
    assert produce(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(1) == 0


@pytest.mark.parametrize("version", versions(FetchRequest))
def test_fetch_reads_or_says_why_not(cluster, version):
    write(cluster)
    name = {"topic_id": cluster.topic.topic_id} if version >= 13 else {"topic": "t"}
    parts = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in ((0, 1), (0, 4), (1, 0), (2, 0))
    ]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(partitions=parts, **name)])
    (topic,) = cluster.send(request, version).responses
    assert [(part.error_code, bool(part.records)) for part in topic.partitions] == [
        (0, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert topic.partitions[0].high_watermark == 3


@pytest.mark.parametrize(("epoch", "error"), [(0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_fetch_holds_the_client_to_the_leader_epoch(cluster, epoch, error):
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100, current_leader_epoch=epoch)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[part])])
    assert cluster.send(request, 12).responses[0].partitions[0].error_code == error
    cluster.topic.partitions[0].leader_epoch = 1
    other = 0 if error else ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.send(request, 12).responses[0].partitions[0].error_code == other


def test_a_fetch_session_that_was_never_given_is_not_found(cluster):
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=5, session_epoch=3, topics=[])
    assert cluster.send(request, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(ListOffsetsRequest))
def test_list_offsets_knows_places_and_times(cluster, version):
    write(cluster)
    places = {-1: 3, -2: 0, 101: 1, 103: -1, -3: 2, -4: 0, -5: -1}
    places = {place: found for place, found in places.items() if version >= {-3: 7, -4: 8, -5: 9}.get(place, 1)}
    parts = [ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=place) for place in places]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=parts)]
    )
    (topic,) = cluster.send(request, version).topics
    assert [part.offset for part in topic.partitions] == list(places.values())
    times = [-1, -1, 101, -1, 102, -1, -1]
    assert [part.timestamp for part in topic.partitions] == times[: len(places)]


@pytest.mark.parametrize(("place", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-1001, 10)])
def test_list_offsets_refuses_places_that_its_version_does_not_know(cluster, place, version):
    write(cluster)
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=place)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
    ((found,),) = (each.partitions for each in cluster.send(ListOffsetsRequest(topics=[topic]), version).topics)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize("version", versions(OffsetForLeaderEpochRequest))
def test_the_end_of_an_epoch_is_the_end_of_the_log(cluster, version):
    write(cluster)
    parts = [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1)]
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=parts)
    (answer,) = cluster.send(OffsetForLeaderEpochRequest(topics=[topic]), version).topics
    assert [(part.leader_epoch, part.end_offset) for part in answer.partitions] == [(0, 3), (-1, -1)]


@pytest.mark.parametrize("version", versions(DeleteRecordsRequest))
def test_delete_records_moves_the_start(cluster, version):
    write(cluster)
    parts = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (2, 4, -1)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=parts)], timeout_ms=1
    )
    (topic,) = cluster.send(request, version).topics
    assert [(part.low_watermark, part.error_code) for part in topic.partitions] == [
        (2, 0),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (3, 0),
    ]


@pytest.mark.parametrize("version", versions(InitProducerIdRequest))
def test_every_producer_gets_an_id_of_its_own(cluster, version):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    ids = [cluster.send(request, version).producer_id for _ in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
def test_create_topics(cluster, version):
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication)
        for name, partitions, replication in (("a", 3, 2), ("t", 1, 1), ("b", 1, 3), ("c", 0, 1), ("d d", 1, 1))
    ]
    twice = [CreateTopicsRequest.CreatableTopic(name="e", num_partitions=1, replication_factor=1) for _ in range(2)]
    response = cluster.send(CreateTopicsRequest(topics=topics + twice, timeout_ms=1), version)
    assert [topic.error_code for topic in response.topics] == [
        0,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,  # once for both, as Kafka answers
    ]
    assert sorted(cluster.state.topics) == ["a", "t"]
    assert [partition.replicas for partition in cluster.state.topics["a"].partitions] == [[1, 2], [2, 1], [1, 2]]


def test_create_topics_by_assignment_with_configs_and_as_a_trial(cluster):
    def wanted(configs, *assignment):
        return CreateTopicsRequest.CreatableTopic(
            name="a",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                for index, ids in enumerate(assignment)
            ],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )

    def create(topic, validate_only=False):
        (result,) = cluster.send(CreateTopicsRequest(topics=[topic], validate_only=validate_only)).topics
        return result

    assert create(wanted({}, [1, 7])).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(wanted({}, [1, 2], [1])).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(wanted({"nonsense": "1"})).error_code == ErrorCode.INVALID_CONFIG
    assert create(wanted({"retention.bytes": "x"})).error_code == ErrorCode.INVALID_CONFIG
    assert create(wanted({"max.message.bytes": "99"}), validate_only=True).error_code == 0
    assert sorted(cluster.state.topics) == ["t"]
    made = create(wanted({"max.message.bytes": "99"}, [2, 1], [1, 2]))
    assert (made.num_partitions, made.replication_factor) == (2, 2)
    assert {config.name: config.value for config in made.configs}["max.message.bytes"] == "99"
    partitions = cluster.state.topics["a"].partitions
    assert [partition.leader for partition in partitions] == [2, 1]
    assert partitions[0].log.config.max_message_bytes == 99


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_delete_topics(cluster, version):
    if version < 6:
        request = DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1)
    else:
        wanted = [(None, cluster.topic.topic_id), ("u", UUID(int=0))]
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=n, topic_id=i) for n, i in wanted], timeout_ms=1
        )
    response = cluster.send(request, version)
    assert [(r.name, r.error_code) for r in response.responses] == [
        ("t", 0),
        ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert cluster.state.topics == {}
    assert cluster.state.topics_by_id == {}


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
def test_create_partitions(cluster, version):
    def grow(name, count, assignments=None):
        given = assignments and [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=a) for a in assignments]
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=given)
        (result,) = cluster.send(CreatePartitionsRequest(topics=[topic], timeout_ms=1), version).results
        return result.error_code

    assert grow("u", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow("t", 2) == ErrorCode.INVALID_PARTITIONS
    assert grow("t", 1) == ErrorCode.INVALID_PARTITIONS
    assert grow("t", 4, [[1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow("t", 3) == 0
    assert grow("t", 4, [[2]]) == 0
    assert [partition.leader for partition in cluster.topic.partitions] == [1, 2, 1, 2]


@pytest.mark.parametrize("version", versions(DescribeClusterRequest))
def test_describe_cluster(cluster, version):
    response = cluster.send(DescribeClusterRequest(), version)
    assert (response.cluster_id, response.controller_id, len(response.brokers)) == ("c", 1, 2)
    if version >= 1:
        assert cluster.send(DescribeClusterRequest(endpoint_type=2), version).error_code == 115
