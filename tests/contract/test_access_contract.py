"""Access control lists and SCRAM users on the embedded broker and on Apache Kafka, error code by error code."""

import hashlib
import json
import os
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.authorizer import AclOperation, AclPermission, PatternType, ResourceType
from kclient_quota.cli.main import main
from kclient_quota.wire import messages as m
from kclient_quota.wire.records import Record, build_batch
from kclient_quota.wire.schema import Struct
from tests.contract.administered import GUARDED, apache, eventually
from tests.contract.wire_client import ask, connected

pytestmark = pytest.mark.timeout(120)
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
Op = AclOperation
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = 29, 30, 31, 53
USERS = dict.fromkeys(("alice", "bob", "carol", "dave"), "secret")


@pytest.fixture(scope="module", params=["embedded", "apache-kafka"])
def cluster(request):
    topics = {"orders": 1, "secret": 1}
    if request.param == "apache-kafka":
        with apache(users=USERS, topics=topics) as running:
            yield running
        return
    guarded = {key: value for key, value in GUARDED.items() if key != "default.replication.factor"}
    with EmbeddedBroker(users=USERS, topics=topics, properties=guarded) as running:
        yield running


@contextmanager
def connected_as(cluster, user):
    with connected(cluster, servers=cluster.sasl_bootstrap_servers) as wire:
        wire.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), m.SaslHandshakeResponse, 1)
        token = f"\0{user}\0secret".encode()
        assert not wire.ask(m.SaslAuthenticateRequest(auth_bytes=token), m.SaslAuthenticateResponse, 2).error_code
        yield wire


def errors(answer):
    """Every error code in an answer but that of no error."""
    return _codes(answer) - {0}


def _codes(answer):
    found = set()
    for spec in answer.__fields__:
        value = getattr(answer, spec.name)
        if spec.name.endswith("error_code") and "config_error" not in spec.name:
            found.add(value)
        for part in value if isinstance(value, list) else ():
            found |= _codes(part) if isinstance(part, Struct) else set()
    return found


def grant(cluster, user, *rules):
    """Rules (type, name, pattern, operation, permission), known to the broker when this returns."""
    creations = [
        m.CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=permission,
        )
        for kind, name, pattern, operation, permission in rules
    ]
    with connected(cluster) as wire:
        assert errors(ask(wire, m.CreateAclsRequest(creations=creations), 3)) == set()
        eventually(lambda: described(wire, principal=f"User:{user}"), lambda found: set(rules) <= found)


def described(wire, **changes):
    request = m.DescribeAclsRequest(
        **{
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": changes.pop("principal", None),
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
            **changes,
        }
    )
    answer = ask(wire, request, 3)
    assert answer.error_code == 0
    return {
        (row.resource_type, row.resource_name, row.pattern_type, acl.operation, acl.permission_type)
        for row in answer.resources
        for acl in row.acls
    }


def batch(transactional):
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10} if transactional else {}
    return bytes(build_batch([Record(value=b"x", timestamp_ms=time.time_ns() // 1_000_000)], **producer))


def produce(topic, transactional_id=None):
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch(transactional_id))
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return m.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=5_000, topic_data=topics)


def fetch(*topics):
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    wanted = [m.FetchRequest.FetchTopic(topic=topic, partitions=[partition]) for topic in topics]
    return m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=wanted)


def list_offsets(*topics):
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    wanted = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition]) for topic in topics]
    return m.ListOffsetsRequest(replica_id=-1, topics=wanted)


def metadata(*topics):
    named = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return m.MetadataRequest(topics=named or None, allow_auto_topic_creation=False)


def commit(group, topic):
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    wanted = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[wanted])


def add_partitions(transactional_id, topic):
    wanted = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[wanted],
    )


def create_topics(*names):
    topics = [m.CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=5_000)


def describe_configs(kind, name):
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    return m.DescribeConfigsRequest(resources=[resource])


