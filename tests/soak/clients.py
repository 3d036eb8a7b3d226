"""Clients that stay, and clients that come and go; every message has a number, and nothing but numbers is kept."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kclient_quota import AIOProducer, Consumer, Producer
from kclient_quota.errors import QuotaThrottledError

PARTITIONS = 6
FLUSH_S = 60
FATAL = {KafkaError._FATAL, KafkaError._FENCED}


class Ledger:
    """What was reported, read, and how long calls took; written by every thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.longest_s: dict[str, float] = defaultdict(float)
        self.throttled: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.problems: list[str] = []

    def add(self, name: str, number: int = 1) -> None:
        """Count."""
        with self.lock:
            self.counts[name] += number

    def timed(self, name: str, call: Callable[[], Any]) -> Any:
        """What the call returns."""
        begin = time.monotonic()
        try:
            return call()
        finally:
            with self.lock:
                self.longest_s[name] = max(self.longest_s[name], time.monotonic() - begin)

    def metrics_of(self, client_id: str, client: Any) -> None:
        """Add a producer's own figures before it is closed."""
        values = {(name.name, name.group): value for name, value in client.metrics().items()}
        with self.lock:
            self.throttled[client_id][0] += round(values["produce-throttle-count", "producer-metrics"])
            self.throttled[client_id][1] += round(values["produce-throttle-time-total", "producer-metrics"])

    def reported(self, error: Any, _message: Any) -> None:
        """For `on_delivery`."""
        self.add("failed" if error is not None else "delivered")


class Order:
    """The next number of each partition."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next: Counter[int] = Counter()
        self.read = self.repeated = self.missing = 0

    def see(self, message: Any) -> None:
        """A message that somebody was given."""
        offset, partition = message.offset(), message.partition()
        with self.lock:
            expected = self.next[partition]
            if offset < expected:
                self.repeated += 1
                return
            self.missing += offset - expected
            self.next[partition] = offset + 1
            self.read += 1


class Stayers:
    """A producer, a reader that was given its partitions, and a member of a group; each on a thread."""

    def __init__(self, servers: str, ledger: Ledger, rate: int) -> None:
        self.servers, self.ledger, self.rate = servers, ledger, rate
        self.stops = threading.Event()
        self.stops_reading = threading.Event()
        self.read, self.shared = Order(), Order()
        self.numbers: Counter[int] = Counter()
        self.wrong_numbers = 0
        self.threads = [threading.Thread(target=run) for run in (self._produce, self._assigned, self._member)]

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "client.id": "stays", "enable.idempotence": True})
        numbers = [0] * PARTITIONS
        for turn in count():
            if self.stops.is_set():
                break
            partition = turn % PARTITIONS
            try:
                producer.produce(
                    "stays",
                    b"%012d" % numbers[partition] + b"x" * 500,
                    partition=partition,
                    on_delivery=self.ledger.reported,
                )
            except (QuotaThrottledError, BufferError):
                producer.poll(0.1)
                continue
            numbers[partition] += 1
            producer.poll(0)
            self.stops.wait(512 / self.rate)
        left = self.ledger.timed("flush", lambda: producer.flush(FLUSH_S))
        self.ledger.add("stuck", left)
        self.ledger.add("stays", sum(numbers))
        self.ledger.metrics_of("stays", producer)
        self.ledger.timed("close", producer.close)

    def _assigned(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "client.id": "reads", "group.id": "reads"})
        consumer.assign([TopicPartition("stays", partition, 0) for partition in range(PARTITIONS)])
        expected = [0] * PARTITIONS
        while not self.stops_reading.is_set():
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            self.read.see(message)
            self.wrong_numbers += int(message.value()[:12]) != expected[message.partition()]
            expected[message.partition()] = int(message.value()[:12]) + 1
        self.ledger.timed("close of a consumer", consumer.close)

    def _member(self) -> None:
        member(self.servers, self.ledger, self.shared, self.stops_reading.is_set)


def member(servers: str, ledger: Ledger, order: Order, is_over: Callable[[], bool]) -> None:
    """One of a group that shares the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "shares",
            "group.id": "shares",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "auto.commit.interval.ms": 1_000,
        }
    )
    consumer.subscribe(["stays"])
    while not is_over():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            order.see(message)
    ledger.timed("close of a consumer", consumer.close)


