"""One OTLP export over gRPC: bytes out, outcome back."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kclient_telemetry.errors import MissingExtraError

try:
    import grpc  # type: ignore[import-untyped] # grpcio ships no types
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "OTLP over gRPC needs grpcio: pip install 'kclient-quota[grpc]', or use HttpSender"
    ) from error

from kclient_telemetry.receiver.otlp_senders import DEFAULT_TIMEOUT_MS, Outcome, Status, TlsFiles, accepted

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

# The OTLP specification's list of what is worth repeating.
_RETRYABLE = frozenset(
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
            else grpc.secure_channel(url.netloc, _credentials(tls), compression=compression)
        )
        # The body is encoded already; what comes back is decoded by us.
        self._export = self._channel.unary_unary(_METHOD, request_serializer=None, response_deserializer=None)
        self._metadata = tuple((key.lower(), value) for key, value in (headers or {}).items())
        self._timeout_s = timeout_ms / 1000

    def send(self, body: bytes) -> Outcome:
        """Call MetricsService/Export with `body`."""
        try:
            answer = self._export(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            status = Status.RETRY if error.code() in _RETRYABLE else Status.REFUSED
            return Outcome(status, f"gRPC {error.code().name} {error.details()}")
        return accepted(answer)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file))


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
