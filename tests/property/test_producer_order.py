"""Messages of a key reach librdkafka in the order in which they came, whatever their topic, its brokers and it do."""

import threading
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.outbox import Handed, Outbox
from kclient_quota.clients.producer.sender.sender import Sender
from kclient_quota.clients.throttle_log import WorthLog
from kclient_quota.testing.clock import ManualClock
from tests.property.examples import examples
from tests.unit.clients.producer_world import LIMITED, NONE, core_of, message

TOPIC = "orders"
PARTITIONS = 2
KEYS = "abc"

leaders = st.tuples(*[st.sampled_from([1, 2])] * PARTITIONS)
rounds = st.tuples(
    st.text(KEYS, max_size=12),  # of messages that come
    st.integers(0, 500),  # milliseconds that pass
    st.one_of(st.none(), st.none(), st.none(), st.just(()), leaders),  # as heard; (): there is no such topic
    st.sampled_from([0, 3, 1_000]),  # messages that librdkafka has room for
    st.booleans(),  # whether what it has arrives
    st.sampled_from([LIMITED, LIMITED, LIMITED, NONE]),
)


class Librdkafka:
    """Takes as many messages as there is room for."""

    def __init__(self) -> None:
        self.room = 1_000
        self.queue: deque[Handed] = deque()
        self.seen: dict[Any, list[int]] = defaultdict(list)

    def hand_to_librdkafka(self, _topic: str, _partition: int, handed: Handed) -> None:
        if not self.room:
            raise BufferError
        self.room -= 1
        self.queue.append(handed)
        self.seen[handed.key].append(int(handed.value))

    def begun_with_librdkafka(self) -> None:
        """Nothing polls here."""

    def arrive(self) -> None:
        for handed in self.queue:
            handed.report[None] = Message(topic=TOPIC, partition=0)
        self.queue.clear()


class World:
    """A producer without its threads."""

    def __init__(self) -> None:
        self.clock, self.core = ManualClock(0), core_of(LIMITED)
        transaction: Any = SimpleNamespace(lost=None, possible=False, is_late=lambda _now_ms: False)
        metrics: Any = SimpleNamespace(lanes=[""], on_sent=lambda *_: None, on_lost=lambda *_: None)
        worth = WorthLog("app", "none", 1_000)
        lock = threading.RLock()
        self.sender = Sender(
            Outbox(), self.core, transaction, clock=self.clock, lock=lock, metrics=metrics, worth=worth, keeps=True
        )
        self.count = 0

    def come(self, keys: str) -> None:
        for key in keys:
            waiting = message(1_000, self.clock.now_ms(), key=key, topic=TOPIC)
            waiting.payload.value = str(self.count).encode()
            self.count += 1
            self.sender._came.append(waiting)

    def lead(self, found: tuple[int, ...]) -> None:
        self.core.brokers.learn_routes({TOPIC: dict(enumerate(found))}, 2, self.clock.now_ms())

    def follow(self, limit: Limit) -> None:
        if limit != self.core.limit:
            self.core.set_limit(limit, self.clock.now_ms())

    def step(self, librdkafka: Librdkafka) -> None:
        self.sender._pass_on(librdkafka)  # type: ignore[arg-type] # what it needs of a producer


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(rounds, min_size=20, max_size=60))
def test_messages_of_a_key_keep_their_order(done):
    world, librdkafka = World(), Librdkafka()
    for keys, time_ms, found, room, arrives, limit in done:
        world.come(keys)
        world.clock.sleep_ms(time_ms)
        if found is not None:
            world.lead(found)
        librdkafka.room = room
        if arrives:
            librdkafka.arrive()
        world.follow(limit)
        world.step(librdkafka)
    librdkafka.room = world.count
    world.follow(NONE)
    while sum(map(len, librdkafka.seen.values())) < world.count:
        world.clock.sleep_ms(100)
        librdkafka.arrive()
        world.step(librdkafka)
    for seen in librdkafka.seen.values():
        assert seen == sorted(seen)
