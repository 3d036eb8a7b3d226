"""OTLP over gRPC against a server in the test, made from opentelemetry's own service definition."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import grpc
import pytest
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_grpc import GrpcSender
from kclient_telemetry.receiver.otlp_senders import Status
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

PAYLOADS = Path(__file__).parents[1] / "unit" / "telemetry" / "payloads"


class Service(MetricsServiceServicer):
    def __init__(self):
        self.requests = []
        self.metadata = []
        self.codes = []
        self.rejected = 0
        self.arrived = threading.Event()

    def Export(self, request, context):  # noqa: N802 # gRPC's name
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.arrived.set()
        if self.codes:
            context.abort(self.codes.pop(0), "as the test says")
        return ExportMetricsServiceResponse(
            partial_success=ExportMetricsPartialSuccess(rejected_data_points=self.rejected)
        )


@pytest.fixture
def service():
    service = Service()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    add_MetricsServiceServicer_to_server(service, server)
    service.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service
    server.stop(None).wait(10)


@pytest.fixture
def sender(service):
    made = GrpcSender(f"127.0.0.1:{service.port}", headers={"X-Tenant": "shop"}, timeout_ms=5_000)
    yield made
    made.close()


@pytest.mark.parametrize("compress", [True, False])
def test_a_real_push_arrives(service, compress):
    exporter = OtlpExporter(GrpcSender(f"http://127.0.0.1:{service.port}", compress=compress), linger_ms=0)
    fan_out = FanOut([exporter])
    data = (PAYLOADS / "java-consumer-0.bin").read_bytes()
    context = ClientTelemetryContext(1_000, AuthorizableRequestContext(client_id="orders"))
    fan_out.export_metrics(context, ClientTelemetryPayload(UUID(int=9 << 64), False, data))
    assert service.arrived.wait(10)
    fan_out.close(10_000)
    (request,) = service.requests
    assert sum(len(resource.scope_metrics) for resource in request.resource_metrics) == 97
    assert {"client_id", "client_instance_id", "principal"} <= {
        pair.key for pair in request.resource_metrics[0].resource.attributes
    }
    assert exporter.counters.exported == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.UNAVAILABLE, Status.RETRY),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Status.RETRY),
        (grpc.StatusCode.ABORTED, Status.RETRY),
        (grpc.StatusCode.INVALID_ARGUMENT, Status.REFUSED),
        (grpc.StatusCode.UNAUTHENTICATED, Status.REFUSED),
        (grpc.StatusCode.UNIMPLEMENTED, Status.REFUSED),
    ],
)
def test_what_the_specification_says_about_codes(service, sender, code, status):
    service.codes = [code]
    outcome = sender.send(b"")
    assert outcome.status is status
    assert outcome.detail == f"gRPC {code.name} as the test says"
    assert sender.send(b"").status is Status.ACCEPTED
    assert service.metadata[-1]["x-tenant"] == "shop"


def test_partial_success(service, sender):
    service.rejected = 5
    assert sender.send(b"").rejected_points == 5


def test_nobody_listens():
    sender = GrpcSender("127.0.0.1:1", timeout_ms=2_000)
    assert sender.send(b"").status is Status.RETRY
    sender.close()


def test_tls_is_tried_for_an_https_endpoint(service):
    sender = GrpcSender(f"https://127.0.0.1:{service.port}", timeout_ms=2_000)
    assert sender.send(b"").status is Status.RETRY
    assert service.requests == []
    sender.close()
