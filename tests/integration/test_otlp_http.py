"""OTLP over HTTP against a server in the test: what a collector would get, and what it may answer."""

import datetime as dt
import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import pytest
from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver import otlp_http
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_http import HttpSender
from kclient_telemetry.receiver.otlp_senders import Status
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from tests.certificates import authority_and_certificate
from tests.closed_port import closed_port

PAYLOADS = Path(__file__).parents[1] / "unit" / "telemetry" / "payloads"


class Collector:
    """An HTTP server that keeps what is posted and answers what `answers` says, then 200."""

    def __init__(self, tls=None):
        self.requests = []
        self.answers = []
        self.before = ()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.append((self.path, dict(self.headers), body, self.client_address))
                code, headers, answer = collector.answers.pop(0) if collector.answers else (200, {}, b"")
                if code is None:
                    self.close_connection = True
                    return
                for interim in collector.before:
                    self.send_response_only(interim)
                    self.send_header("Link", "<https://example.org>; rel=preload")
                    self.end_headers()
                self.send_response_only(code)
                for key, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(60)


@pytest.fixture
def collector():
    server = Collector()
    yield server
    server.stop()


@pytest.fixture
def sender(collector):
    made = HttpSender(collector.url, timeout_ms=60_000)
    yield made
    made.close()


def test_a_push_arrives_with_everything_known_about_its_client(collector):
    exporter = OtlpExporter(
        HttpSender(collector.url, headers={"Authorization": "Bearer x"}, timeout_ms=60_000), linger_ms=0
    )
    fan_out = FanOut([exporter])
    context = ClientTelemetryContext(1_000, AuthorizableRequestContext(client_id="orders", cluster_id="c"))
    for name in ("java-producer-0", "librdkafka-consumer-0"):
        data = (PAYLOADS / f"{name}.bin").read_bytes()
        fan_out.export_metrics(context, ClientTelemetryPayload(UUID(int=9 << 64), False, data))
    fan_out.close(60_000)
    bodies = b"".join(body for _, _, body, _ in collector.requests)
    resources = parse(bodies).resource_metrics
    assert sum(len(resource.scope_metrics) for resource in resources) == 109
    for resource in resources:
        known = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
        assert known["client_id"] == "orders"
        assert known["cluster_id"] == "c"
    path, headers, _, _ = collector.requests[0]
    assert path == "/v1/metrics"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["Authorization"] == "Bearer x"
    assert exporter.counters.exported == 2


def test_closing_does_not_wait_for_an_answer_that_has_begun_and_does_not_end(collector):
    collector.answers = [(200, {"Content-Length": "9"}, b"begun")] * 2
    sender = HttpSender(collector.url, timeout_ms=600_000)
    exporter = OtlpExporter(sender, linger_ms=0)
    context = ClientTelemetryContext(1_000, AuthorizableRequestContext())
    data = (PAYLOADS / "librdkafka-consumer-0.bin").read_bytes()
    FanOut([exporter]).export_metrics(context, ClientTelemetryPayload(UUID(int=9 << 64), False, data))
    while not collector.requests:
        time.sleep(0.01)
    closing = threading.Thread(target=exporter.close, args=(300,), daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


def test_the_connection_is_kept(collector, sender):
    for _ in range(3):
        assert sender.send(b"").status is Status.ACCEPTED
    assert len({address for _, _, _, address in collector.requests}) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, Status.ACCEPTED) for code in (200, 202)),
        *((code, Status.REFUSED) for code in (401, 403, 404, 500)),
        *((code, Status.UNREADABLE) for code in (400, 413)),
        *((code, Status.RETRY) for code in (429, 502, 503, 504)),
    ],
)
def test_what_the_specification_says_about_answers(collector, sender, code, status):
    collector.answers = [(code, {}, b"because")]
    assert sender.send(b"x").status is status
    assert sender.send(b"x").status is Status.ACCEPTED


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", 7_000),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 90_000),
        ("Wed, 21 Oct 2026 07:26:00 GMT", 0),
        ("9" * 5_000, 10**12),
        ("soon", None),
        ("Wed, 99 Oct 2026", None),
        ("", None),
    ],
)
def test_retry_after(collector, sender, header, expected, monkeypatch):
    monkeypatch.setattr(otlp_http.time, "time", lambda: dt.datetime(2026, 10, 21, 7, 26, 30, tzinfo=dt.UTC).timestamp())
    collector.answers = [(503, {"Retry-After": header}, b"later")]
    outcome = sender.send(b"x")
    assert outcome.retry_after_ms == expected
    assert outcome.detail == "HTTP 503 later"


