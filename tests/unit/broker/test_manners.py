"""How brokers throttle that are not Apache Kafka: when their answers go out, what they say, what they do not have."""

import dataclasses

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.manners import EVENT_HUBS, KAFKA, MANAGED, MANNERS, REDPANDA, manner_of
from kclient_quota.errors import ConfigError
from kclient_quota.quota.throttle import UNLIMITED
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.enforced_cluster import Cluster, records_of

DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
BROKER = 4


def of(manner, **settings):
    return Cluster(manner=manner, samples=2, **settings)


def log_of(cluster):
    return cluster.state.topics["t"].partitions[0].log


# -- produce


def test_kafka_answers_and_mutes():
    cluster = of(KAFKA)
    cluster.quota(producer_byte_rate=1_000)
    told_ms = cluster.produce(2_000).throttle_time_ms
    assert told_ms > 0
    assert (cluster.outcome.mute_ms, cluster.outcome.late_ms) == (told_ms, 0)


def test_event_hubs_answers_late_and_says_how_late():
    cluster = of(EVENT_HUBS)
    cluster.quota(producer_byte_rate=1_000)
    told_ms = cluster.produce(2_000).throttle_time_ms
    assert told_ms > 0
    assert (cluster.outcome.mute_ms, cluster.outcome.late_ms) == (0, told_ms)
    assert log_of(cluster).end_offset == 1


def test_event_hubs_stores_nothing_of_what_would_be_answered_after_its_timeout():
    cluster = of(EVENT_HUBS)
    cluster.quota(producer_byte_rate=100)
    response = cluster.produce(4_000)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.POLICY_VIOLATION
    assert response.throttle_time_ms > EVENT_HUBS.most_ms
    assert (cluster.outcome.mute_ms, cluster.outcome.late_ms) == (0, 0)
    assert log_of(cluster).end_offset == 0
    assert cluster.produce(10).throttle_time_ms <= 1_000, "nor is it counted"
    assert log_of(cluster).end_offset == 1
    assert cluster.produce(4_000, acks=0) is None
    assert log_of(cluster).end_offset == 1


def test_redpanda_answers_at_once_and_holds_the_next_of_its_kind_back():
    cluster = of(REDPANDA)
    cluster.quota(producer_byte_rate=1_000)
    told_ms = cluster.produce(2_000).throttle_time_ms
    assert told_ms > 0
    assert (cluster.outcome.mute_ms, cluster.outcome.late_ms) == (0, 0)
    cluster.scheduler.pass_ms(300)
    cluster.fetch()
    assert cluster.outcome.late_ms == 0
    again_ms = cluster.produce(100).throttle_time_ms
    assert cluster.outcome.late_ms == told_ms - 300
    cluster.scheduler.pass_ms(again_ms)
    cluster.produce(1)
    assert cluster.outcome.late_ms == 0, "who waits as told is not held back"


def test_redpanda_throttles_for_thirty_seconds_at_most():
    cluster = of(REDPANDA)
    cluster.quota(producer_byte_rate=10)
    assert cluster.produce(2_000).throttle_time_ms == 30_000
    cluster.produce(1)
    assert cluster.outcome.late_ms == 30_000


def test_a_broker_that_says_nothing_is_as_slow():
    cluster = of(dataclasses.replace(EVENT_HUBS, tells=False))
    cluster.quota(producer_byte_rate=1_000)
    assert cluster.produce(2_000).throttle_time_ms == 0
    assert cluster.outcome.late_ms > 0
    assert cluster.requests[-1].throttle_time_ms == cluster.outcome.late_ms


def test_what_a_test_injects_comes_in_the_brokers_manner():
    cluster = of(EVENT_HUBS)
    cluster.controls.add_throttle(None, None, 700, 2)
    assert cluster.produce().throttle_time_ms == 700
    assert cluster.outcome.late_ms == 700
    assert records_of(cluster.fetch()) > 0
    assert cluster.outcome.late_ms == 700


# -- fetch


def test_event_hubs_answers_a_fetch_late_and_with_its_records():
    cluster = of(EVENT_HUBS)
    cluster.produce(2_000)
    cluster.quota(consumer_byte_rate=1_000)
    response = cluster.fetch()
    assert records_of(response) > 2_000
    assert cluster.outcome.late_ms == response.throttle_time_ms > 0
    counted = cluster.metric("Fetch", "byte-rate")
    assert counted > 1_000, "and it is counted"


def test_event_hubs_answers_a_fetch_empty_that_would_come_too_late():
    cluster = of(EVENT_HUBS)
    cluster.produce(2_000)
    cluster.quota(consumer_byte_rate=10)
    response = cluster.fetch()
    assert records_of(response) == 0
    assert cluster.outcome.late_ms == response.throttle_time_ms == EVENT_HUBS.most_ms
    assert cluster.metric("Fetch", "byte-rate") == 0


