"""A transaction as plain values: how it is kept across restarts, and how Apache Kafka tells it in its log."""

import struct
from collections.abc import Iterable
from typing import Any

from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, share_of, wire_string
from kclient_quota.broker.transactions.transaction_coordinator import TopicPartition, Transaction, TransactionState
from kclient_quota.wire.writing import uvarint

_STATUS = {state: number for number, state in enumerate(TransactionState)}
"""Kafka's `TransactionState.id`, in the order in which the states stand there."""
_KEY_VERSION, _VALUE_VERSION = 0, 1


def kept(transaction: Transaction) -> dict[str, Any]:
    """As JSON can tell it."""
    return {
        "producer": [transaction.producer_id, transaction.producer_epoch, transaction.last_epoch],
        "former": None if transaction.former is None else list(transaction.former),
        "state": str(transaction.state),
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "partitions": [[topic, indexes] for topic, indexes in by_topic(transaction.partitions)],
        "groups": sorted(transaction.groups),
        "client_version": transaction.client_version,
        "updated_ms": transaction.updated_ms,
    }


def restored(transactional_id: str, value: dict[str, Any], now_ms: int) -> Transaction:
    """The transaction that was `kept`; where that does not say when it changed last, it is as if it did now."""
    producer_id, producer_epoch, last_epoch = value["producer"]
    former = value["former"]
    return Transaction(
        transactional_id,
        producer_id,
        value["timeout_ms"],
        producer_epoch,
        last_epoch,
        TransactionState(value["state"]),
        {(topic, index) for topic, indexes in value["partitions"] for index in indexes},
        set(value["groups"]),
        value["started_ms"],
        None if former is None else (former[0], former[1]),
        value["client_version"],
        value.get("updated_ms", now_ms),
    )


def log_key(transactional_id: str) -> bytes:
    """`TransactionLogKey`, version 0."""
    return struct.pack(">h", _KEY_VERSION) + wire_string(transactional_id)


def log_value(transaction: Transaction) -> bytes:
    """`TransactionLogValue`, version 1, which `transaction.version` 2 brings."""
    head = struct.pack(
        ">hqhib",
        _VALUE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        _STATUS[transaction.state],
    )
    times = struct.pack(">qq", transaction.updated_ms, transaction.started_ms)
    return head + _log_partitions(transaction) + times + _log_tags(transaction)


def _log_tags(transaction: Transaction) -> bytes:
    """The producer id of the transaction that was last, and what the client speaks, which 0 is left out of."""
    previous = transaction.producer_id if transaction.former is None else transaction.former[0]
    tags = b"\x00\x08" + struct.pack(">q", previous)
    if not transaction.client_version:
        return b"\x01" + tags
    return b"\x02" + tags + b"\x02\x02" + struct.pack(">h", transaction.client_version)


def _log_partitions(transaction: Transaction) -> bytes:
    """Positions of groups are partitions of `__consumer_offsets` to Kafka."""
    if transaction.state is TransactionState.EMPTY:
        return b"\x00"
    offsets = {(CONSUMER_OFFSETS, share_of(group_id)) for group_id in transaction.groups}
    topics = by_topic(transaction.partitions | offsets)
    parts = [uvarint(len(topics) + 1)]
    for topic, indexes in topics:
        name = topic.encode()
        parts += uvarint(len(name) + 1), name, uvarint(len(indexes) + 1)
        parts += struct.pack(f">{len(indexes)}i", *indexes), b"\x00"
    return b"".join(parts)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions in order, topic by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return [(topic, sorted(found[topic])) for topic in sorted(found)]
