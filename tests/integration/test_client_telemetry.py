"""Client telemetry of our own producer and consumer, librdkafka's beside it, against the embedded broker."""

import asyncio
import gc
import subprocess
import sys
import threading
import time

import pytest
from kclient_telemetry.metric import MetricKind

from kclient_quota import AIOConsumer, AIOProducer, ConfigError, Consumer, MetricName, Producer
from kclient_quota.broker import IGNORE, EmbeddedBroker
from kclient_quota.testing.proxies import Proxies

GET, PUSH = 71, 72
PREFIX = "org.apache.kafka."


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={"t": 2}, users={"alice": "secret"}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A machine that stands still for a second must not cost the last push."""
    monkeypatch.setattr("kclient_quota.clients.telemetry.reporter.CLOSE_MS", 30_000)
    monkeypatch.setattr("kclient_quota.clients.telemetry.reporter.ABANDON_MS", 30_000)


def wait_until(condition, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def pushes(cluster, client_id):
    return [push for push in cluster.pushes if push.client_id == client_id]


def values(push):
    """{(name, attributes): value} of one push."""
    return {
        (metric.name, tuple(sorted((a.key, a.value.string_value) for a in point.attributes))): (
            point.as_double if point.HasField("as_double") else point.as_int
        )
        for resource in push.decode().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in (metric.gauge.data_points or metric.sum.data_points)
    }


def names(cluster, client_id):
    return {name.removeprefix(PREFIX) for push in pushes(cluster, client_id) for name in push.metric_names()}


def test_a_connection_that_has_gone_silent_is_replaced_after_socket_timeout_ms(cluster):
    cluster.set_client_metrics("all", interval_ms=300)
    with Proxies(1) as proxies:
        proxies.stand_before(cluster)
        conf = {"bootstrap.servers": proxies.bootstrap_servers, "client.id": "silent", "socket.timeout.ms": 1_000}
        with Producer(conf) as producer:
            producer.poll(0)
            assert wait_until(lambda: pushes(cluster, "silent"))
            proxies[1].half_open()
            before, since = len(pushes(cluster, "silent")), time.monotonic()
            assert wait_until(lambda: len(pushes(cluster, "silent")) > before + 1)
            assert time.monotonic() - since < 20


def test_a_slow_connection_is_kept_as_long_as_every_request_is_answered_within_socket_timeout_ms(cluster):
    """To connect and to ask takes several of them together."""
    cluster.set_client_metrics("all", interval_ms=300)
    with Proxies(1) as proxies:
        proxies.stand_before(cluster)
        proxies[1].delay(to_client_ms=600)
        conf = {"bootstrap.servers": proxies.bootstrap_servers, "client.id": "slow", "socket.timeout.ms": 1_000}
        with Producer(conf) as producer:
            producer.poll(0)
            assert wait_until(lambda: pushes(cluster, "slow"), timeout_s=20)


def test_a_producer_pushes_what_is_required_and_what_throttles_it(cluster):
    cluster.set_client_metrics("all", interval_ms=300)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "ours"}) as producer:
        for _ in range(3):
            producer.produce("t", b"x")
            producer.flush(60)
            wait_until(lambda: producer.poll(0.2) and False, 0.6)
        required = {
            "producer.connection.creation.rate",
            "producer.connection.creation.total",
            "producer.node.request.latency.avg",
            "producer.node.request.latency.max",
            "producer.produce.throttle.time.avg",
            "producer.produce.throttle.time.max",
            "producer.record.queue.time.avg",
            "producer.record.queue.time.max",
        }
        assert wait_until(lambda: (producer.poll(0.1), required <= names(cluster, "ours"))[1]), names(cluster, "ours")
        mine = producer.client_instance_id(0)
    seen = pushes(cluster, "ours")
    assert {push.client_instance_id for push in seen} == {mine}
    assert [push.terminating for push in seen].count(True) == 1
    assert seen[-1].terminating


def test_librdkafka_keeps_silent_where_ours_pushes(cluster):
    cluster.set_client_metrics("all", interval_ms=200)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "one"}) as producer:
        producer.produce("t", b"x")
        producer.flush(60)
        wait_until(lambda: len(pushes(cluster, "one")) >= 2)
    assert {push.context.client_software_name for push in pushes(cluster, "one")} == {"kclient-quota"}


def test_a_consumer_pushes_what_it_can_know(cluster):
    cluster.set_client_metrics("all", interval_ms=300)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("t", b"x")
    conf = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "reader",
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    with Consumer(conf) as consumer:
        consumer.subscribe(["t"])
        assert wait_until(lambda: consumer.poll(0.2))
        consumer.commit(asynchronous=False)
        required = {
            "consumer.connection.creation.rate",
            "consumer.connection.creation.total",
            "consumer.node.request.latency.avg",
            "consumer.node.request.latency.max",
            "consumer.coordinator.commit.latency.avg",
            "consumer.coordinator.commit.latency.max",
            "consumer.coordinator.assigned.partitions",
            "consumer.coordinator.rebalance.latency.avg",
            "consumer.coordinator.rebalance.latency.max",
            "consumer.coordinator.rebalance.latency.total",
            "consumer.fetch.manager.fetch.throttle.time.avg",
            "consumer.poll.idle.ratio.avg",
            "consumer.incoming.byte.total",
            "consumer.node.incoming.byte.rate",
        }
        assert wait_until(lambda: (consumer.poll(0.1) and False) or required <= names(cluster, "reader")), names(
            cluster, "reader"
        )
    latest = [push for push in pushes(cluster, "reader") if not push.terminating][-1]
    assert values(latest)[PREFIX + "consumer.coordinator.assigned.partitions", ()] == 2
    attributes = {a.key: a.value.string_value for r in latest.decode().resource_metrics for a in r.resource.attributes}
    assert attributes["group_id"] == "g"


def test_a_metric_of_the_application_is_pushed_until_it_is_taken_back(cluster):
    cluster.set_client_metrics("mine", metrics=[PREFIX + "shop."], interval_ms=100)
    orders = MetricName("orders-total", "shop-metrics")
    count = iter(range(1, 1_000_000))
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop"}) as producer:
        producer.register_metric_for_subscription(orders, lambda: next(count), MetricKind.SUM)
        assert wait_until(lambda: names(cluster, "shop") == {"shop.orders.total"})
        producer.unregister_metric_from_subscription(orders)
        so_far, asked = len(pushes(cluster, "shop")), requests(cluster, PUSH)
        # a push of nothing is answered, and not kept
        assert wait_until(lambda: requests(cluster, PUSH) > asked + 2)
        assert len(pushes(cluster, "shop")) <= so_far + 1


async def test_the_asyncio_pair_pushes_metrics_of_the_applications_too(cluster):
    cluster.set_client_metrics("mine", metrics=[PREFIX + "shop."], interval_ms=100)
    conf = {"bootstrap.servers": cluster.bootstrap_servers}
    async with (
        AIOProducer({**conf, "client.id": "aio-p"}) as producer,
        AIOConsumer({**conf, "client.id": "aio-c", "group.id": "g"}) as consumer,
    ):
        for client in (producer, consumer):
            assert await client.client_instance_id(60) is not None
            client.register_metric_for_subscription(MetricName("orders", "shop-metrics"), lambda: 5)
        for client_id in ("aio-p", "aio-c"):
            assert await asyncio.to_thread(wait_until, lambda of=client_id: names(cluster, of) == {"shop.orders"})
        producer.unregister_metric_from_subscription(MetricName("orders", "shop-metrics"))


def requests(cluster, api_key):
    return sum(1 for seen in cluster.requests if seen.api_key == api_key)


def test_an_id_is_given_before_anything_is_pushed_and_stays(cluster):
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        first = producer.client_instance_id(60)
        assert first is not None
        cluster.set_client_metrics("all", interval_ms=100)
        assert producer.client_instance_id(0) == first


def test_there_is_no_id_without_a_broker():
    with Producer({"bootstrap.servers": "127.0.0.1:1", "quota.limit.source": "learned"}) as producer:
        assert producer.client_instance_id(0.1) is None
        with pytest.raises(ValueError, match="cannot be negative"):
            producer.client_instance_id(-1)


def test_switched_off_nothing_is_asked_or_pushed(cluster):
    cluster.set_client_metrics("all", interval_ms=100)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "off", "enable.metrics.push": False}
    with Producer(conf) as producer:
        producer.produce("t", b"x")
        producer.flush(60)
        producer.register_metric_for_subscription(MetricName("a", "b"), lambda: 1)
        with pytest.raises(ConfigError, match=r"Set config `enable\.metrics\.push` to `true`"):
            producer.client_instance_id(1)
    assert [seen for seen in cluster.requests if seen.api_key in {GET, PUSH}] == []


def test_telemetry_logs_in_as_the_client_does(cluster):
    cluster.set_client_metrics("all", interval_ms=100)
    conf = {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "client.id": "secure",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    with Producer(conf):
        assert wait_until(lambda: pushes(cluster, "secure"))
    assert {push.context.principal for push in pushes(cluster, "secure")} == {"User:alice"}


def test_it_comes_back_with_the_password_that_the_client_is_told(cluster):
    """Whoever is refused otherwise asks again after five minutes, and then ever more seldom."""
    cluster.set_client_metrics("all", interval_ms=100)
    conf = {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "client.id": "renewed",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "expired",
        "log_level": 0,
    }
    with Producer(conf) as producer:
        assert wait_until(lambda: producer._kq_telemetry._reporter.counters.failed)
        producer.set_sasl_credentials("alice", "secret")
        assert wait_until(lambda: pushes(cluster, "renewed"))


def test_it_comes_back_after_its_connection_was_cut(cluster):
    cluster.set_client_metrics("all", interval_ms=200)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "cut"}) as producer:
        assert wait_until(lambda: pushes(cluster, "cut"))
        cluster.kill_connections("cut")
        so_far = len(pushes(cluster, "cut"))
        assert wait_until(lambda: len(pushes(cluster, "cut")) > so_far + 1)
        assert {push.client_instance_id for push in pushes(cluster, "cut")} == {producer.client_instance_id(0)}


def test_a_client_that_is_forgotten_leaves_no_thread(cluster):
    cluster.set_client_metrics("all", interval_ms=100)
    before = set(threading.enumerate())  # of clients that another test has left
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "gone"})
    assert wait_until(lambda: pushes(cluster, "gone"))
    own = [thread for thread in set(threading.enumerate()) - before if thread.name == "kafka-client-telemetry"]
    assert own
    del producer
    gc.collect()
    assert wait_until(lambda: not any(thread.is_alive() for thread in own))
    assert wait_until(lambda: pushes(cluster, "gone")[-1].terminating)


def test_a_broker_that_does_not_answer_holds_up_neither_the_start_nor_the_end(cluster):
    cluster.control(GET, lambda _: IGNORE, times=None)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mute"})
    producer.produce("t", b"x")
    assert producer.flush(60) == 0
    began = time.monotonic()
    producer.close()
    assert time.monotonic() - began < 20, "of the 30 s that a question waits for its answer"


def test_a_process_that_closes_nothing_says_good_bye_all_the_same(cluster):
    cluster.set_client_metrics("all", interval_ms=60_000)
    script = f"""
