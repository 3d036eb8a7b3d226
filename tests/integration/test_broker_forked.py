"""A process with an embedded broker that forks (workers of `multiprocessing`): the child has nothing of it."""

import multiprocessing
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError

_FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@contextmanager
def forked_child() -> Iterator[None]:
    begun, done = _FORK.Event(), _FORK.Event()

    def live() -> None:
        begun.set()
        done.wait(60)

    child = _FORK.Process(target=live)
    child.start()
    try:
        assert begun.wait(60)  # it has let go of everything before that
        yield
    finally:
        done.set()
        child.join(60)


def test_what_the_broker_closes_is_closed_though_a_child_lives(tmp_path: Path) -> None:
    cluster = EmbeddedBroker(brokers=2, data_dir=tmp_path).start()
    first, _, _ = cluster.bootstrap_servers.partition(",")
    host, _, port = first.partition(":")
    with socket.create_connection((host, int(port)), 60) as client:
        client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")  # ApiVersions
        assert client.recv(65_536)
        with forked_child():
            cluster.restart(2)
            cluster.close()
            client.settimeout(60)
            assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), 60)
            with EmbeddedBroker(ports=[int(port)], data_dir=tmp_path):
                pass


def test_a_child_that_asks_its_parents_broker_is_told_at_once() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as cluster:

        def ask(answer: int) -> None:
            try:
                cluster.create_topic("more", 1)
            except ClusterError as error:
                os.write(answer, str(error).encode())

        reads, writes = os.pipe()
        child = _FORK.Process(target=ask, args=(writes,))
        child.start()
        os.close(writes)
        with os.fdopen(reads, "rb") as said:
            assert b"runs in the process that this one was forked from" in said.read()
        child.join(60)
        cluster.create_topic("more", 1)