DENIALS = [
    (produce("orders"), 9, {NO_TOPIC}),
    (produce("orders", "tx"), 9, {NO_TRANSACTION}),
    (fetch("orders"), 11, {NO_TOPIC}),
    (list_offsets("orders"), 7, {NO_TOPIC}),
    (metadata("orders", "absent"), 9, {NO_TOPIC}),
    (metadata(), 9, set()),
    (commit("g", "orders"), 8, {NO_GROUP}),
    (m.OffsetFetchRequest(group_id="g", topics=None), 7, {NO_GROUP}),
    (m.FindCoordinatorRequest(key="g", key_type=0), 3, {NO_GROUP}),
    (m.FindCoordinatorRequest(key="tx", key_type=1), 3, {NO_TRANSACTION}),
    (m.JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"), 5, {NO_GROUP}),
    (m.HeartbeatRequest(group_id="g"), 3, {NO_GROUP}),
    (m.DescribeGroupsRequest(groups=["g"]), 5, {NO_GROUP}),
    (m.DeleteGroupsRequest(groups_names=["g"]), 2, {NO_GROUP}),
    (create_topics("new"), 5, {NO_TOPIC}),
    (m.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5_000), 5, {NO_TOPIC}),
    (m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4, {NO_CLUSTER}),
    (m.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4, {NO_TRANSACTION}),
    (add_partitions("tx", "orders"), 3, {NO_TRANSACTION}),
    (m.AddOffsetsToTxnRequest(transactional_id="tx", producer_id=1, group_id="g"), 3, {NO_TRANSACTION}),
    (m.EndTxnRequest(transactional_id="tx", producer_id=1, producer_epoch=1), 3, {NO_TRANSACTION}),
    (m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3, {31}),
    (describe_configs(2, "orders"), 4, {NO_TOPIC}),
    (describe_configs(4, "1"), 4, {NO_CLUSTER}),
    (describe_configs(32, "g"), 4, {NO_GROUP}),
    (m.DescribeClientQuotasRequest(), 1, {NO_CLUSTER}),
    (m.DescribeUserScramCredentialsRequest(), 0, {NO_CLUSTER}),
    (m.DescribeTransactionsRequest(transactional_ids=["tx"]), 0, {NO_TRANSACTION}),
    (m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["orders"]), 1, {NO_GROUP}),
    (m.ConsumerGroupDescribeRequest(group_ids=["g"]), 1, {NO_GROUP}),
    (m.ListConfigResourcesRequest(), 1, {NO_CLUSTER}),
    (m.ListPartitionReassignmentsRequest(timeout_ms=5_000, topics=None), 0, {NO_CLUSTER}),
]


def test_who_has_no_permission_is_told_which(cluster):
    with connected_as(cluster, "alice") as wire:
        found = {
            (type(request).__name__, at): errors(ask(wire, request, version))
            for at, (request, version, _) in enumerate(DENIALS)
        }
    assert found == {(type(request).__name__, at): wanted for at, (request, _, wanted) in enumerate(DENIALS)}


VISIBLE = {
    "r-read": [(TOPIC, "r-read", LITERAL, Op.READ, ALLOW)],
    "r-alter": [(TOPIC, "r-alter", LITERAL, Op.ALTER, ALLOW)],
    "r-configs": [(TOPIC, "r-configs", LITERAL, Op.ALTER_CONFIGS, ALLOW)],
    "r-denied": [(TOPIC, "r-denied", LITERAL, Op.ALL, ALLOW), (TOPIC, "r-denied", LITERAL, Op.DESCRIBE, DENY)],
    "r-unread": [(TOPIC, "r-unread", LITERAL, Op.WRITE, ALLOW), (TOPIC, "r-unread", LITERAL, Op.READ, DENY)],
    "p-one": [(TOPIC, "p-", PREFIXED, Op.DESCRIBE, ALLOW)],
    "p-two": [(TOPIC, "p-two", PREFIXED, Op.ALL, DENY)],
}


def test_which_topics_are_seen(cluster):
    with connected(cluster) as wire:
        ask(wire, create_topics(*VISIBLE), 7)
    grant(cluster, "bob", *(rule for rules in VISIBLE.values() for rule in rules))
    with connected_as(cluster, "bob") as wire:
        seen = eventually(lambda: {t.name for t in ask(wire, metadata(), 9).topics}, lambda found: len(found) >= 4)
        request = metadata(*VISIBLE)
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = True
        answer = ask(wire, request, 10)
    assert seen == {"r-read", "r-alter", "r-unread", "p-one"}
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        name: 0 if name in seen else NO_TOPIC for name in VISIBLE
    }
    bits = {topic.name: topic.topic_authorized_operations for topic in answer.topics if not topic.error_code}
    assert bits == {
        "r-read": 1 << Op.READ | 1 << Op.DESCRIBE,
        "r-alter": 1 << Op.ALTER | 1 << Op.DESCRIBE,
        "r-unread": 1 << Op.WRITE | 1 << Op.DESCRIBE,
        "p-one": 1 << Op.DESCRIBE,
    }


