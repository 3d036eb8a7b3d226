"""OTLP over gRPC against a server in the test, made from opentelemetry's own service definition."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_grpc import GrpcSender
from kclient_telemetry.receiver.otlp_senders import Status
from kclient_telemetry.receiver.otlp_settings import settings_of
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from tests.certificates import authority_and_certificate

PAYLOADS = Path(__file__).parents[1] / "unit" / "telemetry" / "payloads"
PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}


class Service(MetricsServiceServicer):
    def __init__(self):
        self.requests = []
        self.metadata = []
        self.codes = []
        self.rejected, self.why = 0, ""
        self.details = None
        self.arrived = threading.Event()

    def Export(self, request, context):  # noqa: N802 # gRPC's name
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.arrived.set()
        if self.details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", self.details),))
        if self.codes:
            context.abort(self.codes.pop(0), "as the test says")
        return ExportMetricsServiceResponse(
            partial_success=ExportMetricsPartialSuccess(rejected_data_points=self.rejected, error_message=self.why)
        )


@pytest.fixture
def service(tmp_path):
    service = Service()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    add_MetricsServiceServicer_to_server(service, server)
    service.port = server.add_insecure_port("127.0.0.1:0")
    service.socket = tmp_path / "collector.sock"
    server.add_insecure_port(f"unix:{service.socket}")
    server.start()
    yield service
    server.stop(None).wait(60)


@pytest.fixture
def sender(service):
    made = GrpcSender(f"127.0.0.1:{service.port}", headers={"X-Tenant": "shop"}, timeout_ms=60_000)
    yield made
    made.close()


@pytest.mark.parametrize("compress", [True, False])
def test_a_real_push_arrives(service, compress):
    exporter = OtlpExporter(
        GrpcSender(f"http://127.0.0.1:{service.port}", compress=compress, timeout_ms=60_000), linger_ms=0
    )
    fan_out = FanOut([exporter])
    data = (PAYLOADS / "java-consumer-0.bin").read_bytes()
    context = ClientTelemetryContext(1_000, AuthorizableRequestContext(client_id="orders"))
    fan_out.export_metrics(context, ClientTelemetryPayload(UUID(int=9 << 64), False, data))
    assert service.arrived.wait(60)
    fan_out.close(60_000)
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
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Status.REFUSED),
        (grpc.StatusCode.ABORTED, Status.RETRY),
        (grpc.StatusCode.INVALID_ARGUMENT, Status.UNREADABLE),
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


@pytest.mark.parametrize("scheme", ["unix:", "unix://"])
def test_a_socket_of_this_machine(service, scheme):
    sender = settings_of(
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"{scheme}{service.socket}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "60000",
        }
    ).sender()
    assert sender.send(b"").status is Status.ACCEPTED
    sender.close()


def test_nobody_listens():
    sender = GrpcSender("127.0.0.1:1", timeout_ms=2_000)
    assert sender.send(b"").status is Status.RETRY
    sender.close()


def test_tls_is_tried_for_an_https_endpoint(service):
    sender = GrpcSender(f"https://127.0.0.1:{service.port}", timeout_ms=2_000)
    assert sender.send(b"").status is Status.RETRY
    assert service.requests == []
    sender.close()


def retry_info(seconds, nanos=0):
    """As Google's own messages have it."""
    status = status_pb2.Status(code=8, message="busy")
    status.details.add().Pack(error_details_pb2.DebugInfo(detail="x" * 300))
    status.details.add().Pack(
        error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos))
    )
    return status.SerializeToString()


@pytest.mark.parametrize(
    ("details", "status", "delay_ms"),
    [
        (retry_info(7), Status.RETRY, 7_000),
        (retry_info(0, 250_000_000), Status.RETRY, 250),
        (retry_info(0), Status.RETRY, 0),
        (retry_info(-5), Status.RETRY, 0),
        (retry_info(0, -1), Status.RETRY, 0),
        (retry_info(-1, -500_000_000), Status.RETRY, 0),
        (b"\xff\xff", Status.REFUSED, None),
        (b"\x1a\x05ab", Status.REFUSED, None),
        (b"", Status.REFUSED, None),
    ],
)
def test_a_server_that_is_exhausted_says_when_to_come_again_or_is_not_asked(service, sender, details, status, delay_ms):
    service.codes, service.details = [grpc.StatusCode.RESOURCE_EXHAUSTED], details
    outcome = sender.send(b"")
    assert (outcome.status, outcome.retry_after_ms) == (status, delay_ms)
    service.codes = [grpc.StatusCode.UNAVAILABLE]
    outcome = sender.send(b"")
    assert (outcome.status, outcome.retry_after_ms) == (Status.RETRY, delay_ms)


def test_tls_with_a_private_authority_both_ways_and_credentials_in_the_url(service, tmp_path):
    tls = authority_and_certificate(tmp_path)
    ca, certificate, key = (Path(name).read_bytes() for name in (tls.ca_file, tls.certificate_file, tls.key_file))
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    add_MetricsServiceServicer_to_server(service, server)
    credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        sender = settings_of(PATIENT, f"grpcs://me:se%40cret@127.0.0.1:{port}", tls=tls).sender()
        assert sender.send(b"").status is Status.ACCEPTED
        assert service.metadata[-1]["authorization"] == "Basic bWU6c2VAY3JldA=="
        sender.close()
        private = {"OTEL_EXPORTER_OTLP_CERTIFICATE": tls.ca_file}
        stranger = settings_of(private, f"grpcs://127.0.0.1:{port}").sender()
        assert stranger.send(b"").status is Status.RETRY
        stranger.close()
    finally:
        server.stop(None).wait(60)


def test_certificates_that_are_renewed_on_the_disk_are_used(service, tmp_path):
    """A channel connects with those that it was made with, for ever."""
    tls = authority_and_certificate(tmp_path)

    def served(port=0):
        ca, certificate, key = (Path(name).read_bytes() for name in (tls.ca_file, tls.certificate_file, tls.key_file))
        server = grpc.server(ThreadPoolExecutor(max_workers=2))
        add_MetricsServiceServicer_to_server(service, server)
        credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
        server.start()
        return server, bound

    server, port = served()
    sender = settings_of(PATIENT, f"grpcs://127.0.0.1:{port}", tls=tls).sender()
    try:
        assert sender.send(b"").status is Status.ACCEPTED
        server.stop(None).wait(60)
        authority_and_certificate(tmp_path)
        server, _ = served(port)
        Path(tls.ca_file).rename(tmp_path / "moved away")
        assert sender.send(b"").status is Status.RETRY
        (tmp_path / "moved away").rename(tls.ca_file)
        assert sender.send(b"").status is Status.RETRY
        assert sender.send(b"").status is Status.ACCEPTED
    finally:
        sender.close()
        server.stop(None).wait(60)


def test_an_answer_longer_than_grpc_takes_is_an_answer(service, sender):
    """It was taken for a push that is too large, whose halves were sent again though the collector had them."""
    service.rejected, service.why = 2, "no " * 2_000_000
    outcome = sender.send(b"")
    assert (outcome.status, outcome.rejected_points, len(outcome.detail)) == (Status.ACCEPTED, 2, 1_000)
