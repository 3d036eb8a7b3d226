"""The producer under measurement, in a process of its own: sends, waits for every report, says what happened."""

import asyncio
import json
import time
from array import array
from typing import Any

from benchmarks.figures import percentile

_FAR = -1.0
_ID_DIGITS = 10


class Ledger:
    """Who was handed over when, and what became of it."""

    def __init__(self) -> None:
        self.handed_over = array("d")
        self.reported = array("d")
        self.failed: list[int] = []
        self.errors: dict[str, int] = {}
        self.longest_throttle_ms = 0.0
        self.request_timeouts = 0

    def next_id(self) -> int:
        """Opens a line for the next message."""
        self.handed_over.append(_FAR)
        self.reported.append(_FAR)
        return len(self.handed_over) - 1

    def accepted(self, message_id: int) -> None:
        """The client's call returned."""
        self.handed_over[message_id] = time.monotonic()

    def report(self, message_id: int, error: object | None, at_s: float | None = None) -> None:
        """The client said what became of the message: now, or at a time of the clock that told of its hand-over."""
        self.reported[message_id] = time.monotonic() if at_s is None else at_s
        if error is not None:
            self.failed.append(message_id)
            kind = str(error).split(":", maxsplit=1)[0][:80]
            self.errors[kind] = self.errors.get(kind, 0) + 1

    def throttled(self, throttle_ms: float) -> None:
        """The client heard of a throttle time."""
        self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)

    def summary(self) -> dict[str, Any]:
        """Figures of the run; latencies are of messages that were delivered."""
        failed = set(self.failed)
        latencies = [
            max(0.0, done - handed) * 1000
            for message_id, (handed, done) in enumerate(zip(self.handed_over, self.reported, strict=True))
            if _FAR not in {done, handed} and message_id not in failed
        ]
        return {
            "handed_over": len(self.handed_over),
            "acknowledged": sum(done != _FAR for done in self.reported) - len(failed),
            "failed": len(failed),
            "unreported": sum(done == _FAR for done in self.reported),
            "failed_ids": sorted(failed),
            "errors": self.errors,
            "latency_p50_ms": percentile(latencies, 0.50),
            "latency_p99_ms": percentile(latencies, 0.99),
            "latency_max_ms": max(latencies, default=None),
        }


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one producer as `spec` says: client, bootstrap, topic, client_id, messages or seconds, size, wait_s."""
    ledger = Ledger()
    begin_ms = time.time_ns() // 1_000_000
    extra: dict[str, Any]
    if spec["client"] in {"plain", "ours"}:
        extra = _confluent(spec, ledger)
    elif spec["client"] == "kafka-python":
        extra = _kafka_python(spec, ledger)
    elif spec["client"] == "java":
        from benchmarks import java_peer  # noqa: PLC0415 - it fills this module's ledger

        extra = java_peer.produce(spec, ledger)
    else:
        extra = asyncio.run(_aiokafka(spec, ledger))
    return {"begin_ms": begin_ms, "end_ms": time.time_ns() // 1_000_000, **ledger.summary(), **extra}


def value_of(message_id: int, size: int) -> bytes:
    """A value that begins with its id."""
    return str(message_id).zfill(_ID_DIGITS).encode().ljust(size, b".")


def id_of(value: bytes) -> int:
    """The id that a value begins with."""
    return int(value[:_ID_DIGITS])


class _Plan:
    """Says when to stop handing over."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._messages: int = spec["messages"]
        self._until = time.monotonic() + spec["seconds"]

    def wants_more(self, sent: int) -> bool:
        return sent < self._messages if self._messages else time.monotonic() < self._until


def _confluent(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    timeouts: dict[str, int] = {}

    def on_stats(text: str) -> None:
        # counters of librdkafka are totals per broker connection
        for name, broker in json.loads(text)["brokers"].items():
            timeouts[name] = broker["req_timeouts"]

    conf = {
        "bootstrap.servers": spec["bootstrap"],
        "client.id": spec["client_id"],
        "statistics.interval.ms": 500,
        "stats_cb": on_stats,
        "throttle_cb": lambda event: ledger.throttled(event.throttle_time * 1000),
    }
    producer = producer_class(spec["client"])(conf)
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        _hand_over(producer, spec, message_id, ledger)
        ledger.accepted(message_id)
        producer.poll(0)
    given_ms = time.time_ns() // 1_000_000
    producer.flush(spec["wait_s"])
    producer.poll(0.6)
    return {
        "given_ms": given_ms,
        "request_timeouts": sum(timeouts.values()),
        "longest_throttle_ms": ledger.longest_throttle_ms,
        "state": _state(producer),
    }


def _hand_over(producer: Any, spec: dict[str, Any], message_id: int, ledger: Ledger) -> None:
    value = value_of(message_id, spec["size"])
    while True:
        try:
            producer.produce(spec["topic"], value, on_delivery=lambda error, _: ledger.report(message_id, error))
        except BufferError:
            # the plain client's queue is full; Confluent's own examples poll and try again
            producer.poll(0.05)
        else:
            return


def producer_class(client: str) -> Any:
    """confluent_kafka's Producer, plain or ours."""
    if client == "ours":
        from kclient_quota import Producer  # noqa: PLC0415 - a peer's process must not load ours

        return Producer
    from confluent_kafka import Producer as Plain  # noqa: PLC0415 - as above

    return Plain


def _state(client: Any) -> str | None:
    state = getattr(client, "quota_state", None)
    return None if state is None else str(state())


def _kafka_python(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    from kafka import KafkaProducer  # noqa: PLC0415 - only in its own process

    producer = KafkaProducer(bootstrap_servers=spec["bootstrap"], client_id=spec["client_id"])
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        try:
            future = producer.send(spec["topic"], value_of(message_id, spec["size"]))
        except Exception as error:  # noqa: BLE001 - whatever it raises is a message that it did not take
            ledger.report(message_id, type(error).__name__)
            continue
        ledger.accepted(message_id)
        future.add_callback(lambda _, message_id=message_id: ledger.report(message_id, None))
        future.add_errback(lambda error, message_id=message_id: ledger.report(message_id, type(error).__name__))
    given_ms = time.time_ns() // 1_000_000
    try:
        producer.flush(timeout=spec["wait_s"])
    except Exception as error:  # noqa: BLE001 - a flush that fails leaves its messages unreported
        ledger.errors[f"flush {type(error).__name__}"] = 1
    throttle = producer.metrics().get("producer-metrics", {}).get("throttle-time-max")
    return {"given_ms": given_ms, "request_timeouts": None, "longest_throttle_ms": throttle}


async def _aiokafka(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - only in its own process

    def on_done(future: Any, message_id: int) -> None:
        error = future.exception()
        ledger.report(message_id, None if error is None else type(error).__name__)

    producer = AIOKafkaProducer(bootstrap_servers=spec["bootstrap"], client_id=spec["client_id"])
    await producer.start()
    pending = set()
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        try:
            future = await producer.send(spec["topic"], value_of(message_id, spec["size"]))
        except Exception as error:  # noqa: BLE001 - whatever it raises is a message that it did not take
            ledger.report(message_id, type(error).__name__)
            continue
        ledger.accepted(message_id)
        pending.add(future)
        future.add_done_callback(pending.discard)
        future.add_done_callback(lambda done, message_id=message_id: on_done(done, message_id))
    given_ms = time.time_ns() // 1_000_000
    if pending:
        await asyncio.wait(pending, timeout=spec["wait_s"])
    # a stop() that waits for a throttled connection adds nothing: every report is in
    return {"given_ms": given_ms, "request_timeouts": None, "longest_throttle_ms": None}
