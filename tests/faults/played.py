"""A producer of ours and a plain one with the same settings, under a quota, while something breaks."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from kclient_quota import Producer
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.proxies import Proxies

QUOTA = 60_000
PARTITIONS = 3
BEFORE_S, AFTER_S = 4.0, 6.0
FLUSH_S = 60.0
Fault = Callable[[Any, Proxies], None]


@dataclass
class Seen:
    """What became of the messages of one producer."""

    sent: int = 0
    failed: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    stuck: int = 0
    resumed_s: float = 0.0
    delivered: list[tuple[float, bytes]] = field(default_factory=list)

    def row(self) -> str:
        """For the table."""
        figures = (self.sent, self.failed, self.lost, self.duplicated, self.reordered, self.stuck, self.resumed_s)
        return " ".join(f"{round(figure, 1):{len(column)}}" for column, figure in zip(COLUMNS, figures, strict=True))


COLUMNS = ("sent", "failed", "lost", "duplicated", "re-ordered", "stuck", "resumed after s")
HEAD = f"{'fault':60} client " + " ".join(COLUMNS)


# -- faults


def cut_connections(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.cut())


def half_open_connections(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.half_open())


def refuse_for_five_seconds(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.refuse())
    proxies.each(lambda proxy: proxy.cut())
    time.sleep(5)
    proxies.each(lambda proxy: proxy.refuse(is_refusing=False))


def stall_for_ten_seconds(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.stall())
    time.sleep(10)
    proxies.each(lambda proxy: proxy.resume())


def two_hundred_milliseconds_away(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.delay(to_broker_ms=100, to_client_ms=100))


def stalls_of_one_in_a_hundred(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.stall_some(0.01, 500))


def restart_a_broker(cluster: Any, proxies: Proxies) -> None:
    cluster.stop_broker(2)
    time.sleep(4)
    cluster.start_broker(2)


def stop_the_process_for_ten_seconds(cluster: Any, proxies: Proxies) -> None:
    os.kill(cluster.process_id, signal.SIGSTOP)
    try:
        time.sleep(10)
    finally:
        os.kill(cluster.process_id, signal.SIGCONT)


NETWORK = [
    cut_connections,
    half_open_connections,
    refuse_for_five_seconds,
    stall_for_ten_seconds,
    two_hundred_milliseconds_away,
    stalls_of_one_in_a_hundred,
]
BROKERS = [restart_a_broker]
PROCESSES = [stop_the_process_for_ten_seconds]


# -- the workload


def play(cluster: Any, proxies: Proxies, fault: Fault, *, idempotent: bool) -> dict[str, Seen]:
    """Both producers at once, each on a topic and a quota of its own."""
    seen = {"ours": Seen(), "plain": Seen()}
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
            "socket.timeout.ms": 10_000,
            "message.timeout.ms": 120_000,
            "queue.buffering.max.messages": 200,
            "batch.size": 16_000,
            "linger.ms": 5,
            "log_level": 2,
        }
        producer = (Producer if kind == "ours" else confluent_kafka.Producer)(conf)
        threads.append(threading.Thread(target=_send, args=(producer, app, one, until)))
    for thread in threads:
        thread.start()
    time.sleep(BEFORE_S)
    broke = time.monotonic()
    fault(cluster, proxies)
    mended = time.monotonic()
    until[0] = mended + AFTER_S
    for thread in threads:
        thread.join()
    proxies.each(lambda proxy: proxy.stall_some(0, 0))
    proxies.each(lambda proxy: proxy.delay())
    for kind, one in seen.items():
        _judge(cluster, f"{name}-{kind}", one, broke if fault in {cut_connections, half_open_connections} else mended)
    return seen


def _send(producer: Any, topic: str, seen: Seen, until: list[float]) -> None:
    def report(error: Any, message: Any) -> None:
        if error is not None:
            seen.failed += 1
        else:
            seen.delivered.append((time.monotonic(), message.value()[:8]))

    while time.monotonic() < until[0]:
        try:
            producer.produce(
                topic, b"%08d" % seen.sent + b"x" * 492, partition=seen.sent % PARTITIONS, on_delivery=report
            )
        except BufferError:
            producer.poll(0.05)
            continue
        seen.sent += 1
        producer.poll(0)
    seen.stuck = producer.flush(FLUSH_S)
    producer.close()


def _judge(cluster: Any, topic: str, seen: Seen, since: float) -> None:
    in_log = [_read(cluster, topic, partition) for partition in range(PARTITIONS)]
    counts = Counter(value for values in in_log for value in values)
    seen.lost = sum(value not in counts for _, value in seen.delivered)
    seen.duplicated = counts.total() - len(counts)
    for values in in_log:
        firsts = list(dict.fromkeys(values))
        seen.reordered += sum(later < earlier for earlier, later in pairwise(firsts))
    after = [at for at, _ in seen.delivered if at > since]
    seen.resumed_s = min(after) - since if after else float("inf")


def _read(cluster: Any, topic: str, partition: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "judge"})
    where = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(where, timeout=30)
    consumer.assign([where])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while consumer.position([where])[0].offset < end and time.monotonic() < deadline:
        values += [message.value()[:8] for message in consumer.consume(1_000, 0.5) if message.error() is None]
    consumer.close()
    return values


def is_apache(cluster: Any) -> bool:
    """Whether its process is one of its own."""
    return isinstance(cluster, ApacheKafka)
