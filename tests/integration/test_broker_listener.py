"""A listener may be closed at any moment; whoever has just come is told so."""

import asyncio
import contextlib
import errno
import gc
import socket
import warnings
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.network import listener as listening
from kclient_quota.broker.network.listener import Listener, bind


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("how", ["stop_broker", "restart"])
def test_a_broker_that_stops_while_a_client_connects_leaves_nobody_waiting(turns: int, how: str) -> None:
    with EmbeddedBroker(brokers=2) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(",")[2].rpartition(":")
        clients: list[socket.socket] = []

        async def connect_and_stop() -> None:
            clients.append(socket.create_connection((host, int(port)), 60))
            for _ in range(turns):
                await asyncio.sleep(0)
            cluster.stop_broker(2)
            if how == "restart":
                cluster.start_broker(2)

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            cluster._await(connect_and_stop())
            with clients[0] as client:
                client.settimeout(60)
                with contextlib.suppress(ConnectionResetError):  # not taken up before the listener was closed
                    assert client.recv(1) == b""
            cluster._call(gc.collect)
        assert [str(one.message) for one in warned] == []


def test_a_listener_out_of_file_descriptors_goes_on_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_BREATH_S", 0.01)
    bound = bind("127.0.0.1", 0)

    class Short:
        """A socket in a process that has no descriptor left for its first three connections."""

        def __init__(self) -> None:
            self.refused = 0

        def accept(self) -> Any:
            if self.refused < 3:
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return bound.accept()

        def fileno(self) -> int:
            return bound.fileno()

        def close(self) -> None:
            bound.close()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

        class Made(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set_result(transport)

        short: Any = Short()
        listener = Listener(short, Made)
        with socket.create_connection(bound.getsockname(), 60):
            async with asyncio.timeout(60):
                (await made).close()
            listener.close()
            listener.close()
            await asyncio.sleep(0)
        assert short.refused == 3

    asyncio.run(play())
