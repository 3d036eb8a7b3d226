"""Consumers, and applications that read, change and write in transactions, while something breaks."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota import Consumer, Producer
from kclient_quota.broker.internal_topics import share_of
from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import AFTER_S, Fault, goes_on_s
from tests.faults.producing import BEFORE_S, PARTITIONS, await_going_on, read_all

MESSAGES = 30_000
RATE = 60_000
END_S = 120.0
WORKLOADS = ("consumer", "transactions")
SHARES = (50, 4)
"""How many partitions groups and transactions are divided into: the embedded broker has 50, Apache Kafka here 4."""


@dataclass
class Read:
    """What one application saw.

    Attributes:
        at: when it has read a message; with transactions, when one was committed (`produce()` says nothing of that:
            it only puts messages into a queue).
        asked: when that commit was asked for: its answer may have been read just before something broke.
    """

    commits: dict[int, int] = field(default_factory=dict, repr=False)
    expected: dict[int, int] = field(default_factory=dict, repr=False)
    before: dict[int, int] = field(default_factory=dict, repr=False)
    begun: dict[int, int] = field(default_factory=dict, repr=False)
    at: list[float] = field(default_factory=list, repr=False)
    asked: list[float] = field(default_factory=list, repr=False)
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    stuck: int = 0
    aborted: int = 0
    renewed: int = 0
    resumed_s: float = 0.0

    def see(self, message: Any) -> None:
        """A message whose offset is its number within the partition."""
        partition, offset = message.partition(), message.offset()
        expected = self.expected.get(partition, 0)
        self.at.append(time.monotonic())
        if offset > expected:
            self.lost += offset - expected
        elif offset < expected:
            self.repeated += 1
            # Gone back to before what was committed when the partition was assigned, or by now if it was not; what
            # follows may have been committed meanwhile.
            is_back = offset != self.before.get(partition, -1) + 1
            self.reordered += is_back and offset < self.begun.get(partition, self.commits.get(partition, 0))
        self.begun.pop(partition, None)
        self.before[partition] = offset
        self.expected[partition] = max(expected, offset + 1)

    def begin(self, partitions: list[TopicPartition]) -> None:
        """These are assigned: they are read from what has been committed by now, whatever is committed next."""
        self.begun.update({part.partition: self.commits.get(part.partition, 0) for part in partitions})


def play_reading(
    cluster: Any, proxies: Proxies, fault: Fault, workload: str, kinds: Sequence[str] = ("ours", "plain")
) -> dict[str, Read]:
    """Ours and plain at once, each under a quota of its own; kinds that begin with ours are."""
    source = f"{fault.__name__}-{workload}"
    _fill(cluster, source)
    seen = {kind: Read() for kind in kinds}
    until, threads = [float("inf")], []
    for kind, one in seen.items():
        app = f"{source}-{kind}"
        cluster.create_topic(app, PARTITIONS, replication=3)
        cluster.set_quota(client_id=app, consumer_byte_rate=RATE, producer_byte_rate=RATE)
        run = _consume if workload == "consumer" else _transform
        arguments = (cluster.bootstrap_servers, source, app, kind, one, until)
        # A daemon: an application that is stuck is told of, and keeps nobody from ending.
        threads.append(threading.Thread(target=run, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while not all(one.at for one in seen.values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(BEFORE_S)
    broke = fault(cluster, proxies)
    mended = time.monotonic()
    await_going_on(lambda: [[at for at in one.at[-1:] if at > mended] for one in seen.values()])
    until[0] = time.monotonic() + AFTER_S
    ends = time.monotonic() + END_S + 60  # for all of them: whoever is stuck by then is
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    proxies.each(lambda proxy: proxy.stall_some(0, 0))
    proxies.each(lambda proxy: proxy.delay())
    for (kind, one), thread in zip(seen.items(), threads, strict=True):
        one.stuck += thread.is_alive()
        one.resumed_s = goes_on_s(one.at, broke or [mended], one.asked if workload == "transactions" else None)
        if workload == "transactions":
            _judge(cluster, f"{source}-{kind}", one)
    return seen


def beside(name: str, other: str) -> str:
    """A name for a group or transactions of `name` that the same coordinator keeps as those of `other`.

    When a broker fails, who goes on first is decided by which coordinator was on it.
    """
    names = (name if number == 0 else f"{name}-{number}" for number in count())
    return next(each for each in names if all(share_of(each, many) == share_of(other, many) for many in SHARES))


def _fill(cluster: Any, topic: str) -> None:
    cluster.create_topic(topic, PARTITIONS, replication=3)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 20}
    )
    for number in range(MESSAGES):
        producer.produce(topic, b"%08d" % (number // PARTITIONS) + b"x" * 492, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(300) == 0
    del producer


def _conf(servers: str, source: str, app: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "client.id": app,
        "group.id": beside(app, f"{source}-plain"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "socket.timeout.ms": 10_000,
        "session.timeout.ms": 45_000,
        "log_level": 2,
    }


def _consume(servers: str, source: str, app: str, kind: str, seen: Read, until: list[float]) -> None:
    consumer = (Consumer if kind.startswith("ours") else confluent_kafka.Consumer)(_conf(servers, source, app))
    consumer.subscribe([source], on_assign=lambda _, partitions: seen.begin(partitions))
    committed = time.monotonic()
    while time.monotonic() < until[0]:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.see(message)
        if time.monotonic() > committed + 1 and seen.at:
            committed = time.monotonic()
            ends = dict(seen.expected)
            offsets = [TopicPartition(source, partition, offset) for partition, offset in ends.items()]
            if _done(lambda offsets=offsets: consumer.commit(offsets=offsets, asynchronous=False)):
                seen.commits = ends
    consumer.close()


def _done(call: Callable[[], object]) -> bool:
    try:
        call()
    except KafkaException:
        return False
    return True


def _transform(servers: str, source: str, app: str, kind: str, seen: Read, until: list[float]) -> None:
    """As an application does that follows the book: it tries again, aborts, or makes a new producer, as errors say."""
    consumer: Any = (Consumer if kind.startswith("ours") else confluent_kafka.Consumer)(_conf(servers, source, app))
    consumer.subscribe([source])
    producer = _new_producer(servers, source, app, kind)
    done: dict[int, int] = {}
    while time.monotonic() < until[0]:
        messages = [one for one in consumer.consume(20, 0.5) if one.error() is None]
        if not messages:
            continue
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(app, message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
            )
            asked = time.monotonic()
            _again(producer.commit_transaction, 60)
            seen.asked.append(asked)
            seen.at.append(time.monotonic())
        except KafkaException as error:
            seen.aborted += 1
            if error.args[0].txn_requires_abort() and _is_aborted(producer):
                _rewind(consumer, source, done)
                continue
            seen.renewed += 1
            producer = _new_producer(servers, source, app, kind)
            # What was committed last may have been, though nobody was told so.
            done = {part.partition: part.offset for part in consumer.committed(consumer.assignment(), 60)}
            _rewind(consumer, source, done)
        else:
            for message in messages:
                done[message.partition()] = message.offset() + 1
    seen.expected = done
    _done(partial(producer.flush, 10))
    consumer.close()
    del producer


def _new_producer(servers: str, source: str, app: str, kind: str) -> Any:
    conf = {
        "bootstrap.servers": servers,
        "client.id": app,
        "transactional.id": beside(app, f"{source}-plain"),
        "transaction.timeout.ms": 60_000,
        "socket.timeout.ms": 10_000,
        "log_level": 2,
    }
    producer = (Producer if kind.startswith("ours") else confluent_kafka.Producer)(conf)
    _again(producer.init_transactions, 60)
    return producer


def _is_aborted(producer: Any) -> bool:
    return _done(lambda: _again(producer.abort_transaction, 30))


def _again(call: Callable[[float], object], timeout_s: float) -> None:
    """Until an error says that there is no use in it; for two minutes at most."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            call(timeout_s)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _rewind(consumer: Any, source: str, done: dict[int, int]) -> None:
    for where in consumer.assignment():
        consumer.seek(TopicPartition(source, where.partition, max(0, done.get(where.partition, 0))))


def _judge(cluster: Any, topic: str, seen: Read) -> None:
    for partition in range(PARTITIONS):
        values = read_all(cluster, topic, partition)
        numbers = [int(value) for value in values]
        counts = Counter(numbers)
        seen.repeated += counts.total() - len(counts)
        seen.lost += len(set(range(seen.expected.get(partition, 0))) - set(numbers))
        seen.reordered += numbers != sorted(numbers)