# -- who come and go


def sends_some(servers: str, ledger: Ledger, _order: Order, number: int) -> None:
    """An idempotent producer."""
    client_id = f"comes-{number % 8}"
    producer = Producer({"bootstrap.servers": servers, "client.id": client_id, "enable.idempotence": True})
    for _ in range(60):
        producer.produce("comes", b"x" * 1_000, on_delivery=ledger.reported)
        producer.poll(0.01)
    ledger.add("stuck", ledger.timed("flush", lambda: producer.flush(FLUSH_S)))
    ledger.add("comes", 60)
    ledger.metrics_of(client_id, producer)
    ledger.timed("close", producer.close)


def sends_with_asyncio(servers: str, ledger: Ledger, _order: Order, number: int) -> None:
    """An asyncio producer."""
    client_id = f"comes-{number % 8}"

    async def run() -> None:
        producer = AIOProducer({"bootstrap.servers": servers, "client.id": client_id, "enable.idempotence": True})
        sent = [await producer.produce("comes", b"y" * 1_000) for _ in range(60)]
        await producer.flush()
        ends = await asyncio.gather(*sent, return_exceptions=True)
        ledger.add("delivered", sum(not isinstance(end, BaseException) for end in ends))
        ledger.add("failed", sum(isinstance(end, BaseException) for end in ends))
        ledger.metrics_of(client_id, producer)
        await producer.close()

    ledger.timed("life of an asyncio producer", lambda: asyncio.run(run()))
    ledger.add("comes", 60)


def takes_part(servers: str, ledger: Ledger, order: Order, _number: int) -> None:
    """A member of the group for a while: two rebalances."""
    until = time.monotonic() + 15
    member(servers, ledger, order, lambda: time.monotonic() > until)


def transacts(servers: str, ledger: Ledger, _order: Order, number: int) -> None:
    """Three transactions, the second of which is aborted."""
    client_id = f"comes-{number % 8}"
    producer = Producer({"bootstrap.servers": servers, "client.id": client_id, "transactional.id": f"t{number % 16}"})
    producer.init_transactions(30)
    for is_wanted in (True, False, True):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("transacts", b"z" * 100)
        try:
            producer.flush(30)
            if is_wanted:
                producer.commit_transaction(30)
                ledger.add("committed", 10)
            else:
                producer.abort_transaction(30)
        except KafkaException as error:
            ledger.add("transactions that failed")
            if error.args[0].fatal():
                break
            with suppress(KafkaException):
                producer.abort_transaction(30)
    ledger.metrics_of(client_id, producer)
    ledger.timed("close", producer.close)


COMERS = (sends_some, takes_part, sends_with_asyncio, transacts)


class Comers:
    """Begins another client every few seconds."""

    def __init__(self, servers: str, ledger: Ledger, order: Order, every_s: float, random: Random) -> None:
        self._arguments = (servers, ledger, order)
        self._ledger, self._every_s, self._random = ledger, every_s, random
        self._running: list[threading.Thread] = []
        self.stops = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in count():
            if self.stops.wait(self._every_s):
                break
            self._running = [one for one in self._running if one.is_alive()]
            thread = threading.Thread(target=self._one, args=(COMERS[number % len(COMERS)], number))
            self._running.append(thread)
            thread.start()
        for thread in self._running:
            thread.join(120)
            if thread.is_alive():
                self._ledger.problems.append(f"{thread.name} is stuck")

    def _one(self, comer: Callable[[str, Ledger, Order, int], None], number: int) -> None:
        try:
            comer(*self._arguments, number)
        except Exception as error:  # noqa: BLE001 - told at the end, whatever it is
            self._ledger.problems.append(f"{comer.__name__}: {error!r}")
        self._ledger.add(f"{comer.__name__}, clients")


def committed(servers: str) -> int:
    """How many messages of transactions that were committed are there."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "judge", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("transacts", 0, 0)])
    found = 0
    while (message := consumer.poll(30)) is not None:
        if message.error() is None:
            found += 1
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


def end_offsets(servers: str, topic: str, partitions: int) -> int:
    """How many messages have ever been written."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "judge"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(partitions)]
    consumer.close()
    return sum(ends)
