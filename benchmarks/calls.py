"""Call rates while nothing throttles, in a process of its own."""

import gc
import time
from typing import Any

_VALUE = b"x" * 100
_ROOMY = {"queue.buffering.max.messages": 5_000_000, "queue.buffering.max.kbytes": 2_000_000}
PREFETCH = {"queued.min.messages": 5_000_000, "queued.max.messages.kbytes": 1_000_000, "fetch.max.bytes": 50_000_000}
PREFETCH_S = 4.0
_BATCH = 1000


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Makes `repeats` times `messages` calls (or moves that many messages) and says how many a second, each time.

    `calls_per_s` counts the calls alone, `calls_per_cpu_s` the calling thread's CPU time in them (which a busy machine
    disturbs less), `messages_per_s` also the time until everything is flushed.
    """
    gc.disable()
    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}
    if spec["call"].startswith("produce"):
        producer = _module(spec["client"]).Producer({**conf, **_ROOMY, **_same_settings(spec)})
        producer.produce(spec["topic"], _VALUE)
        producer.flush(30)
        return _columns([_produce(producer, spec) for _ in range(spec["repeats"])])
    conf |= {**PREFETCH, "group.id": spec["client_id"], "auto.offset.reset": "earliest"}
    consumer = _module(spec["client"]).Consumer(conf)
    consumer.subscribe([spec["topic"]])
    while consumer.poll(10) is None:
        continue
    # what is counted is the call, so let librdkafka fetch ahead
    time.sleep(PREFETCH_S)
    return _columns([_consume(consumer, spec) for _ in range(spec["repeats"])])


def _same_settings(spec: dict[str, Any]) -> dict[str, Any]:
    """What our producer tells librdkafka while nothing limits it: what is left is the wrapper's own cost."""
    if spec["variant"] != "plain-same-settings":
        return {}
    from benchmarks.tuning import told_by_ours  # noqa: PLC0415 - a peer's process must not load ours

    settings = told_by_ours({"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]})
    return {**settings, "stats_cb": lambda _: None}


def _columns(repeats: list[dict[str, float]]) -> dict[str, list[float]]:
    return {key: [repeat[key] for repeat in repeats] for key in repeats[0]}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def _rates(count: int, begin: tuple[float, float], called: tuple[float, float]) -> dict[str, float]:
    return {"calls_per_s": count / (called[0] - begin[0]), "calls_per_cpu_s": count / (called[1] - begin[1])}


def _module(client: str) -> Any:
    if client == "ours":
        import kclient_quota  # noqa: PLC0415 - a peer's process must not load ours

        return kclient_quota
    import confluent_kafka  # noqa: PLC0415 - as above

    return confluent_kafka


def _produce(producer: Any, spec: dict[str, Any]) -> dict[str, float]:
    topic, count = spec["topic"], spec["messages"]
    if spec["call"] == "produce":
        begin = _now()
        for _ in range(count):
            producer.produce(topic, _VALUE)
        called = _now()
    else:
        reports: list[object] = []

        def on_delivery(error: object, _: object) -> None:
            reports.append(error)

        begin = _now()
        for _ in range(count):
            producer.produce(topic, _VALUE, on_delivery=on_delivery)
        called = _now()
    left = producer.flush(120)
    flushed = _now()
    if left:
        raise RuntimeError(f"{left} messages were not delivered")
    return {**_rates(count, begin, called), "messages_per_s": count / (flushed[0] - begin[0])}


def _consume(consumer: Any, spec: dict[str, Any]) -> dict[str, float]:
    got = 0
    begin = _now()
    if spec["call"] == "consume":
        while got < spec["messages"]:
            got += len(consumer.consume(_BATCH, 10))
    else:
        while got < spec["messages"]:
            got += consumer.poll(10) is not None
    return _rates(got, begin, _now())
