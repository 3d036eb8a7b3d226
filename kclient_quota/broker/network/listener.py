"""Listening sockets of the brokers, each open until it is closed.

asyncio's own server may not be closed in the turn in which it has accepted a connection: in Python 3.11 the connection
that has no transport yet is then neither served nor closed, and its client waits for ever.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from weakref import WeakSet

from kclient_telemetry import logger_of

_BACKLOG = 512
_LAST_PORT = 65_535
_BREATH_S = 1
"""Before it is tried again when the process has no file descriptor left; asyncio's servers wait as long."""
_HOST_ERRORS = {
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
    # a name that nobody knows; Python keeps the number and not the kind of the error
    socket.EAI_NONAME,
    socket.EAI_AGAIN,
    socket.EAI_FAIL,
}

_LOG = logger_of(__name__)

_OPEN: WeakSet[socket.socket] = WeakSet()
"""A forked child has them too: while it lives, what the broker closes would stay open for clients, its ports taken."""


def _let_go_of_all() -> None:
    for each in list(_OPEN):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_of_all)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; connections to it wait until a `Listener` takes them up. By "::" IPv4 comes, too.

    Raises:
        OSError: the address is taken, or none of this machine's.
    """
    if not 0 <= port <= _LAST_PORT:
        raise OSError(f"{port} is no port: they are 1 to {_LAST_PORT}, and 0 for a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_both = host == "::" and socket.has_dualstack_ipv6()
    bound = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_both)
    _OPEN.add(bound)
    bound.setblocking(False)
    return bound


def is_no_address(error: OSError) -> bool:
    """Whether `bind` has failed for its host, which other ports do not mend."""
    return error.errno in _HOST_ERRORS


class Listener:
    """Accepts from the moment it is made, on the running loop.

    Args:
        bound: of `bind`; closed with this.
        protocol: makes a connection's protocol.
        tls: what TLS needs, or None.
    """

    def __init__(
        self, bound: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None = None
    ) -> None:
        self._bound = bound
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._listen()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._bound.getsockname()[1])

    def close(self) -> None:
        """Accept nothing more, at once; connections that have been made stay. May be called again.

        Who is in the midst of a TLS handshake is let go of: its client might take a minute to end it.
        """
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._bound)
            self._bound.close()
            for task in self._beginning if self._tls is not None else ():
                task.cancel()

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                accepted, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _LOG.warning("the embedded broker accepts no connection for a second: %s", error)
                self._loop.remove_reader(self._bound)
                self._loop.call_later(_BREATH_S, self._listen)
                return
            _OPEN.add(accepted)
            task = self._loop.create_task(self._begin(accepted))
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        comes_too_late = self._is_closed
        if comes_too_late:
            accepted.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._beginning.add(task)
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._protocol, accepted, ssl=self._tls)
        except OSError as error:
            # a client that went away, or whose TLS is none of ours
            _LOG.debug("a connection has ended before it began: %s", error)
        else:
            if not transport.is_reading():  # the first releases of Python 3.11 have begun to, paused before or not
                transport.resume_reading()
                transport.pause_reading()
            if self._is_closed:
                transport.abort()
