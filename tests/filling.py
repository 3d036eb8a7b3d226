"""A backlog whose batches have the size that a test asks for."""

from typing import Any

from confluent_kafka import Producer


def fill(cluster: Any, topic: str, count: int, per_batch: int = 1, partitions: int = 1, size: int = 1_000) -> None:
    """Numbered messages of `size` bytes in batches of `per_batch`, spread over the partitions batch by batch."""
    # no batch goes before it is full, however busy the machine is, but for the last ones of all: flush() sends them
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000, "batch.num.messages": per_batch}
    )
    for number in range(count):
        producer.produce(topic, b"%06d" % number + b"x" * (size - 6), partition=(number // per_batch) % partitions)
    assert producer.flush(60) == 0
