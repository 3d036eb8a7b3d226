"""What one client does, or a test's own hook, stays with that client and that test."""

import socket
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.clock import ManualClock


def connected(broker, listener="PLAINTEXT"):
    host, _, port = broker.bootstrap_servers_of(listener).partition(":")
    return socket.create_connection((host, int(port)), 60)


def settled(broker):
    """Have the broker taken up what has been sent to it and what its clock has made due."""
    for _ in range(3):
        broker._call(lambda: None)
    time.sleep(0.02)
    for _ in range(3):
        broker._call(lambda: None)


def is_closed(stranger):
    stranger.settimeout(60)
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def is_open(stranger):
    stranger.settimeout(0.05)
    try:
        return stranger.recv(1) != b""
    except TimeoutError:
        return True


def test_before_authentication_a_request_has_half_a_megabyte_at_most():
    with EmbeddedBroker(users={"alice": "secret"}) as broker:
        too_much, enough = connected(broker, "SASL_PLAINTEXT"), connected(broker, "SASL_PLAINTEXT")
        too_much.sendall((512 * 1024 + 1).to_bytes(4))
        enough.sendall((512 * 1024).to_bytes(4))
        assert is_closed(too_much)
        assert is_open(enough)
        too_much.close()
        enough.close()


def test_idle_connections_are_closed_and_waiting_ones_are_not():
    clock = ManualClock()
    with EmbeddedBroker(clock=clock, topics={"t": 1}, properties={"connections.max.idle.ms": "60000"}) as broker:
        idle, slow = connected(broker), connected(broker)
        slow.sendall(b"\x00\x00")
        for turn in range(5):
            settled(broker)
            clock.sleep_ms(15_000)
            if turn == 2:
                slow.sendall(b"\x00")
        assert is_closed(idle)
        assert is_open(slow)
        slow.close()
        idle.close()


def test_connections_beyond_the_limit_of_an_address_are_closed():
    with EmbeddedBroker(properties={"max.connections.per.ip": "2"}) as broker:
        first, second, third = (connected(broker) for _ in range(3))
        assert is_closed(third)
        assert is_open(first)
        first.close()
        deadline = time.monotonic() + 60
        while broker.metrics()[1, "socket-server-metrics", "connection-count", ""] > 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        fourth = connected(broker)
        assert is_open(fourth)
        for one in (second, third, fourth):
            one.close()


def test_a_failing_answer_ends_its_own_connection_only(caplog):
    with EmbeddedBroker(topics={"t": 1}) as broker:
        waiting = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "client.id": "unlucky",
                "log_level": 0,
                "fetch.wait.max.ms": 5_000,
            }
        )
        waiting.assign([TopicPartition("t", 0, 0)])
        waiting.poll(1.0)
        node = broker._running().nodes[1]
        after_fetch = node.enforcement.after_fetch

        def raising(session, *arguments, **more):
            if session.client_id == "unlucky":
                raise RuntimeError("this quota callback has a fault")
            return after_fetch(session, *arguments, **more)

        node.enforcement.after_fetch = raising
        errors = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0, "log_level": 0})
        producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(60)
        assert errors == [None]
        deadline = time.monotonic() + 60
        while "this quota callback has a fault" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "this quota callback has a fault" in caplog.text
        waiting.close()


def test_a_control_function_may_call_the_broker():
    with EmbeddedBroker(topics={"t": 1}) as broker:
        seen = []

        def control(request):
            broker.set_quota(client_id="c", producer_byte_rate=5_000_000.0)
            broker.create_topic(f"made-{len(seen)}")
            seen.append(len(broker.requests))

        broker.control("Metadata", control)
        AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60)
        assert seen
        broker.clear_controls()


def test_a_failing_assertion_in_a_control_function_fails_the_test():
    called = threading.Event()

    def control(request):
        called.set()
        assert request.client_id == "somebody else", "the wrong client"

    def use():
        with EmbeddedBroker() as broker:
            broker.control("Metadata", control)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            assert called.wait(60)
            del admin

    with pytest.raises(AssertionError, match="the wrong client"):
        use()


def test_the_test_s_own_failure_comes_first():
    called = threading.Event()

    def control(request):
        called.set()
        raise ValueError("later")

    def use():
        with EmbeddedBroker() as broker:
            broker.control("Metadata", control)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            assert called.wait(60)
            del admin
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        use()
