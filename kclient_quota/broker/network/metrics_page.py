"""The broker-side metrics as a Prometheus page: the smallest HTTP server that a scraper is content with."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from kclient_quota.broker.network.listener import Listener, bind

_MAX_REQUEST_BYTES = 8192
_REQUEST_TIMEOUT_S = 10

Page = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Given the scraper's Accept header, the body and its content type."""


def serve_metrics(host: str, port: int, page: Page) -> Listener:
    """Answer `GET /metrics` with `page` on the running loop; other paths are 404, other methods 405."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # a scraper that goes away or never finishes its request is no concern of ours
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await _response(request, page))
                    await writer.drain()
            writer.close()
        except asyncio.CancelledError:  # the broker closes
            writer.transport.abort()

    return Listener(
        bind(host, port),
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_MAX_REQUEST_BYTES), answer),
    )


async def _response(request: bytes, page: Page) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in {b"GET", b"HEAD"}:
        return _http("405 Method Not Allowed", "text/plain", b"only GET is answered\n")
    if path not in {b"/metrics", b"/"}:
        return _http("404 Not Found", "text/plain", b"metrics are at /metrics\n")
    headers = (line.partition(b":") for line in request.split(b"\r\n")[1:])
    accept = next((value for name, _, value in headers if name.strip().lower() == b"accept"), b"")
    body, kind = await page(accept.decode("latin-1").strip())
    whole = _http("200 OK", kind, body)
    return whole if method == b"GET" else whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def _http(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
