"""What Kafka refuses of topics that are to be made or configured, on both brokers, in the same words."""

import pytest

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.messages import CreateTopicsRequest, IncrementalAlterConfigsRequest

Topic = CreateTopicsRequest.CreatableTopic


def asked(name, partitions=1, replication=1, assignment=(), **configs):
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
            for index in assignment
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def sent(cluster, request):
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    with Connection(ConnectionSettings(host, int(port)), SYSTEM_CLOCK).open() as connection:
        return connection.send(request)


def answers(cluster, *topics):
    response = sent(cluster, CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=True))
    return [(topic.error_code, topic.error_message) for topic in response.topics]


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        ({"cleanup_policy": "nix"}, 40, "cleanup.policy: String must be one of: compact, delete"),
        ({"cleanup_policy": "compact,nix"}, 40, "cleanup.policy: String must be one of: compact, delete"),
        ({"compression_type": "bzip2"}, 40, "must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression_gzip_level": "99"}, 40, "gzip.level: Value must be between 1 and 9 or equal to -1"),
        ({"compression_gzip_level": "0"}, 40, "gzip.level: Value must be between 1 and 9 or equal to -1"),
        ({"retention_ms": "1_000"}, 40, "configuration retention.ms: Not a number of type LONG"),
        ({"compression_lz4_level": "0"}, 40, "configuration compression.lz4.level: Value must be at least 1"),
        ({"compression_lz4_level": "18"}, 40, "configuration compression.lz4.level: Value must be no more than 17"),
        ({"compression_zstd_level": "23"}, 40, "configuration compression.zstd.level: Value must be no more than 22"),
        ({"min_cleanable_dirty_ratio": "1.5"}, 40, "min.cleanable.dirty.ratio: Value must be no more than 1"),
        ({"remote_storage_enable": "true"}, 40, "Tiered Storage functionality is disabled in the broker."),
        ({"partitions": 2**31 - 1}, 44, "Excessively large number of partitions per request."),
        ({"partitions": -1, "assignment": [0]}, 42, "but replication factor was not set to -1."),
        ({"replication": -1, "assignment": [0]}, 42, "but numPartitions was not set to -1."),
        (
            {"partitions": -1, "replication": -1, "assignment": [0, 0]},
            39,
            "Found multiple manual partition assignments",
        ),
    ],
)
def test_topics_that_cannot_be(cluster, unique, wanted, code, words):
    ((found, said),) = answers(cluster, asked(unique("topic"), **wanted))
    assert found == code
    assert words in said


def test_the_metadatas_topic_is_nobodys(cluster):
    said = "Creation of internal topic __cluster_metadata is prohibited."
    assert answers(cluster, asked("__cluster_metadata")) == [(42, said)]


def test_a_topic_that_is_named_twice_has_one_answer(cluster, unique):
    name = unique("topic")
    assert answers(cluster, asked(name), asked(name)) == [(42, "Duplicate topic name.")]


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact,delete"},
        {"cleanup_policy": ""},
        {"compression_gzip_level": "-1", "retention_ms": " 1000 "},
        {"compression_zstd_level": "-131072"},
        {"compression_type": "uncompressed"},
        {"message_timestamp_type": "LogAppendTime", "min_cleanable_dirty_ratio": "1"},
    ],
)
def test_topics_that_can(cluster, unique, configs):
    assert answers(cluster, asked(unique("topic"), **configs)) == [(0, None)]


@pytest.mark.parametrize(
    ("kind", "key", "words"),
    [
        (2, "retention.ms", "Default topic resources are not allowed."),
        (32, "consumer.session.timeout.ms", "Default group resources are not allowed."),
    ],
)
def test_topics_and_groups_have_no_default_configuration_of_this_kind(cluster, kind, key, words):
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name="",
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value="50000")],
    )
    (answer,) = sent(cluster, IncrementalAlterConfigsRequest(resources=[altered], validate_only=False)).responses
    assert (answer.error_code, answer.error_message) == (42, words)
