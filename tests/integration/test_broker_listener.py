"""A listener may be closed at any moment; whoever has just come is told so."""

import asyncio
import contextlib
import errno
import gc
import socket
import warnings
from pathlib import Path
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.network import listener as listening
from kclient_quota.broker.network.listener import Listener, bind
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.errors import ConfigError
from tests.certificates import authority_and_certificate

pytestmark = pytest.mark.usefixtures("only_what_is_new")


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


@pytest.mark.parametrize("turns", [*range(6), None])
@pytest.mark.parametrize("how", ["stop_broker", "close"])
def test_a_client_in_a_tls_handshake_does_not_outlive_its_broker(tmp_path: Path, turns: int | None, how: str) -> None:
    pem = tmp_path / "broker.pem"
    files = authority_and_certificate(tmp_path)
    pem.write_text(Path(files.key_file).read_text() + Path(files.certificate_file).read_text())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with EmbeddedBroker(brokers=2, tls_pem=pem) as cluster:
            host, _, port = cluster.tls_bootstrap_servers.rpartition(",")[2].rpartition(":")
            with socket.create_connection((host, int(port)), 60) as client:
                if turns is None:
                    client.sendall(b"\x16\x03\x01\x02\x00")  # the head of a ClientHello that never comes

                async def stop() -> None:
                    for _ in range(100 if turns is None else turns):
                        await asyncio.sleep(0)
                    if how == "stop_broker":
                        cluster.stop_broker(2)

                cluster._await(stop())
                if how == "close":
                    cluster.close()
                client.settimeout(30)
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""
                if how == "stop_broker":
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


@pytest.mark.parametrize("wrong", [{"ports": 70_000}, {"metrics_port": 70_000}, {"ports": -1}])
def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is no port"):
        EmbeddedBroker(data_dir=tmp_path, **wrong).start()
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}) as cluster:
        assert cluster.bootstrap_servers


def test_a_host_that_is_none_of_this_machine_s_is_what_is_to_be_changed() -> None:
    with pytest.raises(ConfigError, match="name an address of this machine as host"):
        EmbeddedBroker(host="192.0.2.1").start()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="choose other ports"):
        EmbeddedBroker(ports=taken.getsockname()[1]).start()


def test_when_the_disk_has_what_is_nowhere_kept_is_not_to_be_said() -> None:
    with pytest.raises(ConfigError, match="fsync='always' says nothing without data_dir"):
        EmbeddedBroker(fsync="always")


def test_a_disk_that_fails_while_a_broker_closes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}).start()

    def refuse(_disk: Disk, _fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Disk, "sync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        broker.close()


def test_a_scraper_that_has_not_asked_yet_is_let_go_of_when_the_broker_closes(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(metrics_port=0) as cluster:
        host, _, port = cluster.metrics_url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
        scraper = socket.create_connection((host, int(port)), 60)
        scraper.sendall(b"GET /met")
        cluster._call(lambda: None)
    with scraper:
        scraper.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert scraper.recv(1) == b""
    assert "Exception in callback" not in caplog.text
