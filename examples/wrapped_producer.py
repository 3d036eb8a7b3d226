"""A producer under a quota: it waits instead of losing or duplicating, and says how long and why.

python examples/wrapped_producer.py [HOST:PORT]
"""

import sys

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker


def send(bootstrap_servers: str, messages: int = 150) -> int:
    """Send `messages` of 1 kB and return how many were delivered."""
    delivered = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    # The one line that changes: Producer comes from kclient_quota instead of confluent_kafka.
    with Producer({"bootstrap.servers": bootstrap_servers, "client.id": "orders"}) as producer:
        for number in range(messages):
            producer.produce("orders", b"x" * 1000, key=str(number), on_delivery=on_delivery)
        producer.flush(60)
        for broker_id, state in producer.quota_state().items():
            limit = "no limit known" if state.limit is None else f"{state.limit:.0f} B/s, says the {state.source}"
            print(f"broker {broker_id}: {limit}")
        waited_ms = sum(ms for name, ms in producer.metrics().items() if name.name == "quota-wait-time-total")
        print(f"waited {waited_ms / 1000:.1f} s for the quota")
    return delivered


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"{send(sys.argv[1])} delivered")
    else:
        with EmbeddedBroker(topics={"orders": 1}) as cluster:
            cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
            print(f"{send(cluster.bootstrap_servers)} delivered")
