"""Figures of client telemetry: python -m benchmarks.telemetry [push] [receiver] [throughput] [throttled] [--quick].

push        CPU time and bytes of one push of 100 metrics, by codec, beside payloads captured from Java and librdkafka
cost        CPU time of a push in a whole client, from collecting to the answer: ours, librdkafka's, Java's
receiver    pushes a second and CPU time a push of one embedded broker with 1,000 and 10,000 client instances
throughput  an un-throttled producer with telemetry on and off, in pairs: by the clock and by CPU time
throttled   pushes that arrive in a minute far over the quota: plain confluent-kafka and ours
"""

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import comb
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

import confluent_kafka
from kclient_telemetry import compression
from kclient_telemetry.client.actions import SendGet, SendPush, WaitUntil
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.reporter import TelemetryReporter
from kclient_telemetry.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from kclient_telemetry.metric import MetricName as PushName

from benchmarks import push_cost
from benchmarks.processes import CpuTime
from benchmarks.report import machine
from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest

CODECS = {codec.name.lower(): codec for codec in compression.CompressionType}
CAPTURED = Path(__file__).parents[1] / "tests" / "unit" / "telemetry" / "payloads"
CONNECTIONS = 100
_PIPELINED = 50
_DOUBT = 0.05


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for and prints it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(_FIGURES)}; all without any")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return _serve()
    if unknown := set(options.figures) - set(_FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # brokers and clients end, too
    print(machine())
    for name in options.figures or _FIGURES:
        print(f"\n## {name}", flush=True)
        for row in _FIGURES[name](options.quick):
            print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    return 0


# -- one push


def push(is_quick: bool) -> Any:
    """What one push of 100 metrics costs and weighs."""
    count = 200 if is_quick else 2_000
    for name, codec in CODECS.items():
        sizes, cpu_us = _pushes(codec, count)
        yield {"ours, 100 metrics": name, "cpu_us_per_push": round(cpu_us), "bytes": round(median(sizes))}
    for file in sorted(CAPTURED.glob("*-0.bin")):
        data = file.read_bytes()
        weights = {name: len(compression.compress(data, codec)) for name, codec in CODECS.items()}
        yield {"captured": file.stem.removesuffix("-0"), **weights}


def _pushes(codec: int, count: int) -> tuple[list[int], float]:
    collector = Collector()
    for number in range(100):
        name = PushName(f"metric-{number}-avg", "producer-metrics", tags={"node-id": f"node-{number % 3}"})
        collector.register_metric_for_subscription(name, partial(_changing, number), unix_ms=0)
    reporter = TelemetryReporter(collector, uniform=lambda: 0.5)
    now_ms = 0
    sizes: list[int] = []
    begin = time.thread_time()
    while len(sizes) < count:
        action = reporter.tick(now_ms, 1_700_000_000_000 + now_ms)
        if isinstance(action, WaitUntil):
            now_ms = action.at_ms
        elif isinstance(action, SendGet):
            answer = GetTelemetrySubscriptionsResponse(
                client_instance_id=_ID, subscription_id=1, accepted_compression_types=(codec,), push_interval_ms=1_000,
                telemetry_max_bytes=1 << 20, delta_temporality=True, requested_metrics=("*",),
            )  # fmt: skip
            reporter.subscription_received(action.request_id, answer, now_ms)
        elif isinstance(action, SendPush):
            sizes.append(len(action.request.metrics or b""))
            reporter.push_answered(action.request_id, PushTelemetryResponse(), now_ms)
    return sizes, (time.thread_time() - begin) * 1e6 / count


def _changing(number: int) -> float:
    return time.monotonic() % 97 * number


def cost(is_quick: bool) -> Any:
    """What one push costs the process that makes it."""
    yield from push_cost.rows(warm_up_s=6 if is_quick else 30, seconds=10 if is_quick else 60)


_ID = UUID(int=7)


# -- the receiver


class _Nowhere:
    def export_metrics(self, context: Any, payload: Any) -> None:
        """Take it: what is measured is receiving, checking and adding attributes."""


def _serve() -> int:
    """The broker under measurement, in a process of its own."""
    retention = {"log.retention.bytes": "50000000"}
    with EmbeddedBroker(topics={"t": 1}, properties=retention, exporters=[_Nowhere()]) as cluster:
        cluster.set_client_metrics("receiver", interval_ms=100, match={"client_id": "benchmark"})
        cluster.set_client_metrics("throughput", interval_ms=1_000, match={"client_id": "rdkafka"})
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.readline()
    return 0


@contextmanager
def _broker() -> Iterator[tuple[str, int]]:
    """Address and process id of a broker process."""
    command = [sys.executable, "-m", "benchmarks.telemetry", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        try:
            yield broker.stdout.readline().strip(), broker.pid
        finally:
            broker.stdin.close()


def receiver(is_quick: bool) -> Any:
    """One broker process, one process that pushes."""
    payload = compression.compress((CAPTURED / "java-producer-0.bin").read_bytes(), compression.CompressionType.ZSTD)
    for clients in (1_000,) if is_quick else (1_000, 10_000):
        with _broker() as (address, pid):
            yield {"clients": clients, "connections": CONNECTIONS, **_pushed(address, pid, clients, payload)}


def _pushed(address: str, pid: int, clients: int, payload: bytes) -> dict[str, Any]:
    host, port = address.rsplit(":", 1)
    settings = ConnectionSettings(host, int(port), "benchmark")
    connections = [Connection(settings, SYSTEM_CLOCK).open() for _ in range(CONNECTIONS)]
    batches: list[tuple[Connection, list[PushTelemetryRequest]]] = []
    each = clients // CONNECTIONS
    for connection in connections:
        for begin in range(0, each, _PIPELINED):
            told = connection.send_many([GetTelemetrySubscriptionsRequest()] * min(_PIPELINED, each - begin))
            pushes = [
                PushTelemetryRequest(
                    client_instance_id=one.client_instance_id,
                    subscription_id=one.subscription_id,
                    compression_type=compression.CompressionType.ZSTD,
                    metrics=payload,
                )
                for one in told
            ]
            batches.append((connection, pushes))
    refused = sum(answer.error_code != 0 for one, asked in batches for answer in one.send_many(asked))
    seconds, cpu_s, done, rounds = 0.0, 0.0, 0, max(3, 20_000 // clients)
    used = CpuTime(pid)
    for _ in range(rounds):
        time.sleep(0.12)  # the interval
        began, cpu = time.monotonic(), used.seconds()
        answers = [answer.error_code for one, asked in batches for answer in one.send_many(asked)]
        seconds += time.monotonic() - began
        cpu_s += used.seconds() - cpu
        refused += sum(code != 0 for code in answers)
        done += len(answers)
    for connection in connections:
        connection.close()
    return {
        "pushes": done,
        "refused": refused,
        "pushes_per_s": round(done / seconds),
        "broker_cpu_us_per_push": round(cpu_s / done * 1e6),
        "bytes_per_push": len(payload),
    }


# -- the producer


def throughput(is_quick: bool) -> Any:
    """Pairs of runs, each half of a pair first in every other one, the broker in a process of its own.

    The control is a pair of runs without telemetry: what chance alone does.
    """
    count, pairs = (300_000, 5) if is_quick else (1_000_000, 21)
    found: dict[str, list[list[float]]] = {"on / off": [], "off / off": []}
    with _broker() as (address, _):
        _produce(address, count, is_on=True)  # loads what is loaded once
        for number in range(pairs):
            for name, is_on in (("on / off", True), ("off / off", False)):
                order = [is_on, False] if number % 2 else [False, is_on]
                rates = [_produce(address, count, is_on=one) for one in order]
                first, second = rates if number % 2 else reversed(rates)
                found[name].append([one / other for one, other in zip(first, second, strict=True)])
    for name, ratios in found.items():
        for index, figure in enumerate(("messages/s", "messages/CPU s")):
            low, middle, high, certainty = confidence([ratio[index] for ratio in ratios])
            yield {
                "ratio": name, "of": figure, "pairs": pairs, "median": f"{middle:.3f}",
                f"with {certainty:.1%} between": f"{low:.3f} and {high:.3f}",
            }  # fmt: skip


def confidence(values: Sequence[float]) -> tuple[float, float, float, float]:
    """(lower bound, median, upper bound, how certain): of the median, by ranks, so whatever the distribution.

    The narrowest pair of ranks from both ends that holds the median with 95 %, or all values where there are too few.
    """
    ordered, size = sorted(values), len(values)
    outside = 0.0
    cut = 0
    while cut < size // 2 and 2 * (outside + comb(size, cut) / 2**size) <= _DOUBT:
        outside += comb(size, cut) / 2**size
        cut += 1
    if cut == 0:  # even from end to end it is less
        return ordered[0], median(ordered), ordered[-1], 1 - 2 / 2**size
    return ordered[cut - 1], median(ordered), ordered[size - cut], 1 - 2 * outside


def _produce(bootstrap: str, count: int, *, is_on: bool) -> tuple[float, float]:
    conf = {
        "bootstrap.servers": bootstrap,
        "enable.metrics.push": is_on,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    with Producer(conf) as producer:
        producer.produce("t", b"x")
        producer.flush(10)
        if is_on and producer.client_instance_id(5) is None:
            raise RuntimeError("telemetry did not begin")
        began, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            producer.produce("t", b"x" * 100)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush(60)
        return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


# -- while the broker throttles


def throttled(is_quick: bool) -> Any:
    """A producer of each kind, flat out against a quota it exceeds by far; a push is due every two seconds."""
    seconds, interval_ms = (20 if is_quick else 60), 2_000
    for name, kind, more in (
        ("confluent-kafka", confluent_kafka.Producer, {}),
        ("ours, quota.backoff=off", Producer, {"quota.backoff": "off"}),
        ("ours", Producer, {}),
    ):
        with EmbeddedBroker(topics={"t": 1}) as cluster:
            cluster.set_client_metrics("all", interval_ms=interval_ms)
            cluster.set_quota(default_client_id=True, producer_byte_rate=20_000)
            producer = kind({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "flat-out", **more})
            thread = threading.Thread(target=_flood, args=(producer, seconds))
            thread.start()
            thread.join(seconds)
            arrived = len(cluster.pushes)
            yield {"client": name, "seconds": seconds, "due": seconds * 1000 // interval_ms, "arrived": arrived}
            thread.join()
            producer.purge()
            producer.close()


def _flood(producer: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            producer.produce("t", b"x" * 1_000)
        except BufferError:
            producer.poll(0.05)


_FIGURES: dict[str, Any] = {
    "push": push,
    "cost": cost,
    "receiver": receiver,
    "throughput": throughput,
    "throttled": throttled,
}


if __name__ == "__main__":
    sys.exit(main())
