"""An asyncio connection to a broker: the twin of `connection.Connection`.

async with AsyncConnection(ConnectionSettings("localhost", 9092), SYSTEM_CLOCK) as connection:
response = await connection.send(DescribeClientQuotasRequest(components=[]), timeout_ms=1000)
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Self

from kclient_quota.errors import ClusterError, WireError
from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS, RECEIVE_BYTES, ConnectionSettings, Deadline, Sasl, Speaker
from kclient_quota.wire.session import authenticate, negotiate

if TYPE_CHECKING:
    from collections.abc import Generator

    from kclient_quota.clock import Clock
    from kclient_quota.wire.codec import Part
    from kclient_quota.wire.schema import Request, Response

__all__ = ["AsyncConnection", "ConnectionSettings", "Sasl"]


class AsyncConnection(Speaker):
    """The same for asyncio; concurrent `send`s wait for each other.

    Args:
        settings: where and how.
        clock: for deadlines and the session's lifetime.
    """

    def __init__(self, settings: ConnectionSettings, clock: Clock) -> None:
        super().__init__(settings, clock)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def open(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Self:
        """Connect, ask for versions and log in.

        Raises:
            ClusterError: one of these failed.
        """
        try:
            await self._connect(self._deadline(timeout_ms, "accept a connection"))
            await self._run(negotiate(self._session), self._deadline(timeout_ms, "answer ApiVersions"))
            if self.settings.sasl:
                await self._authenticate(self._deadline(timeout_ms, "finish the SASL log-in"))
        except BaseException:
            await self.close()
            raise
        return self

    async def send(self, request: Request, *, version: int | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Send a request, by default in the newest version both ends speak, and return its response.

        Logs in again first when the session's lifetime asks for it.

        Raises:
            ClusterError: no readable answer in time, connection lost, or the broker does not speak the API.
            WireError: the request cannot be written.
        """
        deadline = self._deadline(timeout_ms, f"answer {request.__schema__.name}")
        async with self._lock:
            if self.settings.sasl and self._session.needs_reauthentication(self._clock.now_ms()):
                await self._authenticate(self._deadline(timeout_ms, "finish the SASL log-in"))
            chosen = self._session.pick_version(request) if version is None else version
            return await self._exchange(request, chosen, deadline)

    async def reauthenticate(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Log in again on the live connection (KIP-368); nothing without SASL.

        Raises:
            ClusterError: the broker refused.
        """
        if self.settings.sasl:
            async with self._lock:
                await self._authenticate(self._deadline(timeout_ms, "finish the SASL log-in"))

    async def close(self) -> None:
        """Close the streams; harmless when they are closed."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):  # what a broker that is gone says to a good-bye
                await writer.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.open() if self._streams is None else self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _connect(self, deadline: Deadline) -> None:
        settings = self.settings
        try:
            async with asyncio.timeout(deadline.left_seconds()):
                self._streams = await asyncio.open_connection(
                    settings.host,
                    settings.port,
                    ssl=settings.tls,
                    server_hostname=settings.host if settings.tls else None,
                )
        except TimeoutError:
            raise deadline.expired() from None
        except (socket.gaierror, UnicodeError) as error:
            self._check_address(error)
        except OSError as error:
            raise deadline.failed(error) from error

    async def _authenticate(self, deadline: Deadline) -> None:
        assert self.settings.sasl is not None  # callers have looked
        sasl = self.settings.sasl
        credentials = await asyncio.to_thread(sasl.credentials) if sasl.token else sasl.credentials()
        lifetime_ms = await self._run(authenticate(self._session, credentials), deadline)
        self._session.authenticated(lifetime_ms, self._clock.now_ms())

    async def _run(self, conversation: Generator[tuple[Request, int], Response, Any], deadline: Deadline) -> Any:
        try:
            request, version = next(conversation)
            while True:
                request, version = conversation.send(await self._exchange(request, version, deadline))
        except StopIteration as end:
            return end.value

    async def _exchange(self, request: Request, version: int, deadline: Deadline) -> Response:
        if self._streams is None:
            raise ClusterError(f"the connection to {self.settings.peer} is closed; open a new one")
        correlation_id, frame = self._session.send(request, version)
        try:
            async with asyncio.timeout(deadline.left_seconds()):
                return await self._write_and_read(*self._streams, frame, correlation_id)
        except TimeoutError:
            await self.close()
            raise deadline.expired() from None
        except (OSError, WireError) as error:
            await self.close()
            raise deadline.failed(error) from error
        except BaseException:
            await self.close()
            raise

    async def _write_and_read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: list[Part], correlation_id: int
    ) -> Response:
        writer.write(b"".join(frame))
        await writer.drain()
        while True:
            data = await reader.read(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            for answer in self._session.receive(data, self._clock.now_ms()):
                if answer.correlation_id == correlation_id:
                    return answer.response
                raise WireError("the answers are out of order")
