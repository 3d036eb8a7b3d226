"""One OTLP export over HTTP: bytes out, outcome back."""

import gzip
import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from kclient_telemetry.receiver.otlp_senders import DEFAULT_TIMEOUT_MS, Outcome, Status, TlsFiles, accepted

HTTP_PATH = "/v1/metrics"

# The OTLP specification's list of what is worth repeating.
_RETRYABLE = frozenset({429, 502, 503, 504})
_HTTP_OK = range(200, 300)


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
        return accepted(answer)
    detail = f"HTTP {code} {answer[:200].decode('utf-8', 'replace')}".rstrip()
    if code not in _RETRYABLE:
        return Outcome(Status.REFUSED, detail)
    # An HTTP date is possible as well; then our own back-off does.
    seconds = int(retry_after) if retry_after and retry_after.isdecimal() else None
    return Outcome(Status.RETRY, detail, None if seconds is None else seconds * 1000)
