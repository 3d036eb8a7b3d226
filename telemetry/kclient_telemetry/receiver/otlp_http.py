"""One OTLP export over HTTP: bytes out, outcome back."""

import gzip
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from google.protobuf import json_format  # type: ignore[import-untyped] # protobuf ships no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from kclient_telemetry.receiver.otlp_senders import (
    DEFAULT_TIMEOUT_MS,
    Outcome,
    Status,
    TlsFiles,
    accepted,
    authorization_of,
)

HTTP_PATH = "/v1/metrics"

# The OTLP specification's list of what is worth repeating.
_RETRYABLE = frozenset({429, 502, 503, 504})
_MOST_ANSWER = 65_536
_PAGE, _JSON = "text/html", "application/json"
_MOST_DIGITS = 9
_MOST_ASKED_S = 10**_MOST_DIGITS
"""Thirty years; Python refuses to read a number of thousands of digits."""
_INTERIM = range(102, 200)  # after 101 it is HTTP no more
_HTTP_OK = range(200, 300)
_REDIRECTED = range(300, 400)
_MOST_LOCATION = 200
# Bad data, and too much of it: a part of it may be taken.
_UNREADABLE = frozenset({400, 413})


class _InTime(io.RawIOBase):
    """What comes over a socket, as long as all of it comes within the time that the socket gives a single byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._timeout_s = sock.gettimeout() or DEFAULT_TIMEOUT_MS / 1000
        self._end_s = time.monotonic() + self._timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._end_s - time.monotonic()
        try:
            if left_s > 0:
                self._sock.settimeout(left_s)
                return self._raw.readinto(buffer)
        except TimeoutError:
            pass
        finally:
            self._sock.settimeout(self._timeout_s)  # the next request is sent on it
        raise TimeoutError(f"no whole answer within {self._timeout_s * 1000:.0f} ms")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """A collector's, or a proxy's; one that goes on and on, a byte at a time, is waited for no longer than none."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_InTime(self.fp.detach(), sock))

    def _read_status(self) -> tuple[str, int, str]:
        """Of the answer itself: of what may come before it the library passes over 100 alone.

        A 103 (Early Hints) of a proxy was taken for the answer, and what followed it for that to the next push.
        """
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc] # not told of to type checkers
            if status not in _INTERIM:
                return version, status, reason
            http.client.parse_headers(self.fp)


