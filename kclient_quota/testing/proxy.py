"""A TCP proxy that stands between clients and a broker and misbehaves as networks do.

Bytes pass in order and as fast as they come; nothing is read or rewritten. `kclient_quota.testing.proxies` stands
before the brokers of a whole cluster. What a proxy cannot do: lose single packets (TCP would send them again), or let a
broker's machine vanish for new connections without a refusal. `stall()` comes closest to that: connections are accepted
and nothing is answered.
"""

import asyncio
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kclient_quota.errors import ClusterError

ResultT = TypeVar("ResultT")

_HOST = "127.0.0.1"
_CALL_TIMEOUT_S = 10
_NO_LINGER = struct.pack("ii", 1, 0)
_HELD_BYTES = 256 * 1024 * 1024
"""So much may be under way each way; more than a second of loopback, so that a delay does not limit bandwidth."""


class FaultProxy:
    """A TCP proxy on loopback to one port of this machine; what is set holds for old and new connections at once.

    Example:
        with FaultProxy(broker_port) as proxy:
            proxy.delay(to_broker_ms=10, to_client_ms=10)
            client = connect(proxy.address)
            proxy.cut()

    Args:
        upstream_port: where the broker listens; may be given later by `lead_to`.
        seed: of the stalls that `stall_some` deals out.
    """

    def __init__(self, upstream_port: int = 0, *, seed: int = 0) -> None:
        self._upstream_port = upstream_port
        self._road = _Road(random.Random(seed))  # noqa: S311 - which bytes are late, not a secret
        self._socket = socket.create_server((_HOST, 0), backlog=512)
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._is_closed = False
        self.port: int = self._socket.getsockname()[1]
        """Where clients connect to."""
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._call(lambda: len(self._road.pairs))

    @property
    def accepted(self) -> int:
        """How many there have been."""
        return self._call(lambda: self._road.accepted)

    def lead_to(self, upstream_port: int) -> None:
        """Where connections lead from now on."""
        self._call(lambda: setattr(self, "_upstream_port", upstream_port))

    def delay(self, *, to_broker_ms: float = 0, to_client_ms: float = 0) -> None:
        """Let every byte from now on travel so long each way; a round trip takes the sum."""
        self._call(lambda: setattr(self._road, "delays_s", (to_broker_ms / 1000, to_client_ms / 1000)))

    def stall_some(self, share: float, stall_ms: float) -> None:
        """Hold back a share (0 to 1) of what is received for `stall_ms`, and all that follows it on its connection."""
        self._call(lambda: setattr(self._road, "stalls", (share, stall_ms / 1000)))

    def stall(self) -> None:
        """Pass nothing on until `resume()`; connections stay open, new ones are accepted, as by a stopped process."""
        self._call(self._road.stall)

    def resume(self) -> None:
        """Pass on what has been held back since `stall()`, and what comes."""
        self._call(self._road.resume)

    def listen(self, heard: Callable[[int, bytes], object]) -> None:
        """Tell `heard` of every chunk that a client sends: the number of its connection, and the bytes."""
        self._call(lambda: setattr(self._road, "heard", heard))

    def half_open(self) -> int:
        """Forget the open connections without a word to either end, as a firewall does that has lost its table.

        Returns:
            How many there were.
        """
        return self._call(self._road.half_open)

    def cut(self) -> int:
        """Reset every open connection at both ends.

        Returns:
            How many there were.
        """
        return self._call(self._road.cut)

    def refuse(self, *, is_refusing: bool = True) -> None:
        """Reset new connections at once, or no longer."""
        self._call(lambda: setattr(self._road, "is_refusing", is_refusing))

    def close(self) -> None:
        """Cut everything and stop listening; may be called again."""
        if self._is_closed:
            return
        self.cut()
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, function: Callable[[], ResultT]) -> ResultT:
        if self._is_closed:
            raise ClusterError("the proxy is closed")

        async def call() -> ResultT:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(_CALL_TIMEOUT_S)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(loop.create_server(self._accepted, sock=self._socket))
        loop.run_forever()
        loop.run_until_complete(self._close_what_came_late(server))
        loop.close()

    async def _close_what_came_late(self, server: asyncio.Server) -> None:
        """Clients come back as soon as they are cut; what was accepted since then is open, or about to be."""
        self._road.is_refusing = True
        for pair in self._road.pairs:
            if pair.opening is not None:
                pair.opening.cancel()
        # asyncio forgets a connection that it has accepted when its server is closed before the next turn
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        self._road.cut()
        await asyncio.sleep(0)  # a transport closes its socket in the turn
        await asyncio.sleep(0)  # after the one in which it is aborted

    def _accepted(self) -> "_End":
        pair = _Pair(self._road, self._road.accepted)
        return _End(pair.to_broker, partial(self._lead_on, pair))

    def _lead_on(self, pair: "_Pair", client: "_End") -> None:
        if self._road.is_refusing:
            client.abort()
            return
        pair.ends.append(client)
        pair.to_client.target = client
        self._road.pairs.add(pair)
        self._road.accepted += 1
        pair.opening = self._loop.create_task(self._open(pair))

    async def _open(self, pair: "_Pair") -> None:
        try:
            _, broker = await self._loop.create_connection(
                lambda: _End(pair.to_client, pair.ends.append), _HOST, self._upstream_port
            )
        except OSError:
            pair.abort()
            return
        if pair not in self._road.pairs:  # cut meanwhile
            broker.abort()
            return
        pair.to_broker.target = broker
        pair.to_broker.pass_on()


