"""The embedded broker's receiving end of KIP-714, met by our wire client and by librdkafka."""

import threading
import time
import urllib.request

import confluent_kafka
import pytest
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import ZERO_UUID
from kclient_telemetry.receiver.prometheus import PrometheusStore
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.command import main
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ConfigError
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.messages import (
    DescribeConfigsRequest,
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    PushTelemetryRequest,
)

CLIENT_METRICS = 16
PRODUCER_PREFIX = "org.apache.kafka.producer."


def connect(cluster, client_id="telemetry-test"):
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return Connection(ConnectionSettings(host, int(port), client_id), SYSTEM_CLOCK)


def wait_for_pushes(cluster, count, timeout_s=60):
    end = time.monotonic() + timeout_s
    while len(cluster.pushes) < count and time.monotonic() < end:
        time.sleep(0.02)
    return cluster.pushes


def subscribe(connection):
    return connection.send(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID))


def push(connection, subscription, metrics=b"", **more):
    return connection.send(
        PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            compression_type=0,
            metrics=metrics,
            **more,
        )
    )


def test_a_client_is_told_what_to_push_and_its_push_is_kept():
    with EmbeddedBroker() as cluster, connect(cluster) as connection:
        cluster.set_client_metrics("all", metrics=["org.apache."], interval_ms=100)
        told = subscribe(connection)
        assert (told.error_code, told.push_interval_ms, told.requested_metrics) == (0, 100, ["org.apache."])
        assert push(connection, told, b"\x0a\x00").error_code == ErrorCode.NONE
        (seen,) = cluster.pushes
        assert (seen.client_id, seen.payload, seen.terminating) == ("telemetry-test", b"\x0a\x00", False)
        assert seen.client_instance_id == told.client_instance_id
        assert (seen.context.client_software_name, seen.context.principal) == ("kclient-quota", "User:ANONYMOUS")


def test_a_changed_subscription_is_announced_by_refusing_the_old_one():
    with EmbeddedBroker() as cluster, connect(cluster) as connection:
        cluster.set_client_metrics("all", interval_ms=100)
        told = subscribe(connection)
        cluster.set_client_metrics("all", interval_ms=200)
        assert push(connection, told).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert subscribe(connection).push_interval_ms == 200
        cluster.delete_client_metrics("all")
        assert subscribe(connection).requested_metrics == []


def test_subscriptions_are_client_metrics_resources():
    with EmbeddedBroker() as cluster, connect(cluster) as connection:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name="orders",
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
                for key, value in {"metrics": "a.,b.", "interval.ms": "300", "match": "client_id=orders.*"}.items()
            ],
        )
        altered = connection.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert altered.responses[0].error_code == 0
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=CLIENT_METRICS, resource_name="orders", configuration_keys=None
        )
        described = connection.send(DescribeConfigsRequest(resources=[asked])).results[0]
        assert {entry.name: entry.value for entry in described.configs} == {
            "metrics": "a.,b.",
            "interval.ms": "300",
            "match": "client_id=orders.*",
        }
        listed = connection.send(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])).config_resources
        assert [entry.resource_name for entry in listed] == ["orders"]
        assert subscribe(connection).requested_metrics == []
        with connect(cluster, "orders-7") as other:
            assert sorted(subscribe(other).requested_metrics) == ["a.", "b."]


def test_a_reconnected_client_begins_anew():
    with EmbeddedBroker() as cluster:
        cluster.set_client_metrics("all", interval_ms=60_000)
        with connect(cluster) as connection:
            told = subscribe(connection)
            assert push(connection, told).error_code == ErrorCode.NONE
            assert push(connection, told).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        with connect(cluster) as connection:
            end = time.monotonic() + 60
            while (code := push(connection, told).error_code) and time.monotonic() < end:
                time.sleep(0.02)
            assert code == ErrorCode.NONE


