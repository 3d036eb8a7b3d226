"""Interceptors (KIP-42): stamp every record on its way out, count what was acknowledged, never break the producer.

python examples/interceptors.py
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from kclient_quota import Producer, ProducerInterceptor
from kclient_quota.broker import EmbeddedBroker


class Audit(ProducerInterceptor):
    """Adds a header on the way out and counts on the way back."""

    def __init__(self) -> None:
        """Start at zero."""
        self.acknowledged: Counter[str] = Counter()

    def on_send(self, record: Any) -> Any:
        """Called before anything else."""
        return replace(record, headers=[*(record.headers or []), ("audited-by", b"audit")])

    def on_acknowledgement(self, metadata: Any, exception: Any, headers: Any) -> None:
        """Called for every record, delivered or not."""
        self.acknowledged[f"{metadata.topic}: {'failed' if exception else 'delivered'}"] += 1


if __name__ == "__main__":
    audit = Audit()
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        # A dotted path ("my_service.audit.Audit") or the class do as well as an object.
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "interceptor.classes": [audit]})
        for number in range(10):
            producer.produce("orders", f"order {number}")
        producer.close()
    print(dict(audit.acknowledged))
