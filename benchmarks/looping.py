"""A consume-transform-produce loop under measurement, in a process of its own: its producer is throttled.

The documented at-least-once loop: poll, produce; flush, then commit after every so many messages. Clients whose poll
returns many messages are told to return as many at most, and flush and commit after each poll. The time of a message
counts from its arrival in the loop to its delivery report, so that waiting within `produce()` counts, too.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks import java_peer
from benchmarks.ledger import Ledger
from benchmarks.producing import producer_class
from benchmarks.rebalances import Rebalances

_POLL_S = 0.1
_SLICE_S = 0.2


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one loop as `spec` says: client, bootstrap, source, topic, client_id, seconds and so on.

    `client_id` is the throttled producer's, and the group; `reader_id` is the consumer's.
    """
    loop = {"plain": _confluent, "ours": _confluent, "kafka-python": _kafka_python, "java": java_peer.loop}
    loop["aiokafka"] = lambda *given: asyncio.run(_aiokafka(*given))
    ledger = Ledger()
    begin_ms = time.time_ns() // 1_000_000
    extra = loop[spec["client"]](spec, ledger)
    summary = ledger.summary()
    del summary["failed_ids"], summary["unreported"]
    return {"begin_ms": begin_ms, "end_ms": time.time_ns() // 1_000_000, **summary, **extra}


class _Batch:
    """Counts what was not committed yet."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._every: int = spec["commit_every"]
        self._open = 0
        self._end: float = time.monotonic() + spec["seconds"]

    def open(self) -> bool:
        return time.monotonic() < self._end

    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def is_full(self) -> bool:
        """One more; whether it is time to flush and commit."""
        self._open = (self._open + 1) % self._every
        return self._open == 0


def _group(spec: dict[str, Any], write: Callable[[str], str]) -> dict[str, Any]:
    """Settings of the consumer, their names as the client writes them."""
    return {
        write(key): value
        for key, value in {
            "bootstrap.servers": spec["bootstrap"],
            "client.id": spec["reader_id"],
            "group.id": spec["client_id"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": spec["poll_interval_ms"],
            "session.timeout.ms": spec["poll_interval_ms"],
        }.items()
    }


def _confluent(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    rebalances, batch = Rebalances(), _Batch(spec)
    consumer = _consumer_class(spec["client"])(_group(spec, str))
    more = {"heartbeat": consumer} if spec["client"] == "ours" else {}
    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}
    conf["throttle_cb"] = lambda event: ledger.throttled(event.throttle_time * 1000)
    producer = producer_class(spec["client"])(conf, **more)
    consumer.subscribe([spec["source"]], on_revoke=rebalances.confluent())
    while batch.open():
        message = consumer.poll(_POLL_S)
        producer.poll(0)
        if message is None or message.error() is not None:
            continue
        _send(producer, spec["topic"], message.value(), ledger)
        if batch.is_full():
            # in slices, to end in time; to the client it is one flush
            while producer.flush(_SLICE_S) and batch.open():
                continue
            _commit(consumer)
    return {"rebalances": rebalances.count, "longest_throttle_ms": ledger.longest_throttle_ms}


def _send(producer: Any, topic: str, value: bytes, ledger: Ledger) -> None:
    number = ledger.next_id()
    ledger.accepted(number)
    while True:
        try:
            producer.produce(topic, value, on_delivery=lambda error, _: ledger.report(number, error))
        except BufferError:
            # the plain client's queue is full; Confluent's own examples poll and try again
            producer.poll(0.05)
        else:
            return


def _commit(consumer: Any) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only in the processes of those that use it

    # a commit that comes too late, after the group went on without us, is what this scene is about
    with suppress(KafkaException):
        consumer.commit(asynchronous=False)


def _consumer_class(client: str) -> Any:
    if client == "ours":
        from kclient_quota import Consumer  # noqa: PLC0415 - a peer's process must not load ours

        return Consumer
    from confluent_kafka import Consumer as Plain  # noqa: PLC0415 - as above

    return Plain


def _polling(spec: dict[str, Any]) -> dict[str, Any]:
    """Settings of a consumer whose poll returns many messages."""
    group = _group(spec, lambda key: key.replace(".", "_"))
    return {**group, "heartbeat_interval_ms": 2_000, "max_poll_records": spec["commit_every"]}


def _records(polled: dict[Any, list[Any]]) -> list[Any]:
    return [record for records in polled.values() for record in records]


def _kafka_python(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    from kafka import KafkaConsumer, KafkaProducer  # noqa: PLC0415 - only in its own process
    from kafka.errors import KafkaError  # noqa: PLC0415 - as above

    rebalances, batch = Rebalances(), _Batch(spec)
    consumer = KafkaConsumer(**_polling(spec))
    consumer.subscribe([spec["source"]], listener=rebalances.kafka_python())
    producer = KafkaProducer(bootstrap_servers=spec["bootstrap"], client_id=spec["client_id"])
    while batch.open():
        records = _records(consumer.poll(timeout_ms=int(_POLL_S * 1000)))
        for record in records:
            number = ledger.next_id()
            ledger.accepted(number)
            future = producer.send(spec["topic"], record.value)
            future.add_callback(lambda _, number=number: ledger.report(number, None))
            future.add_errback(lambda error, number=number: ledger.report(number, type(error).__name__))
        # a commit that comes too late is what this scene is about; the next poll starts at what was committed
        with suppress(KafkaError):
            if records:
                producer.flush(timeout=batch.left_s())
                consumer.commit()
    throttle = producer.metrics().get("producer-metrics", {}).get("throttle-time-max")
    return {"rebalances": rebalances.count, "longest_throttle_ms": throttle}


async def _aiokafka(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: PLC0415 - only in its own process
    from aiokafka.errors import KafkaError  # noqa: PLC0415 - as above

    def on_done(future: Any, number: int) -> None:
        error = future.exception()
        ledger.report(number, None if error is None else type(error).__name__)

    rebalances, batch = Rebalances(), _Batch(spec)
    consumer = AIOKafkaConsumer(**_polling(spec))
    consumer.subscribe([spec["source"]], listener=rebalances.aiokafka())
    producer = AIOKafkaProducer(bootstrap_servers=spec["bootstrap"], client_id=spec["client_id"])
    await producer.start()
    await consumer.start()
    pending: set[Any] = set()
    while batch.open():
        records = _records(await consumer.getmany(timeout_ms=int(_POLL_S * 1000)))
        for record in records:
            number = ledger.next_id()
            ledger.accepted(number)
            future = await producer.send(spec["topic"], record.value)
            pending.add(future)
            future.add_done_callback(pending.discard)
            future.add_done_callback(lambda done, number=number: on_done(done, number))
        if pending:
            await asyncio.wait(pending, timeout=batch.left_s())
        if records and not pending:
            with suppress(KafkaError):  # as above
                await consumer.commit()
    # closing would wait for what is throttled; the process ends
    return {"rebalances": rebalances.count, "longest_throttle_ms": None}
