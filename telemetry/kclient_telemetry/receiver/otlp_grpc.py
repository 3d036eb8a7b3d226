"""One OTLP export over gRPC: bytes out, outcome back."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kclient_telemetry.errors import MissingExtraError

try:
    import grpc  # type: ignore[import-untyped] # grpcio ships no types
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "OTLP over gRPC needs grpcio: pip install 'kclient-quota[grpc]', or use HttpSender"
    ) from error

from kclient_telemetry.otlp import read_varint
from kclient_telemetry.receiver.otlp_senders import (
    DEFAULT_TIMEOUT_MS,
    Outcome,
    Status,
    TlsFiles,
    accepted,
    authorization_of,
)

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

# The OTLP specification's list of what is worth repeating; RESOURCE_EXHAUSTED only when the server says when.
_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)


# An answer that is too long for gRPC has the code and the words of a push that is: its 4 MB are too few.
_OPTIONS = (("grpc.max_receive_message_length", 256 << 20),)


class GrpcSender:
    """OTLP over gRPC.

    Args:
        endpoint: `host:port`, a URL whose scheme says whether TLS is used, or `unix:/path`.
        headers: sent as metadata with every export.
        tls: use TLS with these files; None: only for an `https://` endpoint, with the system's authorities.
            Files that are renewed are used when the collector is not reached with those before.
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
        is_socket = endpoint.startswith("unix:")
        url = urlsplit(endpoint if is_socket or "://" in endpoint else f"//{endpoint}")
        if not (url.netloc or is_socket):
            raise ValueError(f"endpoint {endpoint!r} is no OTLP/gRPC endpoint: expected host:port")
        if tls is None and url.scheme in {"https", "grpcs"}:
            tls = TlsFiles()
        address = endpoint if is_socket else url.netloc.rpartition("@")[2]
        headers = {**authorization_of(url), **(headers or {})}
        self._address = address
        self._tls = tls
        self._compression = grpc.Compression.Gzip if compress else grpc.Compression.NoCompression
        self._version = tls.version() if tls else ()
        self._open()
        self._metadata = tuple((key.lower(), value) for key, value in headers.items())
        self._timeout_s = timeout_ms / 1000

    def send(self, body: bytes) -> Outcome:
        """Call MetricsService/Export with `body`."""
        try:
            answer = self._export(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            delay_ms = _retry_delay_ms(error.trailing_metadata() or ())
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._use_renewed_files()
            return Outcome(_status(error, delay_ms), f"gRPC {error.code().name} {error.details()}", delay_ms)
        return accepted(answer)

    def _open(self) -> None:
        self._channel = (
            grpc.insecure_channel(self._address, _OPTIONS, self._compression)
            if self._tls is None
            else grpc.secure_channel(self._address, _credentials(self._tls), _OPTIONS, self._compression)
        )
        # The body is encoded already; what comes back is decoded by us.
        self._export = self._channel.unary_unary(_METHOD, request_serializer=None, response_deserializer=None)

    def _use_renewed_files(self) -> None:
        """Certificates of a day are renewed on the disk; a channel connects for ever with those it was made with."""
        if self._tls is None:
            return
        with suppress(OSError):  # just being written: the next failure sees to it
            version = self._tls.version()
            if version != self._version:
                former = self._channel
                self._open()
                self._version = version
                former.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _status(error: Any, delay_ms: int | None) -> Status:
    code = error.code()
    if code in _RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and delay_ms is not None):
        return Status.RETRY
    is_too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or "")
    return Status.UNREADABLE if code is grpc.StatusCode.INVALID_ARGUMENT or is_too_large else Status.REFUSED


def _retry_delay_ms(metadata: Iterable[tuple[str, Any]]) -> int | None:
    """The delay of a google.rpc.RetryInfo, if the status has one.

    Read by hand: google.rpc.Status has `details` (3), each an Any with `type_url` (1) and `value` (2); RetryInfo has
    `retry_delay` (1), a Duration with `seconds` (1) and `nanos` (2).
    """
    details = next((value for key, value in metadata if key == "grpc-status-details-bin"), b"")
    try:
        for detail in _fields(details).get(3, []):
            parts = _fields(detail)
            if parts.get(1, [b""])[0].endswith(b"/google.rpc.RetryInfo"):
                delay = _fields(_fields(parts.get(2, [b""])[0]).get(1, [b""])[0])
                seconds, nanos = (_signed(int(delay.get(number, [0])[0])) for number in (1, 2))
                return max(0, seconds * 1_000 + nanos // 1_000_000)
    except (IndexError, ValueError, TypeError, AttributeError):
        return None  # whatever a server puts there, it is no reason to fail
    return None


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Varints and length-delimited fields of a protobuf message, by number."""
    found: dict[int, list[Any]] = {}
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, position = read_varint(message, position)
        value: int | bytes = number
        if tag & 7 == 2:  # noqa: PLR2004 - length-delimited
            value, position = message[position : position + number], position + number
        elif tag & 7:
            raise ValueError("a wire type that these messages have not")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _signed(varint: int) -> int:
    """A negative number goes over the wire as what is left to 2^64, and would be an age to wait for."""
    return varint - (1 << 64) if varint >> 63 else varint


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file))


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
