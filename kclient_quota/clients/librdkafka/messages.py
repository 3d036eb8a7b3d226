"""What a message of confluent_kafka's tells of where it belongs."""

from confluent_kafka import Message


def partition_of(message: Message) -> tuple[str, int]:
    """Topic and partition; ("", -1) for an event of neither."""
    topic, partition = message.topic(), message.partition()
    return topic or "", -1 if partition is None else partition
