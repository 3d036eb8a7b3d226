"""Consume, transform, produce, in transactions, under a quota: every order is invoiced exactly once.

python examples/consume_transform_produce.py
"""

import time
from collections import Counter

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker

ORDERS = 100


def invoice(order: bytes) -> bytes:
    """The transformation."""
    return b"invoice of " + order


def copy(servers: str) -> None:
    """Read "orders", write "invoices"; offsets go with the messages."""
    group = {"bootstrap.servers": servers, "group.id": "invoicing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**group, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.subscribe(["orders"])
    # The heartbeat keeps the consumer in its group while produce() and flush() wait for the quota.
    producer = Producer(
        {"bootstrap.servers": servers, "client.id": "invoicing", "transactional.id": "invoicing-1"}, heartbeat=consumer
    )
    producer.init_transactions()
    done = transactions = 0
    begin = time.monotonic()
    while done < ORDERS:
        messages = [message for message in consumer.consume(40, 0.5) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("invoices", invoice(message.value() or b""), key=message.key())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        done, transactions = done + len(messages), transactions + 1
    print(f"{done} orders in {transactions} transactions, {time.monotonic() - begin:.1f} s")
    producer.close()
    consumer.close()


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1, "invoices": 1}) as cluster:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as source:
            for number in range(ORDERS):
                source.produce("orders", b"%06d" % number + b"x" * 994)
        cluster.set_quota(client_id="invoicing", producer_byte_rate=40_000)
        copy(cluster.bootstrap_servers)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "audit", "auto.offset.reset": "earliest"}
        with Consumer({**conf, "isolation.level": "read_committed"}) as audit:
            audit.subscribe(["invoices"])
            seen = Counter(message.value() for message in audit.consume(2 * ORDERS, 8))
        print(f"{len(seen)} invoices, {seen.total() - len(seen)} of them twice")
