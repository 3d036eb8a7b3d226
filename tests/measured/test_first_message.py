"""How long a producer's first message takes: programs that send one and end, and tests, have no other."""

import time
from typing import Any

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

PRODUCERS = 6
LIBRDKAFKAS_WAIT_S = 0.45
"""It looks for a producer id every half second."""


def slowest_s(cls: Any, conf: dict[str, Any]) -> float:
    taken = []
    for _ in range(PRODUCERS):
        producer = cls(conf)
        began = time.monotonic()
        producer.produce("orders", b"x")
        assert producer.flush(10) == 0
        taken.append(time.monotonic() - began)
        producer.close()
    return max(taken)


@pytest.mark.parametrize("limit", [None, 10_000_000], ids=["free", "limited"])
def test_it_does_not_wait_for_librdkafka_to_look_for_an_id_again(limit: int | None) -> None:
    with EmbeddedBroker(topics={"orders": 3}) as broker:
        if limit is not None:
            broker.set_quota(client_id="first", producer_byte_rate=limit)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "first", "enable.metrics.push": False}
        # plain's has no id to wait for: what it takes on a busy machine ours may take, too
        plain_s = slowest_s(confluent_kafka.Producer, conf)
        assert slowest_s(Producer, conf) < plain_s + LIBRDKAFKAS_WAIT_S
