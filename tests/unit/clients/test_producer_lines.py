"""What librdkafka has nobody to send to, as a topic is gone or has no leader, nobody waits for: others go on."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.producer.outbox import Handed
from kclient_quota.clients.producer.sender.lines import PartitionLines, hand_over
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.clients.producer_world import LIMITED, core_of

T0 = 1_000_000
EACH = 1_000
GONE, HERE = ("gone", 0), ("here", 0)


class World:
    """Messages of two partitions of one broker."""

    def __init__(self) -> None:
        self.broker = core_of(LIMITED).brokers.get(-1)
        self.pace = self.broker.queue.pace
        self.lines = PartitionLines()

    def hand(self, place: Any, at_ms: int) -> Handed:
        handed = Handed(b"v", None, -1, None, 0, None)
        self.pace.on_granted(EACH, at_ms)
        message = Waiting(place[0], place[1], EACH, at_ms, handed)
        self.lines.add(place, self.broker, message, at_ms)
        return handed

    def collect(self, now_ms: int) -> list[bool]:
        """Whether somebody has waited for what is reported, of each; and what stays behind is found."""
        found = []
        for _, line in self.lines:
            for gone, is_waited_for in line.reported(now_ms):
                found.append(is_waited_for)
                if is_waited_for:
                    self.pace.on_delivered(gone.message.raw_bytes, now_ms)
        for _, line in self.lines:
            line.look()
        return found


def arrived(handed: Handed) -> None:
    handed.report[None] = None  # type: ignore[assignment] # stands for a message


def failed(handed: Handed) -> None:
    handed.report[KafkaError(KafkaError._MSG_TIMED_OUT)] = None  # type: ignore[assignment] # stands for a message


@pytest.mark.parametrize(("later_ms", "is_stray"), [(999, False), (1_000, True)])
def test_what_is_not_delivered_stays_behind_when_what_went_a_way_later_is(later_ms, is_stray):
    world = World()
    world.hand(GONE, T0)
    arrived(world.hand(HERE, T0 + later_ms))
    assert world.collect(T0 + later_ms + 5) == [True]
    assert world.lines.of(GONE).is_stray is is_stray
    assert world.pace.outstanding == (0 if is_stray else EACH)


def test_what_fails_says_nothing_of_others():
    world = World()
    world.hand(GONE, T0)
    failed(world.hand(HERE, T0 + 5_000))
    world.collect(T0 + 5_005)
    assert not world.lines.of(GONE).is_stray


@pytest.mark.parametrize(("later_ms", "is_stray"), [(4_900, False), (6_100, True)])
def test_where_what_is_delivered_has_taken_seconds_others_may_take_twice_as_long(later_ms, is_stray):
    """Librdkafka has five requests under way: of a hundred partitions far away one waits for its turn for long."""
    world = World()
    world.hand(GONE, T0)
    for at_ms in (T0, T0 + later_ms):
        arrived(world.hand(HERE, at_ms))
        world.collect(at_ms + 3_000)
        assert world.lines.of(GONE).is_stray is (is_stray and at_ms > T0)


def test_what_others_have_taken_fades_and_strays_do_not_count():
    broker = World().broker
    broker.on_served(T0, T0 + 8_000, is_waited_for=True)
    assert broker.slowest_ms == 8_000
    broker.on_served(T0 + 8_000, T0 + 18_000, is_waited_for=False)
    broker.on_served(T0 + 17_990, T0 + 18_000, is_waited_for=True)
    assert (broker.slowest_ms, broker.served_ms) == (4_000, T0 + 17_990)
    broker.on_served(T0 + 12_000, T0 + 18_000, is_waited_for=True)
    assert (broker.slowest_ms, broker.served_ms) == (6_000, T0 + 17_990)


def stray() -> tuple[World, Handed]:
    world = World()
    first = world.hand(GONE, T0)
    arrived(world.hand(HERE, T0 + 2_000))
    world.collect(T0 + 2_005)
    return world, first


def test_nobody_waits_for_what_comes_after_it_either():
    world, first = stray()
    world.hand(GONE, T0 + 3_000)
    assert (world.lines.of(GONE).strays, world.pace.outstanding) == (2, 0)
    failed(first)
    assert world.collect(T0 + 30_000) == [False]
    world.hand(GONE, T0 + 31_000)
    assert (world.lines.of(GONE).strays, world.pace.outstanding) == (2, 0)


def test_as_soon_as_one_arrives_they_are_waited_for_again():
    world, first = stray()
    second = world.hand(GONE, T0 + 3_000)
    arrived(first)
    assert world.collect(T0 + 4_000) == [False]
    third = world.hand(GONE, T0 + 4_000)
    assert world.pace.outstanding == EACH
    arrived(second)
    arrived(third)
    assert world.collect(T0 + 4_005) == [False, True]
    assert (world.pace.outstanding, world.pace._stray) == (0, 0)


class Told(Pacer):
    """Remembers what it is told of late."""

    late = 0

    def on_late_count(self, nbytes: int, now_ms: int) -> None:
        self.late += nbytes
        super().on_late_count(nbytes, now_ms)


def pace_of() -> tuple[SendPace, Told]:
    pacer = Told(50_000.0)
    pace = SendPace(pacer, limit=50_000.0)
    pace.on_granted(EACH, T0)
    pace.on_stray(EACH)
    return pace, pacer


def test_what_librdkafka_sends_again_and_again_is_not_charged_to_the_others():
    pace, pacer = pace_of()
    assert not pace._flying
    before_ms = pacer.owed_ms(T0)
    pace.on_wire(200_000, T0 + 1)
    assert pacer.owed_ms(T0 + 1) <= before_ms
    pace.on_stray_over(EACH, T0, T0 + 2, arrived=False)
    pace.on_wire(200_000, T0 + 3)
    assert pacer.owed_ms(T0 + 3) > 3_000


def test_nothing_is_learnt_of_prices_meanwhile():
    pace, _ = pace_of()
    cost = pace._cost
    before = cost.part, cost.overhead, cost.is_learnt
    for second in range(20):
        pace.on_granted(EACH, T0 + second)
        pace.on_delivered(EACH, T0 + second)
        pace.on_wire(30_000, T0 + second)
    assert (cost.part, cost.overhead, cost.is_learnt) == before


@pytest.mark.parametrize(("has_arrived", "counts"), [(True, True), (False, False)])
def test_what_arrives_late_counts_when_it_does(has_arrived, counts):
    pace, pacer = pace_of()
    pace.on_stray_over(EACH, T0, T0 + 60_000, arrived=has_arrived)
    assert (pacer.late >= EACH) is counts


class Refuses:
    """A producer of a topic that has one partition only."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.handed: list[int] = []

    def hand_to_librdkafka(self, _topic: str, partition: int, _handed: Handed) -> None:
        self.handed.append(partition)
        if partition > 0:
            raise KafkaException(KafkaError(self.code))


