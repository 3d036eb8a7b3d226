"""Where to export OTLP and how: what is given, then OTEL_EXPORTER_OTLP_* as OpenTelemetry specifies them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from kclient_telemetry.receiver.otlp_http import HTTP_PATH, HttpSender
from kclient_telemetry.receiver.otlp_senders import DEFAULT_TIMEOUT_MS, Sender, TlsFiles

_GRPC_SCHEMES = {"grpc": "http", "grpcs": "https"}
_HEADER = re.compile(r"[A-Za-z0-9_.-]+")
_PROTOCOLS = ("http/protobuf", "grpc")


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """One place to export to.

    Attributes:
        endpoint: URL with its whole path.
        protocol: "http/protobuf" or "grpc".
        headers: sent with every export.
        tls: files of PEM.
        compress: gzip.
        timeout_ms: of every export.
    """

    endpoint: str
    protocol: str = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: TlsFiles = field(default_factory=TlsFiles)
    compress: bool = True
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    @property
    def address(self) -> str:
        """The endpoint for people to read, without what may be secret in it."""
        url = urlsplit(self.endpoint)
        return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()

    def sender(self) -> Sender:
        """A sender with these settings.

        Raises:
            ValueError: the endpoint is no URL of this protocol.
            OSError: a file of PEM cannot be read.
            MissingExtraError: gRPC is not installed.
        """
        if self.protocol == "grpc":
            from kclient_telemetry.receiver.otlp_grpc import GrpcSender  # noqa: PLC0415 - an extra that starts threads

            tls = self.tls if urlsplit(self.endpoint).scheme == "https" else None
            return GrpcSender(
                self.endpoint, headers=self.headers, tls=tls, compress=self.compress, timeout_ms=self.timeout_ms
            )
        return HttpSender(
            self.endpoint, headers=self.headers, tls=self.tls, compress=self.compress, timeout_ms=self.timeout_ms
        )


def settings_of(
    environment: Mapping[str, str],
    url: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    tls: TlsFiles | None = None,
) -> OtlpSettings:
    """Settings from OTEL_EXPORTER_OTLP_METRICS_* and OTEL_EXPORTER_OTLP_*, over which go those that are given.

    Args:
        environment: the process's variables.
        url: `http://`, `https://` (OTLP over HTTP), `grpc://` or `grpcs://` (over gRPC, with TLS); None: the
            environment's endpoint, else the default one.
        headers: over those of the environment.
        tls: what is given of it goes over the environment's.

    Raises:
        ValueError: a variable or the URL cannot be used; the message names it.
    """
    variables = _Variables(environment)
    protocol, endpoint = _endpoint(variables, url)
    compression = variables.get("COMPRESSION") or "gzip"
    if compression not in {"gzip", "none"}:
        raise ValueError(f"{variables.name('COMPRESSION')}={compression}: write gzip or none")
    given = tls or TlsFiles()
    files = TlsFiles(
        given.ca_file or variables.get("CERTIFICATE"),
        given.certificate_file or variables.get("CLIENT_CERTIFICATE"),
        given.key_file or variables.get("CLIENT_KEY"),
    )
    if files.key_file and not files.certificate_file:
        raise ValueError(f"the key {files.key_file} is of no use without its certificate; give that as well")
    return OtlpSettings(
        endpoint,
        protocol,
        {**_headers(variables), **checked_headers(headers or {}, "headers")},
        files,
        compress=compression == "gzip",
        timeout_ms=_timeout_ms(variables),
    )


class _Variables:
    """Those of metrics go before those of all signals; an empty one is none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def name(self, suffix: str) -> str:
        of_metrics = f"OTEL_EXPORTER_OTLP_METRICS_{suffix}"
        return of_metrics if self._environment.get(of_metrics) else f"OTEL_EXPORTER_OTLP_{suffix}"

    def get(self, suffix: str) -> str | None:
        return self._environment.get(self.name(suffix)) or None


def _endpoint(variables: _Variables, url: str | None) -> tuple[str, str]:
    if url is not None:
        scheme, found, rest = url.partition("://")
        if found and rest and scheme in _GRPC_SCHEMES:
            return "grpc", _checked(f"{_GRPC_SCHEMES[scheme]}://{rest}", url)
        if not found or scheme not in {"http", "https"}:
            raise ValueError(f"{url}: write http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT")
        return "http/protobuf", _checked(url, url).removesuffix("/")
    protocol = variables.get("PROTOCOL") or "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{variables.name('PROTOCOL')}={protocol}: write {' or '.join(_PROTOCOLS)}")
    is_grpc = protocol == "grpc"
    endpoint = variables.get("ENDPOINT") or ("http://localhost:4317" if is_grpc else "http://localhost:4318")
    if is_grpc and endpoint.startswith("unix:"):  # as gRPC names a socket of this machine, where nothing is encrypted
        return protocol, endpoint
    if is_grpc and "://" not in endpoint:
        is_plain = (variables.get("INSECURE") or "false").lower() == "true"
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    _checked(endpoint, f"{variables.name('ENDPOINT')}={endpoint}")
    if is_grpc:
        return protocol, endpoint
    if variables.name("ENDPOINT").startswith("OTEL_EXPORTER_OTLP_METRICS_"):  # this one is meant as it stands
        return protocol, endpoint if urlsplit(endpoint).path else f"{endpoint}/"
    return protocol, f"{endpoint.rstrip('/')}{HTTP_PATH}"


def _checked(url: str, said: str) -> str:
    try:
        split = urlsplit(url)
        is_good = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
        (split.hostname or "").encode("idna")  # as it is looked up
        f"{split.path}{split.query}".encode("ascii")  # as it is sent
    except ValueError:  # no number of a port, no IPv6 address, a name of "a..b"
        is_good = False
    if not is_good or any(character <= " " for character in url):
        raise ValueError(f"{said}: this is no URL; write http://HOST:PORT, and what is not ASCII behind it as %XX")
    return url


def _headers(variables: _Variables) -> dict[str, str]:
    """`key=value,key=value`, percent-encoded, as W3C's baggage has it."""
    found = {}
    for part in (variables.get("HEADERS") or "").split(","):
        key, equals, value = part.partition("=")
        if part.strip() and not (equals and key.strip()):
            raise ValueError(f"{variables.name('HEADERS')}: {part}: write key=value,key=value")
        if part.strip():
            found[unquote(key.strip())] = unquote(value.strip())
    return checked_headers(found, variables.name("HEADERS"))


def checked_headers(headers: Mapping[str, str], said: str) -> dict[str, str]:
    """Headers that HTTP and gRPC can send.

    Args:
        headers: by name.
        said: where they come from.

    Raises:
        ValueError: one cannot be sent.
    """
    for key, value in headers.items():
        if not _HEADER.fullmatch(key):
            raise ValueError(f"{said}: {key!r} is no name of a header; write letters, digits, - and _")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"{said}: the value of {key} has characters that no header can have; write ASCII")
    return dict(headers)


def _timeout_ms(variables: _Variables) -> int:
    text = variables.get("TIMEOUT")
    if text is None:
        return DEFAULT_TIMEOUT_MS
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{variables.name('TIMEOUT')}={text}: write milliseconds, such as 10000")
    return int(text)
