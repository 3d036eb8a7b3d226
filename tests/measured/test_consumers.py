"""How much of a consumer's quota is used, and how evenly, as the README says: 0.97 of it, no gap of a second."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from kclient_quota import Consumer
from kclient_quota.simulation.rates import jain_index
from tests.consuming import consumer_of
from tests.filling import fill
from tests.measured.scenes import EVEN, Figures, Played, longest_gap_s, named

WIRE_BYTES = 1_010
"""What a message of 1,000 bytes is in a batch."""
WINDOW_S = 11
"""Ten whole samples of a second and the one that is being filled: a burst at the start is paid back by then."""
MEASURED_S = 9
SETTLED_S = WINDOW_S + 2


def polled(consumer: Consumer) -> Iterable[Any]:
    message = consumer.poll(0.1)
    return [] if message is None else [message]


def consumed(consumer: Consumer) -> Iterable[Any]:
    return consumer.consume(500, 0.1)


def reads(
    cluster: Any, quota: int, per_batch: int, receive: Callable[[Consumer], Iterable[Any]] = polled, partitions: int = 1
) -> Figures:
    topic = named("even")
    cluster.create_topic(topic, partitions)
    fill(cluster, topic, quota * 32 // WIRE_BYTES, per_batch, partitions)
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    throttles = [0.0]
    consumer = consumer_of(cluster, topic, topic, throttle_cb=lambda event: throttles.append(event.throttle_time))
    came: list[float] = []
    deadline = time.monotonic() + 60
    while not came or came[-1] < came[0] + WINDOW_S + MEASURED_S:
        assert time.monotonic() < deadline, f"{len(came)} messages in a minute"
        came += [time.monotonic() for _ in receive(consumer)]
    consumer.close()
    steady = [at for at in came if at >= came[0] + WINDOW_S]
    rate = len(steady) * WIRE_BYTES / (steady[-1] - steady[0])
    return {"share": rate / quota, "gap_s": longest_gap_s(steady), "throttle_s": max(throttles)}


def two_read(cluster: Any) -> Figures:
    """From the thirteenth second on: both burst at first, are throttled for it, and find their share again by then."""
    topic, quota = named("two"), 150_000
    cluster.create_topic(topic, 2)
    fill(cluster, topic, 6_000, 8, 2)
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    consumers = [consumer_of(cluster, topic, topic, **{"group.id": f"{topic}-{number}"}) for number in range(2)]
    counts = [0, 0]
    begin = time.monotonic()
    while time.monotonic() < begin + SETTLED_S + MEASURED_S:
        is_steady = time.monotonic() > begin + SETTLED_S
        for index, consumer in enumerate(consumers):
            counts[index] += consumer.poll(0.002) is not None and is_steady
    for consumer in consumers:
        consumer.close()
    return {"share": sum(counts) * WIRE_BYTES / MEASURED_S / quota, "evenness": min(counts) / max(counts)}


def four_of_one_process(cluster: Any) -> Figures:
    """One group, a thread each: from the first message on, since neighbours need not find each other."""
    topic, quota = named("four"), 100_000
    cluster.create_topic(topic, 4)
    fill(cluster, topic, 4_000, 4, 4)
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    throttles: list[tuple[float, float]] = []
    came: list[list[float]] = [[] for _ in range(4)]
    is_over = threading.Event()

    def consume(mine: list[float]) -> None:
        consumer = consumer_of(
            cluster, topic, topic, throttle_cb=lambda event: throttles.append((time.monotonic(), event.throttle_time))
        )
        while not is_over.is_set():
            mine += [time.monotonic() for _ in polled(consumer)]
        consumer.close()

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in came]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while not all(came):
        assert time.monotonic() < deadline, f"{list(map(len, came))} messages in a minute"
        time.sleep(0.05)
    begin = max(mine[0] for mine in came) + WINDOW_S
    time.sleep(WINDOW_S + MEASURED_S)
    is_over.set()
    for thread in threads:
        thread.join(60)
    counts = [sum(begin <= at < begin + MEASURED_S for at in mine) for mine in came]
    return {
        "share": sum(counts) * WIRE_BYTES / MEASURED_S / quota,
        "jain": jain_index(counts),
        "throttle_s": max((longest for at, longest in throttles if at >= begin), default=0.0),
    }


def reads_of_three(cluster: Any) -> Figures:
    topic, quota = named("even"), 100_000
    cluster.create_topic(topic, 3)
    fill(cluster, topic, 8_000, 10, 3)
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    consumer = consumer_of(cluster, topic, topic)
    came: dict[int, list[float]] = {partition: [] for partition in range(3)}
    deadline = time.monotonic() + 60
    while not all(came.values()) or time.monotonic() < _settled(came) + MEASURED_S:
        assert time.monotonic() < deadline, f"{list(map(len, came.values()))} messages in a minute"
        for message in polled(consumer):
            came[message.partition()].append(time.monotonic())
    consumer.close()
    begin = _settled(came)
    counts = [sum(begin <= at < begin + MEASURED_S for at in mine) for mine in came.values()]
    share = sum(counts) * WIRE_BYTES / MEASURED_S / (3 * quota)
    return {"share": share, "least": min(counts), "most": max(counts)}


def _settled(came: Mapping[int, list[float]]) -> float:
    """When the last broker to begin has had its burst paid back."""
    return max(mine[0] for mine in came.values()) + WINDOW_S


EVENLY = [
    partial(reads, quota=100_000, per_batch=16),
    partial(reads, quota=400_000, per_batch=80),
    partial(reads, quota=200_000, per_batch=16, receive=consumed),
]
ROUND = EVEN
SCENES = [*EVENLY, two_read, four_of_one_process]
ON_THREE_BROKERS = [reads_of_three]


@pytest.mark.parametrize("scene", EVENLY, ids=["100000", "400000", "consume"])
def test_the_quota_is_used_evenly(played: Played, scene: Callable[[Any], Figures]) -> None:
    figures = played(scene)
    assert 0.85 <= figures["share"] <= 1.05, figures
    assert figures["gap_s"] < 1.0, figures
    assert figures["throttle_s"] < 1.0, figures


def test_two_consumers_of_one_client_id_share_its_quota(played: Played) -> None:
    figures = played(two_read)
    assert 0.85 <= figures["share"] <= 1.1, figures
    assert figures["evenness"] > 0.7, figures


def test_four_consumers_of_one_process_share_its_quota(played: Played) -> None:
    figures = played(four_of_one_process)
    assert 0.9 <= figures["share"] <= 1.02, figures
    assert figures["jain"] > 0.99, figures
    assert figures["throttle_s"] <= 0.1, figures


def test_every_broker_gives_what_its_own_quota_allows(played: Played) -> None:
    figures = played(reads_of_three)
    assert 0.85 <= figures["share"] <= 1.05, figures
    assert figures["least"] > 0.7 * figures["most"], figures
