"""Features, and what groups and loggers may be set to: the same on both brokers."""

import pytest

from kclient_quota.wire import messages as m
from tests.contract.administered import eventually
from tests.contract.wire_client import ask, connected

pytestmark = pytest.mark.timeout(120)
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
DYNAMIC_BROKER, DYNAMIC_DEFAULT = 2, 3
UPGRADE, SAFE_DOWNGRADE = 1, 2
SET, DELETE, APPEND = 0, 1, 2
INVALID_UPDATE, INVALID_CONFIG, INVALID_REQUEST = 95, 40, 42


def features(wire):
    answer = ask(wire, m.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    known = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    return known, {feature.name: feature.max_version_level for feature in answer.finalized_features}


def test_the_same_levels_are_known_and_hold(cluster):
    with connected(cluster) as wire:
        known, finalized = features(wire)
    assert known["transaction.version"] == (0, 2)
    assert known["group.version"] == (0, 1)
    assert known["metadata.version"] == (7, 30)
    assert (finalized["transaction.version"], finalized["group.version"], finalized["metadata.version"]) == (2, 1, 30)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type"),
    [("no.such.version", 1, 1), ("transaction.version", 9, 1), ("transaction.version", 1, 1)],
)
def test_levels_that_cannot_be(cluster, version, feature, level, upgrade_type):
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)
    if version:
        update.upgrade_type = upgrade_type
    with connected(cluster) as wire:
        answer = ask(wire, m.UpdateFeaturesRequest(feature_updates=[update]), version)
    codes = [answer.error_code, *(result.error_code for result in answer.results)]
    assert [code for code in codes if code] == [INVALID_UPDATE]


def test_a_level_is_taken_back_and_set_again(cluster):
    def update(level, upgrade_type, **options):
        key = m.UpdateFeaturesRequest.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
        )
        return ask(wire, m.UpdateFeaturesRequest(feature_updates=[key], **options), 2).error_code

    with connected(cluster) as wire:
        assert update(1, 2, validate_only=True) == 0
        assert features(wire)[1]["transaction.version"] == 2
        assert update(1, 2) == 0
        eventually(lambda: features(wire)[1]["transaction.version"], lambda level: level == 1)
        assert update(2, 1) == 0
        eventually(lambda: features(wire)[1]["transaction.version"], lambda level: level == 2)


