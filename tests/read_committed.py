"""What a reader of a partition sees, up to its end."""

from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition


def committed(cluster: Any, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The values in partition 0 of `topic`, in order."""
    group = {"group.id": topic, "isolation.level": isolation, "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, **group})
    reader.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := reader.poll(60)) is not None and message.error() is None:
        values.append(message.value() or b"")
    reader.close()
    return values
