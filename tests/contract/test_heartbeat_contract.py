"""A consume-transform-produce loop throttled for longer than max.poll.interval.ms keeps its group; on both brokers.

Every message of a topic is copied once, under a producer quota that makes one batch outlast `max.poll.interval.ms`,
or ten times.
The scenes wait rather than work, so those of all protocols and assignors run side by side.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Message, TopicPartition

from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer
from tests.filling import fill
from tests.read_committed import ids, read_ids

Unique = Callable[[str], str]
POLL_INTERVAL_S = 9.0
TIGHT_S = 2.2
"""A tenth of what a batch takes. The classic protocol cannot have it: its session would have to be as short."""
QUOTA = 4_000
TIGHT_QUOTA = 2_500
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "session.timeout.ms": 9_000, "heartbeat.interval.ms": 500},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 9_000,
        "heartbeat.interval.ms": 500,
    },
    "kip-848": {"group.protocol": "consumer"},
}


class Copier:
    """One member that copies what it is assigned, commits after each batch, and when it loses partitions."""

    def __init__(
        self,
        cluster: Any,
        name: str,
        topic: str,
        protocol: str,
        gather_s: float = 0.5,
        poll_s: float = POLL_INTERVAL_S,
        quota: int = QUOTA,
    ) -> None:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.moves: list[tuple[str, int]] = []
        self.first_assigned = threading.Event()
        self.stop = threading.Event()
        self.longest_batch_s = 0.0
        self.delivered = 0
        self.failed: list[Any] = []
        self._topic = topic
        self._gather_s = gather_s
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._mine: set[int] = set()
        self._consumer = Consumer(
            {
                **servers,
                **PROTOCOLS[protocol],
                "group.id": topic,
                "client.id": f"{name}-consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": int(poll_s * 1000),
                "enable.metrics.push": False,
            }
        )
        cluster.set_quota(client_id=name, producer_byte_rate=quota)
        self._producer = Producer(
            {**servers, "client.id": name, "enable.metrics.push": False}, heartbeat=self._consumer
        )

    def run(self, deadline: float) -> None:
        consumer = self._consumer
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        while not self.stop.is_set() and time.monotonic() < deadline:
            begin = time.monotonic()
            self._copy(consumer.consume(100, self._gather_s))
            self.longest_batch_s = max(self.longest_batch_s, time.monotonic() - begin)
        consumer.close()
        self._producer.close()

    def _copy(self, messages: list[Message]) -> None:
        for message in messages:
            assert message.error() is None
            if message.partition() not in self._mine or message.offset() < self._next.get(message.partition(), 0):
                continue  # revoked while an earlier one waited
            self._next[message.partition()] = message.offset() + 1
            self._producer.produce(f"{self._topic}-copy", message.value(), on_delivery=self._on_delivery)
        if messages:
            self._producer.flush()
            self._commit(self._mine)

    def _commit(self, partitions: set[int]) -> None:
        # Only what is new: a commit within close() meets the rebalance of another member that closes, as in plain ones.
        new = {part: self._next[part] for part in partitions if self._next.get(part, 0) > self._committed.get(part, 0)}
        if new:
            offsets = [TopicPartition(self._topic, part, offset) for part, offset in new.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._committed.update(new)

    def _on_delivery(self, error: Any, _message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.delivered += 1

    def _on_assign(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self.moves.append(("assign", len(partitions)))
        self._mine |= {part.partition for part in partitions}
        if partitions:
            self.first_assigned.set()

    def _on_revoke(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self.moves.append(("revoke", len(partitions)))
        gone = {part.partition for part in partitions}
        # Inside a produce() that waits, when another member joins.
        assert self._producer.flush(60) == 0
        self._commit(gone)
        self._forget(gone)

    def _on_lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self.moves.append(("lost", len(partitions)))
        self._forget({part.partition for part in partitions})

    def _forget(self, gone: set[int]) -> None:
        self._mine -= gone
        for part in gone:
            self._next.pop(part, None)


def finish(copiers: list[Copier], threads: list[threading.Thread], count: int) -> None:
    """Wait until all is copied, and a little longer: for what comes too late, or twice."""
    deadline = time.monotonic() + 60
    while sum(copier.delivered for copier in copiers) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    for copier in copiers:
        copier.stop.set()
    for thread in threads:
        thread.join(90)


def alone(
    cluster: Any, topic: str, protocol: str, poll_s: float = POLL_INTERVAL_S, quota: int = QUOTA
) -> tuple[Copier, Counter[bytes]]:
    """One member copies one batch, which takes long."""
    cluster.create_topic(topic, 2)
    cluster.create_topic(f"{topic}-copy", 1)
    fill(cluster, topic, 60, partitions=2)
    # three seconds, so that it is one batch
    copier = Copier(cluster, f"{topic}-one", topic, protocol, gather_s=3, poll_s=poll_s, quota=quota)
    thread = threading.Thread(target=copier.run, args=(time.monotonic() + 90,))
    thread.start()
    assert copier.first_assigned.wait(60)
    finish([copier], [thread], 60)
    return copier, read_ids(cluster, f"{topic}-copy")


def joined(cluster: Any, topic: str, protocol: str) -> tuple[Copier, Copier, float, Counter[bytes]]:
    """A second member joins while the first one's produce() waits; after how many seconds it had a partition."""
    cluster.create_topic(topic, 2)
    cluster.create_topic(f"{topic}-copy", 1)
    fill(cluster, topic, 90, partitions=2)
    first = Copier(cluster, f"{topic}-one", topic, protocol)
    second = Copier(cluster, f"{topic}-two", topic, protocol)
    deadline = time.monotonic() + 90
    threads = [threading.Thread(target=copier.run, args=(deadline,)) for copier in (first, second)]
    threads[0].start()
    assert first.first_assigned.wait(60)
    time.sleep(2)
    begin = time.monotonic()
    threads[1].start()
    assert second.first_assigned.wait(60)
    served_s = time.monotonic() - begin
    finish([first, second], threads, 90)
    return first, second, served_s, read_ids(cluster, f"{topic}-copy")


def test_a_throttled_loop_keeps_its_group_and_lets_others_in(cluster: Any, unique: Unique) -> None:
    with ThreadPoolExecutor(2 * len(PROTOCOLS) + 1) as pool:
        single = {name: pool.submit(alone, cluster, unique(f"alone-{name}"), name) for name in PROTOCOLS}
        tight = pool.submit(alone, cluster, unique("tight"), "kip-848", TIGHT_S, TIGHT_QUOTA)
        double = {name: pool.submit(joined, cluster, unique(f"joined-{name}"), name) for name in PROTOCOLS}
    single["tight"] = tight
    for name, scene in single.items():
        copier, seen = scene.result()
        assert (name, copier.moves[:1], copier.failed) == (name, [("assign", 2)], [])
        # The only other move is that of closing.
        assert [move for move, _ in copier.moves[1:]] in ([], ["revoke"]), name
        assert copier.longest_batch_s > (10 * TIGHT_S if name == "tight" else POLL_INTERVAL_S + 3), name
        assert seen == ids(60), name
    for name, scene in double.items():
        first, second, served_s, seen = scene.result()
        assert (name, first.failed, second.failed) == (name, [], [])
        assert "lost" not in {move for move, _ in first.moves + second.moves}, name
        # Members of the KIP-848 protocol hear of each other at their next heartbeats, five seconds apart; the batch
        # that the first one copies takes twenty-two.
        assert served_s < 18, name
        assert seen == ids(90), name
