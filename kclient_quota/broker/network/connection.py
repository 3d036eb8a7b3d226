"""A client's connection on asyncio: a `ServerSession`, its socket and its timer."""

import asyncio
import socket
from typing import TYPE_CHECKING

from kclient_telemetry import logger_of

from kclient_quota.broker.network.endpoints import distinguished_name
from kclient_quota.broker.network.session import Cancellable, Done, ReceiveBuffer, ServerSession
from kclient_quota.broker.request.context import ConnectionState
from kclient_quota.broker.request.dispatch import dispatch
from kclient_quota.broker.request.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

_WRITE_AT_ONCE = 512 * 1024
_LOG = logger_of(__name__)


class Connection(asyncio.BufferedProtocol):
    """One client's connection to one broker.

    Args:
        node: the broker.
        listener: name of the listener.
        needs_authentication: whether SASL must come first.
        receive: shared by all connections of the loop.
        opened: called with this connection when it is there; sees to it that `admit`, `refuse` or `abort` is called.
        closed: called with this connection when it is gone and what came whole by it has been seen to.

    Attributes:
        state: what handlers know of it.
        session: requests and answers.
        active_ms: when it last received or wrote something.
        is_admitted: whether requests are read from it.
    """

    def __init__(
        self,
        node: Node,
        listener: str,
        receive: ReceiveBuffer,
        opened: "Callable[[Connection], None]",
        closed: "Callable[[Connection], None]",
        *,
        needs_authentication: bool,
    ) -> None:
        self.node = node
        self._opened = opened
        self._closed = closed
        self.state = ConnectionState(listener, "", is_authenticated=not needs_authentication)
        self.session = ServerSession(self._dispatch, receive, self._continue, self._most_bytes)
        self.active_ms = node.scheduler.now_ms()
        self._transport: asyncio.Transport | None = None
        self._timer: Cancellable | None = None
        self._timer_ms: int | None = None
        self._is_reading_paused = False
        self._is_writing_paused = False
        self.is_admitted = False

    def _dispatch(self, frame: memoryview, length: int, done: Done) -> Cancellable | None:
        return dispatch(self.node, self.state, frame, length, done)

    def _most_bytes(self) -> int:
        limits = self.node.limits
        return limits.request_max_bytes if self.state.is_authenticated else limits.stranger_max_bytes

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # not 0: TLS transports compare with >= and would never resume
        transport.set_write_buffer_limits(high=1, low=0)
        peer = transport.get_extra_info("peername")
        if peer:
            # IPv4 that comes by a socket for both: quotas and access control know it by its own address
            self.state.client_address, self.state.client_port = peer[0].removeprefix("::ffff:"), peer[1]
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.state.principal = distinguished_name(certificate)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._opened(self)
        if not self.is_admitted:
            self._set_reading(transport, is_wanted=False)

    def admit(self) -> None:
        """Read requests from now on."""
        traffic = self.node.traffic
        traffic.connections += 1
        traffic.connections_made += 1
        traffic.by_address[self.state.client_address] += 1
        self.is_admitted = True
        self._continue()

    def refuse(self, until_ms: int) -> None:
        """Read nothing, and close at that time."""
        self._timer = self.node.scheduler.call_at(until_ms, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End, whoever wanted it."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_admitted:
            self._uncount()
        self.session.lost()

    def _end(self) -> None:
        """What came whole has been seen to."""
        while self.state.on_close:
            try:
                self.state.on_close.pop(0)()
            except Exception:  # noqa: BLE001 - whatever it is, the others are told as well
                _LOG.exception("broker %s: after the end of a connection", self.node.info.id)
        self._closed(self)
        self.session.forget()

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._transport is None

    def _uncount(self) -> None:
        traffic, address = self.node.traffic, self.state.client_address
        traffic.connections -= 1
        traffic.by_address[address] -= 1
        if not traffic.by_address[address]:
            del traffic.by_address[address]
        self.node.look_for_room()

    def abort(self) -> None:
        """Close at once, without a word; what has not been taken up yet never is."""
        if self._transport is not None:
            self.session.is_over = True
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes go."""
        return self.session.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self.active_ms = self.node.scheduler.now_ms()
        self.session.received(nbytes)
        self._continue()

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """The socket has taken everything so far."""
        self._is_writing_paused = False
        self._continue()

    # -- what the session wants

    def _continue(self) -> None:
        """Write, wait, read on or close, as the session has it now."""
        session, transport = self.session, self._transport
        if transport is None:
            if session.is_done:
                self._end()
            return
        while True:
            if session.output:
                self._write(transport)
            is_written = not (session.output or self._is_writing_paused or transport.is_closing())
            if not is_written or not session.written(self.node.scheduler.now_ms()):
                break
        if session.is_broken:
            transport.abort()
        elif session.is_over and not session.output:
            transport.close()
        else:
            self._set_timer(session.resumes_ms)
            self._set_reading(transport, is_wanted=session.is_reading)

    def _write(self, transport: asyncio.Transport) -> None:
        """Hand over no more than the socket takes: what it does not take at once, asyncio copies."""
        output = self.session.output
        self.active_ms = self.node.scheduler.now_ms()
        while output and not self._is_writing_paused and not transport.is_closing():
            part = output.popleft()
            if len(part) > _WRITE_AT_ONCE:
                output.appendleft(part[_WRITE_AT_ONCE:])
                part = part[:_WRITE_AT_ONCE]
            transport.write(part)

    def _set_reading(self, transport: asyncio.Transport, *, is_wanted: bool) -> None:
        if is_wanted == self._is_reading_paused:
            self._is_reading_paused = not is_wanted
            if is_wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _set_timer(self, deadline_ms: int | None) -> None:
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = None if deadline_ms is None else self.node.scheduler.call_at(deadline_ms, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_ms = None
        now_ms = self.node.scheduler.now_ms()
        if self.session.tick(now_ms):
            self.node.enforcement.unthrottle(now_ms)
        self._continue()

    def close_if_idle(self, now_ms: int, idle_ms: int) -> None:
        """Close when it is the client's turn and nothing has come for so long (`connections.max.idle.ms`)."""
        if now_ms - self.active_ms >= idle_ms and self.session.is_waiting_for_client and self._transport is not None:
            self._transport.close()
