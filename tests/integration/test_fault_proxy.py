"""The proxies do to connections what they say, and no more."""

import gc
import socket
import struct
import threading
import time
from contextlib import suppress
from unittest import mock

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.proxies import Proxies
from kclient_quota.testing.proxy import FaultProxy
from tests.ctrl_c import soon
from tests.required import require_apache_kafka


@pytest.fixture
def echo():
    """The port of a server that sends everything back, and its connections."""
    server = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def serve(one):
        try:
            while data := one.recv(65536):
                one.sendall(data)
        except OSError:
            pass
        one.close()

    def accept():
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            accepted.append(one)
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(60)
    for one in accepted:
        one.close()


@pytest.fixture
def proxy(echo):
    with FaultProxy(echo) as proxy:
        yield proxy


@pytest.fixture
def client(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
        yield client


def read(client, count):
    found = b""
    while len(found) < count:
        data = client.recv(1 << 20)
        if not data:
            break
        found += data
    return found


def send_and_read(client, data):
    client.sendall(data)
    return read(client, len(data))


def test_bytes_pass_in_order_both_ways(proxy, client):
    data = b"".join(number.to_bytes(4, "big") for number in range(500_000))
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert read(client, len(data)) == data
    sender.join()
    assert proxy.connections == 1


@pytest.mark.parametrize(("to_broker_ms", "to_client_ms"), [(40, 60), (0, 100), (100, 0)])
def test_a_round_trip_takes_the_sum_of_both_delays(proxy, client, to_broker_ms, to_client_ms):
    proxy.delay(to_broker_ms=to_broker_ms, to_client_ms=to_client_ms)
    began = time.monotonic()
    assert send_and_read(client, b"ping") == b"ping"
    assert 0.1 <= time.monotonic() - began < 60
    proxy.delay()
    assert send_and_read(client, b"pong") == b"pong"


def test_a_delay_does_not_limit_bandwidth_and_keeps_the_order(proxy, client):
    proxy.delay(to_broker_ms=250, to_client_ms=250)
    data = b"".join(number.to_bytes(4, "big") for number in range(2_000_000))
    began = time.monotonic()
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert read(client, len(data)) == data
    sender.join()
    assert time.monotonic() - began < 50, "8 MB at 64 kB a round trip of 0.5 s would take 61 s"


def test_what_is_delayed_still_arrives_before_the_end(proxy, client):
    proxy.delay(to_client_ms=200)
    client.sendall(b"last words")
    time.sleep(0.1)
    client.shutdown(socket.SHUT_WR)
    assert read(client, 100) == b"last words"


def test_a_cut_is_a_reset_and_new_connections_work(proxy, client):
    send_and_read(client, b"hello")
    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as again:
        assert send_and_read(again, b"hello again") == b"hello again"


def test_a_stall_holds_everything_and_lets_it_go(proxy, client):
    send_and_read(client, b"hello")
    proxy.stall()
    client.sendall(b"held")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(60)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as late:
        late.sendall(b"late")
        proxy.resume()
        assert read(client, 4) == b"held"
        assert read(late, 4) == b"late"


def test_a_half_open_connection_is_silent_for_ever_and_new_ones_work(proxy, client):
    send_and_read(client, b"hello")
    assert proxy.half_open() == 1
    client.sendall(b"into the void")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as again:
        assert send_and_read(again, b"hello again") == b"hello again"


def test_some_are_stalled_and_all_arrive_in_order(proxy, client):
    proxy.stall_some(0.5, 100)
    began = time.monotonic()
    for number in range(20):
        assert send_and_read(client, bytes([number])) == bytes([number])
    assert 0.5 < time.monotonic() - began < 60


def test_refusing_and_taking_again(proxy):
    proxy.refuse()
    # the reset may come as early as while connecting
    with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as refused:
        refused.recv(1)
    proxy.refuse(is_refusing=False)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as taken:
        assert send_and_read(taken, b"hello") == b"hello"


def closed_while_clients_come_back(port):
    """What connects to a proxy between the cut and the end of its loop."""
    proxy = FaultProxy(port)
    cut, clients = proxy.cut, []

    def cut_and_come_back():
        cut()
        clients.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))
        clients[0].sendall(b"again")
        assert clients[0].recv(5) == b"again"
        clients.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=60))

    with mock.patch.object(proxy, "cut", cut_and_come_back):
        proxy.close()
    return clients


