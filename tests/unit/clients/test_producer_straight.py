"""What librdkafka is given by callers themselves, and who serves it when nobody polls."""

import threading
from typing import Any

import pytest
from confluent_kafka import Message

from kclient_quota import Producer
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer import producer as producer_module
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.sender.lines import PartitionLines
from kclient_quota.clients.producer.sender.straight import MANY, RUSH_MS, SELDOM, SPAN_MS, Straight
from kclient_quota.config import LimitSource
from tests.unit.clients.producer_world import core_of

LARGE = Limit(20_000_000, None, LimitSource.CLUSTER, "{client-id=app}")
T0 = 1_000_000


def opened() -> Outbox:
    outbox = Outbox()
    outbox.is_watched, outbox.is_open = False, True
    return outbox


class Librdkafka:
    """Has so many messages and events."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.served = 0

    def with_librdkafka(self) -> int:
        return self.count

    def serve_librdkafka(self, _timeout_s: float) -> int:
        self.served += 1
        return 0


@pytest.mark.parametrize(("count", "is_mixed", "served"), [(MANY, False, 0), (MANY + 1, False, 1), (MANY + 1, True, 0)])
def test_events_that_nobody_polls_for_are_heard_of_where_no_callback_of_the_application_s_can_be_called(
    count: int, is_mixed: bool, served: int
) -> None:
    outbox, librdkafka = opened(), Librdkafka(count)
    outbox.is_mixed = is_mixed
    Straight(outbox, core_of(LARGE), PartitionLines()).serve_what_nobody_polls_for(librdkafka)  # type: ignore[arg-type]
    assert librdkafka.served == served


def test_what_comes_seldom_is_reported_in_the_application_s_own_calls_whoever_serves_librdkafka() -> None:
    outbox, heard = opened(), []
    straight = Straight(outbox, core_of(LARGE), PartitionLines())
    message = Message(topic="orders", partition=0)
    told: Any = straight.reported(lambda *report: heard.append(report), is_seen=False)
    told(None, message)
    assert heard == [(None, message)], "in the application's own call"
    outbox.sender = threading.get_ident()
    told(None, message)
    silent: Any = straight.reported(None, is_seen=False)
    silent(None, message)
    assert len(heard) == 1
    assert (len(outbox.reports), len(outbox.silent)) == (1, 1)
    outbox.sender = 0
    assert outbox.serve() == 2
    assert heard == [(None, message)] * 2
    silent(None, message)
    assert not outbox.silent
    assert not outbox.is_mixed


@pytest.mark.parametrize("is_seen", [False, True])
def test_who_comes_often_and_whom_an_agent_looks_at_gives_librdkafka_his_own(is_seen: bool) -> None:
    outbox = opened()
    straight = Straight(outbox, core_of(LARGE), PartitionLines())
    for _ in range(0 if is_seen else SELDOM):
        assert straight.reported(print, is_seen=False) is not print
    assert outbox.bars
    assert straight.reported(print, is_seen=is_seen) is print
    assert not outbox.bars
    assert outbox.is_mixed


def test_librdkafka_may_be_served_again_once_it_has_nothing_left() -> None:
    outbox = opened()
    straight = Straight(outbox, core_of(LARGE), PartitionLines())
    outbox.end_lull()
    assert outbox.is_polled_straight
    straight.note_left(0)
    assert outbox.is_mixed, "there may be one more by now"
    straight.begin_lull()
    assert not outbox.is_polled_straight, "a poll looks what is left"
    straight.note_left(1)
    assert outbox.is_mixed
    straight.note_left(0)
    assert not outbox.is_mixed
    assert outbox.is_polled_straight


def given(straight: Straight, outbox: Outbox, now_ms: int) -> bool:
    straight.give(now_ms, may=True)
    return outbox.is_spare


def test_under_a_large_quota_only_a_rush_goes_straight() -> None:
    outbox, core = Outbox(), core_of(LARGE)
    straight = Straight(outbox, core, PartitionLines())
    assert not given(straight, outbox, T0)
    now_ms = T0 + 60_000  # nobody else has wanted any of the quota
    assert not given(straight, outbox, now_ms)
    outbox.accepted += SELDOM
    assert not given(straight, outbox, now_ms + 1)
    outbox.accepted += 1
    assert given(straight, outbox, now_ms + 2)
    assert given(straight, outbox, now_ms + 1_000)
    outbox.is_mixed = True
    outbox.spare -= 10  # by a caller
    assert given(straight, outbox, now_ms + 1_900)
    assert given(straight, outbox, now_ms + 1_900 + RUSH_MS - 1)
    assert not given(straight, outbox, now_ms + 1_900 + RUSH_MS)
    assert not core._spare.is_due, "nobody is made to wait for it"


def test_as_many_in_a_longer_time_are_none() -> None:
    outbox = Outbox()
    straight = Straight(outbox, core_of(LARGE), PartitionLines())
    for second in range(60):
        outbox.accepted += SELDOM
        assert not given(straight, outbox, T0 + second * SPAN_MS)


def test_a_clock_that_jumps_back_ends_a_rush() -> None:
    outbox = Outbox()
    straight = Straight(outbox, core_of(LARGE), PartitionLines())
    given(straight, outbox, T0)
    outbox.accepted += SELDOM + 1
    assert given(straight, outbox, T0 + 60_000)
    assert not given(straight, outbox, T0)


def test_what_callers_say_before_they_hand_over_and_afterwards_is_not_forgotten_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer(conf) as producer:
        outbox, said = producer._kq_outbox, []

        def hand_over(*_args: object) -> None:
            said.append(outbox.is_mixed)
            producer._kq_sender.straight.note_left(0)  # as another thread does just then
            said.append(outbox.is_mixed)

        monkeypatch.setattr(producer_module, "PRODUCE_IN_C", hand_over)
        outbox.is_spare, outbox.spare, outbox.is_watched = True, 10_000.0, False
        producer.produce("orders", b"x")
        assert [*said, outbox.is_mixed] == [True, False, True]
