"""What is kept from librdkafka until it may send it: for how long, of what, and that none of it is overtaken."""

from typing import Any

import pytest

from kclient_quota.clients.producer.assembly import Parts
from kclient_quota.clients.producer.core import ENOUGH_BYTES, SURE_MS, Sent
from kclient_quota.clients.producer.outbox import Handed
from kclient_quota.clients.producer.sender.kept import Kept
from kclient_quota.clients.producer.sender.lines import AT_ONCE, SILENCE_MS, PartitionLines
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Waiting
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import LIMITED, core_of

T0 = 1_000_000
EACH = 1_000
HERE, THERE, ANYWHERE = ("here", 0), ("here", 1), ("here", ANY_PARTITION)
ELSEWHERE = ("elsewhere", 0)


class World:
    """Partitions of one broker, and what an idempotent producer of librdkafka has of them."""

    def __init__(self, *, is_needed: bool = True) -> None:
        self.broker = core_of(LIMITED).brokers.get(-1)
        self.pace = self.broker.queue.pace
        self.lines = PartitionLines()
        self.kept = Kept(self.lines, is_needed=is_needed)

    def sent(self, place: Any) -> Sent:
        self.pace.on_granted(EACH, T0)
        waiting = Waiting(place[0], place[1], EACH, T0, Handed(b"v", None, -1, None, 0, None))
        return Sent(self.broker, place[1], [waiting], EACH, 1.0)

    def hand(self, place: Any, count: int = AT_ONCE, at_ms: int = T0) -> list[Handed]:
        found = []
        for _ in range(count):
            (message,) = self.sent(place).messages
            self.lines.add(place, self.broker, message, at_ms)
            found.append(message.payload)
        return found

    def arrive(self, every: list[Handed], now_ms: int) -> None:
        for handed in every:
            handed.report[None] = None  # type: ignore[assignment] # stands for a message
        for _, line in self.lines:
            list(line.reported(now_ms))


def test_behind_what_is_on_its_way_nothing_is_handed_over_until_that_has_arrived():
    world = World()
    first = world.hand(HERE)
    behind, other, later = world.sent(HERE), world.sent(THERE), world.sent(HERE)
    assert world.kept.due([behind, other], T0) == [other]
    assert world.kept
    assert world.kept.due([later], T0 + 10) == []
    world.arrive(first, T0 + 80)
    last = world.sent(HERE)
    assert world.kept.due([last], T0 + 80) == [behind, later, last], "in order"
    assert not world.kept


@pytest.mark.parametrize(("count", "is_needed"), [(AT_ONCE - 1, True), (AT_ONCE, False)])
def test_what_librdkafka_sends_at_once_is_not_kept(count, is_needed):
    world = World(is_needed=is_needed)
    world.hand(HERE, count)
    sent = world.sent(HERE)
    assert world.kept.due([sent], T0) == [sent]


def test_behind_a_broker_that_does_not_answer_librdkafka_has_it_all_the_same():
    world = World()
    world.hand(HERE)
    kept, later = world.sent(HERE), world.sent(HERE)
    assert world.kept.due([kept], T0) == []
    assert world.kept.due([], T0 + SILENCE_MS - 1) == []
    assert world.kept.due([later], T0 + SILENCE_MS) == [kept, later]


def test_a_clock_that_jumps_back_keeps_nothing_for_long():
    world = World()
    world.hand(HERE)
    assert world.kept.due([sent := world.sent(HERE)], T0) == []
    assert world.kept.due([], T0 - SILENCE_MS) == [sent]


def test_where_a_broker_has_requests_for_others_to_wait_for_nothing_is_kept():
    """What comes meanwhile leaves with what waits in librdkafka for one of its five requests: kept, it missed that."""
    world = World()
    for number in range(AT_ONCE):
        world.hand(("here", number))
    sent = world.sent(HERE)
    assert world.kept.due([sent], T0) == []
    world.hand(("here", AT_ONCE), 1)
    assert world.kept.due([], T0) == [sent]


