# ruff: noqa: T201 - what a scene prints is its result
"""What applications do to producers, each in a process of its own: `field_scripts SCENE BOOTSTRAP [LIMIT]`."""

import _thread
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from logging.handlers import BufferingHandler
from typing import Any

import confluent_kafka


def conf(bootstrap: str, limit: str) -> dict[str, Any]:
    own = {"bootstrap.servers": bootstrap, "client.id": "app", "enable.metrics.push": False}
    return own if limit == "0" else {**own, "producer_byte_rate": int(limit)}


def interrupts(bootstrap: str, limit: str) -> dict[str, Any]:
    """Ctrl-C at ten thousand random moments of produce, poll and flush."""
    from kclient_quota import Producer

    signal.signal(signal.SIGINT, signal.default_int_handler)
    producer = Producer(conf(bootstrap, limit))
    chance, stop = random.Random(7), threading.Event()
    reports: list[dict[Any, Any]] = []
    accepted: list[dict[Any, Any]] = []
    other: list[str] = []

    def fire() -> None:
        time.sleep(0.3)
        for _ in range(10_000):
            time.sleep(chance.uniform(0.0, 0.0008))
            _thread.interrupt_main()
        stop.set()

    def work() -> None:
        while not stop.is_set():
            report: dict[Any, Any] = {}
            reports.append(report)
            producer.produce("orders", b"x" * 8, on_delivery=report.__setitem__)
            accepted.append(report)
            producer.poll(0)
            if len(accepted) % 50 == 0:
                producer.poll(0.002)
            if len(accepted) % 200 == 0:
                producer.flush(0.01)

    def keep_working() -> None:
        while not stop.is_set():
            try:
                work()
            except KeyboardInterrupt:
                continue
            except Exception as error:  # noqa: BLE001 - none is expected
                other.append(repr(error))

    thread = threading.Thread(target=fire)
    thread.start()
    while thread.is_alive():
        try:
            keep_working()
            thread.join()
        except KeyboardInterrupt:
            continue
    left = producer.flush(60)
    missing = sum(not report for report in accepted)
    twice = sum(len(report) > 1 for report in reports)
    producer.produce("orders", b"after")
    after = producer.flush(60)
    return {"other": other, "missing": missing, "twice": twice, "left": [left, after], "closed": producer.close()}


def sigterm(bootstrap: str, limit: str) -> dict[str, Any]:
    """A handler flushes and closes while produce() waits."""
    from kclient_quota import Producer

    producer = Producer({**conf(bootstrap, limit), "max.block.ms": 60_000})
    seen: list[Any] = []

    class TerminatedError(Exception):
        pass

    def handler(_signal: int, _frame: Any) -> None:
        seen.append(producer.flush(60))
        seen.append(producer.close())
        raise TerminatedError

    signal.signal(signal.SIGTERM, handler)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    reports: list[Any] = []
    accepted = 0
    try:
        while True:
            producer.produce("orders", b"x" * 1_000, on_delivery=lambda error, _: reports.append(error))
            accepted += 1
    except TerminatedError:
        pass
    return {
        "flushed": seen[0],
        "closed": seen[1],
        "missing": accepted - len(reports),
        "errors": len(list(filter(None, reports))),
    }


def replaced(bootstrap: str, limit: str) -> dict[str, Any]:
    """A Python subclass in place of confluent_kafka.Producer, as tracing agents put it there."""
    calls: list[tuple[int, Any]] = []
    plain = confluent_kafka.Producer

    class Traced(plain):  # type: ignore[misc,valid-type]
        def produce(self, topic: Any, value: Any = None, *args: Any, **kwargs: Any) -> Any:
            headers = kwargs.get("headers")
            kwargs["headers"] = [*(headers or []), ("trace", b"1")]
            calls.append((len(args), topic))
            return super().produce(topic, value, *args, **kwargs)

    confluent_kafka.Producer = Traced  # type: ignore[misc]
    from kclient_quota import Producer

    producer = Producer(conf(bootstrap, limit))
    reports: list[Any] = []
    for _ in range(20):
        producer.produce("orders", b"x", headers=[("own", b"2")], on_delivery=lambda error, _: reports.append(error))
    left = producer.flush(60)
    own = type(producer) is Producer and isinstance(producer, Traced)
    closed = producer.close()
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "r"})
    reader.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    headers = [message.headers() for message in reader.consume(20, 60)]
    reader.close()
    return {
        "calls": len(calls), "reports": reports.count(None), "left": left, "own": own, "closed": closed,
        "headers": sum(found == [("own", b"2"), ("trace", b"1")] for found in headers),
    }  # fmt: skip


def opentelemetry(bootstrap: str, limit: str, when: str = "before", client: str = "ours") -> dict[str, Any]:
    """OpenTelemetry's own instrumentation, with its spans and who their parents are."""
    from opentelemetry import trace
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("test")
    if when == "before":
        ConfluentKafkaInstrumentor().instrument()
    if client == "ours":
        from kclient_quota import Producer
    else:
        from confluent_kafka import Producer  # type: ignore[assignment]
    if when == "after":
        ConfluentKafkaInstrumentor().instrument()
    settings = conf(bootstrap, limit)
    if client == "plain":
        settings.pop("producer_byte_rate", None)
    producer = Producer(settings)
    with tracer.start_as_current_span("caller") as caller:
        for _ in range(5):
            producer.produce("orders", b"x")
    left = producer.flush(60)
    producer.poll(0)
    spans = [span for span in exporter.get_finished_spans() if span.name != "caller"]
    parents = sum(
        span.parent is not None and span.parent.span_id == caller.get_span_context().span_id for span in spans
    )
    return {"left": left, "names": sorted({span.name for span in spans}), "spans": len(spans), "parents": parents}


