"""Where messages of many topics go is found without the sender's standing still for it."""

import threading
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota.clients.producer.routes import ASK_AGAIN_MS, ROUTE_MS
from kclient_quota.clients.producer.sender.finding import METADATA_MS, MOST_METADATA_MS, MOST_SINGLE, RouteFinder
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import LIMITED, core_of

WAY_MS = 40
"""To the broker and back."""


class Cluster:
    """Far away; has some topics, and may be slow to say which."""

    def __init__(self, clock: ManualClock, topics: Collection[str], listing_ms: int = WAY_MS) -> None:
        self.clock = clock
        self.topics = topics
        self.listing_ms = listing_ms
        self.asked: list[str | None] = []

    def ask_librdkafka(self, topic: str | None, timeout_s: float) -> Any:
        self.asked.append(topic)
        takes_ms = self.listing_ms if topic is None else WAY_MS
        self.clock.sleep_ms(min(takes_ms, int(timeout_s * 1000)))
        if takes_ms > timeout_s * 1000:
            raise TimeoutError
        answered = self.topics if topic is None else [topic]
        partitions = {0: SimpleNamespace(leader=1), 1: SimpleNamespace(leader=2)}
        known = {name: SimpleNamespace(partitions=partitions) for name in answered if name in self.topics}
        return SimpleNamespace(topics=known, brokers=[1, 2])


def world(count: int, listing_ms: int = WAY_MS) -> tuple[RouteFinder, Any, ManualClock, list[str], Any]:
    clock, topics = ManualClock(0), [f"topic-{number}" for number in range(count)]
    cluster: Any = Cluster(clock, topics, listing_ms)
    core = core_of(LIMITED)
    return RouteFinder(core, clock, threading.RLock()), cluster, clock, topics, core.brokers


def answered_by_nobody(cluster: Any, clock: ManualClock) -> list[int]:
    """From now on; how long each question has waited."""
    waits: list[int] = []

    def ask(_topic: str | None, timeout_s: float) -> Any:
        waits.append(int(timeout_s * 1000))
        clock.sleep_ms(waits[-1])
        raise TimeoutError

    cluster.ask_librdkafka = ask
    return waits


def test_many_topics_take_one_answer_and_so_they_do_half_a_minute_later() -> None:
    finder, cluster, clock, topics, brokers = world(300)
    finder.find(cluster, topics)
    assert cluster.asked == [None]
    assert clock.now_ms() == WAY_MS
    assert all(brokers.routes.get(topic).leaders == (1, 2) for topic in topics)
    assert brokers.is_split
    clock.sleep_ms(ROUTE_MS)
    for topic in topics:  # messages of one topic after the other come
        finder.find(cluster, [topic])
    assert cluster.asked == [None, None]


@pytest.mark.parametrize("count", [1, MOST_SINGLE])
def test_of_a_few_topics_each_is_asked_for_and_not_what_else_a_cluster_may_have(count: int) -> None:
    finder, cluster, _, topics, brokers = world(count)
    finder.find(cluster, topics)
    assert cluster.asked == topics
    assert all(brokers.routes.get(topic) for topic in topics)


def test_topics_that_are_not_there_are_asked_for_again_once_a_second_all_at_once() -> None:
    finder, cluster, clock, topics, brokers = world(300)
    cluster.topics = topics[:1]
    for _ in range(90):
        finder.find(cluster, topics)
        clock.sleep_ms(30)
    assert cluster.asked == [None] * 3
    assert [brokers.routes.get(topic) is not None for topic in topics[:2]] == [True, False]


def test_where_there_are_too_many_topics_for_one_answer_a_step_waits_for_some_at_a_time() -> None:
    finder, cluster, clock, topics, brokers = world(300, listing_ms=60_000)
    finder.find(cluster, topics)
    assert cluster.asked[0] is None
    assert clock.now_ms() <= MOST_METADATA_MS
    longest_ms = 0
    while any(brokers.routes.get(topic) is None for topic in topics):
        began_ms = clock.now_ms()
        finder.find(cluster, topics)
        longest_ms = max(longest_ms, clock.now_ms() - began_ms)
        clock.sleep_ms(10)
        assert clock.now_ms() < ROUTE_MS
    assert longest_ms <= METADATA_MS + WAY_MS
    assert cluster.asked.count(None) == 1


def test_a_broker_that_does_not_answer_is_waited_for_once_and_not_for_every_topic() -> None:
    finder, cluster, clock, topics, _ = world(MOST_SINGLE)

    def ask(_topic: str | None, timeout_s: float) -> Any:
        clock.sleep_ms(int(timeout_s * 1000))
        raise TimeoutError

    cluster.ask_librdkafka = ask
    finder.find(cluster, topics)
    assert clock.now_ms() == MOST_METADATA_MS