def placed(partition: int, asked: int, code: int = KafkaError._UNKNOWN_PARTITION) -> tuple[int, list[int]]:
    producer: Any = Refuses(code)
    handed = Handed(b"v", None, asked, None, 0, None)
    message = Waiting("t", partition, EACH, T0, handed)
    return hand_over(producer, message, partition), producer.handed


def test_librdkafka_finds_a_place_for_what_may_go_anywhere_when_there_is_none_of_that_number():
    assert placed(3, -1) == (-1, [3, -1])
    assert placed(0, -1) == (0, [0])


@pytest.mark.parametrize(("asked", "code"), [(3, KafkaError._UNKNOWN_PARTITION), (-1, KafkaError._MSG_TIMED_OUT)])
def test_what_is_to_go_there_only_or_is_refused_for_something_else_is_refused(asked, code):
    with pytest.raises(KafkaException):
        placed(3, asked, code)


def test_a_topic_that_is_gone_is_asked_for_again_and_has_no_partitions_meanwhile():
    brokers = core_of(LIMITED).brokers
    brokers.learn_routes({"t": {0: 1, 1: 1}}, 1, T0)
    assert not brokers.wants_route("t", T0 + 1_000)
    brokers.doubt("t")
    brokers.doubt("unheard of")
    assert brokers.wants_route("t", T0 + 1_001)
    brokers.learn_routes({"t": {}}, 1, T0 + 1_002)
    assert brokers.routes.get("t") is None
    assert "t" not in brokers.routes.partitions
    message = Waiting("t", -1, EACH, T0, Handed(b"v", b"k", -1, None, 0, None))
    brokers.of(message, T0)
    assert message.partition == -1


def test_of_thousands_of_partitions_only_those_are_looked_at_that_anything_is_under_way_in():
    """Every step looks: with twenty thousand partitions that took longer than all else that it does."""
    world = World()
    for number in range(1_000):
        arrived(world.hand(("here", number), T0))
    left = world.hand(GONE, T0)
    assert world.collect(T0 + 5) == [True] * 1_000
    assert [place for place, _ in world.lines] == [GONE]
    arrived(left)
    assert world.collect(T0 + 10) == [True]
    assert list(world.lines) == []
    arrived(world.hand(HERE, T0 + 20))
    assert world.collect(T0 + 25) == [True]
    assert world.pace.outstanding == 0


@pytest.mark.parametrize("strays", [0, 2])
def test_what_was_purged_does_not_wait_for_what_is_on_its_way(strays):
    """However late its reports are taken, and whatever has come after it."""
    world = World()
    handed = [world.hand(HERE, T0 + number) for number in range(6)]
    line = world.lines.of(HERE)
    line.strays = strays
    world.lines.purge()
    handed.append(world.hand(HERE, T0 + 10))
    assert world.collect(T0 + 10) == []
    for purged in (handed[1], handed[4], handed[5]):
        failed(purged)
    assert world.collect(T0 + 60_000) == ([True] * 3 if not strays else [False])
    arrived(handed[0])
    assert world.collect(T0 + 60_001) == ([True] if not strays else [False, True, True])
    assert [gone.message.payload for gone in line.gone] == [handed[2], handed[3], handed[6]]


def test_after_a_purge_lines_are_put_in_order_once():
    """Of 100,000 messages under way it took a processor for two seconds."""
    world = World()
    handed = [world.hand(HERE, T0 + number) for number in range(3)]
    line = world.lines.of(HERE)
    world.lines.purge()
    before = line.gone
    assert world.collect(T0 + 10) == []
    assert line.gone is before
    failed(handed[2])
    assert world.collect(T0 + 11) == [True]
    now = line.gone
    assert world.collect(T0 + 12) == []
    assert line.gone is now is not before