def forked(bootstrap: str, limit: str) -> dict[str, Any]:
    """Workers fork from a parent that has a producer, as gunicorn's do; some use the parent's."""
    from kclient_quota import Producer

    parent = Producer(conf(bootstrap, limit))
    parent.produce("orders", b"parent")
    assert parent.flush(60) == 0
    read, write = os.pipe()
    for use_parents in (True, False):
        if os.fork() == 0:
            handler = BufferingHandler(1_000)
            logging.getLogger("kclient_quota").addHandler(handler)
            producer = parent if use_parents else Producer(conf(bootstrap, limit))
            for _ in range(3):
                producer.produce("orders", b"child")
            left = producer.flush(0.2 if use_parents else 60)
            told = sum("forked" in record.getMessage() for record in handler.buffer)
            producer.poll(0)
            producer.purge()
            found = [use_parents, left, told, len(producer), producer.close()]
            os.write(write, json.dumps(found).encode() + b"\n")
            os._exit(0)
    for _ in range(2):
        os.wait()
    children = sorted(json.loads(line) for line in os.read(read, 10_000).splitlines())
    for _ in range(3):
        parent.produce("orders", b"parent")
    return {"children": children, "left": parent.flush(60), "closed": parent.close()}


def throttle(bootstrap: str) -> None:
    """What a worker of a pool may raise."""
    from kclient_quota import Producer

    producer = Producer({**conf(bootstrap, "1000"), "quota.backoff": "raise"})
    for _ in range(1_000):
        producer.produce("orders", b"x" * 1_000)


def pools(bootstrap: str, _limit: str) -> dict[str, Any]:
    """Processes that are spawned, and errors that come back from them."""
    from kclient_quota import QuotaThrottledError

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            pool.submit(throttle, bootstrap).result(120)
        except QuotaThrottledError as error:
            return {"retry": error.retry_after_ms > 0}
    return {"retry": False}


def fairness(bootstrap: str, limit: str) -> dict[str, Any]:
    """Sixteen threads on one producer."""
    from kclient_quota import Producer

    producer = Producer(conf(bootstrap, limit))
    end = time.monotonic() + 14
    sent, longest = [0] * 16, [0.0] * 16

    def work(me: int) -> None:
        while (begin := time.monotonic()) < end:
            producer.produce("orders", b"x" * 1_000)
            sent[me] += 1
            longest[me] = max(longest[me], time.monotonic() - begin)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = producer.flush(60)
    producer.close()
    return {"least": min(sent) * 16 / sum(sent), "longest_s": max(longest), "left": left, "sent": sum(sent)}


def together(bootstrap: str, _limit: str) -> dict[str, Any]:
    """Four producers with one client.id, under a quota of 100,000 B/s."""
    from kclient_quota import Producer

    throttles: list[float] = []
    own = {**conf(bootstrap, "0"), "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    producers = [Producer(own) for _ in range(4)]
    begin = time.monotonic()
    got = [0] * 4

    def work(me: int) -> None:
        def report(_error: Any, _message: Any) -> None:
            got[me] += 3 < time.monotonic() - begin < 14

        while time.monotonic() - begin < 14:
            producers[me].produce("orders", b"x" * 1_000, on_delivery=report)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.flush(5)
        producer.close()
    total = sum(got)
    return {
        "fairness": total * total / 4 / sum(each * each for each in got),
        "used": total * 1_000 / 11 / 100_000,
        "longest_throttle_s": max(throttles, default=0.0),
    }


def callback_forks(bootstrap: str, limit: str, how: str) -> dict[str, Any]:
    """A callback that forks while produce() waits, and what becomes of the child that goes on in it."""
    from kclient_quota import Producer

    producer = Producer(conf(bootstrap, limit))
    reports: list[Any] = []
    children: list[int] = []

    def on_delivery(error: Any, _message: Any) -> None:
        reports.append(error)
        if len(reports) == 100:
            children.append(os.fork())
            if not children[0] and how == "exits":
                sys.exit(7)

    for _ in range(400):
        producer.produce("orders", b"x" * 1_000, on_delivery=on_delivery)
        if children == [0]:
            os._exit(7)
    producer.flush(60)
    status, until = (0, 0), time.monotonic() + 10
    while status == (0, 0) and time.monotonic() < until:
        status = os.waitpid(children[0], os.WNOHANG)
        time.sleep(0.01)
    if status == (0, 0):
        os.kill(children[0], signal.SIGKILL)
    return {"child": os.waitstatus_to_exitcode(status[1]), "reports": len(reports), "closed": producer.close()}


_ALL = (interrupts, sigterm, replaced, opentelemetry, forked, pools, fairness, together, callback_forks)
SCENES = {scene.__name__: scene for scene in _ALL}

if __name__ == "__main__":
    print(json.dumps(SCENES[sys.argv[1]](*sys.argv[2:])), flush=True)
