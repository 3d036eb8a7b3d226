"""What callers hand over themselves is told of after what the sender handed over before, partition by partition."""

from collections import deque
from typing import Any

import pytest
from confluent_kafka import Message

from kclient_quota import Producer
from kclient_quota.clients.producer.outbox import Handed, Outbox
from kclient_quota.clients.producer.sender.straight import SELDOM
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Waiting
from tests.unit.clients.producer_world import LIMITED, core_of, sender_of

T0 = 1_000_000


class World:
    """A sender's messages and those of callers, which librdkafka reports one by one."""

    def __init__(self) -> None:
        self.core, self.told = core_of(LIMITED), []
        self.sender = sender_of(self.core)
        self.outbox, self.lines, self.straight = self.sender.outbox, self.sender._lines, self.sender.straight
        self.outbox.is_watched, self.outbox.is_open, self.outbox.is_running = False, True, True

    def tell(self, _error: object, message: Any) -> None:
        self.told.append(message.value())

    def of_sender(self, partition: int, value: bytes, *, placed: int | None = None) -> Any:
        """Hand one over; returns what librdkafka calls."""
        handed = Handed(value, None, -1, self.tell, 0, None)
        place = "orders", partition if placed is None else placed
        self.lines.add(place, self.core.brokers.get(-1), Waiting(*place, 1, T0, handed), T0)
        self.outbox.in_flight += 1
        return lambda: handed.report.update({None: message_of(partition, value)})

    def of_caller(self, partition: int, value: bytes) -> Any:
        call: Any = self.straight.reported(self.tell, is_seen=False)
        return lambda: call(None, message_of(partition, value))

    def step(self) -> None:
        """What the sender does with reports."""
        self.sender._collect(T0)

    def poll(self) -> list[bytes]:
        self.outbox.serve()
        told, self.told = self.told, []
        return told


def message_of(partition: int, value: bytes) -> Message:
    return Message(topic="orders", partition=partition, value=value)


def test_they_wait_for_what_was_handed_over_before_and_is_not_told_of() -> None:
    world = World()
    before, after = world.of_sender(0, b"1"), world.of_caller(0, b"2")
    before()
    after()
    assert world.poll() == [], "the sender has not looked"
    assert world.straight.is_late
    world.step()
    assert world.poll() == [b"1", b"2"]
    assert not world.straight.is_late


def test_they_do_not_wait_for_what_the_sender_has_handed_over_later() -> None:
    world = World()
    before, after = world.of_caller(0, b"1"), world.of_sender(0, b"2")
    before()
    after()
    assert world.poll() == [b"1"]
    world.step()
    assert world.poll() == [b"2"]


def test_nor_for_another_partition_s_which_may_have_no_leader() -> None:
    world = World()
    world.of_sender(1, b"never")
    world.of_caller(0, b"1")()
    assert world.poll() == [b"1"]


@pytest.mark.parametrize("partition", [0, 1])
def test_but_for_one_that_librdkafka_has_chosen_a_partition_for(partition: int) -> None:
    world = World()
    before = world.of_sender(partition, b"1", placed=ANY_PARTITION)
    world.of_caller(0, b"2")()
    world.step()
    assert world.poll() == []
    before()
    world.step()
    assert world.poll() == [b"1", b"2"]


def test_unless_that_has_no_leader_for_minutes() -> None:
    world = World()
    world.of_sender(1, b"never", placed=ANY_PARTITION)
    world.lines.of(("orders", ANY_PARTITION)).strays = 1
    world.of_caller(0, b"1")()
    assert world.poll() == [b"1"]


def test_none_passes_one_that_waits_or_is_about_to_be_told_of() -> None:
    world = World()
    before = world.of_sender(0, b"1")
    world.of_caller(0, b"2")()
    before()
    world.of_caller(0, b"3")()
    world.step()
    world.of_caller(0, b"4")()
    assert world.poll() == [b"1", b"2", b"3", b"4"]
    world.of_caller(0, b"5")()
    assert world.poll() == [b"5"]


def test_what_is_reported_while_the_sender_looks_keeps_its_place() -> None:
    world = World()
    first, second = world.of_sender(0, b"1"), world.of_sender(0, b"2")
    caller = world.of_caller(0, b"3")
    first()
    world.step()
    second()
    caller()
    world.straight.report_late()  # it has looked at its own before the second was reported
    assert world.poll() == [b"1"]
    world.step()
    assert world.poll() == [b"2", b"3"]


