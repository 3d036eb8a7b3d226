"""From throttled clients to a quota that serves: pushes in a topic, Spark, a file, `kafka-quotas apply`."""

import time

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas
from kclient_quota.errors import ClusterError
from kclient_quota.spark.jobs.recommend import Policy
from kclient_quota.spark.pipeline import Plan, run
from tests.spark.receiving import FROM_THE_FUTURE, Client, ToTopic, receive

TOPIC = "telemetry"
NEEDED = 200_000
TOO_LITTLE = 20_000


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={TOPIC: 1, "orders": 1}, properties=FROM_THE_FUTURE) as broker:
        broker.set_quota(client_id="orders", producer_byte_rate=TOO_LITTLE)
        yield broker


def longest_ms(producer):
    return max(value for name, value in producer.metrics().items() if name.name == "produce-throttle-time-max")


def throttle_ms(broker, seconds=2.5, *, is_awaited=False):
    """What the broker tells a client that sends what it needs, without looking at its quota first."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "orders", "quota.backoff": "off"}
    producer = Producer({**conf, "batch.size": 16_384})
    end = time.monotonic() + seconds
    while time.monotonic() < end or (is_awaited and not longest_ms(producer) and time.monotonic() < end + 60):
        for _ in range(10):
            producer.produce("orders", b"x" * (NEEDED // 200))
        producer.poll(0.05)
    producer.flush(1)
    found = longest_ms(producer)
    producer.purge()
    return found


def test_the_throttling_is_gone(spark, cluster, tmp_path, capsys):
    assert throttle_ms(cluster, is_awaited=True) > 0
    sink = ToTopic(cluster, TOPIC)
    many = [Client(n, f"app{n}", "u", 3_000, brokers=(0,)) for n in range(9)]
    receive([*many, Client(9, "orders", "u", NEEDED, brokers=(0,))], 6, [sink])
    sink.close(60_000)
    file = tmp_path / "quotas.yaml"
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    run(spark, Plan("recommend", TOPIC, str(file), client=client, policy=Policy(headroom=1.5, default_quantile=0.9)))
    server = ["--bootstrap-server", cluster.bootstrap_servers, "--units-store", "none"]
    assert quotas.main(["plan", str(file), *server]) == 0
    planned = capsys.readouterr().out
    assert "client-id=orders" in planned.replace("'", "")
    assert quotas.main(["apply", str(file), *server]) == 0
    time.sleep(0.1)
    assert throttle_ms(cluster) == 0


def test_an_unreachable_broker_is_named(spark, tmp_path):
    client = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000, "log_level": 0}
    plan = Plan("usage", TOPIC, str(tmp_path / "out"), client=client)
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1"):
        run(spark, plan)
