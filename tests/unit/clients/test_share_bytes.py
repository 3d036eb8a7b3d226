"""What the records of an answer to a share consumer are on the wire."""

from confluent_kafka import Message

from kclient_quota.clients.consumer.share_bytes import bytes_by_partition, come_again

FETCH_BYTES = 8_192


def records(offsets: range, count: int = 1, partition: int = 0) -> list[Message]:
    value = b"v" * 1_000
    return [
        Message(topic="t", partition=partition, offset=offset, value=value, delivery_count=count) for offset in offsets
    ]


def test_records_that_come_again_come_with_those_between_them() -> None:
    """Of 90 records in a batch every third was released."""
    whole = bytes_by_partition(records(range(88)), FETCH_BYTES)
    again = bytes_by_partition(records(range(0, 90, 3), 2), FETCH_BYTES)
    assert again == whole
    assert again["t", 0] > 88_000


def test_each_partition_has_holes_of_its_own() -> None:
    told = bytes_by_partition([*records(range(0, 30, 3), 2), *records(range(100, 130, 3), 1, partition=1)], FETCH_BYTES)
    assert told["t", 0] > 28_000
    assert told["t", 1] < 12_000, "what was compacted away is not sent"


def test_a_record_comes_again_when_it_was_delivered_before() -> None:
    assert come_again([*records(range(2)), *records(range(2, 3), 2)])
    assert not come_again(records(range(2)))
    assert not come_again([Message(topic="t", offset=0)]), "whose count nobody tells"
