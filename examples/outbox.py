"""An outbox: the event is written with the change it speaks of, and a worker sends it when the quota lets it.

The SQL is Django's too: transaction.atomic() around place_order, select_for_update(skip_locked=True) in the worker.
python examples/outbox.py
"""

import sqlite3
import time

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

AT_ONCE = 25  # a second or two of the quota: what a crash can make come twice


def place_order(database: sqlite3.Connection, item: str) -> None:
    """The web request: both rows or none, and no wait for Kafka."""
    with database:
        database.execute("INSERT INTO orders (item) VALUES (?)", (item,))
        database.execute("INSERT INTO outbox (topic, value) VALUES ('orders', ?)", (item.ljust(1000),))


def relay(database: sqlite3.Connection, producer: Producer) -> int:
    """The worker: send some rows, and mark those that a delivery report speaks of; how many."""
    sent: list[int] = []
    rows = database.execute("SELECT id, topic, value FROM outbox WHERE sent = 0 ORDER BY id LIMIT ?", (AT_ONCE,))
    for number, topic, value in rows.fetchall():

        def report(error: object, _message: object, number: int = number) -> None:
            if error is None:
                sent.append(number)

        producer.produce(topic, value, key=str(number), on_delivery=report)  # waits while the quota is used up
    producer.flush(60)
    with database:
        database.executemany("UPDATE outbox SET sent = 1 WHERE id = ?", [(number,) for number in sent])
    return len(sent)


if __name__ == "__main__":
    shop = sqlite3.connect(":memory:")
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, value TEXT, sent INTEGER DEFAULT 0)")
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="outbox", producer_byte_rate=25_000)
        begin = time.monotonic()
        for order in range(75):
            place_order(shop, f"order {order}")
        print(f"75 orders placed in {time.monotonic() - begin:.2f} s")
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "outbox"}) as kafka:
            relayed = 0
            while count := relay(shop, kafka):
                relayed += count
        print(f"{relayed} sent in {time.monotonic() - begin:.1f} s")
