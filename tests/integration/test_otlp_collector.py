"""Against a real OpenTelemetry Collector: real payloads arrive whole, with what we know about their clients.

The collector (otlpreceiver and debugexporter) is built from its Go modules, which takes some minutes once; it is
kept in `.cache`. Without Go these tests are left out.
"""

import os
import re
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from uuid import UUID

import pytest
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_grpc import GrpcSender
from kclient_telemetry.receiver.otlp_http import HttpSender
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload

from tests.required import require, require_tool

VERSION = "v0.162.0"
ROOT = Path(__file__).parents[2]
PAYLOADS = ROOT / "tests" / "unit" / "telemetry" / "payloads"
BINARY = ROOT / ".cache" / f"otelcol-{VERSION}" / "otelcol"

MANIFEST = f"""
dist:
  name: otelcol
  output_path: ./dist
receivers:
  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver {VERSION}
exporters:
  - gomod: go.opentelemetry.io/collector/exporter/debugexporter {VERSION}
"""

CONFIG = """
receivers:
  otlp:
    protocols:
      http: {{endpoint: "{host}:{http}"}}
      grpc: {{endpoint: "{host}:{grpc}"}}
exporters:
  debug: {{verbosity: detailed, use_internal_logger: false}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [debug]}}
"""

pytestmark = pytest.mark.timeout(900)


def build():
    """Build the collector, in a folder of its own so that nobody ever sees half a binary."""
    require_tool("go", "building the OpenTelemetry Collector")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BINARY.parent) as folder:
        (Path(folder) / "builder.yaml").write_text(MANIFEST)
        environment = os.environ | {"GOBIN": folder, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
        for command in (
            ["go", "install", f"go.opentelemetry.io/collector/cmd/builder@{VERSION}"],
            ["./builder", "--config", "builder.yaml"],
        ):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                require(f"the OpenTelemetry Collector cannot be built: {done.stderr[-500:]}")
        (Path(folder) / "dist" / "otelcol").rename(BINARY)


HOST = "127.0.0.9"
"""An address of its own: a port that is free there is not given to anybody else's server meanwhile."""


def free_ports(count):
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Collector:
    """A collector in a process of its own; what its debug exporter prints is kept."""

    def __init__(self, folder):
        self.http_port, self.grpc_port = free_ports(2)
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(host=HOST, http=self.http_port, grpc=self.grpc_port))
        self.process = subprocess.Popen(
            [BINARY, "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        try:
            self.wait_for(lambda lines: any("Everything is ready" in line for line in lines))
        except BaseException:
            self.stop()
            raise

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.strip())
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.lines), 120), "\n".join(self.lines[-30:])

    def stop(self):
        self.process.terminate()
        self.process.wait(120)
        self.reader.join(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def binary():
    if not BINARY.exists():
        build()


@pytest.fixture
def collector(binary, tmp_path):
    running = Collector(tmp_path)
    yield running
    running.stop()


WHO = AuthorizableRequestContext(
    client_id="orders",
    client_address="10.1.2.3",
    client_software_name="apache-kafka-java",
    client_software_version="4.3.1",
    principal="User:alice",
    broker_id=2,
    cluster_id="cluster",
)


def count(lines, pattern):
    return sum(re.fullmatch(pattern, line) is not None for line in lines)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_real_collector_understands_what_is_forwarded(collector, protocol):
    sender = (
        HttpSender(f"http://{HOST}:{collector.http_port}", timeout_ms=60_000)
        if protocol == "http"
        else GrpcSender(f"{HOST}:{collector.grpc_port}", timeout_ms=60_000)
    )
    exporter = OtlpExporter(sender)
    fan_out = FanOut([exporter])
    names = ("java-producer-0", "librdkafka-consumer-0")
    for name in names:
        data = (PAYLOADS / f"{name}.bin").read_bytes()
        payload = ClientTelemetryPayload(UUID(int=0x0123456789ABCDEFFEDCBA9876543210), False, data)
        fan_out.export_metrics(ClientTelemetryContext(30_000, WHO), payload)
    fan_out.close(120_000)
    assert exporter.counters.exported == 2
    resources = len(names)
    collector.wait_for(lambda lines: count(lines, r"ResourceMetrics #\d+") == resources)
    collector.wait_for(lambda lines: count(lines, r"ScopeMetrics #\d+") == 108 + 1)
    for expected in (
        "-> client_instance_id: Str(ASNFZ4mrze_-3LqYdlQyEA)",
        "-> client_id: Str(orders)",
        "-> principal: Str(User:alice)",
        "-> client_software_name: Str(apache-kafka-java)",
        "-> client_software_version: Str(4.3.1)",
        "-> client_source_address: Str(10.1.2.3)",
        "-> broker_id: Str(2)",
        "-> cluster_id: Str(cluster)",
    ):
        collector.wait_for(lambda lines, line=expected: lines.count(line) == resources)
    collector.wait_for(lambda lines: lines.count("-> group_id: Str(g)") == 1)
    collector.wait_for(lambda lines: lines.count("-> Name: org.apache.kafka.producer.connection.creation.total") == 1)
    collector.wait_for(lambda lines: "-> AggregationTemporality: Delta" in lines)


def test_a_real_collector_refuses_what_is_no_otlp(collector):
    sender = HttpSender(f"http://{HOST}:{collector.http_port}", timeout_ms=60_000)
    outcome = sender.send(b"\x0a\xff")
    sender.close()
    assert outcome.status.value == "unreadable"
    assert "HTTP 400" in outcome.detail
