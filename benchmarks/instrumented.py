"""What OpenTelemetry costs a message: `instrument()` beside opentelemetry-instrumentation-confluent-kafka.

`python -m benchmarks.instrumented` prints microseconds of the calling thread's CPU time a message, beyond what the same
client takes without: `produce()` with a delivery callback until all reports are there, and `poll()`. The broker is the
embedded one, in a process of its own; nothing throttles. Kinds take turns, and the median of the rounds is shown.
Spans are recorded and go to no exporter; metrics are collected once a round.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import confluent_kafka
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import kclient_quota
from benchmarks.broker_host import TOPIC
from kclient_quota import instrument

KINDS: Final = ("ours", "ours, metrics", "ours, spans", "plain", "contrib's spans")
_VALUE: Final = b"x" * 200
_PLAIN: Final = (confluent_kafka.Producer, confluent_kafka.Consumer)
_OURS: Final = (kclient_quota.Producer, kclient_quota.Consumer)
BURST: Final = 100
_PREFETCH_S: Final = 0.5
Collect = Callable[[], object]
Run = Callable[[Collect], float]


class Figures:
    """CPU microseconds a message: of every kind the median, and what instrumenting adds.

    Args:
        rounds: by kind, of each round.
    """

    def __init__(self, rounds: dict[str, list[float]]) -> None:
        self.of = {kind: statistics.median(found) for kind, found in rounds.items()}

    @property
    def metrics(self) -> float:
        """Ours, for metrics."""
        return self.of["ours, metrics"] - self.of["ours"]

    @property
    def spans(self) -> float:
        """Ours, for spans."""
        return self.of["ours, spans"] - self.of["ours"]

    @property
    def contrib(self) -> float:
        """OpenTelemetry's own instrumentation, for spans."""
        return self.of["contrib's spans"] - self.of["plain"]


def produce(bootstrap: str, *, messages: int, rounds: int, burst: int = BURST) -> Figures:
    """Of producing so many messages at a time: a span that ends at delivery is kept until then."""

    def made(kind: str) -> Run:
        make = _makers(kind)[0]
        producer = make({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
        return lambda collect: _produced(producer, messages, burst, collect)

    return _measured(made, rounds)


def poll(bootstrap: str, *, messages: int, rounds: int) -> Figures:
    """Of consuming what `produce` has left in the topic, one message a call."""

    def made(kind: str) -> Run:
        make = _makers(kind)[1]
        conf = {"bootstrap.servers": bootstrap, "group.id": kind, "auto.offset.reset": "earliest"}
        consumer = make({**conf, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        return lambda collect: _polled(consumer, messages, collect)

    return _measured(made, rounds)


def _makers(kind: str) -> tuple[Any, Any]:
    """Producer and consumer class."""
    if kind == "contrib's spans":
        return confluent_kafka.Producer, confluent_kafka.Consumer
    return _PLAIN if kind == "plain" else _OURS


def _measured(made: Callable[[str], Run], rounds: int) -> Figures:
    """Makes the client of every kind, then lets them take turns; the first turn is for warming up."""
    undo = instrument(MeterProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False))
    runs = {"ours, spans": made("ours, spans")}
    undo()
    runs |= {kind: made(kind) for kind in KINDS if kind not in runs}
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS:
            gc.collect()
            taken = _with_metrics(runs[kind]) if kind == "ours, metrics" else runs[kind](lambda: None)
            if number:
                found[kind].append(taken)
    return Figures(found)


def _with_metrics(run: Run) -> float:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    undo = instrument(provider)
    try:
        return run(lambda: bool(reader.get_metrics_data()))
    finally:
        undo()
        provider.shutdown()


def _produced(producer: Any, messages: int, burst: int, collect: Collect) -> float:
    reports = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal reports
        reports += error is None

    begin = time.thread_time_ns()
    for number in range(messages):
        producer.produce(TOPIC, _VALUE, on_delivery=on_delivery)
        if number % burst == burst - 1:
            producer.flush(60)
    collect()
    left = producer.flush(60)
    taken = time.thread_time_ns() - begin
    if left or reports != messages:
        raise RuntimeError(f"{messages - reports} messages were not delivered")
    return taken / messages / 1000


def _polled(consumer: Any, messages: int, collect: Collect) -> float:
    while consumer.poll(30) is None:
        continue
    time.sleep(_PREFETCH_S)  # so that what is counted is the calls, not waiting
    begin = time.thread_time_ns()
    for _ in range(messages - 1):
        if consumer.poll(30) is None:
            raise RuntimeError("there is nothing left to consume")
    collect()
    return (time.thread_time_ns() - begin) / messages / 1000


@contextmanager
def broker() -> Iterator[str]:
    """An embedded broker in a process of its own: its address."""
    words = [sys.executable, "-m", "benchmarks.broker_host", "embedded"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["bootstrap"]
        process.stdin.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--burst", type=int, default=BURST, help="messages under way at a time (default: %(default)s)")
    options = parser.parse_args(arguments)
    print("CPU µs a message  without  metrics add  spans add  contrib's spans add")
    # as `opentelemetry-instrument` does: clients that are made from now on, of confluent_kafka's own names
    ConfluentKafkaInstrumentor().instrument(tracer_provider=TracerProvider(shutdown_on_exit=False))
    with broker() as bootstrap:
        for name, measure in (("produce()", partial(produce, burst=options.burst)), ("poll()", poll)):
            found = measure(bootstrap, messages=options.messages, rounds=options.rounds)
            without = found.of["ours"]
            print(f"{name:<16} {without:>8.2f} {found.metrics:>12.2f} {found.spans:>10.2f} {found.contrib:>20.2f}")


if __name__ == "__main__":
    main()
