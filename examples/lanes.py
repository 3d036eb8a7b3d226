"""Which message goes first: alerts before all, orders three times as much as bulk, while far more comes than may go.

python examples/lanes.py
"""

import time
from collections import Counter

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

LANES = {
    "alerts": {"priority": "strict"},
    "orders": {"weight": 3, "full": "drop-oldest"},
    "bulk": {"weight": 1, "full": "drop-oldest"},
}


def send(bootstrap_servers: str, seconds: float = 10) -> Counter[str]:
    """Offer five times the quota; returns the messages delivered to each topic."""
    delivered: Counter[str] = Counter()
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "shop",
        "quota.lanes": LANES,
        "quota.lane.of": {name: name for name in LANES},  # a topic's messages take the lane of its name
    }

    def on_delivery(error: object, message: object) -> None:
        if error is None:
            delivered[message.topic()] += 1  # type: ignore[attr-defined]

    with Producer(conf) as producer:
        now = time.monotonic()
        for turn in range(round(seconds * 50)):
            for topic, count in (("bulk", 5), ("orders", 5), ("alerts", turn % 2)):
                for _ in range(count):
                    producer.produce(topic, b"x" * 500, on_delivery=on_delivery)
            while (left := now + (turn + 1) / 50 - time.monotonic()) > 0:
                producer.poll(left)
        for lane, waits in next(iter(producer.quota_state().values())).lanes.items():
            print(f"{lane or 'the others'}: {waits.messages} wait, the oldest for {waits.waits_ms} ms")
        print(f"given up, each with a report: {producer.metric('quota-messages-dropped-total'):.0f}")
        producer.flush(60)
    return delivered


if __name__ == "__main__":
    with EmbeddedBroker(topics=dict.fromkeys(LANES, 1)) as cluster:
        cluster.set_quota(client_id="shop", producer_byte_rate=51_200)
        print(f"delivered: {dict(send(cluster.bootstrap_servers))}")