class _Road:
    """What holds for all connections."""

    def __init__(self, random_numbers: random.Random) -> None:
        self.pairs: set[_Pair] = set()
        self.accepted = 0
        self.delays_s = (0.0, 0.0)
        self.is_stalled = False
        self.is_refusing = False
        self.stalls = (0.0, 0.0)
        self.heard: Callable[[int, bytes], object] | None = None
        self._random = random_numbers

    def travel_s(self, direction: int) -> float:
        share, stall_s = self.stalls
        return self.delays_s[direction] + (stall_s if share and self._random.random() < share else 0.0)

    def stall(self) -> None:
        self.is_stalled = True

    def resume(self) -> None:
        self.is_stalled = False
        for pair in list(self.pairs):
            pair.to_broker.pass_on()
            pair.to_client.pass_on()

    def half_open(self) -> int:
        for pair in self.pairs:
            pair.is_forgotten = True
        return len(self.pairs)

    def cut(self) -> int:
        doomed = list(self.pairs)
        for pair in doomed:
            pair.abort()
        return len(doomed)


class _Pair:
    """A client's connection and the one that leads it on."""

    def __init__(self, road: _Road, number: int) -> None:
        self.road = road
        self.number = number
        self.is_forgotten = False
        self.ended: set[int] = set()
        self.ends: list[_End] = []
        self.opening: asyncio.Task[None] | None = None
        self.to_broker = _Lane(self, 0)
        self.to_client = _Lane(self, 1)

    def close(self) -> None:
        self.road.pairs.discard(self)
        for end in self.ends:
            end.close()

    def abort(self) -> None:
        self.road.pairs.discard(self)
        for end in self.ends:
            end.abort()


class _Lane:
    """One direction of a pair: chunks with the time at which they are due.

    No bytes stand for the end of what this side writes, None for a connection that is gone.
    """

    def __init__(self, pair: _Pair, direction: int) -> None:
        self.target: Any = None
        self.source: _End | None = None
        self._pair = pair
        self._direction = direction
        self._chunks: deque[tuple[float, bytes | None]] = deque()
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, chunk: bytes | None) -> None:
        if self._pair.is_forgotten:
            return
        heard = self._pair.road.heard
        if heard is not None and chunk and self._direction == 0:
            heard(self._pair.number, chunk)
        loop = asyncio.get_running_loop()
        due = loop.time() + self._pair.road.travel_s(self._direction)
        if self._chunks:
            due = max(due, self._chunks[-1][0])
        self._chunks.append((due, chunk))
        self._held += len(chunk or b"")
        if self._held > _HELD_BYTES and self.source is not None:
            self.source.pause()
        if self._timer is None:
            self.pass_on()

    def pass_on(self) -> None:
        """Write what is due; come back for what is not."""
        self._timer = None
        if self.target is None or self._pair.road.is_stalled or self._pair.is_forgotten:
            return
        loop = asyncio.get_running_loop()
        while self._chunks:
            due, chunk = self._chunks[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self.pass_on)
                return
            self._chunks.popleft()
            if not chunk:
                self._end(is_half=chunk is not None)
                continue
            self._held -= len(chunk)
            self.target.write(chunk)
        if self.source is not None:
            self.source.resume()

    def _end(self, *, is_half: bool) -> None:
        self._pair.ended.add(self._direction)
        if is_half and len(self._pair.ended) == 1:
            self.target.write_end()
        else:
            self._pair.close()


class _End(asyncio.Protocol):
    """A socket of a pair: what it reads goes into `lane`."""

    def __init__(self, lane: _Lane, made: "Callable[[_End], object]") -> None:
        self._lane = lane
        self._made = made
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_HELD_BYTES)
        self._lane.source = self
        self._made(self)

    def data_received(self, data: bytes) -> None:
        self._lane.take(data)

    def eof_received(self) -> bool:
        self._lane.take(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None  # its socket is closed in this turn
        self._lane.take(None)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def write_end(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            with suppress(OSError):  # the other side has reset it, which is yet to be read
                self._transport.write_eof()

    def close(self) -> None:
        """What was written arrives first."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            # closing without lingering is a reset; the other end reads an error, not an end
            socket_ = self._transport.get_extra_info("socket")
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def pause(self) -> None:
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
