"""Ways into a broker: only those that were asked for, at the address that clients can reach."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.command import _listeners, add_arguments
from kclient_quota.errors import ConfigError
from tests.certificates import authority_and_certificate
from tests.closed_port import closed_port


def brokers_of(servers, **config):
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **config})
    return {(each.host, each.port) for each in admin.list_topics(timeout=60).brokers.values()}


def test_what_is_secured_has_no_way_around_it():
    with EmbeddedBroker(users={"alice": "secret"}, listeners=("SASL_PLAINTEXT",)) as broker:
        assert broker.listeners == ["SASL_PLAINTEXT"]
        assert broker.bootstrap_servers == broker.sasl_bootstrap_servers
        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        assert brokers_of(broker.bootstrap_servers, **sasl, **{"sasl.password": "secret"})
        with pytest.raises(KafkaException):
            brokers_of(broker.bootstrap_servers)


def test_users_on_the_command_line_switch_plaintext_off():
    import argparse

    def chosen(*arguments):
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return _listeners(parser.parse_args(arguments))

    assert chosen() is None
    assert chosen("--user", "a:b") == ["SASL_PLAINTEXT"]
    assert chosen("--user", "a:b", "--tls-pem", "x.pem") == ["SASL_SSL", "SASL_PLAINTEXT"]
    assert chosen("--user", "a:b", "--listener", "PLAINTEXT") == ["PLAINTEXT"]


def test_tls_with_users_alone_is_at_the_port_that_is_given_for_tls(tmp_path):
    """It was at any free one: nobody knew which to publish."""
    files = authority_and_certificate(tmp_path)
    pem = tmp_path / "broker.pem"
    pem.write_text(Path(files.key_file).read_text() + Path(files.certificate_file).read_text())
    with closed_port() as port:
        pass  # free again
    with EmbeddedBroker(users={"a": "b"}, tls_pem=pem, tls_ports=port, listeners=("SASL_SSL",)) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
    with EmbeddedBroker(users={"a": "b"}, tls_pem=pem, tls_ports=port) as broker:
        assert broker.tls_bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("listeners", "message"), [(("SASL_SSL",), "SASL_SSL"), (("PLAIN",), "PLAIN"), ((), "at least one")]
)
def test_a_listener_that_cannot_be_served(listeners, message):
    with pytest.raises(ConfigError, match=message):
        EmbeddedBroker(listeners=listeners).start()


def test_every_address_is_advertised_as_one_that_can_be_reached():
    with EmbeddedBroker(host="0.0.0.0") as broker:
        ((host, port),) = brokers_of(broker.bootstrap_servers)
        assert host == "localhost"
        assert brokers_of(f"127.0.0.1:{port}")


def test_the_advertised_host_is_what_clients_are_told():
    with EmbeddedBroker(host="0.0.0.0", advertised_host="127.0.0.1") as broker:
        assert {host for host, _ in brokers_of(broker.bootstrap_servers)} == {"127.0.0.1"}


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 loopback here")
def test_ipv6():
    with EmbeddedBroker(host="::1") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        assert {host for host, _ in brokers_of(broker.bootstrap_servers)} == {"::1"}


@pytest.mark.skipif(not has_ipv6() or not socket.has_dualstack_ipv6(), reason="there are no sockets for both here")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_address_of_ipv6_is_every_address_of_ipv4_too_known_by_its_own_name(address):
    with EmbeddedBroker(host="::") as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with socket.create_connection((address, port), 60) as client:
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")  # ApiVersions
            assert client.recv(4)
            assert list(broker._running().nodes[1].traffic.by_address) == [address]
