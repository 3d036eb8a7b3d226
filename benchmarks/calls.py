"""Call rates while nothing throttles, in a process of its own."""

import gc
import time
from typing import Any

_VALUE = b"x" * 100
_ROOMY = {"queue.buffering.max.messages": 5_000_000, "queue.buffering.max.kbytes": 2_000_000}
_PREFETCH = {"queued.min.messages": 5_000_000, "queued.max.messages.kbytes": 1_000_000, "fetch.max.bytes": 50_000_000}
_PREFETCH_S = 4.0
_BATCH = 1000


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Makes `messages` calls (or moves that many messages) and says how many a second.

    `calls_per_s` counts the calls alone, `messages_per_s` also the time until everything is flushed.
    """
    gc.disable()
    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}
    if spec["call"].startswith("produce"):
        return _produce(spec, conf)
    return _consume(spec, {**conf, **_PREFETCH, "group.id": spec["client_id"], "auto.offset.reset": "earliest"})


def _module(client: str) -> Any:
    if client == "ours":
        import kclient_quota  # noqa: PLC0415 - a peer's process must not load ours

        return kclient_quota
    import confluent_kafka  # noqa: PLC0415 - as above

    return confluent_kafka


def _produce(spec: dict[str, Any], conf: dict[str, Any]) -> dict[str, Any]:
    topic, count = spec["topic"], spec["messages"]
    producer = _module(spec["client"]).Producer({**conf, **_ROOMY})
    producer.produce(topic, _VALUE)
    producer.flush(30)
    if spec["call"] == "produce":
        begin = time.perf_counter()
        for _ in range(count):
            producer.produce(topic, _VALUE)
        called = time.perf_counter()
    else:
        reports: list[object] = []

        def on_delivery(error: object, _: object) -> None:
            reports.append(error)

        begin = time.perf_counter()
        for _ in range(count):
            producer.produce(topic, _VALUE, on_delivery=on_delivery)
        called = time.perf_counter()
    left = producer.flush(120)
    flushed = time.perf_counter()
    if left:
        raise RuntimeError(f"{left} messages were not delivered")
    return {"calls_per_s": count / (called - begin), "messages_per_s": count / (flushed - begin)}


def _consume(spec: dict[str, Any], conf: dict[str, Any]) -> dict[str, Any]:
    consumer = _module(spec["client"]).Consumer(conf)
    consumer.subscribe([spec["topic"]])
    first = None
    while first is None:
        first = consumer.poll(10)
    # what is counted is the call, so let librdkafka fetch ahead
    time.sleep(_PREFETCH_S)
    goal = spec["messages"] - _BATCH
    got = 0
    begin = time.perf_counter()
    if spec["call"] == "consume":
        while got < goal:
            got += len(consumer.consume(_BATCH, 10))
    else:
        while got < goal:
            got += consumer.poll(10) is not None
    rate = got / (time.perf_counter() - begin)
    return {"calls_per_s": rate, "messages_per_s": rate}
