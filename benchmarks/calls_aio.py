"""Messages a second of the asyncio clients while nothing throttles, in a process of its own."""

import asyncio
import gc
import time
from typing import Any

from benchmarks.calls import PREFETCH, PREFETCH_S

_VALUE = b"x" * 100
_BATCH = 1000
_ROOMY = {"queue.buffering.max.messages": 1_000_000}


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Moves `messages` messages `repeats` times and says how many a second, each time.

    `calls_per_s` counts until the last call returned, `messages_per_s` until the last report; `calls_per_cpu_s` are
    messages for a second of CPU time of the whole process, since these clients work in threads.
    """
    gc.disable()
    kind = "produce" if spec["call"] == "aio-produce" else "consume"
    repeats = asyncio.run(_REPEATS[kind, spec["client"] == "aiokafka"](spec))
    return {key: [repeat[key] for repeat in repeats] for key in repeats[0]}


def _conf(spec: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}


def _module(client: str) -> Any:
    if client == "ours":
        import kclient_quota  # noqa: PLC0415 - a peer's process must not load ours

        return kclient_quota
    import confluent_kafka.aio  # noqa: PLC0415 - as above

    return confluent_kafka.aio


async def _produce(spec: dict[str, Any]) -> list[dict[str, float]]:
    producer = _module(spec["client"]).AIOProducer({**_conf(spec), **_ROOMY})
    first = await producer.produce(spec["topic"], _VALUE)
    await producer.flush()
    await first
    found = []
    for _ in range(spec["repeats"]):
        begin, cpu = time.perf_counter(), time.process_time()
        futures = [await producer.produce(spec["topic"], _VALUE) for _ in range(spec["messages"])]
        called = time.perf_counter()
        await producer.flush()
        await asyncio.gather(*futures)
        found.append(_figures(spec["messages"], begin, called, cpu))
    await producer.close()
    return found


async def _produce_aiokafka(spec: dict[str, Any]) -> list[dict[str, float]]:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - only in its own process

    producer = AIOKafkaProducer(bootstrap_servers=spec["bootstrap"], client_id=spec["client_id"])
    await producer.start()
    await producer.send_and_wait(spec["topic"], _VALUE)
    found = []
    for _ in range(spec["repeats"]):
        begin, cpu = time.perf_counter(), time.process_time()
        futures = [await producer.send(spec["topic"], _VALUE) for _ in range(spec["messages"])]
        called = time.perf_counter()
        await asyncio.gather(*futures)
        found.append(_figures(spec["messages"], begin, called, cpu))
    await producer.stop()
    return found


def _figures(count: int, begin: float, called: float, cpu: float) -> dict[str, float]:
    return {
        "calls_per_s": count / (called - begin),
        "calls_per_cpu_s": count / (time.process_time() - cpu),
        "messages_per_s": count / (time.perf_counter() - begin),
    }


async def _consume(spec: dict[str, Any]) -> list[dict[str, float]]:
    conf = {**_conf(spec), **PREFETCH, "group.id": spec["client_id"], "auto.offset.reset": "earliest"}
    consumer = _module(spec["client"]).AIOConsumer(conf)
    await consumer.subscribe([spec["topic"]])
    while await consumer.poll(timeout=10) is None:
        continue
    # a call that finds nothing waits for librdkafka's next fetch, up to a second where its queue was full before
    await asyncio.sleep(PREFETCH_S)
    found = []
    for _ in range(spec["repeats"]):
        begin, cpu, got = time.perf_counter(), time.process_time(), 0
        while got < spec["messages"]:
            got += len(await consumer.consume(_BATCH, timeout=10))
        found.append(_figures(got, begin, time.perf_counter(), cpu))
    await consumer.close()
    return found


async def _consume_aiokafka(spec: dict[str, Any]) -> list[dict[str, float]]:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - only in its own process

    consumer = AIOKafkaConsumer(
        spec["topic"],
        bootstrap_servers=spec["bootstrap"],
        client_id=spec["client_id"],
        group_id=spec["client_id"],
        auto_offset_reset="earliest",
    )
    await consumer.start()
    await consumer.getone()
    found = []
    for _ in range(spec["repeats"]):
        begin, cpu, got = time.perf_counter(), time.process_time(), 0
        while got < spec["messages"]:
            got += sum(map(len, (await consumer.getmany(timeout_ms=10_000, max_records=_BATCH)).values()))
        found.append(_figures(got, begin, time.perf_counter(), cpu))
    await consumer.stop()
    return found


_REPEATS = {
    ("produce", False): _produce,
    ("produce", True): _produce_aiokafka,
    ("consume", False): _consume,
    ("consume", True): _consume_aiokafka,
}