def test_between_two_of_the_sender_s_they_come_where_they_were_handed_over() -> None:
    world = World()
    reports = world.of_sender(0, b"1"), world.of_caller(0, b"2"), world.of_sender(0, b"3"), world.of_caller(0, b"4")
    for report in reports:
        report()
    world.step()
    assert world.poll() == [b"1", b"2", b"3", b"4"]


def test_a_sender_is_woken_for_one_that_comes_when_it_has_ended() -> None:
    world, started = World(), []
    world.of_sender(0, b"1")
    world.outbox.is_running, world.outbox.start = False, lambda: started.append(1)
    world.of_caller(0, b"2")()
    assert started


def test_callers_callbacks_pass_by_here_until_nothing_of_before_is_to_be_told() -> None:
    """And librdkafka is polled by them alone meanwhile: two threads would have the parts of a batch in turns."""
    world = World()
    before = world.of_sender(0, b"1")
    for _ in range(2 * SELDOM):
        assert world.straight.reported(print, is_seen=False) is not print
    assert world.outbox.is_mixed
    before()
    world.step()
    world.poll()
    assert world.straight.reported(print, is_seen=False) is print


def test_of_what_is_to_spare_none_goes_past_us_while_something_of_before_is_to_be_told() -> None:
    world = World()
    before = world.of_sender(0, b"1")
    world.straight.give(T0, may=True)
    assert "late" in world.outbox.spare_bars
    assert world.straight.in_order(print) is not print
    assert world.straight.in_order(None) is None
    before()
    world.step()
    world.straight.give(T0, may=True)
    assert "late" in world.outbox.spare_bars, "it waits to be polled for"
    world.poll()
    world.straight.give(T0, may=True)
    assert "late" not in world.outbox.spare_bars
    assert world.straight.in_order(print) is print


def test_what_librdkafka_calls_past_us_comes_after_what_it_has_called_here_just_before() -> None:
    """Where messages come in rushes, all but the first of those that come while nothing limits."""
    world = World()
    through_us = world.of_caller(0, b"1")
    other = world.of_sender(1, b"other")
    other()
    world.step()
    through_us()
    world.tell(None, message_of(0, b"2"))
    assert world.poll() == [b"other", b"1", b"2"]


def test_none_waits_for_another_partition_s_that_waits() -> None:
    world = World()
    through_us = world.of_caller(0, b"1")
    world.of_sender(1, b"never")
    world.of_caller(1, b"waits")()
    through_us()
    assert world.poll() == [b"1"]


def test_and_after_what_it_had_librdkafka_choose_a_partition_for() -> None:
    world = World()
    calls = world.of_sender(0, b"1", placed=ANY_PARTITION), world.of_sender(1, b"2", placed=ANY_PARTITION)
    world.of_sender(1, b"3")()
    calls[1]()
    world.step()
    assert world.poll() == []
    calls[0]()
    world.step()
    assert world.poll() == [b"1", b"2", b"3"]


def test_nothing_goes_past_us_while_what_the_sender_has_reported_is_not_told_of() -> None:
    """Nor is a producer that nobody polls ever emptied for that."""
    world = World()
    world.of_sender(0, b"1")()
    world.step()
    for _ in range(2 * SELDOM):
        assert world.straight.reported(print, is_seen=False) is not print
    assert world.outbox.is_mixed
    world.poll()
    assert world.straight.reported(print, is_seen=False) is print


def test_a_sender_that_has_looked_just_before_looks_again() -> None:
    world = World()
    world.of_sender(0, b"1")
    world.of_caller(0, b"2")()
    assert not world.outbox.inbox.empty()


def test_at_the_end_all_are_told_of() -> None:
    world = World()
    world.of_sender(0, b"never")
    world.of_caller(0, b"1")()
    world.straight.report_late(all_of_them=True)
    assert world.poll() == [b"1"]


def test_what_is_told_of_while_messages_are_counted_is_not_missed() -> None:
    """Or `flush()` would return 0 before its callback is called."""
    outbox, lates = Outbox(), deque([(print, None, message_of(0, b"1"))])

    class Moved(dict[Any, Any]):
        def values(self) -> Any:
            outbox.reports.extend(lates)
            lates.clear()
            return super().values()

    outbox.late = Moved({("orders", 0): lates})
    producer = Producer.__new__(Producer)
    object.__setattr__(producer, "_kq_outbox", outbox)
    assert len(producer) == 1
