"""Transactions across restarts: what is open stays so, what was decided is ended, and time goes on."""

import pytest

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.internal_topics import TRANSACTION_STATE
from kclient_quota.broker.transactions.kept_transactions import kept, log_key, restored
from kclient_quota.broker.transactions.transaction_coordinator import MAX_ID_BYTES, Transaction, TransactionState
from kclient_quota.broker.transactions.transaction_service import AT_ONCE, RETRY_MS
from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.unit.broker.storage_life import Life

ID, TIMEOUT_MS = "x", 60_000


def opened(life, *, group=None):
    """A transaction with a batch in `t`; its producer."""
    life.create()
    made = life.transactions.coordinator.initialize(ID, TIMEOUT_MS)
    producer = made.producer_id, made.producer_epoch
    groups = [] if group is None else [group]
    now_ms = life.scheduler.now_ms()
    assert life.transactions.add(ID, *producer, now_ms, partitions=[("t", 0)], groups=groups) is ErrorCode.NONE
    written = build_batch(
        [Record(b"v")],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    assert not life.log().append(written, leader_epoch=0, now_ms=now_ms).error
    return producer


def end(life, producer, *, is_commit=True):
    life.transactions.finish(life.transactions.coordinator.end(ID, *producer, is_commit=is_commit))


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_transaction_is_what_it_was(state):
    told = Transaction(ID, 7, 1_000, 3, 2, state, {("t", 1), ("t", 0), ("u", 5)}, {"g"}, 12, (7, 2), 2, 55)
    assert restored(ID, kept(told), 0) == told
    told = Transaction(ID, 7, 1_000, state=state)
    assert restored(ID, kept(told), 0) == told


def test_an_open_transaction_times_out_when_it_would_have(tmp_path):
    life = Life(tmp_path)
    producer_id, epoch = opened(life)
    began_ms = life.scheduler.now_ms()
    life.storage.close()

    again = Life(tmp_path)
    coordinator = again.transactions.coordinator
    assert coordinator.next_deadline_ms() == began_ms + TIMEOUT_MS
    again.scheduler.pass_ms(TIMEOUT_MS - 1)
    assert again.log().transactions.ongoing
    again.scheduler.pass_ms(1)
    assert not again.log().transactions.ongoing
    assert coordinator.check(ID, producer_id, epoch) is ErrorCode.PRODUCER_FENCED
    again.storage.close()


def test_a_transaction_that_is_too_old_is_ended_soon_after_the_restart(tmp_path):
    life = Life(tmp_path)
    opened(life)
    coordinator = life.transactions.coordinator
    coordinator.transactions[ID].started_ms -= 2 * TIMEOUT_MS
    life.cluster.changed("transaction", ID)
    life.cluster.save()
    life.storage.close()
    again = Life(tmp_path)
    again.scheduler.pass_ms(RETRY_MS)
    assert again.transactions.coordinator.transactions[ID].state is TransactionState.COMPLETE_ABORT
    again.storage.close()


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_that_is_damaged_is_written_anew(tmp_path, is_commit):
    life = Life(tmp_path)
    end(life, opened(life), is_commit=is_commit)
    life.storage.close()
    (file,) = tmp_path.glob("logs/*/0/*.log")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

    again = Life(tmp_path)
    log = again.log()
    assert log.damage_at(1) == (1, 1)
    assert (log.last_stable_offset, log.end_offset) == (3, 3)
    aborted = [(one.first_offset, one.last_offset) for one in log.transactions.aborted]
    assert aborted == ([] if is_commit else [(0, 2)])
    again.storage.close()


def test_positions_of_a_transaction_are_committed_by_it_unless_a_later_commit_has_won(tmp_path):
    life = Life(tmp_path)
    producer = opened(life, group="g")
    for group in ("g", "h"):
        life.groups.commit_pending(producer[0], group, "t", 0, CommittedOffset(5, 0, "note"))
    life.groups.commit("h", "t", 0, CommittedOffset(9))
    life.storage.close()

    again = Life(tmp_path)
    assert all(again.groups.offsets.has_pending(group, "t", 0) for group in ("g", "h"))
    assert again.groups.committed("g", "t", 0) is None
    end(again, producer)
    again.storage.close()

    last = Life(tmp_path)
    assert not any(last.groups.offsets.has_pending(group, "t", 0) for group in ("g", "h"))
    assert last.groups.committed("g", "t", 0) == CommittedOffset(5, 0, "note")
    assert last.groups.committed("h", "t", 0) == CommittedOffset(9)
    last.storage.close()


def test_positions_of_a_transaction_that_nobody_knows_are_forgotten(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.groups.commit_pending(99, "g", "t", 0, CommittedOffset(5))
    life.storage.close()
    again = Life(tmp_path)
    assert not again.groups.offsets.has_pending("g", "t", 0)
    assert not list(again.storage._journal.items("pending"))
    again.storage.close()


LONG = "x" * (MAX_ID_BYTES + 1)


def let_open(life, transactional_id):
    """A transaction that has begun, however long its id."""
    made = life.transactions.coordinator.initialize("shorter", TIMEOUT_MS)
    coordinator = life.transactions.coordinator
    coordinator.restore(
        transactional_id,
        Transaction(transactional_id, made.producer_id, TIMEOUT_MS, made.producer_epoch),
        not_before_ms=0,
    )
    coordinator.restore("shorter", None, not_before_ms=0)
    now_ms = life.scheduler.now_ms()
    added = life.transactions.add(
        transactional_id, made.producer_id, made.producer_epoch, now_ms, partitions=[("t", 0)]
    )
    assert added is ErrorCode.NONE
    return made.producer_id, made.producer_epoch


def test_a_transactional_id_that_no_record_holds_is_refused(tmp_path):
    life = Life(tmp_path)
    initialize = life.transactions.coordinator.initialize
    for refused in (LONG, "\u00e4" * (MAX_ID_BYTES // 2 + 1)):
        assert initialize(refused, TIMEOUT_MS).error is ErrorCode.INVALID_REQUEST
    assert initialize("x" * MAX_ID_BYTES, TIMEOUT_MS).error is ErrorCode.NONE
    life.storage.close()


def test_a_directory_opens_that_holds_a_transaction_of_which_nothing_can_be_told(tmp_path):
    life = Life(tmp_path)
    life.create()
    producer = let_open(life, LONG)
    life.transactions.coordinator.end(LONG, *producer, is_commit=True)
    life.transactions.keep()
    life.storage.close()

    again = Life(tmp_path)
    assert again.transactions.coordinator.transactions[LONG].state is TransactionState.COMPLETE_COMMIT
    again.transactions.records.is_told = True
    let_open(again, LONG)
    again.storage.close()


def test_transactions_time_out_beside_one_of_which_nothing_can_be_told(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.transactions.records.is_told = True
    ids = ("a", LONG, "b", "c")
    for transactional_id in ids:
        let_open(life, transactional_id)
    life.scheduler.pass_ms(TIMEOUT_MS)
    transactions = life.transactions.coordinator.transactions
    assert {transactions[one].state for one in ids} == {TransactionState.COMPLETE_ABORT}
    life.storage.close()


@pytest.mark.parametrize("bumps", [False, True])
def test_what_was_open_is_not_committed_because_the_transaction_before_it_was(tmp_path, bumps):
    life = Life(tmp_path)
    producer_id, epoch = opened(life)
    coordinator, now_ms = life.transactions.coordinator, life.scheduler.now_ms()
    life.transactions.finish(coordinator.end(ID, producer_id, epoch, is_commit=True, bumps=bumps))
    journal = tmp_path / "metadata.jsonl"
    size = journal.stat().st_size
    epoch += bumps
    life.transactions.add(ID, producer_id, epoch, now_ms, partitions=[("t", 0)], bumps=bumps)
    written = build_batch(
        [Record(b"uncommitted")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0 if bumps else 1,
        attributes=TRANSACTIONAL,
    )
    assert not life.log().append(written, leader_epoch=0, now_ms=now_ms).error
    life.storage.close()
    with journal.open("r+b") as kept_so_far:
        kept_so_far.truncate(size)  # what a power cut may take

    again = Life(tmp_path)
    log = again.log()
    assert (log.last_stable_offset, log.end_offset) == (4, 4)
    assert [(one.first_offset, one.last_offset) for one in log.transactions.aborted] == [(2, 3)]
    again.storage.close()


EXPIRATION_MS, LOOKS_MS = 10_000_000, 1_000_000


def let_expire(life):
    """Transactional ids expire soon."""
    life.cluster.set_config(BROKER, "", "transactional.id.expiration.ms", str(EXPIRATION_MS))
    life.cluster.set_config(BROKER, "", "transaction.remove.expired.transaction.cleanup.interval.ms", str(LOOKS_MS))


def test_a_transactional_id_expires_after_its_last_change_and_that_outlives_restarts(tmp_path):
    life = Life(tmp_path)
    let_expire(life)
    life.transactions.records.is_told = True
    producer = opened(life)
    life.scheduler.pass_ms(TIMEOUT_MS - 1)
    end(life, producer)
    life.scheduler.pass_ms(EXPIRATION_MS // 2)
    life.storage.close()

    again = Life(tmp_path)
    again.transactions.records.is_told = True
    coordinator = again.transactions.coordinator
    again.scheduler.time_ms = life.scheduler.now_ms()
    again.scheduler.pass_ms(EXPIRATION_MS // 2 - LOOKS_MS)
    assert ID in coordinator.transactions
    again.scheduler.pass_ms(2 * LOOKS_MS)
    assert ID not in coordinator.transactions
    assert coordinator.check(ID, *producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    (share,) = [one.log for one in again.cluster.topics[TRANSACTION_STATE].partitions if one.log.end_offset]
    *_, last = [record for batch in share.batches() for record in iterate_records(batch)]
    assert (last.key, last.value) == (log_key(ID), None)
    again.storage.close()

    last_life = Life(tmp_path)
    assert ID not in last_life.transactions.coordinator.transactions
    last_life.storage.close()


def test_a_transaction_that_is_open_does_not_expire_and_very_many_do_in_turns(tmp_path):
    life = Life(tmp_path)
    let_expire(life)
    life.cluster.set_config(BROKER, "", "transaction.max.timeout.ms", str(4 * EXPIRATION_MS))
    life.create()
    coordinator, now_ms = life.transactions.coordinator, life.scheduler.now_ms()
    for number in range(2 * AT_ONCE + 1):
        coordinator.initialize(f"idle-{number}", TIMEOUT_MS)
    made = coordinator.initialize(ID, 3 * EXPIRATION_MS)
    life.transactions.add(ID, made.producer_id, made.producer_epoch, now_ms, partitions=[("t", 0)])
    forgotten, forget_idle = [], coordinator.forget_idle
    coordinator.forget_idle = lambda *given: forgotten.append(forget_idle(*given)) or forgotten[-1]
    life.scheduler.pass_ms(EXPIRATION_MS + LOOKS_MS)
    assert list(coordinator.transactions) == [ID]
    assert [count for count in forgotten if count] == [AT_ONCE, AT_ONCE, 1]
    life.scheduler.pass_ms(2 * EXPIRATION_MS)
    assert coordinator.transactions[ID].state is TransactionState.COMPLETE_ABORT
    life.scheduler.pass_ms(EXPIRATION_MS + LOOKS_MS)
    assert not coordinator.transactions
    assert not list(life.storage._journal.items("transaction"))
    life.storage.close()
