"""A destructor that flushes or closes runs in whichever thread drops the last reference, or collects: in ours, too."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.testing.kafka_broker import KafkaBroker

COUNT = 60
ENDS: dict[str, Callable[[Producer], object]] = {
    "flush": Producer.flush,
    "flush in time": lambda producer: producer.flush(60),
    "close": Producer.close,
}
SCRIPT = """
from kclient_quota import Producer

class Mine(Producer):
    def __del__(self):
        self.{end}

producer = Mine({{"bootstrap.servers": {servers!r}, "producer_byte_rate": 20_000}})
for number in range({count}):
    producer.produce("t", b"%04d" % number + b"x" * 500)
del producer
"""


MULTIPROCESSING = """
import multiprocessing

from kclient_quota import Producer

class Mine(Producer):
    def __del__(self):
        self.{end}

def work():
    producer = Mine({{"bootstrap.servers": {servers!r}, "producer_byte_rate": 20_000}})
    for number in range({count}):
        producer.produce("t", b"%04d" % number + b"x" * 500)

if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=work)
    process.start()
    process.join()
"""


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Only where a test does."""
    gc.disable()
    yield
    gc.enable()


def conf(broker: KafkaBroker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "producer_byte_rate": 20_000, "enable.metrics.push": False}


def fill(producer: Producer) -> None:
    for number in range(COUNT):
        producer.produce("t", b"%04d" % number + b"x" * 500)


def await_records(broker: KafkaBroker, count: int = COUNT) -> None:
    until = time.monotonic() + 60
    while len(broker.records("t")) < count:
        assert time.monotonic() < until, f"{len(broker.records('t'))} of {count} have been delivered"
        time.sleep(0.02)


class Sink:
    """What holds on to itself, and flushes its producer when nobody else does any more."""

    def __init__(self, producer: Producer, end: Callable[[Producer], object]) -> None:
        self.producer, self.end, self.me = producer, end, self
        self.ended_in: list[int] = []

    def __del__(self) -> None:
        self.ended_in.append(threading.get_ident())
        self.end(self.producer)


def collect_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have garbage collected in each call of a core's, whichever thread makes it."""
    call = getattr(ProducerCore, name)

    def collecting(*args: Any) -> Any:
        gc.collect()
        return call(*args)

    monkeypatch.setattr(ProducerCore, name, collecting)


@pytest.mark.parametrize("end", ENDS)
def test_its_own_when_the_sender_has_the_last_reference(kafka_broker: KafkaBroker, end: str) -> None:
    """The sender waited for itself: `flush()` for ever, and what waited was lost."""

    class Mine(Producer):
        def __del__(self) -> None:
            ENDS[end](self)

    producer = Mine(conf(kafka_broker))
    fill(producer)
    del producer
    await_records(kafka_broker)


@pytest.mark.parametrize("end", ENDS)
def test_of_garbage_that_the_sender_collects(
    kafka_broker: KafkaBroker, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of its work, under its lock."""
    sink = Sink(Producer(conf(kafka_broker)), ENDS[end])
    ended_in = sink.ended_in
    fill(sink.producer)
    collect_before("sent", monkeypatch)
    del sink
    await_records(kafka_broker)
    assert ended_in
    assert ended_in[0] != threading.get_ident()


@pytest.mark.parametrize("end", ENDS)
def test_of_garbage_that_is_collected_while_the_sender_sleeps(kafka_broker: KafkaBroker, end: str) -> None:
    """No sender finds the producer any more, whose weak references end before destructors run: it is its own."""
    sink = Sink(Producer(conf(kafka_broker)), ENDS[end])
    outbox = sink.producer._kq_outbox
    fill(sink.producer)
    sink.producer.flush()
    outbox.stops = True
    outbox.inbox.put(None)
    while outbox.is_running:
        time.sleep(0.001)
    outbox.stops = False

    def fill_and_end(producer: Producer) -> None:
        fill(producer)
        ENDS[end](producer)

    sink.end = fill_and_end
    del sink
    gc.collect()
    await_records(kafka_broker, 2 * COUNT)


def test_of_garbage_that_another_call_collects(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which holds the lock that the sender wants."""
    sink = Sink(Producer(conf(kafka_broker)), ENDS["flush"])
    producer = Producer(conf(kafka_broker))
    fill(sink.producer)
    collect_before("state", monkeypatch)
    del sink
    assert producer.quota_state()
    await_records(kafka_broker)
    producer.close()


@pytest.mark.parametrize("end", ["flush()", "close()"])
def test_the_end_of_the_process_waits_for_them(kafka_broker: KafkaBroker, end: str) -> None:
    script = SCRIPT.format(end=end, servers=kafka_broker.bootstrap_servers, count=COUNT)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(kafka_broker.records("t")) == COUNT


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("end", ["flush()", "close()"])
def test_so_does_that_of_one_which_multiprocessing_has_forked(
    kafka_broker: KafkaBroker, tmp_path: Path, end: str, method: str
) -> None:
    """It calls no exit handlers: what waited for the quota was lost."""
    script = tmp_path / "script.py"
    servers = kafka_broker.bootstrap_servers
    script.write_text(MULTIPROCESSING.format(end=end, servers=servers, count=COUNT, method=method))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(kafka_broker.records("t")) == COUNT
