"""Fills a topic with record batches of one size, each the only batch of its request."""

from typing import Any

from confluent_kafka import Producer

from benchmarks.producing import value_of

_VALUE_BYTES = 1000
_RECORD_OVERHEAD = 11
_BATCH_OVERHEAD = 61


def messages_per_batch(batch_bytes: int) -> int:
    """How many messages make a batch of about `batch_bytes`."""
    return max(1, (batch_bytes - _BATCH_OVERHEAD) // (_VALUE_BYTES + _RECORD_OVERHEAD))


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Writes `batches` batches of `batch_bytes` to `topic`; flush sends each when it is whole."""
    per_batch = messages_per_batch(spec["batch_bytes"])
    producer = Producer(
        {
            "bootstrap.servers": spec["bootstrap"],
            "client.id": "benchmark-filler",
            "linger.ms": 60_000,
            "batch.num.messages": per_batch,
            "batch.size": spec["batch_bytes"] * 2,
        }
    )
    for batch in range(spec["batches"]):
        for message_id in range(batch * per_batch, (batch + 1) * per_batch):
            producer.produce(spec["topic"], value_of(message_id, _VALUE_BYTES))
        if producer.flush(60) > 0:
            raise RuntimeError(f"filling {spec['topic']} stopped at batch {batch}")
    return {"messages": spec["batches"] * per_batch}
