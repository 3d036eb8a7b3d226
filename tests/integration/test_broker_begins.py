"""A broker that starts answers nobody before it is what it was told to be."""

import socket

from kclient_quota.broker import EmbeddedBroker
from tests.bare_requests import API_VERSIONS


def test_nobody_is_answered_before_the_topics_are_made(monkeypatch):
    """A client that waits for the port asked for the topic, which was made with one partition for good."""
    answered = []
    create = EmbeddedBroker.create_topic

    def asked_before(broker, name, *more):
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=1) as client:
            client.sendall(API_VERSIONS)
            try:
                answered.append(client.recv(1))
            except TimeoutError:
                create(broker, name, *more)

    monkeypatch.setattr(EmbeddedBroker, "create_topic", asked_before)
    with EmbeddedBroker(topics={"orders": 12}) as broker:
        assert not answered
        with socket.create_connection(broker.bootstrap_servers.split(":"), timeout=60) as client:
            client.sendall(API_VERSIONS)
            assert client.recv(1)
