"""What the records of an answer to a share consumer are on the wire."""

import pytest
from confluent_kafka import Message

from kclient_quota.clients.consumer.share_bytes import LARGEST_BATCH, ShareBytes, come_again

FETCH_BYTES = 8_192


def records(offsets: range, count: int = 1, partition: int = 0) -> list[Message]:
    value = b"v" * 1_000
    return [
        Message(topic="t", partition=partition, offset=offset, value=value, delivery_count=count) for offset in offsets
    ]


def test_records_that_come_again_come_with_those_between_them() -> None:
    """Of 90 records in a batch every third was released."""
    whole = ShareBytes(FETCH_BYTES).by_partition(records(range(88)))
    again = ShareBytes(FETCH_BYTES).by_partition(records(range(0, 90, 3), 2))
    assert again == whole
    assert again["t", 0] > 88_000


def test_each_partition_has_holes_of_its_own() -> None:
    told = ShareBytes(FETCH_BYTES).by_partition(
        [*records(range(0, 30, 3), 2), *records(range(100, 130, 3), 1, partition=1)]
    )
    assert told["t", 0] > 28_000
    assert told["t", 1] < 12_000, "what was compacted away is not sent"


@pytest.mark.parametrize("hole", [10, 200])
def test_what_was_compacted_away_does_not_come_again(hole: int) -> None:
    """It counted: after one record that was released a share consumer of 51,200 B/s asked once in 11 s."""
    share_bytes = ShareBytes(FETCH_BYTES)
    first = share_bytes.by_partition(records(range(0, 30 * hole, hole)))
    assert share_bytes.by_partition(records(range(0, 30 * hole, hole), 2))["t", 0] < 1.1 * first["t", 0]
    every_third = share_bytes.by_partition(records(range(0, 30 * hole, 3 * hole), 2))
    assert 0.9 * first["t", 0] < every_third["t", 0] < 1.1 * first["t", 0]


def test_holes_larger_than_any_batch_are_the_log_s() -> None:
    """Though all that comes was released by those who had it before."""
    again = records(range(0, 10 * LARGEST_BATCH, LARGEST_BATCH), 2)
    assert ShareBytes(FETCH_BYTES).by_partition(again)["t", 0] < 12_000


def test_a_record_comes_again_when_it_was_delivered_before() -> None:
    assert come_again([*records(range(2)), *records(range(2, 3), 2)])
    assert not come_again(records(range(2)))
    assert not come_again([Message(topic="t", offset=0)]), "whose count nobody tells"
