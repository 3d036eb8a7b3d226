"""What a consumer calls a stall, a slow join and a full buffer, just below, at and above the bounds."""

from collections.abc import Mapping

import pytest
from confluent_kafka import Message, TopicPartition

from kclient_quota.clients.consumer.joining import JoinWatch, is_request_throttle
from kclient_quota.clients.consumer.receiving.held import MOST_BYTES, MOST_MESSAGES, HeldMessages, ReceivedOffsets
from kclient_quota.clients.consumer.stall import Stall, StallWatch
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource


def refused(watch: StallWatch, now_ms: int, *, own_bytes: float = 0, limit: float | None = 1_000.0) -> None:
    watch.on_throttle(5_000, limit=limit, own_bytes=own_bytes, window_ms=11_000, least_window_ms=10_000, now_ms=now_ms)


def test_a_stall_is_told_once_with_the_quota_that_would_end_it() -> None:
    watch = StallWatch()
    refused(watch, 100)
    refused(watch, 200)
    assert watch.check(20_099) is None
    # a batch of 1,000 B/s x (11 s + 5 s), which a window of 10 s lets through at a tenth of it per second
    assert watch.check(20_100) == watch.stall == Stall(16_000, 1_680)
    assert watch.check(20_101) is None
    assert watch.on_messages()
    assert watch.stall is None
    assert not watch.on_messages()
    assert watch.check(99_999) is None


def test_one_refusal_is_enough_after_twenty_seconds() -> None:
    watch = StallWatch()
    refused(watch, 100)
    assert watch.check(20_099) is None
    assert watch.check(20_100) == Stall(16_000, 1_680)


def test_refusals_are_counted_anew_after_messages() -> None:
    watch = StallWatch()
    refused(watch, 0)
    watch.on_messages()
    refused(watch, 1_000)
    assert watch.check(20_999) is None
    refused(watch, 20_999)
    assert watch.check(21_000) == Stall(16_000, 1_680)


@pytest.mark.parametrize(("own_bytes", "stalls"), [(0, True), (550, True), (550.1, False), (11_000, False)])
def test_a_window_with_more_than_a_twentieth_of_its_bytes_is_no_stall(own_bytes: float, stalls: bool) -> None:
    watch = StallWatch()
    for _ in range(2):
        refused(watch, 0, own_bytes=own_bytes)
    assert (watch.check(60_000) is not None) == stalls


def test_without_a_limit_every_refusal_counts_and_no_sizes_are_told() -> None:
    watch = StallWatch()
    for _ in range(2):
        refused(watch, 0, own_bytes=1e9, limit=None)
    assert watch.check(3_000) == Stall(None, None)


def test_the_words_of_a_stall() -> None:
    known, unknown = Stall(16_000, 1_680), Stall(None, None)
    assert known.words(1_000.0).startswith(
        "stalled: the next batch, of about 16,000 bytes, can never be delivered under a quota of 1,000 B/s; "
        "raise consumer_byte_rate to 1,680 B/s or more"
    )
    unsure = "fetches are throttled though nothing was received: the next batch may be larger than quota x window"
    assert known.words(None) == unknown.words(1_000.0) == unknown.words(None) == unsure


@pytest.mark.parametrize(
    ("throttle_ms", "fetches", "percentage", "byte_rate", "found"),
    [
        (1_001, False, 5.0, None, False),  # longer than a window: a request quota never says so
        (1_000, True, None, 10.0, True),  # a window exactly is what a request quota says at most
        (999, True, None, 10.0, False),
        (999, True, 5.0, 10.0, False),
        (999, True, 5.0, None, True),  # no byte quota that it could be
        (999, True, None, None, False),
        (999, False, None, 10.0, True),  # who fetches nothing is throttled for requests
    ],
)
def test_a_throttle_of_a_request_quota_is_told_from_one_of_bytes(
    throttle_ms: int, fetches: bool, percentage: float | None, byte_rate: float | None, found: bool
) -> None:
    limit = Limit(byte_rate, percentage, LimitSource.LEARNED, window_ms=1_000)
    assert is_request_throttle(throttle_ms, limit, fetches=fetches) == found


def test_who_is_kept_from_its_group_for_five_seconds_is_told_once() -> None:
    watch, limit = JoinWatch("app"), Limit(None, 5.0, LimitSource.LEARNED)
    assert watch.check(limit, 99_999, fetches=False) is None
    watch.on_throttle(300, 1_000)
    watch.on_throttle(400, 2_000)
    assert watch.check(limit, 5_999, fetches=False) is None
    words = watch.check(limit, 6_000, fetches=False)
    assert words is not None
    assert "brokers have throttled 2 answers for 700 ms in all" in words
    assert watch.check(limit, 7_000, fetches=False) is None