def test_a_client_that_comes_back_while_the_proxy_closes_leaves_nothing_open(echo, recwarn):
    for client in closed_while_clients_come_back(echo):
        with client, suppress(ConnectionResetError):
            assert client.recv(1) == b""
    gc.collect()
    assert [str(each.message) for each in recwarn if each.category is ResourceWarning] == []


def test_nothing_listens_upstream():
    with FaultProxy(1) as proxy:
        # the reset may come before the connection is told to be there
        with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
            client.recv(1)
        assert proxy.connections == 0
    with pytest.raises(ClusterError, match="closed"):
        proxy.cut()


def test_clients_of_an_embedded_cluster_stay_behind_the_proxies_over_a_restart():
    with Proxies(3) as proxies, EmbeddedBroker(brokers=3, topics={"orders": 3}) as cluster:
        proxies.stand_before(cluster)
        assert cluster.bootstrap_servers == proxies.bootstrap_servers
        write(cluster.bootstrap_servers, 90)
        assert all(proxies[broker_id].accepted for broker_id in (1, 2, 3)), "the leaders are met by proxies"
        cluster.restart(1)
        write(cluster.bootstrap_servers, 90)
        assert sum(log_ends(cluster.bootstrap_servers)) == 180
        with pytest.raises(ClusterError, match="2 proxies cannot stand before 3"), Proxies(2) as two:
            two.stand_before(cluster)


def test_a_connection_whose_client_is_gone_is_cut_at_its_other_end(proxy, client):
    client.sendall(b"there")
    assert read(client, 5) == b"there"
    proxy.stall()
    reset(client)
    heard = threading.Event()
    proxy.listen(lambda *_: heard.set())
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as later:
        later.sendall(b"so the reset has been seen")
        assert heard.wait(60)
        assert proxy.cut() == 2


def test_an_end_that_can_no_longer_be_passed_on_is_none():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FaultProxy(server.getsockname()[1]) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client,
        server.accept()[0] as broker,
    ):
        proxy.stall()
        client.shutdown(socket.SHUT_WR)
        soon(lambda: proxy._call(lambda: any(pair.to_broker._chunks for pair in proxy._road.pairs)))
        proxy._call(lambda: (reset(broker), proxy._road.resume()))  # so that it has not read of the reset


def reset(connection):
    """Close it as a process does that is killed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_clients_of_apache_kafka_stay_behind_the_proxies():
    require_apache_kafka()
    with Proxies(2) as proxies, ApacheKafka(brokers=2, advertised_ports=proxies.ports) as cluster:
        proxies.stand_before(cluster)
        cluster.create_topic("orders", 3)
        assert cluster.bootstrap_servers == proxies.bootstrap_servers
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=20, to_client_ms=20))
        write(cluster.bootstrap_servers, 90)
        assert all(proxies[broker_id].accepted for broker_id in (1, 2))
        assert sum(log_ends(cluster.bootstrap_servers)) == 90


def write(servers, count):
    failures = []
    producer = Producer({"bootstrap.servers": servers, "client.id": "orders"})
    try:
        for number in range(count):
            producer.produce(
                "orders",
                b"x",
                partition=number % 3,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(60) == 0
    finally:
        producer.close()
    assert failures == []


def log_ends(servers):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "looks"})
    try:
        return [
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition("orders", partition), timeout=60)[1]
            for partition in range(3)
        ]
    finally:
        consumer.close()
