"""Topics, records, quotas and configurations: every handler in every version it advertises, and Kafka's words."""

from collections import deque
from uuid import UUID

import pytest

from kclient_quota.broker.context import ConnectionState, Services
from kclient_quota.broker.control import Controls
from kclient_quota.broker.dispatch import dispatch
from kclient_quota.broker.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log import PartitionLog
from kclient_quota.broker.node import Node
from kclient_quota.broker.segments import SegmentPool
from kclient_quota.broker.state import BROKER, CLIENT_METRICS, TOPIC, BrokerInfo, ClusterState
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
from kclient_quota.wire.messages import (
    API,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListConfigResourcesRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from kclient_quota.wire.records import Record, build_batch


class StandingTime:
    def now_ms(self):
        return 1_700_000_000_000

    def call_at(self, deadline_ms, callback):
        raise AssertionError("nothing here waits")


class Cluster:
    """Two brokers and a topic `t` of two partitions; every message goes through the codec."""

    def __init__(self):
        pool, time = SegmentPool(1 << 16), StandingTime()
        self.made = 0
        infos = [BrokerInfo(i, "127.0.0.1", {"PLAINTEXT": 9090 + i}) for i in (1, 2)]
        self.state = ClusterState(
            cluster_id="c",
            brokers=infos,
            new_topic_id=self._topic_id,
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.topic = self.state.create_topic("t", 2)
        services = Services(self.state, time)
        self.node = Node(
            infos[0], self.state, services, time, Enforcement(QuotaSettings(), lambda: 0), Controls(), deque()
        )
        self.connection = ConnectionState("PLAINTEXT", "127.0.0.1")

    def _topic_id(self):
        self.made += 1
        return UUID(int=self.made)

    def send(self, request, version=None):
        schema = request.__schema__
        version = REGISTRY[schema.api_key].max_version if version is None else version
        frame = b"".join(encode_request(request, RequestHeader(schema.api_key, version, 7, "c")))[4:]
        outcomes = []
        dispatch(self.node, self.connection, memoryview(frame), len(frame), outcomes.append)
        (outcome,) = outcomes
        assert not outcome.must_close
        answer = b"".join(outcome.parts)
        _, position = decode_response_header(answer, response_header_version(schema.api_key, version), 4)
        return decode(API[schema.api_key].response, version, answer, position)


@pytest.fixture
def cluster():
    return Cluster()


def versions(request_class):
    entry = REGISTRY[request_class.__schema__.api_key]
    return [pytest.param(v, id=f"v{v}") for v in range(entry.min_version, entry.max_version + 1)]


def write(cluster, count=3, index=0):
    batch = build_batch([Record(b"x", timestamp_ms=100 + i) for i in range(count)])
    return cluster.topic.partitions[index].log.append(batch, leader_epoch=0, now_ms=0)


# -- what is advertised works, in every version


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
    response = cluster.send(wanted, version)
    assert [topic.error_code for topic in response.topics] == [0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert "new" in cluster.state.topics


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
    parts = [ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=place) for place in places]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=parts)]
    )
    (topic,) = cluster.send(request, version).topics
    assert [part.offset for part in topic.partitions] == list(places.values())
    assert [part.timestamp for part in topic.partitions] == [-1, -1, 101, -1, 102, -1, -1]


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
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
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


# -- quotas, KIP-546


def alter(cluster, entity, *, validate_only=False, version=1, **ops):
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=v) for k, v in entity],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in ops.items()
        ],
    )
    (result,) = cluster.send(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only), version).entries
    return result.error_code, result.error_message


