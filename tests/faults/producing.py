"""A producer of ours and a plain one with the same settings, under a quota, while something breaks."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from kclient_quota import Producer
from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import AFTER_S, Fault, goes_on_s
from tests.faults.telemetry import tell_delivered, told

QUOTA = 60_000
PARTITIONS = 3
VALUE = b"x" * 492
PACED_S = 1 / 360
"""Between messages of `paced`: plain, handed what its quota carries, which has nothing under way most of the time."""
BEFORE_S = 4.0
FLUSH_S = 120.0
GOES_ON_S = 60.0
"""Whoever has not gone on by then does not."""


@dataclass
class Seen:
    """What became of the messages of one producer.

    Attributes:
        delivered: when each report came, and of which message.
        taken: when each message was handed over. It goes on with one of those that came after something broke: reports
            of others may have been on their way to the application just then.
    """

    sent: int = 0
    failed: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    stuck: int = 0
    resumed_s: float = 0.0
    pushes: int = 0
    told: float | None = None
    delivered: list[tuple[float, bytes]] = field(default_factory=list, repr=False)
    taken: list[float] = field(default_factory=list, repr=False)


def play(
    cluster: Any,
    proxies: Proxies,
    fault: Fault,
    *,
    idempotent: bool,
    kinds: Sequence[str] = ("ours", "plain"),
    socket_timeout_ms: int = 10_000,
) -> dict[str, Seen]:
    """Producers of these kinds at once, each on a topic and a quota of its own."""
    seen = {kind: Seen() for kind in kinds}
    name = f"{fault.__name__}-{idempotent}"
    until = [float("inf")]
    threads = []
    for kind, one in seen.items():
        app = f"{name}-{kind}"
        cluster.create_topic(app, PARTITIONS, replication=3)
        cluster.set_quota(client_id=app, producer_byte_rate=QUOTA)
        conf = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": app,
            "enable.idempotence": idempotent,
            "acks": "all",
            "socket.timeout.ms": socket_timeout_ms,
            "message.timeout.ms": 300_000,
            "queue.buffering.max.messages": 200,
            "batch.size": 16_000,
            "linger.ms": 5,
            "log_level": 2,
        }
        producer = (Producer if kind == "ours" else confluent_kafka.Producer)(conf)
        threads.append(threading.Thread(target=_send, args=(producer, app, one, until, PACED_S * (kind == "paced"))))
    for thread in threads:
        thread.start()
    time.sleep(BEFORE_S)
    broke = fault(cluster, proxies)
    mended = time.monotonic()
    await_going_on(lambda: [[at for at, _ in one.delivered[-1:] if at > mended] for one in seen.values()])
    until[0] = time.monotonic() + AFTER_S
    for thread in threads:
        thread.join()
    proxies.each(lambda proxy: proxy.stall_some(0, 0))
    proxies.each(lambda proxy: proxy.delay())
    for kind, one in seen.items():
        _judge(cluster, f"{name}-{kind}", one, broke or [mended])
        if hasattr(cluster, "told_by"):
            pushes = cluster.told_by(f"{name}-{kind}")
            one.pushes = len(pushes)
            one.told = round(told(pushes) / len(one.delivered), 3) if kind == "ours" else None
    return seen


def await_going_on(after: Callable[[], list[list[float]]]) -> None:
    """Wait until everybody has done something after the mend, but no longer than `GOES_ON_S`."""
    deadline = time.monotonic() + GOES_ON_S
    while not all(after()) and time.monotonic() < deadline:
        time.sleep(0.1)


def _send(producer: Any, topic: str, seen: Seen, until: list[float], pause_s: float) -> None:
    def report(error: Any, message: Any) -> None:
        if error is not None:
            seen.failed += 1
        else:
            seen.delivered.append((time.monotonic(), message.value()[:8]))

    if isinstance(producer, Producer):
        tell_delivered(producer, seen.delivered)
    while (now := time.monotonic()) < until[0]:
        seen.taken[seen.sent :] = [now]  # before: a call that waits may serve its own message's report
        try:
            producer.produce(topic, b"%08d" % seen.sent + VALUE, partition=seen.sent % PARTITIONS, on_delivery=report)
        except BufferError:
            producer.poll(0.05)
            continue
        seen.sent += 1
        producer.poll(0)
        time.sleep(pause_s)
    seen.stuck = producer.flush(FLUSH_S)
    producer.close()


def _judge(cluster: Any, topic: str, seen: Seen, since: list[float]) -> None:
    in_log = [read_all(cluster, topic, partition) for partition in range(PARTITIONS)]
    counts = Counter(value for values in in_log for value in values)
    seen.lost = sum(value not in counts for _, value in seen.delivered)
    seen.duplicated = counts.total() - len(counts)
    for values in in_log:
        firsts = list(dict.fromkeys(values))
        seen.reordered += sum(later < earlier for earlier, later in pairwise(firsts))
    at = [at for at, _ in seen.delivered]
    seen.resumed_s = goes_on_s(at, since, [seen.taken[int(value)] for _, value in seen.delivered])


def read_all(cluster: Any, topic: str, partition: int) -> list[bytes]:
    """The ids of what a partition has, in its order, without what was aborted."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "judge", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**conf, "log_level": 2})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.5):
            if message.error() is None:
                values.append(message.value()[:8])
            elif message.error().code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return values
    raise AssertionError(f"{topic}-{partition} could not be read to its end")
