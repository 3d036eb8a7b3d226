"""Transactions in virtual time, against the rules of Kafka's TransactionCoordinator, and the index of a log."""

from itertools import count

import pytest

from kclient_quota.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from kclient_quota.broker.transactions.transaction_coordinator import (
    LAST_EPOCH,
    VALID_PREVIOUS_STATES,
    Ending,
    Initialized,
    Transaction,
    TransactionCoordinator,
    TransactionState,
)
from kclient_quota.wire.batches import TRANSACTIONAL, parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import ABORT, COMMIT, Record, build_batch, control_batch

TIMEOUT_MS = 60_000
ID = "x"


@pytest.fixture
def coordinator():
    ids = count(100)
    return TransactionCoordinator(lambda: next(ids), 900_000)


def ongoing(coordinator, now_ms=0):
    producer = coordinator.initialize(ID, TIMEOUT_MS)
    added = coordinator.add(ID, producer.producer_id, producer.producer_epoch, now_ms, partitions=[("t", 0)])
    assert added is ErrorCode.NONE
    return producer.producer_id, producer.producer_epoch


@pytest.mark.parametrize("source", list(TransactionState))
@pytest.mark.parametrize("target", list(TransactionState))
def test_only_the_transitions_of_the_table_are_taken(source, target):
    transaction = Transaction(ID, 1, 1, state=source)
    if source in VALID_PREVIOUS_STATES[target]:
        transaction.transition_to(target)
        assert transaction.state is target
    else:
        with pytest.raises(ValueError, match="may not become"):
            transaction.transition_to(target)


