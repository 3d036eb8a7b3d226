"""A blocking connection to a broker; the protocol is `session`'s.

    with Connection(ConnectionSettings("localhost", 9092), SYSTEM_CLOCK) as connection:
        response = connection.send(DescribeClientQuotasRequest(components=[]), timeout_ms=1000)

Every operation has a deadline. A connection that failed once is closed: open a new one.
"""

from __future__ import annotations

import _socket
import socket
import ssl
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from kclient_quota.errors import ClusterError, WireError
from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS, RECEIVE_BYTES, ConnectionSettings, Deadline, Sasl
from kclient_quota.wire.session import ClientSession, authenticate, negotiate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kclient_quota.clock import Clock
    from kclient_quota.wire.messages import ProduceRequest
    from kclient_quota.wire.schema import Request, Response
    from kclient_quota.wire.session import Answer

__all__ = ["Connection", "ConnectionSettings", "Sasl"]


class Connection:
    """A blocking connection to one broker, for one thread at a time.

    Args:
        settings: where and how.
        clock: for deadlines and the session's lifetime.
    """

    def __init__(self, settings: ConnectionSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._session = ClientSession(settings.peer, settings.client_id, settings.max_frame_bytes)
        self._socket: socket.socket | None = None
        self._closed = False
        self._is_busy = False
        self._left: socket.socket | None = None

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """Lowest and highest version of each API key that the broker speaks."""
        return self._session.versions

    @property
    def reauthenticate_at_ms(self) -> int | None:
        """When the session's lifetime (KIP-368) makes the next `send` log in again; None when it has no end."""
        return self._session.reauthenticate_at_ms

    def open(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Self:
        """Connect, ask for versions and log in.

        Raises:
            ClusterError: one of these failed.
        """
        deadline = self._deadline(timeout_ms, "accept a connection")
        try:
            self._connect(deadline)
            self._run(negotiate(self._session), self._deadline(timeout_ms, "answer ApiVersions"))
            if self.settings.sasl:
                self._authenticate(self._deadline(timeout_ms, "finish the SASL log-in"))
        except BaseException:
            self.close()
            raise
        return self

    def send(self, request: Request, *, version: int | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Send a request, by default in the newest version both ends speak, and return its response.

        Logs in again first when the session's lifetime asks for it.

        Raises:
            ClusterError: no readable answer in time, connection lost, or the broker does not speak the API.
            WireError: the request cannot be written.
        """
        deadline = self._deadline(timeout_ms, f"answer {request.__schema__.name}")
        self._renew(deadline)
        chosen = self.pick_version(request) if version is None else version
        return self._exchange([(request, chosen)], deadline)[0]

    def send_many(self, requests: Sequence[Request], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> list[Any]:
        """Send several requests in one go and return their responses in the same order: one round trip for all.

        Raises:
            ClusterError: as `send`.
            WireError: as `send`; nothing has been sent then.
        """
        names = ", ".join(dict.fromkeys(request.__schema__.name for request in requests))
        deadline = self._deadline(timeout_ms, f"answer {names}")
        self._renew(deadline)
        return self._exchange([(request, self.pick_version(request)) for request in requests], deadline)

    def tell(self, request: ProduceRequest, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Send a request that is never answered: one with acks=0. What becomes of it the broker does not say.

        Raises:
            ClusterError: it could not be sent in time, or the connection is lost.
            WireError: the request cannot be written, or would be answered.
        """
        deadline = self._deadline(timeout_ms, "take a ProduceRequest")
        self._renew(deadline)
        frame = self._session.tell(request, self.pick_version(request))
        with self._at_work() as connected, self._failing(deadline):
            connected.settimeout(deadline.left_seconds())
            connected.sendall(b"".join(frame))

    def pick_version(self, request: Request) -> int:
        """The newest version of the request's API that both ends speak.

        Raises:
            ClusterError: there is none.
        """
        return self._session.pick_version(request)

    def reauthenticate(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Log in again on the live connection (KIP-368); nothing without SASL.

        Raises:
            ClusterError: the broker refused.
        """
        if self.settings.sasl:
            self._authenticate(self._deadline(timeout_ms, "finish the SASL log-in"))

    def close(self) -> None:
        """Close the socket, for good; may be called again, and from another thread: what waits there ends."""
        # told before the socket is looked for: whoever has not got it yet sees that it is closed
        self._closed = True
        under_way, self._socket = self._socket, None
        if under_way is None:
            return
        self._left = under_way
        # closing alone wakes nobody who waits for the broker; by the plain socket's method, as TLS's own would
        # take its state away from that thread
        waker: Any = under_way
        with suppress(OSError):
            if isinstance(waker, _socket.socket):
                _socket.socket.shutdown(waker, socket.SHUT_RDWR)
            else:  # one of gevent's or eventlet's
                waker.shutdown(socket.SHUT_RDWR)
        # OpenSSL keeps the number of the descriptor: closed under that thread's hands, it would go on with whatever
        # connection of this process has got that number next
        if not (self._is_busy and isinstance(under_way, ssl.SSLSocket)):
            under_way.close()

    def _let_go(self) -> None:
        under_way, self._socket = self._socket, None
        if under_way is not None:
            under_way.close()

    @contextmanager
    def _at_work(self) -> Iterator[socket.socket]:
        """While this thread speaks to the broker `close` leaves it TLS's socket, to be closed then."""
        self._is_busy = True
        try:
            yield self._connected()
        finally:
            self._is_busy = False
            if self._left is not None:
                self._left.close()

    def __enter__(self) -> Self:
        return self.open() if self._socket is None else self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _deadline(self, timeout_ms: int, action: str) -> Deadline:
        return Deadline(self._clock, timeout_ms, self.settings.peer, action)

    def _connect(self, deadline: Deadline) -> None:
        """To the first of the host's addresses that answers; each but the last may take half of what time is left."""
        failure: Exception = OSError("it has no address")
        found = self._resolve(deadline)
        for number, (family, kind, protocol, _name, address) in enumerate(found, start=1):
            connecting = socket.socket(family, kind, protocol)
            self._show(connecting)
            try:
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connecting.settimeout(deadline.left_seconds() / (1 if number == len(found) else 2))
                connecting.connect(address)
                self._secure(connecting, deadline)
            except TimeoutError:
                self._let_go()
                failure = deadline.expired()
            except OSError as error:
                if self._closed:
                    raise self._closed_meanwhile() from error
                self._let_go()
                failure = error
            else:
                return
        try:
            if isinstance(failure, ClusterError):
                raise failure
            raise deadline.failed(failure) from failure
        finally:
            del failure  # its traceback has this frame, which would keep it, and all callers, until the next collection

    def _show(self, connecting: socket.socket) -> None:
        """From now on `close` reaches it, from another thread as well."""
        self._socket = connecting
        if self._closed:
            connecting.close()
            raise self._closed_meanwhile()

    def _closed_meanwhile(self) -> ClusterError:
        return ClusterError(f"{self.settings.peer}: the connection was closed meanwhile")

    def _resolve(self, deadline: Deadline) -> list[Any]:
        """Addresses of the host; on a thread of its own, because the system's resolver knows no deadline."""
        answer: Queue[Any] = Queue()

        where = self.settings

        def look_up() -> None:
            try:
                answer.put(socket.getaddrinfo(where.host, where.port, where.family, socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:  # a label that is empty, too long or not to be encoded
                answer.put(error)

        Thread(target=look_up, name="kclient-quota-resolver", daemon=True).start()
        try:
            found = answer.get(timeout=deadline.left_seconds())
        except Empty:
            raise deadline.expired() from None
        if isinstance(found, OSError | UnicodeError):
            raise ClusterError(
                f"the host name of {self.settings.peer} does not resolve: {found}; check bootstrap.servers"
            ) from found
        addresses: list[Any] = found
        return addresses

    def _secure(self, raw: socket.socket, deadline: Deadline) -> None:
        if self.settings.tls is None:
            return
        raw.settimeout(deadline.left_seconds())
        secured = self.settings.tls.wrap_socket(raw, server_hostname=self.settings.host, do_handshake_on_connect=False)
        self._show(secured)
        with self._at_work():
            secured.do_handshake()

    def _authenticate(self, deadline: Deadline) -> None:
        assert self.settings.sasl is not None  # callers have looked
        credentials = self.settings.sasl.credentials()
        lifetime_ms = self._run(authenticate(self._session, credentials), deadline)
        self._session.authenticated(lifetime_ms, self._clock.now_ms())

    def _renew(self, deadline: Deadline) -> None:
        if self.settings.sasl and self._session.needs_reauthentication(self._clock.now_ms()):
            self._authenticate(deadline)

    def _run(self, conversation: Generator[tuple[Request, int], Response, Any], deadline: Deadline) -> Any:
        try:
            request, version = next(conversation)
            while True:
                request, version = conversation.send(self._exchange([(request, version)], deadline)[0])
        except StopIteration as end:
            return end.value

    def _exchange(self, asked: Sequence[tuple[Request, int]], deadline: Deadline) -> list[Response]:
        with self._at_work() as connected:
            ids, frames = [], []
            for request, version in asked:
                correlation_id, frame = self._session.send(request, version)
                ids.append(correlation_id)
                frames += frame
            with self._failing(deadline):
                connected.settimeout(deadline.left_seconds())
                connected.sendall(b"".join(frames))
                return self._await_answers(connected, ids, deadline)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ClusterError(f"the connection to {self.settings.peer} is closed; open a new one")
        return self._socket

    @contextmanager
    def _failing(self, deadline: Deadline) -> Iterator[None]:
        """Whatever fails in it ends the connection, and says so."""
        try:
            yield
        except Exception as error:
            if self._closed:
                raise self._closed_meanwhile() from error
            self.close()
            if isinstance(error, TimeoutError):
                raise deadline.expired() from None
            if isinstance(error, OSError | WireError):
                raise deadline.failed(error) from error
            raise
        except BaseException:
            self.close()
            raise

    def _await_answers(self, connected: socket.socket, ids: list[int], deadline: Deadline) -> list[Response]:
        answers: list[Answer] = []
        while len(answers) < len(ids):
            connected.settimeout(deadline.left_seconds())
            data = connected.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            answers += self._session.receive(data)
        if [answer.correlation_id for answer in answers] != ids:
            raise WireError("the answers are out of order")
        return [answer.response for answer in answers]