def describe(wire, kind, name):
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = ask(wire, m.DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0, result.error_message
    return {config.name: (config.value, config.config_source) for config in result.configs}


def alter(wire, kind, name, key, value, operation=SET):
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    (result,) = ask(wire, m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return result.error_code


def test_the_cluster_has_one_number_of_replicas_in_sync(cluster, unique):
    """KIP-966: while its feature is on, no broker has a number of its own, and the cluster's is never taken away."""
    key, topic, broker = "min.insync.replicas", unique("in-sync"), "1"
    cluster.create_topic(topic)
    with connected(cluster) as wire:
        assert features(wire)[1]["eligible.leader.replicas.version"] == 1
        for kind, name in ((TOPIC, topic), (BROKER, broker), (BROKER, "")):
            assert describe(wire, kind, name)[key] == ("1", DYNAMIC_DEFAULT)
        assert alter(wire, BROKER, broker, key, "2") == INVALID_CONFIG
        assert alter(wire, BROKER, broker, key, None, DELETE) == INVALID_CONFIG
        assert alter(wire, BROKER, "", key, None, DELETE) == INVALID_CONFIG
        assert alter(wire, BROKER, "", key, "2") == 0
        eventually(lambda: describe(wire, TOPIC, topic)[key], lambda told: told == ("2", DYNAMIC_DEFAULT))
        assert alter(wire, BROKER, "", key, "1") == 0
        eventually(lambda: describe(wire, TOPIC, topic)[key], lambda told: told == ("1", DYNAMIC_DEFAULT))


def test_without_the_feature_a_broker_has_its_own(cluster):
    key, broker = "min.insync.replicas", "1"
    with connected(cluster) as wire:
        try:
            assert finalize(wire, 0, SAFE_DOWNGRADE) == 0
            eventually(lambda: "eligible.leader.replicas.version" in features(wire)[1], lambda on: not on)
            assert alter(wire, BROKER, broker, key, "2") == 0
            eventually(lambda: describe(wire, BROKER, broker)[key], lambda told: told == ("2", DYNAMIC_BROKER))
            assert alter(wire, BROKER, "", key, None, DELETE) == 0
            eventually(lambda: describe(wire, BROKER, "").get(key), lambda told: told is None)
        finally:
            assert finalize(wire, 1, UPGRADE) == 0
        eventually(lambda: describe(wire, BROKER, broker)[key], lambda told: told == ("1", DYNAMIC_DEFAULT))
        assert describe(wire, BROKER, "")[key] == ("1", DYNAMIC_DEFAULT)


def finalize(wire, level, upgrade_type):
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=upgrade_type
    )
    return ask(wire, m.UpdateFeaturesRequest(feature_updates=[update]), 2).error_code


def test_a_group_has_time_outs_of_its_own(cluster, unique):
    group = unique("group")
    key = "consumer.session.timeout.ms"
    with connected(cluster) as wire:
        assert len(describe(wire, GROUP, group)) == 17
        assert describe(wire, GROUP, group)[key] == ("45000", 5)
        assert alter(wire, GROUP, group, key, "50000") == 0
        eventually(lambda: describe(wire, GROUP, group)[key], lambda found: found == ("50000", 8))
        list_groups = m.ListConfigResourcesRequest(resource_types=[GROUP])
        eventually(
            lambda: {resource.resource_name for resource in ask(wire, list_groups, 1).config_resources},
            lambda found: group in found,
        )
        assert alter(wire, GROUP, group, key, None, DELETE) == 0
        eventually(lambda: describe(wire, GROUP, group)[key], lambda found: found == ("45000", 5))
        for wrong in (("no.such.key", "1"), (key, "0"), (key, "9999999"), (key, "soon")):
            assert alter(wire, GROUP, group, *wrong) == INVALID_CONFIG, wrong


def test_loggers_have_levels(cluster):
    with connected(cluster) as wire:
        (name,) = list(describe(wire, LOGGER, "1"))[1:2]
        before = describe(wire, LOGGER, "1")[name]
        assert before[1] == 6
        assert alter(wire, LOGGER, "1", name, "DEBUG") == 0
        assert describe(wire, LOGGER, "1")[name][0] == "DEBUG"
        assert alter(wire, LOGGER, "1", name, None, DELETE) == 0
        assert describe(wire, LOGGER, "1")[name] == before
        assert alter(wire, LOGGER, "1", name, "LOUD") == INVALID_CONFIG
        assert alter(wire, LOGGER, "1", "no.such.logger", "INFO") == INVALID_CONFIG
        assert alter(wire, LOGGER, "1", "root", None, DELETE) == INVALID_REQUEST
        assert alter(wire, LOGGER, "1", name, "INFO", APPEND) == INVALID_REQUEST
        assert alter(wire, LOGGER, "7", name, "INFO") == INVALID_REQUEST


def test_the_same_broker_and_topic_keys_are_known(cluster, unique):
    with connected(cluster) as wire:
        keys = describe(wire, 4, "1")
        topic = m.CreateTopicsRequest.CreatableTopic(name=unique("keys"), num_partitions=1, replication_factor=1)
        made = ask(wire, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
    assert {"log.cleaner.threads", "ssl.keystore.type", "remote.log.manager.thread.pool.size"} <= set(keys)
    assert len(set(keys) - {"control.bootstrap", "super.users", "allow.everyone.if.no.acl.found"}) == 340
    assert len(made.configs) == 33
