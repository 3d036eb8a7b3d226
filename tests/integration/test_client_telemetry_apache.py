"""Apache Kafka's ends of KIP-714: our client against its broker, its client against our broker."""

import time

from kclient_telemetry.messages import ZERO_UUID, uuid_text
from kclient_telemetry.otlp import parse

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.wire.messages import GetTelemetrySubscriptionsRequest, IncrementalAlterConfigsRequest
from tests.required import require_apache_kafka

CLIENT_METRICS = 16
PREFIX = "org.apache.kafka."


def subscribe(cluster, **config):
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name="all",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
                    for key, value in config.items()
                ],
            )
        ],
        validate_only=False,
    )
    with ClusterClient({"bootstrap.servers": cluster.bootstrap_servers}, SYSTEM_CLOCK) as client:
        assert client.ask(request).responses[0].error_code == 0
        # who asks before the broker has taken it up is told that nothing is wanted, and asks again in five minutes
        end = time.monotonic() + 60
        while not client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)).requested_metrics:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_our_client_pushes_to_apache_kafka(tmp_path, monkeypatch):
    require_apache_kafka()
    # a machine that stands still for a second must not cost the last push
    monkeypatch.setattr("kclient_quota.clients.telemetry.reporter.CLOSE_MS", 30_000)
    properties = {"metric.reporters": "TelemetryReceiver", "telemetry.receiver.folder": str(tmp_path)}
    with ApacheKafka(topics={"t": 1}, properties=properties) as cluster:
        subscribe(cluster, metrics=f"{PREFIX}producer.", **{"interval.ms": "500"})
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "ours"}) as producer:
            producer.produce("t", b"x")
            producer.flush(60)
            end = time.monotonic() + 60
            # librdkafka's statistics, where most figures come from, arrive every five seconds without a quota
            while len(list(tmp_path.glob("*,ours,500"))) < 15 and time.monotonic() < end:
                producer.poll(0.1)
            mine = producer.client_instance_id(0)
        files = sorted(tmp_path.glob("*,ours,500*"))
    assert len(files) >= 16
    assert {file.name.split(",")[1] for file in files} == {uuid_text(mine)}
    assert [file.name.endswith(",terminating") for file in files] == [False] * (len(files) - 1) + [True]
    names = {
        metric.name.removeprefix(PREFIX)
        for file in files
        for resource in parse(file.read_bytes()).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert names >= {
        "producer.connection.creation.total",
        "producer.node.request.latency.avg",
        "producer.record.queue.time.avg",
        "producer.produce.throttle.time.avg",
    }
    assert all(name.startswith("producer.") for name in names)


def test_apache_kafkas_clients_push_to_the_embedded_broker(java_tools):
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        cluster.set_client_metrics("all", metrics=[PREFIX + "producer.", PREFIX + "consumer."], interval_ms=300)
        servers = cluster.bootstrap_servers
        tool(
            java_tools, "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", "160",
            "--record-size", "100", "--throughput", "20", "--bootstrap-server", servers,
            "--command-property", "client.id=java-producer",
        )  # fmt: skip
        tool(
            java_tools, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers,
            "--topic", "t", "--from-beginning", "--timeout-ms", "6000", "--command-property", "client.id=java-consumer",
        )  # fmt: skip
        pushes, requests = cluster.pushes, cluster.requests
    assert {push.context.client_software_name for push in pushes} == {"apache-kafka-java"}
    for kind in ("producer", "consumer"):
        mine = [push for push in pushes if push.client_id == f"java-{kind}"]
        names = {name for push in mine for name in push.metric_names()}
        assert len(mine) >= 2, (
            kind,
            [(r.at_ms, r.client_id, r.api_key, r.response_bytes) for r in requests if r.api_key in (71, 72)],
        )
        assert f"{PREFIX}{kind}.node.request.latency.avg" in names
        assert all(name.startswith((PREFIX + "producer.", PREFIX + "consumer.")) for name in names)
        assert len({push.client_instance_id for push in mine}) == 1
        assert {push.push_interval_ms for push in mine} == {300}
    assert [push.terminating for push in pushes if push.client_id == "java-consumer"][-1]


def tool(java_tools, name, *arguments):
    done = java_tools.run(name, *arguments)
    assert done.returncode == 0 or "TimeoutException" in done.stderr + done.stdout, done.stdout + done.stderr
