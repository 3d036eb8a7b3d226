"""Transactions over very many partitions end by and by: what others may do meanwhile, and what a restart finds."""

from itertools import pairwise

import pytest

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.transactions.transaction_coordinator import TransactionState
from kclient_quota.broker.transactions.transaction_service import AT_ONCE, TransactionService
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import EndTxnRequest, InitProducerIdRequest
from tests.unit.broker.handler_node import Node
from tests.unit.broker.storage_life import Life
from tests.unit.broker.test_kept_transactions import ID, TIMEOUT_MS
from tests.unit.broker.test_transaction_handlers import Producer

MANY = 4 * AT_ONCE + 1


class Turns:
    """How much was written in each turn."""

    def __init__(self, node, service):
        self.written, self.turns = 0, [0]
        call_at = node.scheduler.call_at

        def called(deadline_ms, callback):
            self.turns.append(self.written)
            return call_at(deadline_ms, callback)

        node.scheduler.call_at = called
        for partition in node.cluster.partitions():
            append = partition.log.append_marker
            partition.log.append_marker = lambda *given, real=append, **known: self.write() or real(*given, **known)
        service.offsets.observers.append(self.write)

    def write(self, *_):
        self.written += 1

    @property
    def longest(self):
        ends = [*self.turns, self.written]
        return max(after - before for before, after in pairwise(ends))


def large(node):
    """A transaction of very many partitions, and positions."""
    node.cluster.create_topic("many", MANY)
    producer = Producer(node)
    for first in range(0, MANY, AT_ONCE):
        assert set(producer.add(topic="many", partitions=range(first, min(first + AT_ONCE, MANY)))) == {0}
    assert not producer.add_group()
    groups = node.services.get(GroupService)
    for index in range(MANY):
        groups.commit_pending(producer.id, "g", "many", index, CommittedOffset(3))
    return producer, groups


def marked(node):
    return sum(partition.log.end_offset for partition in node.cluster.topics["many"].partitions)


@pytest.mark.parametrize("version", [4, 5])
def test_a_large_transaction_ends_by_and_by_and_is_answered_when_it_has(version):
    node = Node()
    producer, groups = large(node)
    turns = Turns(node, node.services.get(TransactionService))
    request = EndTxnRequest(transactional_id=ID, producer_id=producer.id, producer_epoch=producer.epoch, committed=True)
    answers = node.start(request, version)
    assert not answers
    assert 0 < marked(node) < MANY
    assert node.ask(request, version).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    fence = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
    assert node.ask(fence, 5).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    node.scheduler.pass_ms(0)
    assert answers[0].error_code == 0
    assert (marked(node), turns.written) == (MANY, 2 * MANY)
    assert turns.longest < 2 * AT_ONCE
    assert all(groups.committed("g", "many", index) == CommittedOffset(3) for index in range(MANY))


def test_who_asks_for_an_epoch_waits_until_all_of_the_former_transaction_is_aborted():
    node = Node()
    large(node)
    turns = Turns(node, node.services.get(TransactionService))
    answers = node.start(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS), 5)
    assert not answers
    node.scheduler.pass_ms(0)
    assert answers[0].error_code == 0
    assert (marked(node), turns.longest < 2 * AT_ONCE) == (MANY, True)


def test_many_transactions_that_time_out_together_end_by_and_by():
    node = Node()
    service = node.services.get(TransactionService)
    for number in range(MANY):
        made = service.coordinator.initialize(f"id-{number}", TIMEOUT_MS)
        now_ms = node.scheduler.now_ms()
        service.add(f"id-{number}", made.producer_id, made.producer_epoch, now_ms, partitions=[("t", 0)])
    turns = Turns(node, service)
    node.scheduler.pass_ms(TIMEOUT_MS)
    states = {one.state for one in service.coordinator.transactions.values()}
    assert states == {TransactionState.COMPLETE_ABORT}
    assert (turns.written, turns.longest < 2 * AT_ONCE) == (MANY, True)


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_a_crash_interrupts_is_ended_after_the_restart(tmp_path, is_commit):
    life = Life(tmp_path)
    life.create("t", MANY)
    coordinator = life.transactions.coordinator
    made = coordinator.initialize(ID, TIMEOUT_MS)
    producer = made.producer_id, made.producer_epoch
    places = [("t", index) for index in range(MANY)]
    life.transactions.add(ID, *producer, life.scheduler.now_ms(), partitions=places, groups=["g"])
    for index in range(MANY):
        life.groups.commit_pending(producer[0], "g", "t", index, CommittedOffset(3))
    done = life.transactions.finish(coordinator.end(ID, *producer, is_commit=is_commit))
    assert not done.is_resolved
    life.storage.close()

    again = Life(tmp_path)
    again.scheduler.pass_ms(0)
    assert again.transactions.coordinator.transactions[ID].producer_id == producer[0]
    assert again.transactions.coordinator.ending_of(ID) is None
    assert all(partition.log.end_offset for partition in again.cluster.topics["t"].partitions)
    wanted = CommittedOffset(3) if is_commit else None
    assert all(again.groups.committed("g", "t", index) == wanted for index in range(MANY))
    again.storage.close()
