"""How much of a producer's quota is used, and how evenly, as the README says: 0.98 of it, without a throttle."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kclient_quota import AIOProducer, Producer
from kclient_quota.broker import EmbeddedBroker
from tests.measured.scenes import EVEN, Figures, Played, named, recorded

QUOTA = 51_200
MESSAGE = b"x" * 1_000
SECONDS = 26
"""More than two windows of the broker's, so that the burst of the start is forgotten."""


def sends_alone(cluster: Any) -> Figures:
    return sends(cluster, 1)


def sends_from_three_threads(cluster: Any) -> Figures:
    return sends(cluster, 3)


def sends(cluster: Any, threads: int) -> Figures:
    topic, client_id = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=client_id, producer_byte_rate=QUOTA)
    throttles: list[float] = [0.0]
    latencies: list[float] = []
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id}
    producer = Producer({**conf, "throttle_cb": lambda event: throttles.append(event.throttle_time)})
    producer.produce(topic, MESSAGE)
    # Others fill their topics meanwhile: how long a busy broker takes to connect, and to tell, is another matter.
    producer.flush()
    while not all(state.limit for state in producer.quota_state().values()):
        time.sleep(0.05)
    end = time.monotonic() + SECONDS

    def work() -> None:
        while (at := time.monotonic()) < end:
            producer.produce(topic, MESSAGE, on_delivery=lambda *_, at=at: latencies.append(time.monotonic() - at))

    working = [threading.Thread(target=work) for _ in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    share = recorded(cluster, "Produce", client_id) / QUOTA
    producer.close()
    return {
        "share": share,
        "throttle_s": max(throttles),
        "p99_s": sorted(latencies)[len(latencies) * 99 // 100],
    }


def sends_after_light_use(cluster: Any) -> Figures:
    """A message now and then, nothing for a second, and then all there is to be had for 17 s."""
    topic, client_id = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=client_id, producer_byte_rate=QUOTA)
    throttles: list[float] = [0.0]
    arrived: list[float] = []
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id}
    producer = Producer({**conf, "throttle_cb": lambda event: throttles.append(event.throttle_time)})
    end = time.monotonic() + 8
    while time.monotonic() < end:
        producer.produce(topic, MESSAGE)
        producer.flush()
        time.sleep(0.06)
    time.sleep(1)
    begin = time.monotonic()
    while time.monotonic() < begin + 17:
        producer.produce(topic, MESSAGE, on_delivery=lambda *_: arrived.append(time.monotonic() - begin))
    producer.close()
    spans = [sum(first <= at < first + 15 for at in arrived) for first in (0.2 + 0.2 * number for number in range(8))]
    return {"share": min(spans) * len(MESSAGE) / 15 / QUOTA, "throttle_s": max(throttles)}


def sends_to_three(cluster: Any, is_keyed: bool) -> Figures:
    topic, client_id = named("orders"), named("app")
    cluster.create_topic(topic, 6)
    cluster.set_quota(client_id=client_id, producer_byte_rate=QUOTA)
    partitions: Counter[int] = Counter()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id})
    end = time.monotonic() + SECONDS - 6
    number = 0
    while time.monotonic() < end:
        number += 1
        key = str(number) if is_keyed else None
        producer.produce(topic, MESSAGE, key, on_delivery=lambda _, message: partitions.update([message.partition()]))
    share = recorded(cluster, "Produce", client_id) / (3 * QUOTA)
    producer.close()
    return {"share": share, "least": min(partitions.values()), "most": max(partitions.values())}


ROUND = EVEN
SCENES = [sends_alone, sends_from_three_threads, sends_after_light_use]
KEYLESS, KEYED = (partial(sends_to_three, is_keyed=is_keyed) for is_keyed in (False, True))
ON_THREE_BROKERS = [KEYLESS, KEYED]


@pytest.mark.parametrize("scene", [sends_alone, sends_from_three_threads])
def test_the_quota_is_used(played: Played, scene: Callable[[Any], Figures]) -> None:
    figures = played(scene)
    assert 0.85 <= figures["share"] <= 1.02, figures
    assert figures["throttle_s"] <= 1.0, figures
    assert figures["p99_s"] <= 1.0, figures


def test_any_fifteen_seconds_after_light_use_have_the_quota(played: Played) -> None:
    """In payload, which is 0.94 of it with messages of a thousand bytes."""
    figures = played(sends_after_light_use)
    assert figures["share"] >= 0.95 * 0.94 - 0.05, figures
    assert figures["throttle_s"] <= 0.2, figures


def test_the_quota_of_every_broker_is_used(played: Played) -> None:
    figures = played(KEYLESS)
    assert 0.85 <= figures["share"] <= 1.02, figures
    assert figures["most"] <= 1.15 * figures["least"], figures


def test_the_quota_of_every_broker_is_used_with_keys(played: Played) -> None:
    """The hashes of keys are not spread quite evenly, and the fullest broker holds the others back."""
    figures = played(KEYED)
    assert 0.75 <= figures["share"] <= 1.02, figures


async def test_an_event_loop_runs_on_while_the_quota_is_waited_for() -> None:
    late: list[float] = []

    async def watch() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - begin - 0.01)

    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=QUOTA)
        async with AIOProducer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}) as producer:
            watching = asyncio.create_task(watch())
            begin = time.monotonic()
            for _ in range(300):
                await producer.produce("orders", MESSAGE)
            await producer.flush()
            took_s = time.monotonic() - begin
            watching.cancel()
    # A second's quota may go ahead.
    assert took_s <= (300_000 / QUOTA) * 1.15
    assert sorted(late)[len(late) * 99 // 100] <= 0.05
    assert max(late) <= 0.25


async def test_a_transaction_is_aborted_at_once_in_mid_throttle() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=QUOTA)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "transactional.id": "t"}
        async with AIOProducer(conf, batch_size=40) as producer:
            await producer.init_transactions(10)
            await producer.begin_transaction()
            for _ in range(160):
                await producer.produce("orders", MESSAGE)
            begin = time.monotonic()
            await producer.abort_transaction()
            assert time.monotonic() - begin < 3
