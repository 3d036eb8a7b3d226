"""A scrape endpoint for Prometheus."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kclient_telemetry import logger_of
from kclient_telemetry.receiver.exposition import Family, page
from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.prometheus import PrometheusStore
from kclient_telemetry.receiver.prometheus_sink import PrometheusSink

log = logger_of(__name__)


def _system_unix_ms() -> int:
    return time.time_ns() // 1_000_000


class PrometheusEndpoint:
    """A sink that serves `GET /metrics`, as text or as OpenMetrics, whichever the scraper asks for.

    Args:
        host: address to listen on, of IPv4 or IPv6.
        port: 0 for any free one.
        store: what is served; a new one if None.
        unix_ms: the wall clock.
        more: what is on the page besides, given what is there; their names begin with `OWN_PREFIX`.

    Attributes:
        port: the one that is listened on.

    Raises:
        MissingExtraError: prometheus_client is not installed.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        store: PrometheusStore | None = None,
        unix_ms: Callable[[], int] = _system_unix_ms,
        more: Callable[[list[Family]], Iterable[Family]] = lambda families: (),  # noqa: ARG005
    ) -> None:
        page(())  # so that a missing library is told now, not to the first scraper
        self.store = store or PrometheusStore()
        self._sink = PrometheusSink(self.store)
        self._server = _Server((host, port), _handler(lambda: _families(self.store.families(unix_ms()), more)))
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="prometheus-endpoint", daemon=True
        )
        self._thread.start()

    @property
    def held_bytes(self) -> int:
        """About how much memory those pushes take that are not on the page yet."""
        return self._sink.held_bytes

    def accept(self, push: ReceivedPush) -> None:
        """Take over the values of `push`, of a large one a little later."""
        self._sink.accept(push)

    def close(self, timeout_ms: int) -> None:
        """Stop listening, within `timeout_ms` or a little more."""
        self._sink.close(timeout_ms)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout_ms / 1000)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        # looked at when the socket is made; by itself the library takes no other addresses than those of IPv4
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as it is called
        """A scraper that hangs up is no news; anything else is, but not for standard error."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("a scrape from %s failed", client_address, exc_info=error)


def _families(found: list[Family], more: Callable[[list[Family]], Iterable[Family]]) -> list[Family]:
    return [*found, *more(found)]


def _handler(families: Callable[[], list[Family]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30  # seconds, of an idle scraper

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body, content_type = page(families(), self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
            """Scrapes are not worth a line on stderr."""

    return Handler
