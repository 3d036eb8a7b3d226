"""Until when an open transaction may be waited for, and what is said and done then."""

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kclient_quota.clients.transaction import Transaction
from kclient_quota.config import TransactionTimeout

CONF = {"transaction.timeout.ms": 20_000}


def test_one_that_is_waited_out_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    transaction = Transaction(CONF)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        for _ in range(2):
            transaction.begin(1_000)
            transaction.report()
            transaction.report()
    assert caplog.text.count("transaction.timeout.ms=20000") == 2
    assert not transaction.aborts


@pytest.mark.parametrize(
    ("timeout_ms", "margin_ms"), [(20_000, 5_000), (60_000, 5_000), (6_000, 3_000), ("8000", 4_000)]
)
def test_it_may_be_waited_for_until_an_abort_still_arrives_in_time(timeout_ms: object, margin_ms: int) -> None:
    transaction = Transaction({"transaction.timeout.ms": timeout_ms})
    assert transaction.last_ms is None
    assert not transaction.outlived_by(10**9)
    assert transaction.left_ms(0) == 0
    transaction.begin(1_000)
    end_ms = 1_000 + int(str(timeout_ms))
    assert transaction.last_ms == end_ms - margin_ms
    assert not transaction.outlived_by(end_ms - margin_ms)
    assert transaction.outlived_by(end_ms - margin_ms + 1)
    assert transaction.left_ms(end_ms - 700) == 700
    transaction.end()
    assert transaction.last_ms is None


def test_librdkafkas_default_where_none_is_given() -> None:
    transaction = Transaction({})
    transaction.begin(0)
    assert transaction.last_ms == 55_000


def test_an_abort_of_ours_leaves_the_applications_nothing_to_do_once() -> None:
    transaction = Transaction(CONF, TransactionTimeout.ABORT)
    assert transaction.aborts
    transaction.begin(0)
    assert not transaction.acknowledge()
    transaction.overdue = transaction.refuse(aborted=False)
    error = transaction.end_overdue()
    assert "it was aborted" in error.args[0].str()
    assert transaction.ended is error
    assert transaction.overdue is None
    assert transaction.last_ms is None
    assert transaction.acknowledge()
    assert not transaction.acknowledge()


def test_who_begins_anew_without_a_word_has_acknowledged_it() -> None:
    transaction = Transaction(CONF, TransactionTimeout.ABORT)
    transaction.end_overdue()
    transaction.begin(0)
    assert transaction.ended is None


@pytest.mark.parametrize(("aborted", "said"), [(True, "it was aborted"), (False, "abort it")])
def test_the_error_is_one_that_transactional_loops_know(aborted: bool, said: str) -> None:
    error = Transaction(CONF).refuse(aborted=aborted).args[0]
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
    transaction = Transaction(conf, TransactionTimeout.ABORT)
    assert transaction.with_message_timeout(conf) == conf | ({"message.timeout.ms": message_ms} if message_ms else {})
    assert not transaction.is_late(10**9)
    transaction.begin(1_000)
    assert transaction.is_late(1_000 + late_ms)
    assert not transaction.is_late(999 + late_ms) or late_ms == 0


@pytest.mark.parametrize(
    ("conf", "policy"), [({"transactional.id": "t"}, TransactionTimeout.REPORT), ({}, TransactionTimeout.ABORT)]
)
def test_other_producers_keep_their_time_out(conf: dict[str, Any], policy: TransactionTimeout) -> None:
    assert Transaction(conf, policy).with_message_timeout(conf) == conf


def test_it_is_never_late_where_it_is_only_reported() -> None:
    transaction = Transaction({"transactional.id": "t"})
    transaction.begin(0)
    assert not transaction.is_late(59_999)
