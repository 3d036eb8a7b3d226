"""One OTLP export, over HTTP or gRPC: bytes out, outcome back."""

import gzip
import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped] # grpcio ships no types
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # protobuf ships no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

DEFAULT_TIMEOUT_MS = 10_000
HTTP_PATH = "/v1/metrics"
_GRPC_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

# The OTLP specification's lists of what is worth repeating.
_RETRYABLE_HTTP = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_HTTP_OK = range(200, 300)


class Status(Enum):
    """What became of an export."""

    ACCEPTED = "accepted"
    RETRY = "worth repeating"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The collector's answer.

    Attributes:
        detail: for people.
        retry_after_ms: how long the collector asks to be left alone; None when it does not say.
        rejected_points: points of an accepted export that the collector did not want.
    """

    status: Status
    detail: str = ""
    retry_after_ms: int | None = None
    rejected_points: int = 0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: whom to trust (None: the system's authorities) and, for mTLS, who we are."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class Sender(Protocol):
    """Sends one ExportMetricsServiceRequest at a time."""

    def send(self, body: bytes) -> Outcome:
        """Export `body`; never raises for what the network or the collector does."""
        ...

    def close(self) -> None:
        """Give up the connection."""
        ...


class HttpSender:
    """OTLP over HTTP, protobuf-encoded, over one kept-alive connection.

    Args:
        endpoint: `http://` or `https://` URL; without a path it gets `/v1/metrics`.
        headers: sent with every export, as `Authorization`.
        tls: for https.
        compress: gzip the bodies.
        timeout_ms: of connecting and of every read.

    Raises:
        ValueError: the endpoint is no http or https URL with a host.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        compress: bool = True,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ValueError(f"endpoint {endpoint!r} is no OTLP/HTTP endpoint: expected http://host:port[/path]")
        path = url.path if url.path.strip("/") else HTTP_PATH
        self._path = f"{path}?{url.query}" if url.query else path
        self._compress = compress
        self._headers = {"Content-Type": "application/x-protobuf", **(headers or {})}
        if compress:
            self._headers["Content-Encoding"] = "gzip"
        self._connection = _http_connection(url.scheme, url.hostname, url.port, tls or TlsFiles(), timeout_ms)

    def send(self, body: bytes) -> Outcome:
        """POST `body`."""
        try:
            self._connection.request(
                "POST", self._path, gzip.compress(body, 1) if self._compress else body, self._headers
            )
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return Outcome(Status.RETRY, f"{type(error).__name__}: {error}")
        return _http_outcome(response.status, response.getheader("Retry-After"), answer)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _http_connection(
    scheme: str, host: str, port: int | None, tls: TlsFiles, timeout_ms: int
) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_ms / 1000)
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.certificate_file:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return http.client.HTTPSConnection(host, port, timeout=timeout_ms / 1000, context=context)


def _http_outcome(code: int, retry_after: str | None, answer: bytes) -> Outcome:
    if code in _HTTP_OK:
        return _accepted(answer)
    detail = f"HTTP {code} {answer[:200].decode('utf-8', 'replace')}".rstrip()
    if code not in _RETRYABLE_HTTP:
        return Outcome(Status.REFUSED, detail)
    # An HTTP date is possible as well; then our own back-off does.
    seconds = int(retry_after) if retry_after and retry_after.isdecimal() else None
    return Outcome(Status.RETRY, detail, None if seconds is None else seconds * 1000)


def _accepted(answer: bytes) -> Outcome:
    """A successful answer; some collectors send none, and one that cannot be read has accepted all the same."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return Outcome(Status.ACCEPTED)
    return Outcome(Status.ACCEPTED, partial.error_message, rejected_points=partial.rejected_data_points)


class GrpcSender:
    """OTLP over gRPC.

    Args:
        endpoint: `host:port`, or a URL whose scheme says whether TLS is used.
        headers: sent as metadata with every export.
        tls: use TLS with these files; None: only for an `https://` endpoint, with the system's authorities.
        compress: gzip the messages.
        timeout_ms: of every export.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        compress: bool = True,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        if not url.netloc:
            raise ValueError(f"endpoint {endpoint!r} is no OTLP/gRPC endpoint: expected host:port")
        if tls is None and url.scheme == "https":
            tls = TlsFiles()
        compression = grpc.Compression.Gzip if compress else grpc.Compression.NoCompression
        self._channel = (
            grpc.insecure_channel(url.netloc, compression=compression)
            if tls is None
            else grpc.secure_channel(url.netloc, _grpc_credentials(tls), compression=compression)
        )
        # The body is encoded already; what comes back is decoded by us.
        self._export = self._channel.unary_unary(_GRPC_METHOD, request_serializer=None, response_deserializer=None)
        self._metadata = tuple((key.lower(), value) for key, value in (headers or {}).items())
        self._timeout_s = timeout_ms / 1000

    def send(self, body: bytes) -> Outcome:
        """Call MetricsService/Export with `body`."""
        try:
            answer = self._export(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            status = Status.RETRY if error.code() in _RETRYABLE_GRPC else Status.REFUSED
            return Outcome(status, f"gRPC {error.code().name} {error.details()}")
        return _accepted(answer)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _grpc_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file))


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
