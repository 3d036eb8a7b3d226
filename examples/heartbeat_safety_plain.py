"""A consume-transform-produce loop under a quota, with plain confluent-kafka: it loses its group.

While flush() waits for the throttled broker, nobody polls the consumer. After `max.poll.interval.ms` its group takes
the partitions away, and what was copied comes again. Compare heartbeat_safety_wrapped.py: other imports, one word more.

python examples/heartbeat_safety_plain.py
"""

import time
from collections import Counter

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

from kclient_quota.broker import EmbeddedBroker

COPIES, BATCH = 110, 95


def copy(servers: str) -> None:
    """Copy "orders" to "invoices" and say how that went."""
    group = {"group.id": "copier", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(
        {"bootstrap.servers": servers, **group, "max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
    )
    lost, copied, begin = 0, Counter[bytes](), time.monotonic()

    def on_lost(*_: object) -> None:
        nonlocal lost
        lost += 1

    consumer.subscribe(["orders"], on_revoke=on_lost, on_lost=on_lost)
    producer = Producer({"bootstrap.servers": servers, "client.id": "copier"})
    while len(copied) < COPIES:
        messages = [message for message in consumer.consume(BATCH, 0.5) if message.error() is None]
        for message in messages:
            producer.produce("invoices", message.value())
            copied[message.value()[:6]] += 1
        producer.flush()
        try:
            if messages:
                consumer.commit(asynchronous=False)
        except KafkaException as error:
            print(f"commit failed: {error.args[0].name()}")
    took = time.monotonic() - begin
    again = Counter(message.value()[:6] for message in consumer.consume(BATCH, 8.0) if message.error() is None)
    print(f"{len(copied)} copied in {took:.0f} s; group lost {lost} times; {len(again)} come a second time")
    consumer.close()


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1, "invoices": 1}) as cluster:
        source = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(COPIES):
            source.produce("orders", b"%06d" % number + b"x" * 994)
        source.flush()
        cluster.set_quota(client_id="copier", producer_byte_rate=5_000)
        copy(cluster.bootstrap_servers)
