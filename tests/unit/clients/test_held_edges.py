"""What is held and what was received, to the message, the byte and the offset."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Message, TopicPartition

from kclient_quota.clients.consumer.receiving.held import (
    MOST_BYTES,
    MOST_MESSAGES,
    HeldMessages,
    ReceivedOffsets,
    key_of,
)
from kclient_quota.clients.librdkafka.messages import partition_of


def message(partition: int, offset: int, size: int = 1, **more: Any) -> Message:
    return Message(topic="t", partition=partition, offset=offset, value=b"x" * size, **more)


class Event:
    """What is neither of a topic nor of a partition, unless it says so."""

    def __init__(self, topic: str | None = None, partition: int | None = None) -> None:
        self.of = topic, partition

    def topic(self) -> str | None:
        return self.of[0]

    def partition(self) -> int | None:
        return self.of[1]


def offsets(held: HeldMessages) -> list[tuple[int | None, int | None]]:
    return [(each.partition(), each.offset()) for each in held.messages[held.first :]]


def test_the_bounds_of_a_buffer_and_of_what_is_noted() -> None:
    assert (MOST_MESSAGES, MOST_BYTES) == (1_000, 8_000_000)
    assert (ReceivedOffsets.MOST_MESSAGES_PER_PARTITION, ReceivedOffsets.MOST_BYTES) == (100, 8_000_000)


def test_where_a_message_is_from() -> None:
    for event, found in (
        (Event(), ("", -1)),
        (Event("t"), ("t", -1)),
        (Event(partition=0), ("", 0)),
        (Event("t", 3), ("t", 3)),
    ):
        assert partition_of(event) == found  # type: ignore[arg-type]
    assert key_of(TopicPartition("t", 3, 70)) == ("t", 3)


# What is held


def test_full_is_only_what_has_not_been_handed_over() -> None:
    held = HeldMessages()
    held.add([message(0, 0, MOST_BYTES)])
    full = [held.full]
    held.take(1)
    held.add([message(0, 1, MOST_BYTES - 1)])
    full.append(held.full)
    for _ in range(2):
        held.put_back([message(0, 0, 1)])
        full.append(held.full)
    assert full == [True, False, True, True]


def test_what_is_taken_goes_in_order_and_no_further_than_there_is() -> None:
    held = HeldMessages()
    assert (held.first, held.ready, len(held)) == (0, 0, 0)
    held.add([message(0, number) for number in range(5)])
    assert [each.offset() for each in held.take(0)] == []
    assert [each.offset() for each in held.take(2)] == [0, 1]
    assert (held.first, len(held), len(held.messages)) == (2, 3, 5)
    assert [each.offset() for each in held.peek(1)] == [2]
    assert [each.offset() for each in held.take(1)] == [2]
    held.forget_handed()
    assert (held.first, len(held), len(held.messages)) == (0, 2, 2)
    assert [each.offset() for each in held.take(9)] == [3, 4]
    assert (held.first, held.there, held.take(1)) == (2, 0, [])


@pytest.mark.parametrize("count", [0, 1, 299, 300, 301, 999])
def test_as_many_are_taken_as_wanted_where_some_are_passed_over(count: int) -> None:
    held = HeldMessages()
    held.add([message(number % 2, number) for number in range(600)])
    held.set_aside({("t", 1)})
    assert [each.offset() for each in held.take(count)] == list(range(0, 600, 2))[:count]
    assert len(held) == 600 - min(count, 300)


def test_what_was_handed_over_is_neither_counted_nor_shown_nor_put_before_others() -> None:
    held = HeldMessages()
    held.add([message(0, 0), message(0, 1), message(1, 2)])
    held.take(1)
    counts = []
    for partition in (5, 0):
        held.set_aside({("t", partition)})
        counts.append(held.there)
    assert counts == [2, 1]
    held.bring_back({("t", 0)})
    assert held.first_offsets() == {("t", 0): (1, None), ("t", 1): (2, None)}
    assert held.next_offsets() == {("t", 0): 2, ("t", 1): 3}
    held.put_back([message(0, 0)])
    assert offsets(held) == [(0, 0), (0, 1), (1, 2)]
    held.take(2)
    held.set_aside({("t", 5)})
    assert [each.offset() for each in held.take(9)] == [2]
    held.forget_handed()
    assert held.messages == []


def test_of_one_that_has_no_offset_nothing_is_known() -> None:
    held = HeldMessages()
    held.add([message(0, 0, leader_epoch=4), message(1, OFFSET_INVALID)])
    assert held.first_offsets() == {("t", 0): (0, 4)}
    assert held.next_offsets() == {("t", 0): 1}
    received = ReceivedOffsets()
    received.note([message(0, 0), message(1, OFFSET_INVALID)])
    assert received.offsets() == {("t", 0): 1}


def test_what_is_gone_is_told_and_a_buffer_that_takes_nothing_stays_ready() -> None:
    held = HeldMessages()
    held.add([message(2, 0)])
    held.ready = 1
    held.gone = {("t", 0), ("t", 9)}
    assert held.add_unless_gone([message(0, 1), message(0, 2)]) == {("t", 0)}
    assert (held.ready, offsets(held)) == (1, [(2, 0)])
    assert held.add_unless_gone([message(1, 1)]) == set()
    assert (held.ready, offsets(held)) == (0, [(2, 0), (1, 1)])
    assert held.gone == {("t", 0), ("t", 9)}


# What was received


def position(partition: int, offset: int) -> TopicPartition:
    return TopicPartition("t", partition, offset)


@pytest.mark.parametrize(
    ("found", "known"),
    [
        ([position(0, 0)], {0: 0}),  # librdkafka knows all, so that nothing that was noted is looked at
        ([position(0, 3)], {0: 3}),
        ([position(0, 3), position(1, -1)], {0: 3, 1: 8}),
        ([position(0, -1)], {0: 6, 1: 8}),
        ([position(0, -1001), position(1, 0)], {0: 6, 1: 0}),
        ([], {}),
    ],
)
def test_librdkafkas_positions_are_taken_where_it_knows_them_all(
    found: list[TopicPartition], known: dict[int, int]
) -> None:
    received = ReceivedOffsets()
    received.note([message(0, 5), message(1, 7)])
    received.replace(found)
    assert received.offsets() == {("t", partition): offset for partition, offset in known.items()}


@pytest.mark.parametrize(
    "look",
    [ReceivedOffsets.offsets, ReceivedOffsets.forget, lambda one: one.replace([]), lambda one: one.begin([])],
    ids=["offsets", "forget", "replace", "begin"],
)
def test_bytes_are_counted_from_nothing_at_first_and_after_each_look(look: Callable[[ReceivedOffsets], Any]) -> None:
    received = ReceivedOffsets()
    for _ in range(2):
        due = []
        for batch in ([message(0, 5, 3_999_999), message(0, 6, 1)], [message(0, 7, 1)], [message(0, 8, 1)]):
            received.note(batch)
            due.append(received.is_due)
        assert due == [False, False, True]
        look(received)


def test_the_first_message_of_several_stands_for_the_length_of_all() -> None:
    received = ReceivedOffsets()
    received.note([message(0, number, 2_000_000 if number else 1) for number in range(9)])
    due = [received.is_due]
    received.note([message(0, number, 1 if number else 1_000_000) for number in range(8)])
    assert [*due, received.is_due] == [False, True]


def test_what_is_noted_last_counts_and_twice_does_no_harm() -> None:
    received = ReceivedOffsets()
    batch = [message(0, 5), message(0, 6), message(1, 3)]
    received.note(batch)
    received.note(batch)
    assert received.offsets() == {("t", 0): 7, ("t", 1): 4}
    received.note([message(0, 2)])  # it was sought back
    assert received.offsets() == {("t", 0): 3, ("t", 1): 4}


def test_what_begins_anew_is_read_from_there_and_what_is_not_said_is_forgotten() -> None:
    received = ReceivedOffsets()
    received.note([message(0, 5), message(1, 7), message(2, 9)])
    received.begin([position(0, 0), position(1, -1), position(3, -1001)])
    assert received.offsets() == {("t", 0): 0, ("t", 2): 10}
    received.note([message(1, 1)])
    received.forget()
    assert received.offsets() == {}