class HttpSender:
    """OTLP over HTTP, protobuf-encoded, over one kept-alive connection, through the environment's proxy.

    Args:
        endpoint: `http://` or `https://` URL; without a path it gets `/v1/metrics`; `user:password@` becomes a header.
        headers: sent with every export, as `Authorization`.
        tls: for https; files that are renewed are used from the next connection on.
        compress: gzip the bodies.
        timeout_ms: of connecting, and of an answer, all of it.

    Raises:
        ValueError: the endpoint is no http or https URL with a host.
        OSError: a file of `tls` cannot be read.
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
        path = url.path or HTTP_PATH
        self._path = f"{path}?{url.query}" if url.query else path
        self._compress = compress
        self._headers = {"Content-Type": "application/x-protobuf", **authorization_of(url), **(headers or {})}
        if compress:
            self._headers["Content-Encoding"] = "gzip"
        proxy = _proxy_of(url)
        if proxy is not None and url.scheme == "http":  # asked for the whole URL; of https it gets a tunnel
            self._path = f"http://{url.netloc.rpartition('@')[2]}{self._path}"
            self._headers |= _proxy_headers(proxy)
        self._tls = tls if tls and url.scheme == "https" else TlsFiles()
        self._connect = partial(_http_connection, url, proxy, self._tls, timeout_ms)
        self._version = self._tls.version()
        self._connection = self._connect()

    def send(self, body: bytes) -> Outcome:
        """POST `body`."""
        if self._connection.sock is None:
            self._use_renewed_files()
        try:
            self._connection.request(
                "POST", self._path, gzip.compress(body, 1) if self._compress else body, self._headers
            )
            response = self._connection.getresponse()
            answer = response.read(_MOST_ANSWER)
            if response.read(1):  # whatever a server goes on to say, it is not kept
                self._connection.close()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return Outcome(Status.RETRY, f"{type(error).__name__}: {error}")
        kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
        if response.status in _REDIRECTED and (where := response.getheader("Location")):
            detail = f"HTTP {response.status}: redirected to {where[:_MOST_LOCATION]}; give that URL"
            return Outcome(Status.REFUSED, detail)
        # a date is by the clock of who says it: by ours, an hour behind, five seconds were an hour
        now_s = _unix_s(response.getheader("Date", ""))
        retry_after_ms = _retry_after_ms(response.getheader("Retry-After"), time.time() if now_s is None else now_s)
        return _http_outcome(response.status, retry_after_ms, kind, answer)

    def _use_renewed_files(self) -> None:
        """Certificates of a day are renewed on the disk; whoever connects with those of yesterday is turned away."""
        with suppress(OSError, ValueError):  # just being written: the next connection sees to it
            version = self._tls.version()
            if version != self._version:
                self._connection = self._connect()
                self._version = version

    def close(self) -> None:
        """Close the connection; what another thread still reads from it ends."""
        # closing alone would wait for that, and a collector may be very slow to finish what it has begun to say
        under_way = self._connection.sock  # which that thread may let go of meanwhile
        if under_way is not None:
            with suppress(OSError):
                under_way.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _http_connection(
    url: SplitResult, proxy: SplitResult | None, tls: TlsFiles, timeout_ms: int
) -> http.client.HTTPConnection:
    # a port is always given: without one http.client looks for it behind the last colon, also of an IPv6 address
    host, port = str((proxy or url).hostname), (proxy or url).port or (443 if url.scheme == "https" else 80)
    if url.scheme == "http":
        plain = http.client.HTTPConnection(host, port, timeout=timeout_ms / 1000)
        plain.response_class = _Answer
        return plain
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.certificate_file:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    connection = http.client.HTTPSConnection(host, port, timeout=timeout_ms / 1000, context=context)
    connection.response_class = _Answer
    if proxy is not None:
        connection.set_tunnel(str(url.hostname), url.port or 443, _proxy_headers(proxy))
    return connection


def _proxy_of(url: SplitResult) -> SplitResult | None:
    """What HTTP_PROXY, HTTPS_PROXY and NO_PROXY say of a host."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme)
    if not proxy or _is_straight(url, proxies.get("no", "")):
        return None
    split = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return split if split.hostname else None


def _is_straight(url: SplitResult, no_proxy: str) -> bool:
    """Whether no proxy is asked; the library's own look at it knows nothing of networks, such as 10.0.0.0/8."""
    host, port = str(url.hostname), url.port or (443 if url.scheme == "https" else 80)
    if proxy_bypass(host) or proxy_bypass(f"{host}:{port}"):
        return True
    for entry in no_proxy.split(","):
        with suppress(ValueError):  # one of them is a name
            if "/" in entry and ip_address(host) in ip_network(entry.strip(), strict=False):
                return True
    return False


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    return {f"Proxy-{key}": value for key, value in authorization_of(proxy).items()}


def _http_outcome(code: int, retry_after_ms: int | None, kind: str, answer: bytes) -> Outcome:
    if code in _HTTP_OK and kind == _PAGE:
        return Outcome(Status.REFUSED, f"HTTP {code} with a page of HTML: no collector is there; check URL and proxy")
    if code in _HTTP_OK:
        return accepted(_of_json(answer) if kind == _JSON else answer)
    detail = f"HTTP {code} {answer[:200].decode('utf-8', 'replace')}".rstrip()
    if code not in _RETRYABLE:
        return Outcome(Status.UNREADABLE if code in _UNREADABLE else Status.REFUSED, detail)
    return Outcome(Status.RETRY, detail, retry_after_ms)


def _of_json(answer: bytes) -> bytes:
    """What an answer in JSON says, as protobuf has it; nothing if it is no such answer."""
    try:
        told = json_format.Parse(answer, ExportMetricsServiceResponse(), ignore_unknown_fields=True)
    except (json_format.Error, ValueError, RecursionError):
        return b""
    return bytes(told.SerializeToString())


def _retry_after_ms(text: str | None, now_s: float) -> int | None:
    """`Retry-After`: seconds, or an HTTP date."""
    if not text:
        return None
    if (digits := text.strip()).isdecimal():
        return _MOST_ASKED_S * 1000 if len(digits) > _MOST_DIGITS else int(digits) * 1000
    then_s = _unix_s(text)
    return None if then_s is None else max(0, round((then_s - now_s) * 1000))


def _unix_s(date: str) -> float | None:
    """An HTTP date; None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
