"""Connections: bytes to frames, frames to the dispatcher, responses back; one request at a time, in order.

A connection that has a request under way, a response held back or not yet written out, or is muted for a throttle
(KIP-219: respond, then mute) is not read from, so that the client feels it through TCP as it would with Kafka.
"""

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING

from kclient_quota.broker.network.endpoints import distinguished_name
from kclient_quota.broker.network.frame_buffers import FrameBuffers
from kclient_quota.broker.request.context import Cancellable, ConnectionState
from kclient_quota.broker.request.dispatch import Outcome, dispatch
from kclient_quota.broker.request.node import Node
from kclient_quota.errors import WireError
from kclient_quota.wire.frame import frame_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.broker.request.promise import Drive
    from kclient_quota.wire.schema import Response

RECEIVE_BYTES = 256 * 1024
_LARGE_FRAME = 32 * 1024
_WRITE_AT_ONCE = 512 * 1024
_JOINED_BYTES = 64 * 1024
_LENGTH = 4


class ReceiveBuffer:
    """One buffer for all connections of a loop: it is filled and emptied within one callback."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BYTES))
        self.frames = FrameBuffers()


class Connection(asyncio.BufferedProtocol):
    """One client's connection to one broker.

    Args:
        node: the broker.
        listener: name of the listener.
        needs_authentication: whether SASL must come first.
        receive: shared by all connections of the loop.
        opened: called with this connection when it is there.
        closed: called with this connection when it is gone.
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
        self._receive = receive
        self._opened = opened
        self._closed = closed
        self.state = ConnectionState(listener, "", is_authenticated=not needs_authentication)
        self._transport: asyncio.Transport | None = None
        self._tail = b""
        self._large: bytearray | None = None
        self._large_end = 0
        self._filled = 0
        self._drive: Drive[Response | None] | None = None
        self._unmute: Cancellable | None = None
        self._is_busy = False
        self._is_working = False
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._output: deque[memoryview] = deque()
        self._outcome: Outcome | None = None

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # not 0: TLS transports compare with >= and would never resume
        transport.set_write_buffer_limits(high=1, low=0)
        peer = transport.get_extra_info("peername")
        if peer:
            self.state.client_address, self.state.client_port = peer[:2]
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.state.principal = distinguished_name(certificate)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.node.traffic.connections += 1
        self.node.traffic.connections_made += 1
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End, whoever wanted it."""
        self._transport = None
        if self._drive is not None:
            self._drive.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        self._output.clear()
        self.node.traffic.connections -= 1
        for tell in self.state.on_close:
            tell()
        self._closed(self)

    def abort(self) -> None:
        """Close at once, without a word."""
        if self._transport is not None:
            self._transport.abort()

    # -- reading

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes go: behind what is left of the last, or straight into a large frame."""
        if self._large is not None:
            return memoryview(self._large)[self._filled : self._large_end]
        tail = len(self._tail)
        view = self._receive.view
        view[:tail] = self._tail
        return view[tail:]

    def buffer_updated(self, nbytes: int) -> None:
        """Make frames of what has come."""
        if self._large is not None:
            self._filled += nbytes
            if self._filled == self._large_end:
                self._take_large()
            return
        end = len(self._tail) + nbytes
        self._tail = b""
        self._take_frames(self._receive.view, end)

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Handle the complete frames in `view[:end]` as long as none has to wait; keep the rest."""
        position = 0
        while end - position >= _LENGTH and not self._is_busy:
            try:
                length = frame_length(view, position)
            except WireError:
                self.abort()
                return
            start = position + _LENGTH
            if start + length > end:
                if length > _LARGE_FRAME:
                    self._begin_large(view[start:end], length)
                    return
                break
            position = start + length
            self._handle(view[start:position], length)
        self._tail = bytes(view[position:end])
        if self._is_busy:
            self._pause_reading()

    def _begin_large(self, received: memoryview, length: int) -> None:
        self._large = self._receive.frames.take(length)
        self._filled = len(received)
        self._large_end = length
        self._large[: self._filled] = received

    def _take_large(self) -> None:
        buffer, length = self._large, self._large_end
        assert buffer is not None
        self._large = None
        self._handle(memoryview(buffer)[:length], length)
        # records have been copied into a log; a request that still waits holds none
        self._receive.frames.give_back(buffer)
        if self._is_busy:
            self._pause_reading()

    def _handle(self, frame: memoryview, length: int) -> None:
        self._is_busy = True
        self._is_working = True
        self._drive = dispatch(self.node, self.state, frame, length, self._finish)
        self._is_working = False

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._is_reading_paused:
            self._transport.pause_reading()
            self._is_reading_paused = True

    # -- answering

    def _finish(self, outcome: Outcome) -> None:
        if outcome.is_ignored or self._transport is None:
            return
        self._drive = None
        if outcome.late_ms > 0:
            scheduler = self.node.scheduler
            self._unmute = scheduler.call_at(scheduler.now_ms() + outcome.late_ms, lambda: self._answer(outcome))
        else:
            self._answer(outcome)

    def _answer(self, outcome: Outcome) -> None:
        self._outcome = outcome
        parts = outcome.parts
        if len(parts) > 1 and sum(map(len, parts)) <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        self._output.extend(map(memoryview, parts))
        self._write()

    def _write(self) -> None:
        """Hand over no more than the socket takes: what it does not take at once, asyncio copies."""
        transport, output = self._transport, self._output
        while output and transport is not None and not self._is_writing_paused:
            part = output.popleft()
            if len(part) > _WRITE_AT_ONCE:
                output.appendleft(part[_WRITE_AT_ONCE:])
                part = part[:_WRITE_AT_ONCE]
            transport.write(part)
        if not output and not self._is_writing_paused and self._outcome is not None:
            self._written(self._outcome)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """The socket has taken everything so far."""
        self._is_writing_paused = False
        self._write()

    def _written(self, outcome: Outcome) -> None:
        self._outcome = None
        if outcome.written is not None:
            outcome.written()
        if outcome.must_close:
            if self._transport is not None:
                self._transport.close()
            return
        if outcome.mute_ms > 0:
            scheduler = self.node.scheduler
            self._unmute = scheduler.call_at(scheduler.now_ms() + outcome.mute_ms, self._ready)
            return
        self._ready()

    def _ready(self) -> None:
        """Take up the next request, whether it is here already or still to come."""
        if self._unmute is not None:
            self.node.enforcement.unthrottle(self.node.scheduler.now_ms())
            self._unmute = None
        self._is_busy = False
        if self._is_working:
            return
        tail, self._tail = self._tail, b""
        if tail:
            self._take_frames(memoryview(tail), len(tail))
        if not self._is_busy and self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()