def test_each_initialization_raises_the_epoch(coordinator):
    answers = [coordinator.initialize(ID, TIMEOUT_MS) for _ in range(3)]
    assert answers == [Initialized(ErrorCode.NONE, 100, epoch) for epoch in range(3)]
    assert coordinator.initialize("y", TIMEOUT_MS) == Initialized(ErrorCode.NONE, 101, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds(coordinator, timeout_ms):
    assert coordinator.initialize(ID, timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert coordinator.initialize("", TIMEOUT_MS).error is ErrorCode.INVALID_REQUEST


def test_a_producer_may_ask_for_its_own_next_epoch_and_repeat_the_question(coordinator):
    coordinator.initialize(ID, TIMEOUT_MS)
    assert coordinator.initialize(ID, TIMEOUT_MS, (100, 0)).producer_epoch == 1
    assert coordinator.initialize(ID, TIMEOUT_MS, (100, 0)).producer_epoch == 1
    assert coordinator.initialize(ID, TIMEOUT_MS, (100, 1)).producer_epoch == 2
    assert coordinator.initialize(ID, TIMEOUT_MS, (100, 0)).error is ErrorCode.PRODUCER_FENCED
    assert coordinator.initialize(ID, TIMEOUT_MS, (7, 2)).error is ErrorCode.PRODUCER_FENCED
    coordinator.initialize(ID, TIMEOUT_MS)
    assert coordinator.initialize(ID, TIMEOUT_MS, (100, 2)).error is ErrorCode.PRODUCER_FENCED


def test_epochs_that_are_used_up_bring_a_new_producer_id(coordinator):
    coordinator.initialize(ID, TIMEOUT_MS)
    coordinator.transactions[ID].producer_epoch = LAST_EPOCH
    assert coordinator.initialize(ID, TIMEOUT_MS) == Initialized(ErrorCode.NONE, 101, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_from_begin_to_end(coordinator, is_commit):
    producer = ongoing(coordinator)
    assert coordinator.add(ID, *producer, 5, partitions=[("t", 1)], groups=["g"]) is ErrorCode.NONE
    assert coordinator.has_partition(ID, ("t", 1))
    assert coordinator.has_group(ID, "g")
    ending = coordinator.end(ID, *producer, is_commit=is_commit)
    assert ending == Ending(ID, *producer, is_commit, frozenset({("t", 0), ("t", 1)}), frozenset({"g"}))
    assert coordinator.end(ID, *producer, is_commit=is_commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.initialize(ID, TIMEOUT_MS).error is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.complete(ID)
    assert coordinator.end(ID, *producer, is_commit=is_commit) is ErrorCode.NONE, "a repetition"
    assert coordinator.end(ID, *producer, is_commit=not is_commit) is ErrorCode.INVALID_TXN_STATE
    assert not coordinator.has_partition(ID, ("t", 0))
    assert coordinator.next_deadline_ms() is None


def test_who_may_not_act(coordinator):
    producer_id, epoch = ongoing(coordinator)
    assert coordinator.check("nobody", producer_id, epoch) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.check(ID, producer_id + 1, epoch) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.check(ID, producer_id, epoch + 1) is ErrorCode.PRODUCER_FENCED
    assert coordinator.check("", producer_id, epoch) is ErrorCode.INVALID_REQUEST
    assert coordinator.end("nobody", 1, 0, is_commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.add("nobody", 1, 0, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_nothing_to_end(coordinator):
    producer = coordinator.initialize(ID, TIMEOUT_MS)
    answer = coordinator.end(ID, producer.producer_id, producer.producer_epoch, is_commit=True)
    assert answer is ErrorCode.INVALID_TXN_STATE


def test_a_new_producer_aborts_what_the_former_left_open_and_fences_it(coordinator):
    producer_id, epoch = ongoing(coordinator)
    ending = coordinator.fence(ID)
    assert (ending.producer_epoch, ending.is_commit) == (epoch + 1, False)
    coordinator.complete(ID)
    assert coordinator.initialize(ID, TIMEOUT_MS).producer_epoch == epoch + 2
    assert coordinator.end(ID, producer_id, epoch, is_commit=True) is ErrorCode.PRODUCER_FENCED
    assert coordinator.fence(ID) is None
    assert coordinator.fence("nobody") is None


def test_a_transaction_that_takes_too_long_is_aborted(coordinator):
    producer_id, epoch = ongoing(coordinator, now_ms=1_000)
    coordinator.add(ID, producer_id, epoch, 50_000, partitions=[("t", 1)])
    assert coordinator.next_deadline_ms() == 61_000, "counted from its beginning"
    assert coordinator.expired(60_999) == []
    (ending,) = coordinator.expired(61_000)
    assert (ending.is_commit, ending.producer_epoch) == (False, epoch + 1)
    coordinator.complete(ID)
    assert coordinator.end(ID, producer_id, epoch, is_commit=True) is ErrorCode.PRODUCER_FENCED
    assert coordinator.expired(10**9) == []


def test_the_index_of_a_log():
    index = TransactionIndex()

    def write(offset, producer_id, marker=None):
        if marker is None:
            attributes = TRANSACTIONAL if producer_id >= 0 else 0
            batch = build_batch(
                [Record(key=None, value=b"v", timestamp_ms=1)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 else -1,
                attributes=attributes,
            )
        else:
            batch = control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1)
        index.on_batch(parse_header(batch), offset, batch)

    write(0, -1)
    assert index.last_stable_offset(1) == 1
    write(1, 7)
    write(2, 8)
    write(3, 7)
    assert index.last_stable_offset(4) == 1
    write(4, 7, ABORT)
    assert index.last_stable_offset(5) == 2
    write(5, 8, COMMIT)
    assert index.last_stable_offset(6) == 6
    write(6, 7, ABORT)
    assert index.aborted == [AbortedTransaction(7, 1, 4)], "a marker without a transaction aborts nothing"
    assert index.aborted_between(0, 1) == []
    assert index.aborted_between(0, 2) == index.aborted_between(4, 9) == [AbortedTransaction(7, 1, 4)]
    assert index.aborted_between(5, 9) == []
    index.forget_before(4)
    assert index.aborted
    index.forget_before(5)
    assert not index.aborted