def test_redpanda_answers_a_fetch_with_its_records_and_says_what_earlier_ones_cost():
    cluster = of(REDPANDA)
    cluster.produce(2_000)
    cluster.quota(consumer_byte_rate=1_000)
    first = cluster.fetch()
    assert records_of(first) > 2_000
    assert first.throttle_time_ms == 0
    second = cluster.fetch()
    assert records_of(second) > 2_000
    assert second.throttle_time_ms > 0
    assert cluster.outcome.late_ms == 0
    third = cluster.fetch()
    assert cluster.outcome.late_ms == second.throttle_time_ms
    assert third.throttle_time_ms > second.throttle_time_ms


def test_only_kafka_cuts_fetches_to_the_window():
    for manner, is_cut in ((KAFKA, True), (MANAGED, True), (REDPANDA, False), (EVENT_HUBS, False)):
        cluster = of(manner)
        for _ in range(5):
            cluster.produce(1_000)
        cluster.quota(consumer_byte_rate=2_000)
        response = cluster.fetch()
        got = records_of(response) + (0 if response.throttle_time_ms == 0 else 1)
        assert (got <= 2_001) == is_cut, manner.name


# -- what there is to ask


def keys_of(cluster):
    return {entry.api_key for entry in cluster.send(ApiVersionsRequest()).api_keys}


def test_what_is_not_there_is_not_advertised_and_not_answered():
    everything = keys_of(of(KAFKA))
    for manner in MANNERS.values():
        cluster = of(manner)
        assert keys_of(cluster) == everything - manner.absent
        assert manner.absent <= everything
    cluster = of(EVENT_HUBS)
    assert not {DESCRIBE_QUOTAS, ALTER_QUOTAS} & keys_of(cluster)
    assert cluster.send(DescribeClientQuotasRequest(components=[], strict=False)) is None
    assert cluster.outcome.must_close


def alteration(**names):
    entity = [
        AlterClientQuotasRequest.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in names.items()
    ]
    op = AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=5.0, remove=False)
    return AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=entity, ops=[op])])


def about_brokers(cluster):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=None
    )
    return cluster.send(DescribeConfigsRequest(resources=[resource])).results[0]


def test_a_managed_broker_keeps_quotas_and_its_configuration_to_itself():
    cluster = of(MANAGED)
    cluster.quota(producer_byte_rate=7)
    described = cluster.send(DescribeClientQuotasRequest(components=[], strict=False))
    assert (described.error_code, described.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    (altered,) = cluster.send(alteration(client_id="c")).entries
    assert altered.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert about_brokers(cluster).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", value="1")],
    )
    (refused,) = cluster.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert {value for values in cluster.state.quotas.values() for value in values.values()} == {7}


def test_redpanda_knows_quotas_of_client_ids_and_no_window():
    cluster = of(REDPANDA)
    cluster.quota(producer_byte_rate=7)
    part = DescribeClientQuotasRequest.ComponentData
    by_id = part(entity_type="client-id", match_type=0, match="c")
    by_user = part(entity_type="user", match_type=1, match=None)
    found = cluster.send(DescribeClientQuotasRequest(components=[by_id], strict=True))
    assert [entry.values[0].value for entry in found.entries] == [7]
    for asked in ([by_user], [by_user, by_id]):
        refused = cluster.send(DescribeClientQuotasRequest(components=asked, strict=True))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert cluster.send(alteration(client_id="d")).entries[0].error_code == ErrorCode.NONE
    assert cluster.send(alteration(user="u", client_id="d")).entries[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    described = about_brokers(cluster)
    assert described.error_code == ErrorCode.NONE
    assert not [entry.name for entry in described.configs if "quota" in entry.name]
    assert [entry.name for entry in about_brokers(of(KAFKA)).configs if "quota" in entry.name]


# -- choosing one


def test_manners_go_by_name():
    assert manner_of("redpanda") is REDPANDA
    assert manner_of(MANAGED) is MANAGED
    with pytest.raises(ConfigError, match="use one of kafka, redpanda, event-hubs, managed"):
        EmbeddedBroker(manner="pulsar")


def test_a_manners_window_is_a_default():
    assert EmbeddedBroker(manner="redpanda")._settings.samples == 2
    assert EmbeddedBroker(manner="redpanda", properties={"quota.window.num": "5"})._settings.samples == 5
    assert EmbeddedBroker()._settings.samples == 11


def test_refusing_needs_a_quota():
    cluster = of(EVENT_HUBS)
    cluster.quota(producer_byte_rate=UNLIMITED)
    assert cluster.produce(500_000).throttle_time_ms == 0
