"""The producer under measurement, in a process of its own: sends, waits for every report, says what happened."""

import asyncio
import json
import time
from typing import Any

from benchmarks import tuning
from benchmarks.ledger import Ledger, value_of
from benchmarks.payloads import bodies, key_of


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one producer as `spec` says: client, bootstrap, topic, client_id, and the fields of a `ProducerScene`."""
    bodies(spec["kind"], spec["size"])  # made before the time runs
    ledger = Ledger()
    begin_ms = time.time_ns() // 1_000_000
    extra: dict[str, Any]
    if spec["client"].startswith("plain") or spec["client"] == "ours":
        extra = _confluent(spec, ledger)
    elif spec["client"] == "kafka-python":
        extra = _kafka_python(spec, ledger)
    elif spec["client"].startswith("java"):
        from benchmarks import java_peer  # noqa: PLC0415 - a peer's process must not load ours

        extra = java_peer.produce(spec, ledger)
    else:
        extra = asyncio.run(_aiokafka(spec, ledger))
    return {"begin_ms": begin_ms, "end_ms": time.time_ns() // 1_000_000, **ledger.summary(), **extra}


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
        "compression.type": spec["compression"],
        **tuning.librdkafka(spec),
    }
    if spec["queue_kbytes"]:
        conf["queue.buffering.max.kbytes"] = spec["queue_kbytes"]
    if spec["max_delay_ms"] and spec["client"] == "ours":
        conf["quota.max.delay.ms"] = spec["max_delay_ms"]
    producer = producer_class(spec["client"])(conf)
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        called_at_s = time.monotonic()
        _hand_over(producer, spec, message_id, ledger)
        ledger.accepted(message_id, called_at_s)
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
    value = value_of(message_id, spec["size"], spec["kind"])
    key = key_of(message_id, spec["partitions"])
    while True:
        try:
            producer.produce(spec["topic"], value, key, on_delivery=lambda error, _: ledger.report(message_id, error))
        except BufferError:
            # the plain client's queue is full; Confluent's own examples poll and try again
            producer.poll(0.05)
        else:
            return


def producer_class(client: str) -> Any:
    """confluent_kafka's Producer, plain or ours."""
    if client == "ours":
        from kclient_quota import Producer  # noqa: PLC0415 - as above

        return Producer
    from confluent_kafka import Producer as Plain  # noqa: PLC0415 - as above

    return Plain


def _state(client: Any) -> str | None:
    state = getattr(client, "quota_state", None)
    return None if state is None else str(state())


def _message(message_id: int, spec: dict[str, Any]) -> tuple[bytes, bytes | None]:
    return value_of(message_id, spec["size"], spec["kind"]), key_of(message_id, spec["partitions"])


def _compression(spec: dict[str, Any]) -> str | None:
    return None if spec["compression"] == "none" else spec["compression"]


def _kafka_python(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    from kafka import KafkaProducer  # noqa: PLC0415 - only in its own process

    conf: dict[str, Any] = {"bootstrap_servers": spec["bootstrap"], "client_id": spec["client_id"]}
    producer = KafkaProducer(**conf, compression_type=_compression(spec))
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        try:
            future = producer.send(spec["topic"], *_message(message_id, spec))
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

    conf: dict[str, Any] = {"bootstrap_servers": spec["bootstrap"], "client_id": spec["client_id"]}
    producer = AIOKafkaProducer(**conf, compression_type=_compression(spec))
    await producer.start()
    pending = set()
    plan = _Plan(spec)
    while plan.wants_more(len(ledger.handed_over)):
        message_id = ledger.next_id()
        try:
            future = await producer.send(spec["topic"], *_message(message_id, spec))
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