def test_who_has_fetched_once_is_not_told() -> None:
    watch, limit = JoinWatch("app"), Limit(None, 5.0, LimitSource.LEARNED)
    watch.on_throttle(300, 0)
    assert watch.check(limit, 5_000, fetches=True) is None
    assert watch.check(limit, 9_000, fetches=False) is None


def message(partition: int, offset: int, size: int = 1) -> Message:
    return Message(topic="t", partition=partition, offset=offset, value=b"x" * size)


@pytest.mark.parametrize(
    ("count", "size", "full"),
    [
        (MOST_MESSAGES - 1, 1, False),
        (MOST_MESSAGES, 1, True),
        (8, MOST_BYTES // 8 - 1, False),
        (8, MOST_BYTES // 8, True),
    ],
)
def test_a_buffer_is_full_of_messages_or_of_bytes(count: int, size: int, full: bool) -> None:
    held = HeldMessages()
    held.add([message(0, offset, size) for offset in range(count)])
    assert held.full == full
    held.take(1)
    assert not held.full


def test_what_may_be_handed_over_one_by_one_is_found_anew_after_every_change() -> None:
    held = HeldMessages()
    for change in (
        lambda: held.add([message(0, 1), message(0, 2), message(0, 3), message(1, 1)]),
        lambda: held.put_back([message(0, 0)]),
        lambda: (held.take(1), held.forget_handed()),
        lambda: held.set_aside({("t", 1)}),
        lambda: held.bring_back({("t", 1)}),
        lambda: held.drop([TopicPartition("t", 5)]),
    ):
        held.ready = 7
        change()
        assert (held.first, held.ready) == (0, 0)
    assert [(each.partition(), each.offset()) for each in held.messages] == [(1, 1), (0, 1), (0, 2), (0, 3)]


def test_a_take_and_a_count_pass_over_what_is_paused() -> None:
    held = HeldMessages()
    held.add([message(0, 1), message(1, 1), message(1, 2), message(0, 2)])
    before = held.there
    held.set_aside({("t", 0)})
    assert (before, held.there) == (4, 2)
    assert [(each.partition(), each.offset()) for each in held.peek(1)] == [(1, 1)]
    assert [(each.partition(), each.offset()) for each in held.take(1)] == [(1, 1)]
    held.forget_handed()
    held.bring_back({("t", 0)})
    assert [(each.partition(), each.offset()) for each in held.messages] == [(0, 1), (0, 2), (1, 2)]
    assert held.next_offsets() == {("t", 0): 3, ("t", 1): 3}


def test_what_is_dropped_is_told_in_bytes() -> None:
    held = HeldMessages()
    held.add([message(0, 1, 10), message(1, 1, 20), message(0, 2, 30)])
    held.take(1)
    assert held.drop([TopicPartition("t", 0)]) == 30
    assert held.drop() == 20
    assert (held.drop(), len(held)) == (0, 0)


@pytest.mark.parametrize(
    ("partitions", "count", "size", "due"),
    [
        (0, 999, 0, False),
        (0, 1_000, 0, True),  # a hundred each of ten partitions, however few there are
        (10, 1_000, 0, True),
        (11, 1_099, 0, False),
        (11, 1_100, 0, True),
        (0, 8, 999_999, False),
        (0, 8, 1_000_000, True),
    ],
)
def test_what_was_received_is_looked_at_once_it_is_worth_it(partitions: int, count: int, size: int, due: bool) -> None:
    received = ReceivedOffsets()
    received.begin([TopicPartition("t", partition, 0) for partition in range(partitions)])
    received.note([message(0, 5, size)] * count)
    assert received.is_due == due
    received.replace([])
    assert not received.is_due


def test_counting_what_was_received_begins_at_nothing_after_each_look() -> None:
    for look in (ReceivedOffsets.offsets, ReceivedOffsets.forget, lambda one: one.replace([])):
        received = ReceivedOffsets()
        received.note([message(0, 5)] * 10)
        look(received)
        received.note([message(0, 5)] * 999)
        assert not received.is_due
        received.note([message(0, 5)])
        assert received.is_due


def test_what_is_no_bytes_counts_as_none() -> None:
    class Decoded:
        def value(self) -> Mapping[str, int]:
            return {"a": 1}

    received = ReceivedOffsets()
    received.note([Decoded()] * 999)  # type: ignore[list-item]
    assert received._bytes == 0
    assert not received.is_due


def test_a_position_that_librdkafka_does_not_know_is_taken_from_what_was_received() -> None:
    received = ReceivedOffsets()
    received.note([message(0, 5), message(1, 7)])
    received.replace([TopicPartition("t", 0, 0), TopicPartition("t", 1, -1001)])
    assert received.offsets() == {("t", 0): 0, ("t", 1): 8}
    received.begin([TopicPartition("t", 0, -1001), TopicPartition("t", 1, 0)])
    assert received.offsets() == {("t", 1): 0}