def test_every_broker_follows_the_same_subscriptions():
    with EmbeddedBroker(brokers=2) as cluster, connect(cluster) as first:
        cluster.set_client_metrics("all", interval_ms=100)
        told = subscribe(first)
        host, port = cluster.bootstrap_servers.split(",")[1].rsplit(":", 1)
        with Connection(ConnectionSettings(host, int(port)), SYSTEM_CLOCK) as second:
            assert push(second, told, b"\x0a\x00").error_code == ErrorCode.NONE
        assert cluster.pushes[0].broker_id == 2


def test_the_broker_counts_its_telemetry_clients_as_kafka_does():
    with EmbeddedBroker() as cluster, connect(cluster) as connection:
        cluster.set_client_metrics("all", interval_ms=60_000)
        told = subscribe(connection)
        push(connection, told, b"\x0a\x00")
        push(connection, told, b"\x0a\x00")
        found = {name: value for (_, group, name, _), value in cluster.metrics().items() if group == "client-metrics"}
        assert (found["instance-count"], found["plugin-export-count"], found["throttle-count"]) == (1, 1, 1)


def test_an_exporter_that_refuses_makes_the_record_invalid():
    class Refusing:
        def export_metrics(self, context, payload):
            raise ValueError("no room")

    with EmbeddedBroker(exporters=[Refusing()]) as cluster, connect(cluster) as connection:
        cluster.set_client_metrics("all", interval_ms=100)
        told = subscribe(connection)
        # one that merely fails is not the client's fault; what is no OTLP is
        assert push(connection, told, b"nonsense").error_code == ErrorCode.INVALID_RECORD
        assert cluster.pushes == []


@pytest.mark.parametrize("wrong", [{"interval_ms": 1}, {"metrics": ["a", ""]}, {"match": {"colour": "red"}}])
def test_a_subscription_that_kafka_would_refuse(wrong):
    with EmbeddedBroker() as cluster, pytest.raises(ConfigError, match="client metrics 'all'"):
        cluster.set_client_metrics("all", **wrong)


def test_a_collector_needs_a_url(capsys):
    assert main(["--port", "0", "--otlp", "4318"]) == 2
    assert "--otlp 4318: write http://" in capsys.readouterr().err


def test_librdkafka_pushes_what_it_is_asked_for():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        cluster.set_client_metrics("all", metrics=[PRODUCER_PREFIX], interval_ms=200)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "plain"})
        producer.produce("t", b"x")
        producer.flush(60)
        pushes = wait_for_pushes(cluster, 3)
        del producer
        assert {name for push in pushes for name in push.metric_names()} >= {
            PRODUCER_PREFIX + name for name in ("connection.creation.total", "node.request.latency.avg")
        }
        assert {push.context.client_software_name for push in pushes} == {"confluent-kafka-python"}
        # librdkafka gives its last push up when it is not answered within a second: the next producer says it again
        end = time.monotonic() + 60
        while not cluster.pushes[-1].terminating:
            assert time.monotonic() < end
            seen = len(cluster.pushes)
            another = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "plain"})
            wait_for_pushes(cluster, seen + 1)
            del another
            time.sleep(0.5)


def test_the_broker_waits_neither_for_a_large_push_nor_for_the_page(monkeypatch):
    at_it = {}

    def noting(name, call):
        def noted(*args):
            at_it[name] = threading.current_thread()
            return call(*args)

        return noted

    for name in ("steps", "families"):
        monkeypatch.setattr(PrometheusStore, name, noting(name, getattr(PrometheusStore, name)))
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=PRODUCER_PREFIX + "depth")
    for number in range(20_000):
        metric.gauge.data_points.add(as_int=number)
    with EmbeddedBroker(metrics_port=0) as cluster, connect(cluster) as connection:
        cluster.set_client_metrics("all", metrics=[""], interval_ms=100)
        loop = cluster._call(threading.current_thread)
        assert push(connection, subscribe(connection), request.SerializeToString()).error_code == ErrorCode.NONE
        end = time.monotonic() + 60
        while b"producer_depth" not in (page := urllib.request.urlopen(cluster.metrics_url, timeout=60).read()):
            assert time.monotonic() < end, page
    assert loop not in {at_it["steps"], at_it["families"]}
