"""Sensors under a quota: of the values that wait only the newest of each sensor is worth sending, and not for long.

python examples/newest_value.py
"""

import time
from collections import Counter
from typing import Any

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

SENSORS = 100


def send(bootstrap_servers: str, seconds: float = 8) -> tuple[Counter[str], list[float]]:
    """Read all sensors ten times a second; returns what became of the values, and how old they arrived, in seconds."""
    became: Counter[str] = Counter()
    ages: list[float] = []
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "sensors",
        "quota.lanes": {"values": {"newest": True, "deadline.ms": 5_000}},
        "quota.lane.of": {"temperatures": "values"},
    }

    with Producer(conf) as producer:
        began = time.monotonic()
        for turn in range(round(seconds * 10)):
            read_at = time.monotonic()

            def on_delivery(error: Any, _message: Any, read_at: float = read_at) -> None:
                became["sent" if error is None else error.name()] += 1
                if error is None:
                    ages.append(time.monotonic() - read_at)

            for sensor in range(SENSORS):
                producer.produce("temperatures", b"%f" % read_at, key=f"sensor-{sensor}", on_delivery=on_delivery)
            while (left := began + (turn + 1) / 10 - time.monotonic()) > 0:
                producer.poll(left)
        producer.flush(60)
    return became, ages


if __name__ == "__main__":
    with EmbeddedBroker(topics={"temperatures": 3}) as cluster:
        cluster.set_quota(client_id="sensors", producer_byte_rate=10_000)
        became, ages = send(cluster.bootstrap_servers)
        print(f"values: {dict(became)}, the oldest was {max(ages):.1f} s old when it arrived")
