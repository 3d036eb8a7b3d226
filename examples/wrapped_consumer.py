"""A consumer under a quota: evenly, the whole of it, instead of lumps many seconds apart.

python examples/wrapped_consumer.py [HOST:PORT]
"""

import sys
import time

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker


def receive(bootstrap_servers: str, messages: int) -> float:
    """Receive `messages` and return the longest gap between two of them in seconds."""
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": "reports", "group.id": "reports"}
    longest, last = 0.0, None
    with Consumer({**conf, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        while messages:
            message = consumer.poll(1.0)
            if message is None or message.error():
                continue
            now = time.monotonic()
            longest, last = max(longest, now - (last or now)), now
            messages -= 1
        for name, value in consumer.metrics().items():
            if name.name == "fetch-throttle-time-max" and name.tag("node-id") is None:
                print(f"{name.name}: {value:.0f} ms")
    return longest


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"longest gap {receive(sys.argv[1], 400):.2f} s")
    else:
        with EmbeddedBroker(topics={"orders": 1}) as cluster:
            # Batches are fetched whole: those of a second's quota or more would come in lumps.
            with Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 16_000}) as producer:
                for _ in range(400):
                    producer.produce("orders", b"x" * 1000)
            cluster.set_quota(client_id="reports", consumer_byte_rate=100_000)
            print(f"longest gap {receive(cluster.bootstrap_servers, 400):.2f} s")
