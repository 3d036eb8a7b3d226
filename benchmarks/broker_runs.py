"""Start-up, throughput and CPU of brokers for tests, each in a process of its own, driven by plain confluent-kafka."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.broker_host import PARTITIONS, TOPIC
from benchmarks.processes import CpuTime
from benchmarks.scenes import TEST_BROKERS

_LARGE, _SMALL = b"x" * 1024, b"x" * 100
_MB = 1_000_000


_RATES = ("produce_mb_per_s", "fetch_mb_per_s")


@dataclass
class _Moved:
    """Megabytes that were moved, those among them that were timed, and how long they took."""

    total_mb: float = 0.0
    timed_mb: float = 0.0
    seconds: float = 0.0


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Medians over `rounds` fresh brokers of each kind, in turn, `messages` of 1 KiB and of 100 bytes moved."""
    names = [name for name in TEST_BROKERS if name != "kfake" or spec["kfake"] is not None]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(spec["rounds"]):
        for name in names:
            command = [spec["kfake"]] if name == "kfake" else [sys.executable, "-m", "benchmarks.broker_host", name]
            large = measured_round(command, spec["messages"], _LARGE)
            small = measured_round(command, spec["messages"], _SMALL)
            counted = {key.replace("_mb_", "_messages_"): small[key] * _MB / len(_SMALL) for key in _RATES}
            rounds[name].append({**large, **counted})
    return {name: _medians(one) for name, one in rounds.items()}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: median(one[key] for one in rounds) for key in rounds[0]}


def measured_round(command: list[str], messages: int, value: bytes) -> dict[str, float]:
    """Start-up, throughput and CPU of one fresh broker that `command` starts."""
    with _host(command) as (process_id, hello):
        cpu = CpuTime(process_id)
        produced = _measured(cpu, "produce", _produce(hello["bootstrap"], messages, value))
        fetched = _measured(cpu, "fetch", _fetch(hello["bootstrap"], messages * len(value) / _MB))
    return {"start_ms": hello["start_ms"], **produced, **fetched}


@contextmanager
def _host(command: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            yield host.pid, json.loads(host.stdout.readline())
        finally:
            host.stdin.close()
            try:
                host.wait(10)
            except subprocess.TimeoutExpired:
                host.kill()


def _measured(cpu: CpuTime, name: str, work: Iterator[_Moved]) -> dict[str, float]:
    """`work` is set up until its first item, and moves bytes until its second."""
    next(work)
    before = cpu.seconds()
    moved = next(work)
    used = cpu.seconds() - before
    next(work, None)
    return {f"{name}_mb_per_s": moved.timed_mb / moved.seconds, f"{name}_cpu_s_per_mb": used / moved.total_mb}


def _produce(bootstrap: str, messages: int, value: bytes) -> Iterator[_Moved]:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": messages + 1000})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=partition)
    producer.flush(30)
    yield _Moved()
    begin = time.perf_counter()
    for number in range(messages):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    if producer.flush(120) > 0:
        raise RuntimeError("the broker did not take every message")
    megabytes = messages * len(value) / _MB
    yield _Moved(megabytes, megabytes, time.perf_counter() - begin)


def _fetch(bootstrap: str, megabytes: float) -> Iterator[_Moved]:
    # by default it rests for a second whenever it has fetched 100,000 messages ahead, whatever the broker does
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 1})
    try:
        starts, stored = [], 0
        for number in range(PARTITIONS):
            first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), 30)
            starts.append(TopicPartition(TOPIC, number, first))
            stored += end - first
        yield _Moved()
        moved = _Moved()
        # the mock keeps only a few megabytes a partition, so the log is read again until enough was moved
        while moved.total_mb < megabytes:
            consumer.assign(starts)
            _read(consumer, stored, moved)
        yield moved
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int, moved: _Moved) -> None:
    """Reads `count` messages; the clock starts with the first of them, since an assignment takes its time to begin."""
    got = _take(consumer, 1, moved)
    begin, before = time.perf_counter(), moved.total_mb
    while got < count:
        got += _take(consumer, min(1000, count - got), moved)
    moved.seconds += time.perf_counter() - begin
    moved.timed_mb += moved.total_mb - before


def _take(consumer: Consumer, count: int, moved: _Moved) -> int:
    messages = consumer.consume(count, 10)
    if not messages:
        raise RuntimeError("the broker stopped answering fetches")
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        moved.total_mb += len(message.value() or b"") / _MB
    return len(messages)
