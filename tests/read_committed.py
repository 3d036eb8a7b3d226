"""What a reader of a topic sees, up to its end."""

from collections import Counter
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition


def committed(cluster: Any, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[bytes]:
    """The values in the first so many partitions of `topic`, those of each in order."""
    group = {"group.id": topic, "isolation.level": isolation, "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, **group})
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = reader.poll(60)
        assert message is not None, f"{ended} of {partitions} partitions were read to their ends"
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended += 1
    reader.close()
    return values


def read_ids(cluster: Any, topic: str, partitions: int = 1, isolation: str = "read_uncommitted") -> Counter[bytes]:
    """How often each number is there with which `tests.filling.fill` and others begin their values."""
    return Counter(value[:6] for value in committed(cluster, topic, isolation, partitions))


def ids(count: int) -> dict[bytes, int]:
    """What `read_ids` finds when the first `count` are there, each once."""
    return {b"%06d" % number: 1 for number in range(count)}
