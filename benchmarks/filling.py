"""Fills a topic with record batches of one size, each the only batch of its request."""

from typing import Any

from confluent_kafka import Producer

from benchmarks.ledger import value_of

_ABOUT_BYTES = 1000
_RECORD_OVERHEAD = 10
_BATCH_OVERHEAD = 61


def shape(batch_bytes: int) -> tuple[int, int]:
    """How many messages, of how many bytes (about a thousand), make a batch of `batch_bytes`."""
    count = max(1, round(batch_bytes / _ABOUT_BYTES))
    return count, (batch_bytes - _BATCH_OVERHEAD) // count - _RECORD_OVERHEAD


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Writes `batches` batches of `batch_bytes` to each partition of `topic`; flush sends each when it is whole."""
    per_batch, size = shape(spec["batch_bytes"])
    producer = Producer(
        {
            "bootstrap.servers": spec["bootstrap"],
            "client.id": "benchmark-filler",
            "linger.ms": 60_000,
            "batch.num.messages": per_batch,
            "batch.size": spec["batch_bytes"] * 2,
        }
    )
    # a producer that does not know the partitions yet would hand its first batch on in pieces
    producer.list_topics(spec["topic"], 30)
    for batch in range(spec["batches"]):
        for partition in range(spec["partitions"]):
            for message_id in range(batch * per_batch, (batch + 1) * per_batch):
                producer.produce(spec["topic"], value_of(message_id, size), partition=partition)
            if producer.flush(60) > 0:
                raise RuntimeError(f"filling {spec['topic']} stopped at batch {batch}")
    return {"messages": spec["batches"] * per_batch * spec["partitions"]}
