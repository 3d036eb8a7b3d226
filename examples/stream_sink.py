"""A sink for a stream processor: its waits for the quota are the back-pressure, its flush comes before the checkpoint.

The shape is that of Quix Streams' BatchingSink and Bytewax' StatelessSinkPartition: open, write a batch, flush, close.
python examples/stream_sink.py
"""

from collections.abc import Iterable

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker

ORDERS = 80


class KafkaSink:
    """Writes batches; make it in the worker's own process."""

    def __init__(self, conf: dict[str, str], topic: str, heartbeat: Consumer) -> None:
        self.producer = Producer(conf, heartbeat=heartbeat)  # the source stays in its group while the sink waits
        self.topic = topic
        self.failed: list[object] = []

    def write(self, batch: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Hand over a batch; takes as long as the quota wants."""
        for key, value in batch:
            self.producer.produce(self.topic, value, key=key, on_delivery=self._report)

    def flush(self) -> None:
        """Before a checkpoint: everything is stored, or this raises and the batch is done again."""
        left = self.producer.flush(60)
        if left or self.failed:
            raise RuntimeError(f"{left} messages unsent, failed: {self.failed[:3]}")

    def _report(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1, "invoices": 1}) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer(servers) as orders:
            for number in range(ORDERS):
                orders.produce("orders", b"x" * 1000, key=str(number))
        cluster.set_quota(client_id="sink", producer_byte_rate=30_000)
        source = Consumer({**servers, "group.id": "s", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        source.subscribe(["orders"])
        sink = KafkaSink({**servers, "client.id": "sink"}, "invoices", source)
        done = 0
        while done < ORDERS:
            found = [message for message in source.consume(20, 1.0) if message.error() is None]
            sink.write((message.key(), message.value() or b"") for message in found)
            sink.flush()
            source.commit(asynchronous=False)  # the checkpoint
            done += len(found)
        sink.producer.close()
        source.close()
        print(f"{done} messages through the sink")
