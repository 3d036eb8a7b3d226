"""Who is throttled together with whom when users log in, on the embedded broker and on Apache Kafka."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent

from tests.contract.wire_client import create_topic

Unique = Callable[[str], str]


def _throttle_of_60_kb(cluster: Any, topic: str, user: str, client_id: str, mechanism: str = "PLAIN") -> float:
    """Seconds of throttle for one request of 60 messages of 1,000 bytes; 0 for none."""
    heard = [0.0]

    def on_throttle(event: ThrottleEvent) -> None:
        heard.append(event.throttle_time)

    producer = Producer(
        {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": "secret",
            "client.id": client_id,
            "linger.ms": 60_000,
            "batch.num.messages": 60,
            "throttle_cb": on_throttle,
        }
    )
    producer.list_topics(topic, 60)  # or flush() may send what has found its partition, and the rest after it
    for _ in range(60):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(60) == 0
    producer.poll(0)
    return max(heard)


def test_the_closest_of_the_eight_levels_decides(secure_cluster: Any, unique: Unique, people: Unique) -> None:
    topic, alice = unique("t"), people("alice")
    create_topic(secure_cluster, topic)
    secure_cluster.set_quota(user=alice, producer_byte_rate=4_000)
    secure_cluster.set_quota(user=alice, client_id="app", producer_byte_rate=3_000)
    secure_cluster.set_quota(default_client_id=True, producer_byte_rate=5_000)
    try:
        found = {
            (name, client_id): _throttle_of_60_kb(secure_cluster, topic, people(name), client_id)
            for name, client_id in [("alice", "app"), ("alice", "other"), ("bob", "app")]
        }
    finally:
        secure_cluster.set_quota(default_client_id=True, producer_byte_rate=None)
    assert found == {
        ("alice", "app"): pytest.approx(60_600 / 3_000 - 10, abs=0.1),
        ("alice", "other"): pytest.approx(60_600 / 4_000 - 10, abs=0.1),
        ("bob", "app"): pytest.approx(60_600 / 5_000 - 10, abs=0.1),
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_users_quota_holds_however_the_user_logged_in(
    secure_cluster: Any, unique: Unique, people: Unique, mechanism: str
) -> None:
    topic, alice, bob = unique("t"), people("alice"), people("bob")
    create_topic(secure_cluster, topic)
    secure_cluster.set_quota(user=bob, producer_byte_rate=5_000)
    assert _throttle_of_60_kb(secure_cluster, topic, bob, "app", mechanism) == pytest.approx(2.1, abs=0.1)
    assert _throttle_of_60_kb(secure_cluster, topic, alice, "app", mechanism) == 0


def test_client_ids_of_one_user_share_the_users_quota(secure_cluster: Any, unique: Unique, people: Unique) -> None:
    topic, alice = unique("t"), people("alice")
    create_topic(secure_cluster, topic)
    secure_cluster.set_quota(user=alice, producer_byte_rate=10_000)
    first = _throttle_of_60_kb(secure_cluster, topic, alice, "one")
    second = _throttle_of_60_kb(secure_cluster, topic, alice, "two")
    assert first == 0
    # 121 kB: 12.1 s of the quota, less ten seconds and what has passed of another one since the first request
    assert 1.0 < second < 2.2


def test_whoever_does_not_log_in_is_anonymous(secure_cluster: Any, unique: Unique) -> None:
    topic = unique("t")
    create_topic(secure_cluster, topic)
    secure_cluster.set_quota(user="ANONYMOUS", producer_byte_rate=5_000)
    heard: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": secure_cluster.bootstrap_servers,
            "linger.ms": 60_000,
            "batch.num.messages": 60,
            "throttle_cb": lambda event: heard.append(event.throttle_time) if event.throttle_time else None,
        }
    )
    producer.list_topics(topic, 60)  # or flush() may send what has found its partition, and the rest after it
    for _ in range(60):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(60) == 0
    producer.poll(0)
    assert heard == [pytest.approx(2.1, abs=0.1)]
