"""What a test may do to the embedded broker: break it, restart it, throttle it, watch it, keep it, talk TLS to it."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import HANG_UP, IGNORE, EmbeddedBroker
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.testing.clock import ManualClock
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import ProduceResponse
from tests.certificates import self_signed

PRODUCE, FETCH = 0, 1


def produce(cluster, count=1, partition=0, **conf):
    """Delivery errors of `count` messages, None for those stored."""
    errors = []
    base = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    producer = Producer({**base, **conf})
    for _ in range(count):
        producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
    return errors


# -- life


def test_it_starts_and_stops_and_leaves_nothing():
    before = set(threading.enumerate())
    with EmbeddedBroker(topics={"t": 1}):
        pass
    for _ in range(5):
        broker = EmbeddedBroker(brokers=3, topics={"t": 4}).start()
        address = broker.bootstrap_servers.split(",")[0].split(":")
        socket.create_connection((address[0], int(address[1]))).close()
        broker.close()
        broker.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address[0], int(address[1])))
    assert set(threading.enumerate()) <= before


def test_it_may_be_started_again_after_it_was_closed():
    broker = EmbeddedBroker(topics={"t": 1})
    with pytest.raises(ClusterError, match="not running"):
        _ = broker.bootstrap_servers
    for _ in range(2):
        with broker:
            assert produce(broker) == [None]


def test_fixed_ports_are_kept_and_taken_ones_are_an_error_of_one_line():
    with EmbeddedBroker() as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(ConfigError, match="cannot listen"):
            EmbeddedBroker(ports=port).start()
    with EmbeddedBroker(ports=[port]) as again:
        assert again.bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": 0}, "brokers must be at least 1"),
        ({"brokers": 2, "ports": [1]}, "ports names 1 ports for 2 brokers"),
        ({"properties": {"quota.window.nun": "3"}}, "did you mean quota.window.num"),
        ({"properties": {"quota.window.num": "0"}}, "Value must be at least 1"),
        ({"properties": {"auto.create.topics.enable": "yes"}}, "either true or false"),
        ({"tls_pem": "/nowhere.pem"}, "tls_pem /nowhere.pem"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        EmbeddedBroker(**arguments).start()


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        ({"client_id": "a", "producer_byte_rat": 5}, "no quota producer_byte_rat"),
        ({"client_id": "a", "producer_byte_rate": 0}, "must be greater than 0"),
        ({"producer_byte_rate": 5}, "empty client quota entity"),
        ({"client_id": "a", "ip": "1.2.3.4", "producer_byte_rate": 5}, "combination"),
    ],
)
def test_quotas_that_cannot_be_are_refused(quota, message):
    with EmbeddedBroker() as cluster, pytest.raises(ConfigError, match=message):
        cluster.set_quota(**quota)


# -- quotas by hand


def test_set_quota_replaces_what_the_entity_had_and_the_admin_api_sees_it():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        cluster.set_quota(user="u", client_id="a", producer_byte_rate=5, consumer_byte_rate=6)
        cluster.set_quota(user="u", client_id="a", consumer_byte_rate=7)
        cluster.set_quota(default_user=True, request_percentage=50)
        quotas = cluster._call(lambda: dict(cluster._running().cluster.quotas))
        assert {str(entity): values for entity, values in quotas.items()} == {
            "{user=u, client-id=a}": {"consumer_byte_rate": 7},
            "{user=<default>}": {"request_percentage": 50},
        }


def test_throttles_pass_with_the_clock_that_is_given():
    clock = ManualClock()
    with EmbeddedBroker(topics={"t": 1}, clock=clock) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app", "linger.ms": 0})
        producer.produce("t", b"x" * 3_600)
        assert producer.flush(60) == 0
        (throttle_ms,) = [seen.throttle_time_ms for seen in cluster.requests if seen.throttle_time_ms]
        assert throttle_ms > 3_500_000, "about an hour"
        producer.produce("t", b"x")
        assert producer.flush(0.5) == 1
        clock.sleep_ms(throttle_ms)
        assert producer.flush(60) == 0


# -- test verbs


def test_a_throttle_may_be_injected_for_one_client():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        cluster.throttle_next(PRODUCE, 700, client_id="app")
        heard = []
        conf = {"throttle_cb": lambda event: heard.append(event.throttle_time)}
        assert produce(cluster, **conf) == [None]
        assert heard == []
        began = time.monotonic()
        assert produce(cluster, 2, **conf, **{"client.id": "app"}) == [None, None]
        assert heard[0] == 0.7
        assert 0.6 < time.monotonic() - began < 60


def test_requests_may_be_seen_answered_or_broken():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        seen = []
        cluster.control(PRODUCE, lambda asked: seen.append((asked.client_id, asked.broker_id)), times=None)
        assert produce(cluster, **{"client.id": "app"}) == [None]
        assert seen == [("app", 1)]

        def refuse(asked):
            parts = [
                ProduceResponse.PartitionProduceResponse(
                    index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1
                )
            ]
            return ProduceResponse(
                responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=parts)]
            )

        cluster.control(PRODUCE, refuse)
        (error,) = produce(cluster)
        assert error.name() == "MSG_SIZE_TOO_LARGE"
        answers = [HANG_UP]
        cluster.control(PRODUCE, lambda _: answers.pop())
        assert produce(cluster) == [None], "retried on a new connection"
        cluster.control(PRODUCE, lambda _: IGNORE)
        (error,) = produce(cluster, **{"message.timeout.ms": 1500})
        assert error.name() == "_MSG_TIMED_OUT"
        cluster.control(None, lambda _: HANG_UP, times=None)
        cluster.clear_controls()
        assert produce(cluster) == [None]


def test_connections_may_be_cut_by_client_id():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        producers = {}
        for name in ("a", "b"):
            producers[name] = Producer(
                {"bootstrap.servers": cluster.bootstrap_servers, "client.id": name, "linger.ms": 0}
            )
            producers[name].produce("t", b"x")
            assert producers[name].flush(60) == 0

        async def cut_twice():  # within a few turns of the broker's, in which nobody connects again
            first = cluster._running().kill_connections("a")
            for _ in range(3):
                await asyncio.sleep(0)
            return first, cluster._running().kill_connections("a")

        first, second = cluster._await(cut_twice())
        assert first >= 1
        assert second == 0
        for producer in producers.values():
            producer.produce("t", b"x")
            assert producer.flush(60) == 0
        assert cluster.kill_connections() >= 2


def test_a_killed_connection_in_mid_throttle_reconnects_and_is_still_over_its_quota():
    with EmbeddedBroker(topics={"t": 1}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=5_000)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"}
        batch = {"linger.ms": 60_000, "batch.num.messages": 60}
        producer = Producer({**conf, **batch, "reconnect.backoff.ms": 10})
        for _ in range(60):
            producer.produce("t", b"x" * 1000)
        assert producer.flush(60) == 0
        cluster.kill_connections("app")
        producer.produce("t", b"x")
        assert producer.flush(60) == 0
        throttles = [seen.throttle_time_ms for seen in cluster.requests if seen.api_key == PRODUCE]
        assert throttles[0] > 1_500
        assert throttles[1] > 1_000, "broker-side history survives the connection"


def test_a_restarted_broker_has_its_records_on_its_old_port_and_forgets_what_it_measured():
    with EmbeddedBroker(brokers=2, topics={"t": 2}) as cluster:
        before = cluster.bootstrap_servers
        cluster.set_quota(client_id="app", producer_byte_rate=1)
        assert produce(cluster, **{"client.id": "app"}) == [None]
        assert any(key[:2] == (1, "Produce") and key[2] == "byte-rate" for key in cluster.metrics())
        cluster.restart(1)
        assert cluster.bootstrap_servers == before
        assert not any(key[:2] == (1, "Produce") and key[2] == "byte-rate" for key in cluster.metrics())
        consumer = Consumer({"bootstrap.servers": before, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), 60) == (0, 1)
        consumer.close()


@pytest.mark.parametrize("partitions", [-1, 0, 100_001, 10**11])
def test_a_topic_is_no_larger_than_it_may_be_for_clients(partitions):
    with EmbeddedBroker() as cluster, pytest.raises(ConfigError, match=rf"1 to 100000 \(not {partitions}\)"):
        cluster.create_topic("t", partitions)


def test_a_stopped_broker_is_led_for_by_its_replica():
    with EmbeddedBroker(brokers=2) as cluster:
        cluster.create_topic("t", 1, replication=2)
        assert produce(cluster) == [None]
        cluster.stop_broker(1)
        assert produce(cluster) == [None]
        cluster.start_broker(1)
        assert produce(cluster, **{"enable.idempotence": True}) == [None]
        leader = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("t", 60)
        assert leader.topics["t"].partitions[0].leader == 1
        with pytest.raises(ConfigError, match="no broker 3"):
            cluster.stop_broker(3)


# -- metrics


def test_metrics_by_kafkas_names_also_as_a_prometheus_page():
    # windows of a minute: what was sent counts for ten, however long it takes to look at it
    window = {"quota.window.size.seconds": "60"}
    with EmbeddedBroker(topics={"t": 1}, metrics_port=0, properties=window) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=1_000_000)
        produce(cluster, 3, **{"client.id": "app"})
        until = time.monotonic() + 60
        while cluster.metrics()[1, "socket-server-metrics", "connection-count", ""]:
            assert time.monotonic() < until
            time.sleep(0.01)
        metrics = cluster.metrics()
        rate = metrics[1, "Produce", "byte-rate", "user=,client-id=app"]
        sizes = sum(seen.size_bytes for seen in cluster.requests if seen.api_key == PRODUCE)
        assert rate == pytest.approx(sizes / 630, rel=0.1)
        assert metrics[1, "socket-server-metrics", "request-total", ""] == len(cluster.requests)
        with urllib.request.urlopen(cluster.metrics_url) as answer:
            page = answer.read().decode()
        assert 'kafka_server_produce_byte_rate{broker="1",client_id="app",user=""}' in page
        asking = urllib.request.Request(cluster.metrics_url, headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asking) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")
        with pytest.raises(urllib.error.HTTPError, match="404") as raised:
            urllib.request.urlopen(cluster.metrics_url + "/other")
        raised.value.close()
    with EmbeddedBroker() as cluster, pytest.raises(ConfigError, match="metrics_port"):
        _ = cluster.metrics_url


# -- TLS and SASL


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Key and certificate for 127.0.0.1 in one file."""
    certificate, secret = self_signed()
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    path.write_bytes(secret + certificate)
    return path


