"""Kafka's real keys are no mistake, whether they mean something here or not."""

import pytest

from kclient_quota.broker.configs.broker_properties import BROKER_PROPERTIES, BrokerProperties
from kclient_quota.broker.configs.kafka_properties import KEPT_PROPERTIES
from kclient_quota.errors import ConfigError
from tests.unit.broker.core_cluster import Cluster


def test_keys_of_kafka_that_change_nothing_here_are_taken():
    BrokerProperties({"offsets.topic.replication.factor": "1", "log.retention.hours": "24", "num.partitions": "3"})
    assert not set(KEPT_PROPERTIES) & set(BROKER_PROPERTIES)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("log.retention.hours", "a day", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("log.retention.hour", "24", "does not know"),
        ("num.partition", "24", "did you mean num.partitions"),
    ],
)
def test_what_is_wrong_is_still_said(key, value, message):
    with pytest.raises(ConfigError, match=message):
        BrokerProperties({key: value})


@pytest.mark.parametrize(("written", "is_on"), [("True", True), (" TRUE ", True), ("False", False)])
def test_true_and_false_are_read_in_any_case(written, is_on):
    state = Cluster().state
    BrokerProperties({"auto.create.topics.enable": written}).apply(state)
    assert state.is_auto_create_enabled is is_on