def test_a_time_to_come_again_is_by_the_clock_of_who_says_it(collector, sender, monkeypatch):
    monkeypatch.setattr(otlp_http.time, "time", lambda: dt.datetime(2026, 10, 21, 5, 26, 30, tzinfo=dt.UTC).timestamp())
    said = {"Date": "Wed, 21 Oct 2026 07:26:30 GMT", "Retry-After": "Wed, 21 Oct 2026 07:26:35 GMT"}
    collector.answers = [(503, said, b"later"), (503, {**said, "Date": "soon"}, b"later")]
    assert sender.send(b"x").retry_after_ms == 5_000, "two hours and five seconds: ours is behind"
    assert sender.send(b"x").retry_after_ms == 7_205_000, "who does not say what time it is has ours"


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirection_says_where_to(collector, sender, code):
    """An ingress that wants https, mostly; what is lost until the URL is mended should not be for long."""
    collector.answers = [(code, {"Location": "https://otel.example/v1/metrics"}, b"<html>moved")]
    outcome = sender.send(b"x")
    assert outcome.status is Status.REFUSED
    assert outcome.detail == f"HTTP {code}: redirected to https://otel.example/v1/metrics; give that URL"


def test_partial_success(collector, sender):
    partial = ExportMetricsPartialSuccess(rejected_data_points=4, error_message="too old")
    collector.answers = [
        (200, {}, ExportMetricsServiceResponse(partial_success=partial).SerializeToString()),
        (200, {}, b"{} no protobuf"),
    ]
    outcome = sender.send(b"x")
    assert (outcome.status, outcome.rejected_points, outcome.detail) == (Status.ACCEPTED, 4, "too old")
    assert sender.send(b"x").status is Status.ACCEPTED


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
@pytest.mark.parametrize(
    ("answer", "rejected", "detail"),
    [
        (b'{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "too old"}}', 3, "too old"),
        (b'{"partialSuccess": {"rejectedDataPoints": 3}, "somethingNew": 1}', 3, ""),
        (b"{}", 0, ""),
        (b"null", 0, ""),
        (b"[" * 60_000, 0, ""),
        (b'{"partialSuccess": {"rejectedDataPoints": "many"}}', 0, ""),
        (b'{"partialSuccess": {"rejectedDataPoints": "-1"}}', 0, ""),
    ],
)
def test_partial_success_in_json(collector, sender, kind, answer, rejected, detail):
    collector.answers = [(200, {"Content-Type": kind}, answer)]
    outcome = sender.send(b"x")
    assert (outcome.status, outcome.rejected_points, outcome.detail) == (Status.ACCEPTED, rejected, detail)


def test_what_comes_before_an_answer_is_none(collector, sender):
    """A proxy may say that it is at it; a push that was taken counted as refused, and the next had its answer."""
    collector.before = (100, 102, 103)
    collector.answers = [(200, {}, b""), (429, {"Retry-After": "7"}, b""), (400, {}, b"bad")]
    statuses = [sender.send(b"x").status for _ in range(4)]
    assert statuses == [Status.ACCEPTED, Status.RETRY, Status.UNREADABLE, Status.ACCEPTED]
    assert len({address for *_, address in collector.requests}) == 1


def test_a_page_is_no_collectors_answer(collector, sender):
    """A wrong URL, or a proxy that asks to log in: what was posted there is nowhere."""
    collector.answers = [(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>log in</html>")]
    outcome = sender.send(b"x")
    assert outcome.status is Status.REFUSED
    assert outcome.detail == "HTTP 200 with a page of HTML: no collector is there; check URL and proxy"


def test_a_broken_connection_is_worth_repeating_and_is_made_anew(collector, sender):
    assert sender.send(b"x").status is Status.ACCEPTED
    collector.answers = [(None, {}, b"")]
    assert sender.send(b"x").status is Status.RETRY
    assert sender.send(b"x").status is Status.ACCEPTED


def test_nobody_listens():
    with closed_port() as port:
        outcome = HttpSender(f"http://127.0.0.1:{port}", timeout_ms=60_000).send(b"x")
    assert outcome.status is Status.RETRY
    assert "ConnectionRefused" in outcome.detail


def test_a_path_is_kept_and_compression_can_be_switched_off(collector):
    sender = HttpSender(f"{collector.url}/otlp/here?tenant=1", compress=False, timeout_ms=60_000)
    assert sender.send(b"plain").status is Status.ACCEPTED
    sender.close()
    path, headers, body, _ = collector.requests[0]
    assert (path, body) == ("/otlp/here?tenant=1", b"plain")
    assert "Content-Encoding" not in headers


def test_an_answer_without_end_is_not_kept(collector, sender):
    collector.answers = [(503, {}, b"x" * 50_000_000)]
    tracemalloc.start()
    assert sender.send(b"x").status is Status.RETRY
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60_000_000, "what the test sends, and little more"
    assert sender.send(b"y").status is Status.ACCEPTED


class Trickle:
    """A collector that answers with `first`, and then goes on with `more`, again and again."""

    def __init__(self, first, more):
        self.gone = threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        self.thread = threading.Thread(target=self.answer, args=(first, more), daemon=True)
        self.thread.start()

    def answer(self, first, more):
        try:
            connection, _ = self.server.accept()
            with connection:
                connection.sendall(first)
                while not self.gone.wait(0.02):
                    connection.sendall(more)
        except OSError:
            self.gone.set()  # as is to be

    def stop(self):
        self.gone.set()
        self.server.close()
        self.thread.join(60)


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n"),
    ],
    ids=["status", "header", "continue", "body", "body without a length", "chunks", "trailers"],
)
def test_an_answer_that_goes_on_and_on_is_not_waited_for_longer_than_for_none(first, more):
    """Each byte came in time, and so the next push waited for as long as there were bytes, uncounted and untold."""
    collector = Trickle(first, more)
    sender = HttpSender(collector.url, timeout_ms=300)
    found = []
    sending = threading.Thread(target=lambda: found.append(sender.send(b"x")), daemon=True)
    sending.start()
    sending.join(20)
    sender.close()
    collector.stop()
    assert found, "it still reads"
    assert found[0].status is Status.RETRY
    assert "no whole answer within 300 ms" in found[0].detail