def test_what_is_allowed_is_done_and_the_rest_is_named(cluster):
    grant(
        cluster,
        "carol",
        (TOPIC, "orders", LITERAL, Op.READ, ALLOW),
        (TOPIC, "orders", LITERAL, Op.WRITE, ALLOW),
        (GROUP, "carols", PREFIXED, Op.READ, ALLOW),
        (TOPIC, "made-", PREFIXED, Op.CREATE, ALLOW),
    )
    with connected_as(cluster, "carol") as wire:
        eventually(lambda: errors(ask(wire, produce("orders"), 9)), lambda found: not found)
        both = ask(wire, fetch("secret", "orders"), 11).responses
        assert {topic.topic: topic.partitions[0].error_code for topic in both} == {"secret": NO_TOPIC, "orders": 0}
        refused = next(topic.partitions[0] for topic in both if topic.topic == "secret")
        # librdkafka takes null for a broken answer, and drops what stands behind it
        assert (refused.records, refused.aborted_transactions or None) == (b"", None)
        both = ask(wire, list_offsets("orders", "secret"), 7).topics
        assert {topic.name: topic.partitions[0].error_code for topic in both} == {"secret": NO_TOPIC, "orders": 0}
        eventually(lambda: errors(ask(wire, m.FindCoordinatorRequest(key="carols-group"), 3)), lambda found: not found)
        eventually(lambda: errors(ask(wire, commit("carols-group", "orders"), 8)), lambda found: not found)
        assert errors(ask(wire, commit("carols-group", "secret"), 8)) == {NO_TOPIC}
        assert errors(ask(wire, commit("another", "orders"), 8)) == {NO_GROUP}
        made = ask(wire, create_topics("made-by-carol", "not-made"), 5).topics
        assert {topic.name: topic.error_code for topic in made} == {"made-by-carol": 0, "not-made": NO_TOPIC}
        # to write somewhere is enough for an idempotent producer
        producer = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        eventually(lambda: errors(ask(wire, producer, 4)), lambda found: not found)


def test_lists_are_found_by_filter_and_taken_away(cluster):
    rules = {
        (TOPIC, "f-one", LITERAL, Op.READ, ALLOW),
        (TOPIC, "f-", PREFIXED, Op.WRITE, ALLOW),
        (TOPIC, "*", LITERAL, Op.DESCRIBE_CONFIGS, ALLOW),
        (CLUSTER, "kafka-cluster", LITERAL, Op.IDEMPOTENT_WRITE, DENY),
    }
    grant(cluster, "erin", *rules)
    erin = "User:erin"
    with connected(cluster) as wire:
        assert described(wire, principal=erin) == rules
        by_match = {"resource_type_filter": TOPIC, "resource_name_filter": "f-one", "pattern_type_filter": 2}
        assert len(described(wire, principal=erin, **by_match)) == 3
        assert len(described(wire, principal=erin, **{**by_match, "pattern_type_filter": LITERAL})) == 1
        assert len(described(wire, principal=erin, operation=Op.WRITE)) == 1
        assert len(described(wire, principal=erin, permission_type=DENY)) == 1
        gone = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=erin,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        (result,) = ask(wire, m.DeleteAclsRequest(filters=[gone]), 3).filter_results
        assert (result.error_code, len(result.matching_acls)) == (0, 3)
        eventually(lambda: len(described(wire, principal=erin)), lambda count: count == 1)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("resource_type", 1, -1),
        ("resource_type", CLUSTER, 42),
        ("resource_name", "", 42),
        ("resource_pattern_type", 2, -1),
        ("operation", 1, -1),
        ("permission_type", 1, -1),
        ("principal", "erin", 42),
    ],
)
def test_a_senseless_list_is_refused(cluster, key, value, error):
    fine = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:frank",
        "host": "*",
        "operation": Op.READ,
        "permission_type": ALLOW,
    }
    creation = m.CreateAclsRequest.AclCreation(**{**fine, key: value})
    with connected(cluster) as wire:
        assert errors(ask(wire, m.CreateAclsRequest(creations=[creation]), 3)) == {error}