def describe(cluster, *components, strict=False, version=1):
    wanted = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    return cluster.send(DescribeClientQuotasRequest(components=wanted, strict=strict), version)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(cluster, version):
    who = [("user", "u"), ("client-id", None)]
    assert alter(cluster, who, producer_byte_rate=10_000.0, request_rate=5.0, version=version) == (0, None)
    assert alter(cluster, who, producer_byte_rate=None, request_percentage=None, version=version) == (0, None)
    assert alter(cluster, who, consumer_byte_rate=1.0, validate_only=True, version=version) == (0, None)
    (entry,) = describe(cluster, version=version).entries
    assert {(e.entity_type, e.entity_name) for e in entry.entity} == set(who)
    assert {value.key: value.value for value in entry.values} == {"request_rate": 5.0}
    alter(cluster, who, request_rate=None, version=version)
    assert describe(cluster, version=version).entries == []


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ([], {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ([("user", "")], {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ([("", "x")], {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: "),
        ([("user", "u")], {"bad": 1.0}, "Invalid configuration key bad"),
        ([("user", "u")], {"bad": None}, "Invalid configuration key bad"),
        ([("user", "u")], {"producer_byte_rate": 10000.5}, "producer_byte_rate cannot be a fractional value."),
        ([("user", "u")], {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ([("ip", "1.2.3.4")], {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
    ],
)
def test_quotas_that_kafka_refuses_are_refused_in_its_words(cluster, entity, ops, message):
    assert alter(cluster, entity, **ops) == (ErrorCode.INVALID_REQUEST, message)
    assert cluster.state.quotas == {}


def test_an_entity_named_twice_is_refused_and_others_are_altered_all_the_same(cluster):
    def entry(name, *keys):
        return AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=name)],
            ops=[AlterClientQuotasRequest.OpData(key=key, value=1.0, remove=False) for key in keys],
        )

    key = "producer_byte_rate"
    response = cluster.send(AlterClientQuotasRequest(entries=[entry("a", key, key), entry("b", key)]))
    assert [(e.error_code, e.error_message) for e in response.entries] == [
        (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"),
        (0, None),
    ]
    assert list(cluster.state.quotas) == [ClientQuotaEntity({"user": "b"})]


# Kafka's ClientQuotasRequestTest.testDescribeClientQuotasMatch*: who is set, and how many a filter finds
SET = [
    ("user-1", "client-id-1"),
    ("user-2", "client-id-1"),
    ("user-3", "client-id-2"),
    (None, "client-id-1"),
    ("user-1", None),
    ("user-3", None),
    ("user-1",),
    ("user-2",),
    ("user-3",),
    (None,),
    ("", "client-id-2"),
]
EXACT, DEFAULT, ANY = 0, 1, 2
MATCHES = [
    ([("user", EXACT, "user-1")], False, 3),
    ([("user", EXACT, "unknown")], False, 0),
    ([("client-id", EXACT, "client-id-2")], False, 2),
    ([("user", DEFAULT, None)], False, 2),
    ([("user", EXACT, "user-2")], True, 1),
    ([("client-id", EXACT, "client-id-1")], True, 0),
    ([("user", ANY, None)], True, 4),
    ([("user", ANY, None)], False, 10),
    ([("client-id", ANY, None)], True, 1),
    ([("client-id", ANY, None)], False, 7),
    ([("ip", ANY, None)], False, 2),
    ([], False, 13),
    ([], True, 0),
    ([("user", EXACT, "user-1"), ("client-id", EXACT, "client-id-2")], True, 0),
    ([("user", EXACT, "user-2"), ("client-id", DEFAULT, None)], True, 0),
]


@pytest.mark.parametrize(("components", "strict", "count"), MATCHES)
def test_filters_find_as_many_as_kafkas_own_test_says(cluster, components, strict, count):
    for number, names in enumerate(SET):
        entity = list(zip(("user", "client-id"), names, strict=False))
        entity = [pair for pair in entity if pair[1] != ""]
        assert alter(cluster, entity, request_percentage=50.0 + number) == (0, None)
    for address in ("1.2.3.4", "2.3.4.5"):
        assert alter(cluster, [("ip", address)], connection_creation_rate=10.0) == (0, None)
    assert len(describe(cluster, *components, strict=strict).entries) == count


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("other", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "x"), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense_are_refused(cluster, components, error):
    response = describe(cluster, *components)
    assert (response.error_code, response.entries) == (error, None)
    assert response.error_message


# -- configurations


def configs(cluster, resource_type, name, keys=None, version=4):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    (result,) = cluster.send(DescribeConfigsRequest(resources=[resource], include_synonyms=True), version).results
    return result


def set_configs(cluster, resource_type, name, *ops, version=1, validate_only=False):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in ops
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = cluster.send(request, version).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", versions(DescribeConfigsRequest))
def test_describe_configs_says_where_a_value_comes_from(cluster, version):
    assert set_configs(cluster, BROKER, "", ("message.max.bytes", 0, "500")) == (0, None)
    assert set_configs(cluster, TOPIC, "t", ("max.message.bytes", 0, "400")) == (0, None)
    assert cluster.topic.partitions[0].log.config.max_message_bytes == 400
    (entry,) = configs(cluster, TOPIC, "t", ["max.message.bytes"], version).configs
    assert (entry.value, entry.config_source) == ("400", 1)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("max.message.bytes", "400", 1),
        ("message.max.bytes", "500", 3),
        ("message.max.bytes", "1048588", 5),
    ]
    assert set_configs(cluster, TOPIC, "t", ("max.message.bytes", 1, None)) == (0, None)
    assert cluster.topic.partitions[0].log.config.max_message_bytes == 500
    (window,) = configs(cluster, BROKER, "1", ["quota.window.num"], version).configs
    assert (window.value, window.read_only) == ("11", True)


def test_what_cannot_be_described_or_altered_is_refused_in_kafkas_words(cluster):
    assert configs(cluster, TOPIC, "u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert configs(cluster, BROKER, "9").error_code == ErrorCode.INVALID_REQUEST
    assert configs(cluster, CLIENT_METRICS, "").error_code == ErrorCode.INVALID_REQUEST
    assert configs(cluster, 99, "x").error_code == ErrorCode.INVALID_REQUEST
    assert set_configs(cluster, TOPIC, "t", ("nonsense", 0, "1"))[0] == ErrorCode.INVALID_CONFIG
    assert set_configs(cluster, TOPIC, "t", ("max.message.bytes", 0, "-1"))[0] == ErrorCode.INVALID_CONFIG
    assert set_configs(cluster, TOPIC, "t", ("message.timestamp.type", 0, "x"))[0] == ErrorCode.INVALID_CONFIG
    assert set_configs(cluster, TOPIC, "t", ("retention.ms", 0, None))[0] == ErrorCode.INVALID_REQUEST
    assert set_configs(cluster, TOPIC, "t", ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))[0] == (
        ErrorCode.INVALID_REQUEST
    )
    assert set_configs(cluster, BROKER, "1", ("quota.window.num", 0, "5")) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: Set(quota.window.num)",
    )
    assert cluster.state.configs == {}


def test_lists_are_appended_to_and_subtracted_from(cluster):
    key = "cleanup.policy"
    assert set_configs(cluster, TOPIC, "t", (key, 2, "compact")) == (0, None)
    assert configs(cluster, TOPIC, "t", [key]).configs[0].value == "delete,compact"
    assert set_configs(cluster, TOPIC, "t", (key, 3, "delete")) == (0, None)
    assert configs(cluster, TOPIC, "t", [key]).configs[0].value == "compact"
    assert set_configs(cluster, CLIENT_METRICS, "m", ("metrics", 2, "a")) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key metrics because its type is not LIST.",
    )


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "100", 0),
        ("interval.ms", "x", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", " client_id = p.* ", 0),
        ("bogus", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_client_metrics_are_validated_as_kafka_does(cluster, key, value, error):
    assert set_configs(cluster, CLIENT_METRICS, "m", (key, 0, value))[0] == error
    found = {entry.name: (entry.value, entry.config_source) for entry in configs(cluster, CLIENT_METRICS, "m").configs}
    assert sorted(found) == ["interval.ms", "match", "metrics"]
    if not error:
        assert found[key] == (value, 7)


@pytest.mark.parametrize("version", versions(AlterConfigsRequest))
def test_alter_configs_takes_back_what_it_does_not_name(cluster, version):
    cluster.state.set_config(TOPIC, "t", "retention.ms", "1")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[AlterConfigsRequest.AlterableConfig(name="retention.bytes", value="5")],
    )
    (result,) = cluster.send(AlterConfigsRequest(resources=[resource]), version).responses
    assert result.error_code == 0
    assert cluster.state.configs[TOPIC, "t"] == {"retention.bytes": "5"}


@pytest.mark.parametrize("version", versions(ListConfigResourcesRequest))
def test_resources_are_listed(cluster, version):
    set_configs(cluster, CLIENT_METRICS, "m", ("metrics", 0, "a"))
    wanted = ListConfigResourcesRequest(resource_types=[] if version == 0 else [CLIENT_METRICS, TOPIC])
    found = cluster.send(wanted, version).config_resources
    expected = [("m", CLIENT_METRICS)] if version == 0 else [("m", CLIENT_METRICS), ("t", TOPIC)]
    assert [(entry.resource_name, entry.resource_type) for entry in found] == expected
    if version:
        assert cluster.send(ListConfigResourcesRequest(resource_types=[99])).error_code == ErrorCode.UNSUPPORTED_VERSION
