"""What really lies in the log: every record read back by its id, under a client-id that has no quota."""

import struct
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kclient_quota.certify.driver import id_of

_READER = "benchmark-read-back"
_BATCH_START = struct.Struct(">qi")


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Reads all of `topic` and compares it with `handed_over` ids from 0 on and with `failed_ids`.

    With a `group` it was a loop that should have written whatever the group has committed of `source`.
    """
    copies = Counter(_ids(spec["bootstrap"], spec["topic"]))
    if "group" in spec:
        committed = _committed(spec)
        lost = sum(message_id not in copies for message_id in range(committed))
        duplicated = copies.total() - len(copies)
        return {"in_log": copies.total(), "committed": committed, "lost": lost, "duplicated": duplicated}
    stored_failures = sum(1 for message_id in spec["failed_ids"] if message_id in copies)
    return {
        "in_log": copies.total(),
        "lost": spec["handed_over"] - len(copies),
        "duplicated": copies.total() - len(copies),
        "failed_yet_stored": stored_failures,
    }


def _committed(spec: dict[str, Any]) -> int:
    """How far the loop's group came; ids in its source are offsets."""
    consumer = _consumer(spec["bootstrap"], spec["group"])
    try:
        (partition,) = consumer.committed([TopicPartition(spec["source"], 0)], 30)
        return max(0, partition.offset)
    finally:
        consumer.close()


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": _READER,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def _ids(bootstrap: str, topic: str) -> list[int]:
    consumer = _consumer(bootstrap, _READER)
    try:
        there = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        partitions = [TopicPartition(topic, number, 0) for number in there]
        end = sum(consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions)
        consumer.assign(partitions)
        found: list[int] = []
        while len(found) < end:
            messages = consumer.consume(min(10_000, end - len(found)), 30)
            if not messages:
                raise RuntimeError(f"read-back of {topic} stopped at {len(found)} of {end} records")
            found.extend(id_of(message.value() or b"") for message in messages if message.error() is None)
        return found
    finally:
        consumer.close()


def batch_sizes(folder: Path) -> list[int]:
    """Bytes of every record batch in a partition's log segments, its 12 leading bytes included."""
    sizes = []
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        at = 0
        while at + _BATCH_START.size <= len(data):
            _, length = _BATCH_START.unpack_from(data, at)
            if length == 0:
                break
            sizes.append(length + _BATCH_START.size)
            at += length + _BATCH_START.size
    return sizes
