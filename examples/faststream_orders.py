"""FastStream under a quota: it consumes with our Consumer; the handler publishes with AIOProducer, awaited.

FastStream's own publisher calls produce() in the event loop, where a wait for the quota would stop everything else.
pip install 'faststream[confluent]'; python examples/faststream_orders.py
"""

import asyncio

from faststream import FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.helpers import client as confluent_client

from kclient_quota import AIOProducer, Consumer, Producer
from kclient_quota.broker import EmbeddedBroker

confluent_client.Consumer = Consumer  # before a KafkaBroker starts: this is where FastStream looks its class up
ORDERS = 60


def make_app(servers: str) -> FastStream:
    """A service that makes an invoice of every order, and ends after the last."""
    broker = KafkaBroker(servers, client_id="invoicing", logger=None)
    app = FastStream(broker, logger=None)
    invoiced = 0

    @app.on_startup
    async def start() -> None:
        app.context.set_global("producer", AIOProducer({"bootstrap.servers": servers, "client.id": "invoicing"}))

    @broker.subscriber("orders", group_id="invoicing", auto_offset_reset="earliest")
    async def invoice(order: bytes) -> None:
        nonlocal invoiced
        producer: AIOProducer = app.context.get("producer")
        await producer.produce("invoices", b"invoice of " + order)  # waits for the quota, not in anybody's way
        invoiced += 1
        if invoiced == ORDERS:
            app.exit()

    @app.after_shutdown
    async def stop() -> None:
        producer: AIOProducer = app.context.get("producer")
        await producer.flush()
        await producer.close()
        print(f"{invoiced} invoices")

    return app


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1, "invoices": 1}) as cluster:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as source:
            for number in range(ORDERS):
                source.produce("orders", b"%04d" % number + b"x" * 996)
        cluster.set_quota(client_id="invoicing", producer_byte_rate=30_000)
        asyncio.run(make_app(cluster.bootstrap_servers).run())
