"""Everything an OpenTelemetry MeterProvider collects, pushed through the Kafka client you already have (KIP-714).

python examples/otel_meter_provider.py
"""

import time

from opentelemetry.sdk.metrics import MeterProvider

from kclient_quota import KafkaMetricReader, Producer
from kclient_quota.broker import EmbeddedBroker


def run(cluster: EmbeddedBroker) -> None:
    """An application with OpenTelemetry's own instruments."""
    reader = KafkaMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("shop")
    orders = meter.create_counter("shop.orders", unit="{order}")
    seconds = meter.create_histogram("shop.checkout.duration", unit="s")
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop"}) as producer:
        producer.register_metric_reader_for_subscription(reader)
        for number in range(100):
            producer.produce("orders", f"order {number}")
            orders.add(1, {"country": "NL" if number % 4 else "BE"})
            seconds.record(number / 100)
            producer.poll(0)
            time.sleep(0.01)


if __name__ == "__main__":
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        # Names stay OpenTelemetry's own: the platform team subscribes to them by their prefix.
        cluster.set_client_metrics("shops", metrics=["shop."], interval_ms=200)
        run(cluster)
        # A sum comes as the change since the last push that the broker has taken.
        orders = {
            country: round(sum(push.values("shop.orders").get((country,), 0) for push in cluster.pushes))
            for country in ("BE", "NL")
        }
        timed = sum(sum(push.values("shop.checkout.duration").values()) for push in cluster.pushes)
        print(f"{len(cluster.pushes)} pushes: orders {orders}, {timed:.0f} checkouts timed")