@pytest.mark.parametrize("mechanism", [None, "PLAIN", "SCRAM-SHA-512"])
def test_tls_alone_and_with_sasl_carries_large_batches_and_throttles(pem, mechanism):
    with EmbeddedBroker(topics={"t": 1}, tls_pem=pem, users={"alice": "secret"}) as cluster:
        cluster.set_quota(user="alice", producer_byte_rate=200_000)
        conf = {
            "bootstrap.servers": cluster.sasl_tls_bootstrap_servers if mechanism else cluster.tls_bootstrap_servers,
            "security.protocol": "SASL_SSL" if mechanism else "SSL",
            "ssl.ca.location": str(pem),
            "linger.ms": 50,
        }
        if mechanism:
            conf |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "secret"}
        producer = Producer(conf)
        for _ in range(2_300):
            producer.produce("t", b"x" * 1000)
            producer.poll(0)
        assert producer.flush(60) == 0
        longest = max(seen.throttle_time_ms for seen in cluster.requests)
        assert (longest > 0) == bool(mechanism), "the quota is alice's"
        consumer = Consumer({**conf, "group.id": "g", "fetch.queue.backoff.ms": 1})
        consumer.assign([TopicPartition("t", 0, 0)])
        count, deadline = 0, time.monotonic() + 60
        while count < 2_300:
            assert time.monotonic() < deadline
            count += len(consumer.consume(1000, 1))
        consumer.close()


