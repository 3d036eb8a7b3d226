"""How to test a service of yours under a quota: `pip install kclient-quota` brings the fixtures, pytest finds them.

pytest examples/test_your_service.py
"""

import pytest

from kclient_quota import Producer, QuotaThrottledError
from kclient_quota.broker import EmbeddedBroker


def accept_order(producer: Producer, order: bytes) -> int:
    """Your service: 202 when the order is on its way, 429 when the quota says later."""
    try:
        producer.produce("orders", order)
    except QuotaThrottledError as error:
        print(f"Retry-After: {error.retry_after_ms / 1000:.1f} s")
        return 429
    return 202


def test_an_order_too_many_is_told_to_come_back(kafka_broker: EmbeddedBroker) -> None:
    kafka_broker.create_topic("orders", 1)
    kafka_broker.set_quota(client_id="shop", producer_byte_rate=10_000)
    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "client.id": "shop", "quota.backoff": "raise"}
    with Producer(conf) as producer:
        answers = [accept_order(producer, b"x" * 1000) for _ in range(200)]
    assert answers[0] == 202
    assert 429 in answers  # not each one after it: a little of the quota comes free while this runs


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_cluster_of_any_size(kafka_broker_factory: type[EmbeddedBroker], brokers: int) -> None:
    cluster = kafka_broker_factory(brokers=brokers, topics={"orders": brokers})
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        assert accept_order(producer, b"one") == 202
        assert producer.flush(60) == 0
