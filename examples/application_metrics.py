"""Metrics of your application, pushed with the client's own (KIP-714, KIP-1076): no agent, no port, no scrape.

python examples/application_metrics.py
"""

import time

from kclient_quota import MetricKind, MetricName, Producer
from kclient_quota.broker import EmbeddedBroker


class Shop:
    """An application with something to count."""

    def __init__(self, producer: Producer) -> None:
        """Register what the platform team may subscribe to."""
        self.producer = producer
        self.orders = 0
        producer.register_metric_for_subscription(
            MetricName("orders-total", "shop-metrics"), lambda: self.orders, MetricKind.SUM
        )
        producer.register_metric_for_subscription(MetricName("queue-depth", "shop-metrics"), lambda: len(producer))

    def sell(self) -> None:
        """Sell one."""
        self.producer.produce("orders", f"order {self.orders}")
        self.orders += 1
        self.producer.poll(0)


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        # The group's name is cleaned as Kafka cleans it: shop-metrics becomes org.apache.kafka.shop.
        cluster.set_client_metrics("shops", metrics=["org.apache.kafka.shop."], interval_ms=200)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop-7"}) as producer:
            shop = Shop(producer)
            print("client instance id:", producer.client_instance_id(5))
            for _ in range(100):
                shop.sell()
                time.sleep(0.01)
        # A sum comes as the change since the last push that the broker has taken.
        total = sum(push.values("org.apache.kafka.shop.orders.total").get((), 0) for push in cluster.pushes)
        names = sorted(cluster.pushes[-1].metric_names())
        print(f"{cluster.pushes[-1].client_id} pushed {names}: {total:.0f} orders of {shop.orders}")
