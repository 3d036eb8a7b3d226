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
from confluent_kafka import KafkaError, TopicPartition

from kclient_quota import Producer
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.proxies import Proxies

QUOTA = 60_000
PARTITIONS = 3
BEFORE_S, AFTER_S = 4.0, 6.0
FLUSH_S = 120.0
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


def roll_all_brokers(cluster: Any, proxies: Proxies) -> None:
    for broker in (1, 2, 3):
        cluster.stop_broker(broker)
        cluster.start_broker(broker)
        time.sleep(2)


def kill_a_broker(cluster: Any, proxies: Proxies) -> None:
    cluster.kill_broker(2)
    time.sleep(4)
    cluster.start_broker(2)


def kill_the_controller(cluster: Any, proxies: Proxies) -> None:
    """The first broker leads partitions as well."""
    cluster.kill_broker(1)
    time.sleep(4)
    cluster.start_broker(1)


def twenty_milliseconds_away(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.delay(to_broker_ms=10, to_client_ms=10))


def _clock_jumps_by(seconds: float) -> None:
    real = time.time
    time.time = lambda: real() + seconds
    try:
        time.sleep(AFTER_S)
    finally:
        time.time = real


def clock_an_hour_ahead(cluster: Any, proxies: Proxies) -> None:
    """Of this process, so of both clients as far as they are Python; librdkafka goes by the monotonic clock."""
    _clock_jumps_by(3600)


def clock_an_hour_back(cluster: Any, proxies: Proxies) -> None:
    _clock_jumps_by(-3600)


def stop_the_processes_for_ninety_seconds(cluster: Any, proxies: Proxies) -> None:
    _stopped(cluster, 90)


def _stopped(cluster: Any, seconds: float) -> None:
    every = (
        [cluster.process_of(broker) for broker in (1, 2, 3)] if hasattr(cluster, "process_of") else [cluster.process_id]
    )
    for process in every:
        os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for process in every:
            os.kill(process, signal.SIGCONT)


def stop_the_process_for_ten_seconds(cluster: Any, proxies: Proxies) -> None:
    _stopped(cluster, 10)


NETWORK = [
    cut_connections,
    half_open_connections,
    refuse_for_five_seconds,
    stall_for_ten_seconds,
    two_hundred_milliseconds_away,
    stalls_of_one_in_a_hundred,
    twenty_milliseconds_away,
]
BROKERS = [restart_a_broker, roll_all_brokers]
CLOCKS = [clock_an_hour_ahead, clock_an_hour_back]
PROCESSES = [
    stop_the_process_for_ten_seconds,
    stop_the_processes_for_ninety_seconds,
    kill_a_broker,
    kill_the_controller,
]


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
            "message.timeout.ms": 300_000,
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
    in_log = [read_all(cluster, topic, partition) for partition in range(PARTITIONS)]
    counts = Counter(value for values in in_log for value in values)
    seen.lost = sum(value not in counts for _, value in seen.delivered)
    seen.duplicated = counts.total() - len(counts)
    for values in in_log:
        firsts = list(dict.fromkeys(values))
        seen.reordered += sum(later < earlier for earlier, later in pairwise(firsts))
    after = [at for at, _ in seen.delivered if at > since]
    seen.resumed_s = min(after) - since if after else float("inf")


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


def is_apache(cluster: Any) -> bool:
    """Whether its process is one of its own."""
    return isinstance(cluster, ApacheKafka)
