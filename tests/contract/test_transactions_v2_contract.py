"""Transactions whose epoch ends with them (KIP-890, `transaction.version` 2), and who sees them."""

import pytest

from kclient_quota.wire.messages import (
    DescribeProducersRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from tests.contract.administered import eventually
from tests.contract.group_talk import fetch_offsets
from tests.contract.test_group_transactions_contract import Producer, read_log

pytestmark = pytest.mark.timeout(120)
FENCED, OLD_EPOCH, NOTHING_TO_COMMIT = 90, 47, 48


def end(producer, *, commit, epoch=None):
    """EndTxn v5; (error, epoch that comes next)."""
    answer = producer.talk.until(
        lambda: EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch if epoch is None else epoch,
            committed=commit,
        ),
        lambda answer: answer.error_code,
        5,
    )
    return answer.error_code, answer.producer_epoch


def go_on(producer, epoch):
    producer.epoch, producer.sequence = epoch, 0


def test_what_is_written_is_in_the_transaction_and_its_end_fences_it(talk, unique):
    topic = unique("topic")
    talk.create(topic)
    producer = Producer(talk, unique("id"))
    first = producer.epoch
    assert producer.write(topic, version=12) == 0
    assert end(producer, commit=True) == (0, first + 1)
    assert end(producer, commit=True) == (0, first + 1), "the answer was lost, and asked for again"
    assert end(producer, commit=False)[0] == NOTHING_TO_COMMIT
    assert producer.write(topic, version=12) == OLD_EPOCH
    go_on(producer, first + 1)
    assert producer.write(topic, version=12) == 0
    assert end(producer, commit=False) == (0, first + 2)
    # the first transaction may be in a segment of its own; EndTxn is answered a moment before readers see all of it
    high, stable_offset, _, aborted = eventually(
        lambda: read_log(talk, topic, committed=True, offset=2), lambda found: found[3]
    )
    assert (high, stable_offset, aborted) == (4, 4, [(producer.id, 2)])
    assert end(producer, commit=True, epoch=first)[0] == FENCED


def test_an_empty_transaction_may_be_aborted_and_not_committed(talk, unique):
    producer = Producer(talk, unique("id"))
    first = producer.epoch
    assert end(producer, commit=True)[0] == NOTHING_TO_COMMIT
    assert end(producer, commit=False) == (0, first + 1)
    go_on(producer, first + 1)
    assert end(producer, commit=False) == (0, first + 2)


def test_committed_positions_need_no_group_added(talk, unique):
    topic, group = unique("topic"), unique("group")
    talk.create(topic)
    talk.ready(group)
    producer = Producer(talk, unique("id"))
    assert producer.commit_offset(group, topic, 7, version=5) == 0
    assert end(producer, commit=True)[0] == 0
    # Apache Kafka answers the end of a transaction before its markers are everywhere.
    expected = 0, [(0, 7, "", 0)]
    assert eventually(lambda: fetch_offsets(talk, group, topic), lambda found: found == expected) == expected


def test_who_writes_and_which_transactions_there_are(talk, unique):
    topic, name = unique("topic"), unique("id")
    talk.create(topic)
    producer = Producer(talk, name)
    assert producer.write(topic, version=12) == 0
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0, 9])
    producers = DescribeProducersRequest(topics=[asked])
    found, missing = sorted(talk.ask(producers, 0).topics[0].partitions, key=lambda p: p.partition_index)
    assert missing.error_code == 3
    (state,) = found.active_producers
    assert (state.producer_id, state.producer_epoch) == (producer.id, producer.epoch)
    assert (state.last_sequence, state.current_txn_start_offset) == (0, 0)

    def listed(**wanted):
        answer = talk.ask(ListTransactionsRequest(**wanted), 2)
        return answer.error_code, [state.transactional_id for state in answer.transaction_states]

    assert listed(transactional_id_pattern=f"{name[:-1]}.", state_filters=["Ongoing"]) == (0, [name])
    assert listed(transactional_id_pattern=name[:-1]) == (0, [])
    assert listed(transactional_id_pattern="(")[0] == 128
    assert end(producer, commit=False)[0] == 0

    def ended():
        (partition,) = (p for p in talk.ask(producers, 0).topics[0].partitions if p.partition_index == 0)
        (state,) = partition.active_producers
        return state.producer_epoch, state.last_sequence, state.current_txn_start_offset

    eventually(ended, lambda found: found == (producer.epoch + 1, -1, -1))