def test_what_stays_behind_without_a_leader_has_nothing_kept():
    world = World()
    world.hand(HERE)
    world.lines.of(HERE).is_stray = True
    sent = world.sent(HERE)
    assert world.kept.due([sent], T0) == [sent]


def test_where_librdkafka_chooses_the_partition_nothing_is_kept_and_nothing_overtakes_what_is():
    world = World()
    world.hand(HERE)
    world.hand(ANYWHERE)
    world.hand(ELSEWHERE)
    kept, other = world.sent(HERE), world.sent(ELSEWHERE)
    assert world.kept.due([kept, other], T0) == []
    chosen, later = world.sent(ANYWHERE), world.sent(HERE)
    assert world.kept.due([chosen, later], T0) == [kept, chosen, later]
    assert world.kept.due([], T0, keeps=False) == [other]


def test_for_callers_who_are_to_hand_over_themselves_all_is_let_go():
    world = World()
    world.hand(HERE)
    kept, later = world.sent(HERE), world.sent(HERE)
    world.kept.due([kept], T0)
    assert world.kept.due([later], T0, keeps=False) == [kept, later]


class Learner:
    """A producer whose quota nobody tells, without its threads, and what librdkafka has of it."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        self.sender = Parts({"bootstrap.servers": "nobody", "quota.limit.source": "learned"}, self.clock).sender
        self.handed: list[Handed] = []
        self.pass_on(1)
        self.handed[0].report[None] = None  # type: ignore[assignment] # stands for a message
        self.pass_on(0)
        self.clock.sleep_ms(SURE_MS)
        self.pass_on(AT_ONCE)
        self.pass_on(1)
        assert len(self.handed) == 1 + AT_ONCE

    def pass_on(self, count: int) -> None:
        now_ms = self.clock.now_ms()
        self.sender._came += [
            Waiting("here", 0, EACH, now_ms, Handed(b"v", None, 0, None, 0, None)) for _ in range(count)
        ]
        self.sender._pass_on(self)  # type: ignore[arg-type] # what it needs of a producer

    def hand_to_librdkafka(self, _topic: str, _partition: int, handed: Handed) -> None:
        self.handed.append(handed)

    def begun_with_librdkafka(self) -> None:
        """Nothing polls here."""


def test_who_is_let_go_since_nobody_has_throttled_has_nothing_kept():
    """Of several partitions something was nearly always: callers went on waiting for the sender, for good."""
    learner = Learner()
    learner.sender.core._delivered_bytes = ENOUGH_BYTES
    learner.pass_on(0)
    assert len(learner.handed) == 2 + AT_ONCE
    assert learner.sender._opens()


def test_where_only_the_application_hears_of_answers_nothing_waits_for_them():
    """It may poll no more for a while: what was behind unanswered messages left a second later."""
    learner = Learner()
    learner.sender.outbox.is_mixed = True
    learner.pass_on(1)
    assert len(learner.handed) == 3 + AT_ONCE


def test_what_is_kept_is_purged_and_no_longer_counts_as_on_its_way():
    world = World()
    world.hand(HERE)
    kept = world.sent(HERE)
    world.kept.due([kept], T0)
    assert world.kept.purge(T0) == kept.messages
    assert not world.kept
    assert world.pace.outstanding == AT_ONCE * EACH


@pytest.mark.parametrize(("linger_ms", "is_needed"), [(0, False), (1, True), (20, True), (21, False)])
def test_what_does_not_linger_or_lingers_for_long_is_not_kept(linger_ms, is_needed):
    conf = {"bootstrap.servers": "nobody", "linger.ms": linger_ms, "producer_byte_rate": 50_000}
    sender = Parts(conf, ManualClock(T0)).sender
    assert sender._kept._is_needed is is_needed