# -- SCRAM


def upsertion(name, password, mechanism=1, iterations=4096):
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(
        {1: "sha256", 2: "sha512"}.get(mechanism, "sha256"), password, salt, max(1, iterations)
    )
    return m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name, mechanism=1):
    return m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(wire, *upsertions, deletions=()):
    request = m.AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=list(deletions))
    return {result.user: result.error_code for result in ask(wire, request, 0).results}


def scram(wire, *names):
    users = [m.DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    answer = ask(wire, m.DescribeUserScramCredentialsRequest(users=users or None), 0)
    assert answer.error_code == 0
    return {
        row.user: row.error_code or {info.mechanism: info.iterations for info in row.credential_infos}
        for row in answer.results
    }


def may_log_in(cluster, user, password, mechanism="SCRAM-SHA-256", within_s=60):
    admin = AdminClient(
        {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        admin.list_topics(timeout=within_s)
    except KafkaException:
        return False
    return True


def test_scram_users_come_change_and_go(cluster):
    with connected(cluster) as wire:
        assert alter(wire, upsertion("gina", b"first")) == {"gina": 0}
        assert alter(wire, upsertion("gina", b"other", 2, 8192)) == {"gina": 0}
        eventually(lambda: scram(wire, "gina"), lambda found: found == {"gina": {1: 4096, 2: 8192}})
        assert may_log_in(cluster, "gina", "first")
        assert may_log_in(cluster, "gina", "other", "SCRAM-SHA-512")
        assert alter(wire, upsertion("gina", b"second")) == {"gina": 0}
        assert alter(wire, deletions=[deletion("gina", 2)]) == {"gina": 0}
        eventually(lambda: scram(wire, "gina"), lambda found: found == {"gina": {1: 4096}})
        assert may_log_in(cluster, "gina", "second")
        assert not may_log_in(cluster, "gina", "first", within_s=3)
        assert "gina" in scram(wire)
        assert alter(wire, deletions=[deletion("gina")]) == {"gina": 0}
        eventually(lambda: scram(wire, "gina"), lambda found: found == {"gina": 91})


def test_what_no_scram_user_may_be(cluster):
    with connected(cluster) as wire:
        assert scram(wire, "nobody", "henry", "henry") == {"nobody": 91, "henry": 92}
        refused = [
            (upsertion("", b"x"), 93),
            (upsertion("i", b"x", 7), 33),
            (upsertion("i", b"x", 1, 4095), 93),
            (upsertion("i", b"x", 1, 16385), 93),
        ]
        for wanted, error in refused:
            assert alter(wire, wanted) == {wanted.name: error}
        assert alter(wire, deletions=[deletion("nobody")]) == {"nobody": 91}
        assert alter(wire, upsertion("i", b"x"), upsertion("i", b"y")) == {"i": 92}
        assert alter(wire, upsertion("i", b"x"), upsertion("i", b"y", 2)) == {"i": 92}
        assert alter(wire, upsertion("i", b"x"), deletions=[deletion("i")]) == {"i": 91}


@pytest.mark.parametrize(("topic", "error"), [("orders", "TOPIC_AUTHORIZATION_FAILED"), (None, None)])
def test_the_doctor_of_who_has_no_right_at_all(cluster, topic, error, capsys, tmp_path):
    """He is told what to grant; nothing else fails."""
    properties = tmp_path / "nobody.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=dave\nsasl.password=secret\n"
    )
    words = ["--bootstrap-server", cluster.sasl_bootstrap_servers, "--command-config", str(properties), "--json"]
    assert main(["doctor", *words, *(["--topic", topic] if topic else [])]) == 3
    rows = json.loads(capsys.readouterr().out)
    found = {(row["topic"], row["level"]): f"{row['said']} {row['remedy']}" for row in rows}
    assert "grant DESCRIBE_CONFIGS on the cluster" in found["rights", "change"]
    assert "CLUSTER_AUTHORIZATION_FAILED" in found["rights", "change"]
    assert any(words in found["telemetry", "note"] for words in ("they do not tell us", "have no receiver"))
    assert "nobody tells" in found["clock", "ok"]
    if error:
        assert error in found["topic", "change"]
