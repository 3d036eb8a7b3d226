"""OTLP through the environment's proxy where it has to tunnel: HTTPS, and gRPC."""

import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from kclient_telemetry.receiver.otlp_senders import Status
from kclient_telemetry.receiver.otlp_settings import settings_of
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from tests.certificates import authority_and_certificate

PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}


class Tunnels:
    """A proxy that only knows CONNECT; remembers where to, and with which credentials."""

    def __init__(self):
        self.asked = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://p:w@127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._server.accept()[0],), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):  # whoever has been answered may go at any time
            self._tunnel(client)

    def _tunnel(self, client):
        head = b""
        while b"\r\n\r\n" not in head and (part := client.recv(65_536)):
            head += part
        if not head:
            return
        lines = head.decode().split("\r\n")
        self.asked.append(
            (lines[0].rpartition(" ")[0], next((line for line in lines if line.lower().startswith("proxy-auth")), ""))
        )
        host, _, port = lines[0].split()[1].rpartition(":")
        with socket.create_connection((host, int(port))) as upstream:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=self._pump, args=(upstream, client), daemon=True).start()
            self._pump(client, upstream)

    @staticmethod
    def _pump(source, target):
        with contextlib.suppress(OSError):
            while part := source.recv(65_536):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)

    def close(self):
        self._server.close()


@pytest.fixture
def proxy(monkeypatch):
    tunnels = Tunnels()
    for name in ("http_proxy", "https_proxy", "no_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("https_proxy", tunnels.url)
    yield tunnels
    tunnels.close()


def test_https_with_a_private_authority_goes_through_a_tunnel(proxy, tmp_path):
    tls = authority_and_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate_file, tls.key_file)
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        environment = {
            "OTEL_EXPORTER_OTLP_CERTIFICATE": tls.ca_file,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            **PATIENT,
        }
        sender = settings_of(environment, f"https://127.0.0.1:{server.server_port}").sender()
        assert sender.send(b"secret").status is Status.ACCEPTED
        sender.close()
        server.shutdown()
    assert posted == [b"secret"]
    assert proxy.asked == [(f"CONNECT 127.0.0.1:{server.server_port}", "Proxy-Authorization: Basic cDp3")]


class Service(MetricsServiceServicer):
    def Export(self, request, context):  # noqa: N802 # gRPC's name
        return ExportMetricsServiceResponse()


def test_grpc_over_tls_goes_through_a_tunnel(proxy, tmp_path):
    tls = authority_and_certificate(tmp_path)
    key, certificate = (Path(name).read_bytes() for name in (tls.key_file, tls.certificate_file))
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    try:
        environment = {"OTEL_EXPORTER_OTLP_CERTIFICATE": tls.ca_file, **PATIENT}
        sender = settings_of(environment, f"grpcs://127.0.0.1:{port}").sender()
        assert sender.send(b"").status is Status.ACCEPTED
        sender.close()
    finally:
        server.stop(None).wait(60)
    assert proxy.asked
    assert all(line == f"CONNECT 127.0.0.1:{port}" for line, _ in proxy.asked)