def test_listeners_that_nobody_asked_for_are_not_there():
    with EmbeddedBroker() as cluster:
        with pytest.raises(ConfigError, match="no SSL listener"):
            _ = cluster.tls_bootstrap_servers
        with pytest.raises(ConfigError, match="no SASL_PLAINTEXT listener"):
            _ = cluster.sasl_bootstrap_servers


# -- keeping


def test_what_was_stored_quotas_and_settings_survive_a_restart(tmp_path):
    for run in (1, 2):
        with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}, properties={"num.partitions": "3"}) as cluster:
            assert produce(cluster, **{"client.id": "app"}) == [None]
            if run == 1:
                cluster.set_quota(client_id="app", producer_byte_rate=1)
            else:
                assert max(seen.throttle_time_ms for seen in cluster.requests) > 0
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
            assert consumer.get_watermark_offsets(TopicPartition("t", 0), 60) == (0, run)
            consumer.close()
            with pytest.raises(ConfigError, match="another broker uses"):
                EmbeddedBroker(data_dir=tmp_path).start()


# -- on the command line


def _run(*arguments):
    command = [sys.executable, "-m", "kclient_quota.broker", "--port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(ending):
    quotas = ["--quota", "client-id=<default>,producer_byte_rate=1"]
    with _run("--brokers", "2", "--topic", "t:2", "--metrics-port", "0", *quotas) as process:
        servers = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        assert servers.count(":") == 2
        heard = []
        producer = Producer(
            {"bootstrap.servers": servers, "throttle_cb": lambda event: heard.append(event.throttle_time)}
        )
        producer.produce("t", b"x")
        assert producer.flush(60) == 0
        assert heard
        process.send_signal(ending)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_the_command_takes_a_manner():
    with _run("--manner", "managed") as process:
        servers = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        denied = discover_limit({"bootstrap.servers": servers}, None, "app", 60_000).denied
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "CLUSTER_AUTHORIZATION_FAILED" in denied


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t:x"], "--topic t:x"),
        (["--quota", "client-id=a,nonsense=1"], "neither an entity"),
        (["--quota", "client-id=a,producer_byte_rate=x"], "must be a number"),
        (["--property", "nonsense"], "write it as"),
        (["--quota", "client-id=a"], "--quota client-id=a: there is no quota in it"),
        (["--quota", "client-id=a,client-id=b,producer_byte_rate=1"], "client-id stands in it twice"),
        (["--quota", "client-id=a,producer_byte_rate=1,producer_byte_rate=2"], "producer_byte_rate stands in it twice"),
        (
            [f"--quota=client-id=a,producer_byte_rate={rate}" for rate in (1, 2)],
            "producer_byte_rate of client_id=a is named twice",
        ),
        (["--topic", "a", "--topic", "a:3"], "--topic: a is named twice"),
        (["--user", "u:p", "--user", "u:q"], "--user: u is named twice"),
        (["--property", "num.partitions=1", "--property", "num.partitions=2"], "num.partitions is named twice"),
        (["--host", ""], "--host is empty"),
        (["--advertised-host", ""], "advertised_host '': write a name or an address alone"),
        (["--advertised-host", "b:9092"], "advertised_host 'b:9092': write a name or an address alone"),
        (["--client-metrics-interval-ms", "500"], "says nothing without --otlp or --metrics-port"),
        (["--otlp-header", "k=v"], "--otlp-header says nothing without --otlp"),
        (["--otlp-ca", "ca.pem"], "--otlp-ca says nothing without --otlp"),
        (["--port", "65535", "--brokers", "3"], "--port 65535: write a port from 0 to 65533"),
        (["--port", "65536"], "--port 65536: write a port from 0 to 65535"),
        (["--otlp", "https://localhost", "--otlp-ca", "no-such.pem"], "--otlp-ca, --otlp-certificate, --otlp-key"),
        (["--otlp", "https://localhost", "--otlp-ca", __file__], "--otlp-ca, --otlp-certificate, --otlp-key"),
        (["--fsync", "5"], "--fsync 5 says nothing without --data"),
        (["--tls-port", "9093"], "--tls-port 9093 says nothing without --tls-pem"),
        (["--sasl-port", "9094"], "--sasl-port 9094 says nothing without --user"),
        (["--host", "192.0.2.1"], "name an address of this machine as host"),
        (["--host", "no-such-host.invalid"], "name an address of this machine as host"),
    ],
)
def test_the_command_says_in_one_line_what_it_cannot_use(arguments, message):
    with _run(*arguments) as process:
        assert process.wait(60) == 2
        (line,) = process.stderr.read().splitlines()
        assert message in line


def test_an_empty_folder_of_data_is_not_this_one():
    with _run("--data", "") as process:
        assert process.wait(60) == 2
        assert "--data: it is empty" in process.stderr.read()


def test_what_is_named_twice_alike_is_said_once():
    with _run("--topic", "a", "--topic", "a", "--quota=client-id=b,producer_byte_rate=5") as process:
        assert process.stdout.readline().startswith("bootstrap.servers=")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
