"""Configurations over the wire: where values come from, and what may be altered."""

import pytest

from kclient_quota.broker.cluster_state import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kclient_quota.broker.configs.broker_properties import BROKER_PROPERTIES
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.unit.broker.core_cluster import Cluster, versions


@pytest.fixture
def cluster():
    return Cluster()


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


def test_a_topic_names_the_brokers_keys_of_its_defaults_as_kafka_does(cluster):
    """As kafka-configs --describe --all prints them of Apache Kafka 4.3.1; a default that no key of a broker gives has
    no synonym."""
    told = {row.name: row for row in configs(cluster, TOPIC, "t").configs}
    named = {name: [synonym.name for synonym in row.synonyms] for name, row in told.items()}
    assert {name: synonyms[0] for name, synonyms in named.items() if synonyms and synonyms[0] != name} == {
        "cleanup.policy": "log.cleanup.policy",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "index.interval.bytes": "log.index.interval.bytes",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "preallocate": "log.preallocate",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
    }
    assert {name for name, synonyms in named.items() if not synonyms} == {
        *("flush.ms", "segment.jitter.ms", "segment.ms"),
        *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
        *("remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"),
    }
    assert (told["flush.ms"].value, told["segment.ms"].value) == ("9223372036854775807", "604800000")


def documented(cluster, kind, name, version=4, *, is_asked=True):
    """The documentation of every key."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=is_asked)
    return {row.name: row.documentation for row in cluster.send(request, version).results[0].configs}


def test_who_asks_for_it_is_told_what_each_key_means(cluster):
    assert set_configs(cluster, CLIENT_METRICS, "m", ("metrics", 0, "*")) == (0, None)
    assert set_configs(cluster, GROUP, "g", ("share.isolation.level", 0, "read_committed")) == (0, None)
    told = {kind: documented(cluster, kind, name) for kind, name in ((TOPIC, "t"), (BROKER, "1"), (GROUP, "g"))}
    told[CLIENT_METRICS] = documented(cluster, CLIENT_METRICS, "m")
    assert all(text and text.endswith(".") for texts in told.values() for text in texts.values())
    assert len({told[BROKER][key] for key in BROKER_PROPERTIES}) > len(BROKER_PROPERTIES) - 2
    assert not any("changes nothing" in told[BROKER][key] for key in BROKER_PROPERTIES), "what is obeyed is explained"
    assert told[TOPIC]["retention.ms"] == told[BROKER]["log.retention.ms"]
    assert "changes nothing" in told[TOPIC]["flush.ms"]
    assert set(documented(cluster, BROKER_LOGGER, "1").values()) == {None}
    assert set(documented(cluster, TOPIC, "t", is_asked=False).values()) == {None}


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


def test_rates_of_replication_are_taken_and_told_where_they_are_set(cluster):
    key = "leader.replication.throttled.rate"
    assert key not in {entry.name for entry in configs(cluster, BROKER, "1").configs}
    assert set_configs(cluster, BROKER, "1", (key, 0, "1000")) == (0, None)
    (entry,) = [entry for entry in configs(cluster, BROKER, "1").configs if entry.name == key]
    assert (entry.value, entry.read_only) == ("1000", False)
    assert set_configs(cluster, BROKER, "1", (key, 1, None)) == (0, None)
    assert key not in {entry.name for entry in configs(cluster, BROKER, "1").configs}
