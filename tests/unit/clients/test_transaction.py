"""Until when an open transaction may be waited for, and what is said and done then."""

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.producer.caller.transacting import GRACE_MS, TransactingProducer
from kclient_quota.clients.producer.settings import transaction_of
from kclient_quota.clients.producer.transaction import NEXT, Event, State
from kclient_quota.config import TransactionTimeout
from kclient_quota.testing.clock import ManualClock

CONF = {"transaction.timeout.ms": 20_000}


def test_one_that_is_waited_out_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    transaction = transaction_of(CONF)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        for _ in range(2):
            transaction.on(Event.BEGIN, 1_000)
            transaction.report()
            transaction.report()
    assert caplog.text.count("transaction.timeout.ms=20000") == 2
    assert not transaction.aborts


@pytest.mark.parametrize(
    ("timeout_ms", "margin_ms"), [(20_000, 5_000), (60_000, 5_000), (6_000, 3_000), ("8000", 4_000)]
)
def test_it_may_be_waited_for_until_an_abort_still_arrives_in_time(timeout_ms: object, margin_ms: int) -> None:
    transaction = transaction_of({"transaction.timeout.ms": timeout_ms})
    assert transaction.last_ms is None
    assert not transaction.outlived_by(10**9)
    assert transaction.left_ms(0) == 0
    transaction.on(Event.BEGIN, 1_000)
    end_ms = 1_000 + int(str(timeout_ms))
    assert transaction.last_ms == end_ms - margin_ms
    assert not transaction.outlived_by(end_ms - margin_ms)
    assert transaction.outlived_by(end_ms - margin_ms + 1)
    assert transaction.left_ms(end_ms - 700) == 700
    transaction.on(Event.COMMIT)
    assert transaction.last_ms is None


def test_librdkafkas_default_where_none_is_given() -> None:
    transaction = transaction_of({})
    transaction.on(Event.BEGIN, 0)
    assert transaction.last_ms == 55_000


def test_an_abort_of_ours_leaves_the_applications_nothing_to_do_once() -> None:
    transaction = transaction_of(CONF, TransactionTimeout.ABORT)
    assert transaction.aborts
    transaction.on(Event.BEGIN, 0)
    error = transaction.expire()
    assert "it was aborted" in error.args[0].str()
    assert transaction.ended is error
    assert transaction.last_ms is None
    transaction.on(Event.ABORT)
    assert transaction.ended is None


def test_who_begins_anew_without_a_word_has_acknowledged_it() -> None:
    transaction = transaction_of(CONF, TransactionTimeout.ABORT)
    transaction.on(Event.BEGIN, 0)
    transaction.expire()
    transaction.on(Event.BEGIN, 0)
    assert transaction.ended is None
    assert transaction.is_open


def test_every_event_means_something_in_every_state() -> None:
    assert set(NEXT) == {(state, event) for state in State for event in Event}
    assert {event for (_, event), after in NEXT.items() if after is State.OPEN} == {Event.BEGIN, Event.MISS}


@pytest.mark.parametrize("end", [Event.COMMIT, Event.ABORT, Event.BEGIN])
def test_what_waited_in_a_transaction_goes_into_no_other_one(end: Event) -> None:
    transaction = transaction_of(CONF)
    transaction.on(Event.BEGIN, 0)
    era = transaction.open_era
    transaction.insist(era)
    transaction.on(end, 0)
    with pytest.raises(KafkaException, match="while this call waited") as caught:
        transaction.insist(era)
    assert caught.value.args[0].txn_requires_abort()
    assert (transaction.ended is caught.value) is (end is not Event.BEGIN)


@pytest.mark.parametrize(("aborted", "said"), [(True, "it was aborted"), (False, "abort it")])
def test_the_error_is_one_that_transactional_loops_know(aborted: bool, said: str) -> None:
    error = transaction_of(CONF).refuse(aborted=aborted).args[0]
    assert error.txn_requires_abort()
    assert not error.fatal()
    assert not error.retriable()
    assert error.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
    assert said in error.str()
    assert "transaction.timeout.ms=20000" in error.str()