def test_mutual_tls(tmp_path):
    files = authority_and_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate_file, files.key_file)
    context.load_verify_locations(files.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Collector(context)
    try:
        sender = HttpSender(server.url, tls=files, timeout_ms=60_000)
        assert sender.send(b"secret").status is Status.ACCEPTED
        sender.close()
        assert server.requests[0][2] == b"secret"
        stranger = HttpSender(server.url, timeout_ms=60_000)
        outcome = stranger.send(b"x")
        assert outcome.status is Status.RETRY
        assert "CERTIFICATE_VERIFY_FAILED" in outcome.detail
    finally:
        server.stop()


def test_certificates_that_are_renewed_on_the_disk_are_used(tmp_path):
    """Those of a day are: the sender went on with its first ones, and a collector with new ones got nothing more."""
    files = authority_and_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve_renewed():
        context.load_cert_chain(files.certificate_file, files.key_file)
        context.load_verify_locations(files.ca_file)

    serve_renewed()
    server = Collector(context)
    sender = HttpSender(server.url, tls=files, timeout_ms=60_000)
    try:
        assert sender.send(b"before").status is Status.ACCEPTED
        server.answers = [(None, {}, b"")]  # the connection ends
        authority_and_certificate(tmp_path)
        serve_renewed()
        whole = Path(files.ca_file).read_bytes()
        Path(files.ca_file).write_bytes(b"half of it")
        assert [sender.send(b"x").status for _ in range(2)] == [Status.RETRY, Status.RETRY]
        Path(files.ca_file).write_bytes(whole)
        assert sender.send(b"after").status is Status.ACCEPTED
        assert server.requests[-1][2] == b"after"
    finally:
        sender.close()
        server.stop()


def test_credentials_of_a_url_become_a_header(collector):
    sender = HttpSender(f"http://me:se%40cret@127.0.0.1:{collector.port}", timeout_ms=60_000)
    assert sender.send(b"x").status is Status.ACCEPTED
    sender.close()
    path, headers, _, _ = collector.requests[0]
    assert headers["Authorization"] == "Basic bWU6c2VAY3JldA=="
    assert (path, headers["Host"]) == ("/v1/metrics", f"127.0.0.1:{collector.port}")


def test_the_environments_proxy_is_asked(collector, monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://p:w@127.0.0.1:{collector.port}")
    sender = HttpSender("http://collector.example:4318", timeout_ms=60_000)
    assert sender.send(b"x").status is Status.ACCEPTED
    path, headers, _, _ = collector.requests[0]
    assert path == "http://collector.example:4318/v1/metrics"
    assert headers["Proxy-Authorization"] == "Basic cDp3"
    sender.close()
    monkeypatch.setenv("no_proxy", "collector.example")
    assert HttpSender("http://collector.example:1", timeout_ms=100).send(b"x").status is Status.RETRY
    assert len(collector.requests) == 1


@pytest.mark.parametrize(
    ("endpoint", "is_straight"),
    [
        ("http://collector", False),
        ("http://collector:4318", True),
        ("http://plain", True),
        ("http://a.svc:4318", True),
        ("http://10.96.3.4:4318", True),
        ("http://10.112.0.1:4318", False),
        ("http://192.0.2.7", True),
        ("http://[fd00::5]:4318", True),
        ("http://[2001:db8::1]:4318", False),
        ("http://[2001:db8::2]:4318", True),
    ],
)
def test_who_is_not_behind_the_environments_proxy(collector, endpoint, is_straight, monkeypatch):
    """As for OpenTelemetry's own exporters: hosts, ports of hosts, and networks, as of services in Kubernetes."""
    monkeypatch.setenv("http_proxy", collector.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "collector:4318, plain:80,.svc,10.96.0.0/12,192.0.2.7,fd00::/8,2001:db8::2,x/y,/,")
    sender = HttpSender(endpoint, timeout_ms=60_000)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", Unresolved())
        assert (sender.send(b"x").status is Status.RETRY) is is_straight
    sender.close()
    assert len(collector.requests) == (not is_straight)


class Unresolved:
    """A network of which only this machine can be reached."""

    getaddrinfo = staticmethod(socket.getaddrinfo)

    def __call__(self, host, *args, **kwargs):
        if host != "127.0.0.1":
            raise OSError("unreachable")
        return self.getaddrinfo(host, *args, **kwargs)