def test_a_topic_that_cannot_be_asked_for_keeps_no_other_from_being() -> None:
    """Such as one whose name librdkafka refuses."""
    finder, cluster, _, topics, brokers = world(2)
    ask = cluster.ask_librdkafka

    def refuse(topic: str | None, timeout_s: float) -> Any:
        if topic == "x" * 600:
            raise RuntimeError
        return ask(topic, timeout_s)

    cluster.ask_librdkafka = refuse
    finder.find(cluster, ["x" * 600, *topics])
    assert all(brokers.routes.get(topic) for topic in topics)


def test_topics_that_are_not_there_keep_no_other_from_being_found_where_time_is_short() -> None:
    """Within one step there is time for two topics, whichever they are."""
    finder, cluster, clock, topics, brokers = world(3)
    cluster.topics = topics[2:]
    ask = cluster.ask_librdkafka

    def ask_slowly(topic: str | None, timeout_s: float) -> Any:
        clock.sleep_ms(METADATA_MS // 2)
        return ask(topic, timeout_s)

    cluster.ask_librdkafka = ask_slowly
    for _ in range(2):
        finder.find(cluster, topics)
        clock.sleep_ms(ASK_AGAIN_MS)
    assert brokers.routes.get(topics[2]) is not None


@pytest.mark.parametrize("way_ms", [400, 900])
def test_a_far_cluster_is_given_longer_once_in_half_a_minute(way_ms: int) -> None:
    """The first answer takes a connection, and while it is busy each takes two ways there and back."""
    finder, cluster, clock, topics, brokers = world(1)
    ask = cluster.ask_librdkafka
    connected_ms = 3 * way_ms

    def ask_far_away(topic: str | None, timeout_s: float) -> Any:
        takes_ms = max(2 * way_ms, connected_ms - clock.now_ms())
        clock.sleep_ms(int(min(takes_ms, timeout_s * 1000)))
        if takes_ms > timeout_s * 1000:
            raise TimeoutError
        return ask(topic, timeout_s)

    cluster.ask_librdkafka = ask_far_away
    waited_ms = 0
    while clock.now_ms() < 3 * ROUTE_MS - 1_000:
        began_ms = clock.now_ms()
        finder.find(cluster, topics)
        waited_ms += clock.now_ms() - began_ms
        clock.sleep_ms(10)
    assert brokers.routes.get(topics[0]) is not None
    assert cluster.asked == topics * 3
    assert waited_ms < 3 * ROUTE_MS / 10


def test_where_nobody_answers_the_pauses_grow_and_what_waits_goes_out_in_them() -> None:
    finder, cluster, clock, topics, _ = world(1)
    waits = answered_by_nobody(cluster, clock)
    while clock.now_ms() < 60_000:
        finder.find(cluster, topics)
        clock.sleep_ms(10)
    assert max(waits) == MOST_METADATA_MS
    assert sum(waits) < 0.25 * 60_000
    assert len(waits) > 5


def test_when_all_connections_are_lost_it_is_asked_at_once_and_once() -> None:
    """librdkafka begins anew from the bootstrap servers then, and goes on sooner for being asked: within 0.1 s, not 2.

    What was known is not old, nobody comes while all wait, and a throttle was one of connections that are gone.
    """
    finder, cluster, clock, topics, brokers = world(2)
    finder.find(cluster, topics)
    clock.sleep_ms(5_000)
    for broker in brokers:
        broker.queue.pace.on_throttle(60_000, clock.now_ms())
    cluster.asked.clear()
    finder.find(cluster, topics)
    assert not cluster.asked
    brokers.lose()
    finder.find(cluster, [])
    assert sorted(cluster.asked) == topics
    for _ in range(300):
        clock.sleep_ms(10)
        finder.find(cluster, [])
    assert len(cluster.asked) == len(topics)


def test_a_broker_that_is_sent_nothing_of_what_was_granted_for_it_leads_no_longer() -> None:
    """It took half a minute until that was asked for."""
    finder, cluster, clock, topics, brokers = world(2)
    finder.find(cluster, topics)
    clock.sleep_ms(5_000)
    cluster.asked.clear()
    brokers.doubt_leader(3)
    finder.find(cluster, topics)
    assert not cluster.asked
    brokers.doubt_leader(2)
    finder.find(cluster, topics)
    assert cluster.asked == topics


def test_as_long_as_no_connection_can_be_made_it_is_asked_now_and_then() -> None:
    """librdkafka says so each time that it has tried all of them."""
    finder, cluster, clock, topics, brokers = world(1)
    finder.find(cluster, topics)
    waits = answered_by_nobody(cluster, clock)
    began_ms = clock.now_ms()
    while clock.now_ms() - began_ms < 60_000:
        brokers.lose()
        finder.find(cluster, [])
        clock.sleep_ms(100)
    assert len(waits) > 5
    assert sum(waits) < 0.25 * 60_000