from kclient_quota import Producer
producer = Producer({{"bootstrap.servers": "{cluster.bootstrap_servers}", "client.id": "script"}})
assert producer.client_instance_id(60)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert wait_until(lambda: pushes(cluster, "script"))
    assert [push.terminating for push in pushes(cluster, "script")] == [True]


def test_the_pushed_time_in_the_queue_has_the_wait_for_the_quota_in_it(cluster):
    """Kafka's `record-queue-time` is all the time in a producer; librdkafka's begins behind the queue of ours."""
    cluster.set_client_metrics("all", interval_ms=300)
    cluster.set_quota(client_id="waits", producer_byte_rate=20_000)

    def told():
        mine = pushes(cluster, "waits")
        seen = values(mine[-1]) if mine else {}
        return [seen.get((f"{PREFIX}producer.{name}.queue.time.avg", ()), 0) for name in ("quota", "record")]

    def is_heard():
        waited, pushed = told()
        return pushed > 0.8 * waited > 100

    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "waits"}) as producer:
        for number in range(1_000):  # for ten seconds and more: the first statistics come while messages wait
            producer.produce("t", b"x" * 200, key=str(number))
            producer.poll(0)
        assert wait_until(lambda: (producer.poll(0.1), is_heard())[1]), told()
        producer.purge()