@pytest.mark.parametrize(
    ("given", "message_ms", "late_ms"),
    [({}, 20_000, 35_000), ({"delivery.timeout.ms": "30000"}, None, 25_000), ({"message.timeout.ms": 0}, None, 0)],
)
def test_where_it_is_to_be_aborted_messages_time_out_while_an_abort_can_still_wait_for_that(
    given: dict[str, Any], message_ms: int | None, late_ms: int
) -> None:
    conf = {"transactional.id": "t", **given}
    transaction = transaction_of(conf, TransactionTimeout.ABORT)
    assert transaction.with_message_timeout(conf) == conf | ({"message.timeout.ms": message_ms} if message_ms else {})
    assert not transaction.is_late(10**9)
    transaction.on(Event.BEGIN, 1_000)
    assert transaction.is_late(1_000 + late_ms)
    assert not transaction.is_late(999 + late_ms) or late_ms == 0


@pytest.mark.parametrize(
    ("conf", "policy"), [({"transactional.id": "t"}, TransactionTimeout.REPORT), ({}, TransactionTimeout.ABORT)]
)
def test_other_producers_keep_their_time_out(conf: dict[str, Any], policy: TransactionTimeout) -> None:
    assert transaction_of(conf, policy).with_message_timeout(conf) == conf


def test_it_is_never_late_where_it_is_only_reported() -> None:
    transaction = transaction_of({"transactional.id": "t"})
    transaction.on(Event.BEGIN, 0)
    assert not transaction.is_late(59_999)


class Coordinator:
    """Answers a call after a while."""

    def __init__(self, clock: ManualClock, after_ms: int) -> None:
        self._clock, self._at_ms = clock, clock.now_ms() + after_ms

    def wait(self, timeout_s: float) -> bool:
        self._clock.sleep_ms(max(1, round(timeout_s * 1000)))
        return self._clock.now_ms() >= self._at_ms


@pytest.mark.parametrize(
    ("timeout_ms", "most_ms"), [(30_000, 30_000), (1_000, 1_000), (None, 20_000)], ids=["long", "short", "none given"]
)
def test_offsets_are_waited_for_as_long_as_the_caller_says_however_long_ago_it_was_begun(
    timeout_ms: int | None, most_ms: int
) -> None:
    """A broker's time begins with the first partition: who polled an idle topic for long is not late."""
    waited = []
    for after_ms in (most_ms - 100, most_ms + GRACE_MS + 1_000):
        clock = ManualClock()
        producer: Any = type("P", (), {"_kq_clock": clock, "_kq_heartbeat": None, "_kq_sending_offsets": None})()
        producer._kq_transaction = transaction_of(CONF)
        producer._kq_transaction.on(Event.BEGIN, clock.now_ms())
        clock.sleep_ms(61_000)
        deadline_ms = None if timeout_ms is None else clock.now_ms() + timeout_ms
        coordinator: Any = Coordinator(clock, after_ms)
        waited.append(TransactingProducer._kq_await_offsets(producer, deadline_ms, coordinator))
    assert waited == [True, False]


def test_while_one_is_being_ended_other_threads_messages_are_refused() -> None:
    transaction = transaction_of(CONF)
    mine, other = 1, 2
    with pytest.raises(KafkaException, match="Unable to produce message: Local: Erroneous state"):
        transaction.insist_on_taking(mine)  # none is open
    transaction.on(Event.BEGIN, 1_000)
    transaction.insist_on_taking(other)
    transaction.ending.add(mine)
    transaction.insist_on_taking(mine)
    with pytest.raises(KafkaException, match="Erroneous state"):
        transaction.insist_on_taking(other)
    transaction.ending.discard(mine)
    transaction.insist_on_taking(other)
