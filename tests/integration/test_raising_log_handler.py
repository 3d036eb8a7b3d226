"""A handler of the application's that fails on what we log: that costs a line in the log, and nothing else."""

import logging
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of

ROOT = Path(__file__).parents[2]
COUNT = 150
QUOTA = 30_000


class Failing(logging.Handler):
    """Cannot write what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.given.append(record.getMessage())
        raise RuntimeError("the disk of the log is full")


@pytest.fixture
def failing() -> Iterator[Failing]:
    handler, logger = Failing(), logging.getLogger("kclient_quota")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_a_producer_follows_a_quota_that_comes_late(broker: EmbeddedBroker, failing: Failing) -> None:
    broker.create_topic("t", 1)
    errors: list[Any] = []
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}) as producer:
        producer.produce("t", b"first")
        assert producer.flush(30) == 0
        broker.set_quota(client_id="app", producer_byte_rate=QUOTA)
        broker.throttle_next(0, 50, client_id="app")
        while not any(state.limit == QUOTA for state in producer.quota_state().values()):
            producer.produce("t", b"x" * 1_000, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0.01)
        assert producer.flush(60) == 0
    assert set(errors) == {None}
    assert failing.given


def test_a_consumer_reads_on(broker: EmbeddedBroker, failing: Failing) -> None:
    broker.create_topic("t", 1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "fills"}) as producer:
        for _ in range(COUNT):
            producer.produce("t", b"x" * 1_000)
    broker.throttle_next(1, 50, client_id="app")
    consumer = consumer_of(broker, "t", "app")
    received = 0
    while received < COUNT:
        received += len(consumer.consume(COUNT, 0.5))
    consumer.close()
    assert failing.given


def test_an_embedded_broker_serves_on_and_closes(failing: Failing) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for _ in range(2):
            with socket.create_connection((host, int(port)), timeout=30) as stranger:
                stranger.sendall(b"\0\0\0\x08GET / HT")
                assert stranger.recv(1) == b""
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.produce("t", b"first")
            assert producer.flush(30) == 0
        with ThreadPoolExecutor(1) as others:
            others.submit(broker.close).result(5)
    assert len(failing.given) >= 2


def test_every_logger_of_a_module_bears_them() -> None:
    own = "logging.getLogger" + "(__name__)"
    rooms = ("kclient_quota", "telemetry")
    assert [str(path) for room in rooms for path in (ROOT / room).rglob("*.py") if own in path.read_text()] == []


def test_nobody_is_left_to_be_told(broker: EmbeddedBroker, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _: str) -> int:
            raise ValueError("I/O operation on closed file.")

    monkeypatch.setattr(sys, "stderr", Closed())
    logging.getLogger("kclient_quota").warning("said by one of ours")
    assert failing.given == ["said by one of ours"]


def test_a_filter_that_raises_costs_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    def raises(_: logging.LogRecord) -> bool:
        raise RuntimeError("no such attribute")

    logger = logging.getLogger("kclient_quota")
    logger.addFilter(raises)
    try:
        logger.warning("said by one of ours")
    finally:
        logger.removeFilter(raises)
    assert "no such attribute" in capsys.readouterr().err
