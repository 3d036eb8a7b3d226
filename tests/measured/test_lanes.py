"""How quick a strict lane is beside ten times the quota."""

import time
from typing import Any

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer

QUOTA, TURNS_PER_S, SECONDS = 100_000, 50, 5
LANES = {"alerts": {"priority": "strict"}, "bulk": {"full": "drop-newest"}}


def test_a_strict_lane_is_quick_while_ten_times_the_quota_comes() -> None:
    """The simulation has the exact bound, 150 ms and the largest message; here a machine comes on top."""
    took_ms: list[float] = []
    bulk_bytes = 0

    def on_bulk(error: Any, _message: Any) -> None:
        nonlocal bulk_bytes
        bulk_bytes += 1_000 * (error is None)

    with EmbeddedBroker(topics={"orders": 1}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "producer_byte_rate": QUOTA}
        producer = Producer({**conf, "quota.lanes": LANES, "quota.lane.of": "lane"})
        began = time.monotonic()
        for turn in range(SECONDS * TURNS_PER_S):
            for _ in range(QUOTA * 10 // TURNS_PER_S // 1_000):
                producer.produce("orders", b"b" * 1_000, headers={"lane": b"bulk"}, on_delivery=on_bulk)
            at = time.monotonic()
            producer.produce(
                "orders",
                b"a" * 300,
                headers={"lane": b"alerts"},
                on_delivery=lambda *_, at=at: took_ms.append((time.monotonic() - at) * 1_000),
            )
            while (left := began + (turn + 1) / TURNS_PER_S - time.monotonic()) > 0:
                producer.poll(left)
        assert producer.flush(60) == 0
        producer.close()
    took_ms.sort()
    assert took_ms[int(len(took_ms) * 0.99)] < 500
    assert bulk_bytes > 0.4 * QUOTA * SECONDS
