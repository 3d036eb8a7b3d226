"""Both brokers that a stranger's suite is run against: the embedded one and Apache Kafka, furnished alike."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache import ApacheKafka

EMBEDDED, APACHE = "embedded", "Apache Kafka"


@dataclass(frozen=True)
class Furniture:
    """What a suite expects to find.

    Attributes:
        brokers: how many.
        properties: brokers' own, on both sides.
        users: names and passwords, PLAIN and SCRAM.
        proxy_ports: clients are told these, of proxies, one per broker.
    """

    brokers: int = 1
    properties: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    proxy_ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Addresses:
    """Where clients come in: host:port of every broker, plain and with SASL; with proxies their ports, and behind them
    what they lead to."""

    plain: list[str]
    sasl: list[str]
    proxies: list[tuple[int, int]]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for candidate in sockets:
            candidate.bind(("127.0.0.1", 0))
        return [candidate.getsockname()[1] for candidate in sockets]


@contextmanager
def running(side: str, furniture: Furniture) -> Iterator[Addresses]:
    """One of the brokers, empty, for as long as the context lasts."""
    with (_embedded if side == EMBEDDED else _apache)(furniture, furniture.proxy_ports) as addresses:
        yield addresses


@contextmanager
def _embedded(furniture: Furniture, proxies: tuple[int, ...]) -> Iterator[Addresses]:
    with EmbeddedBroker(brokers=furniture.brokers, properties=furniture.properties, users=furniture.users) as broker:
        plain = broker.bootstrap_servers.split(",")
        sasl = broker.sasl_bootstrap_servers.split(",") if furniture.users else []
        own = [int(address.rpartition(":")[2]) for address in plain]
        for number, port in enumerate(proxies, 1):
            broker.advertise(number, port)
        yield Addresses(plain, sasl, list(zip(proxies, own, strict=False)))


@contextmanager
def _apache(furniture: Furniture, proxies: tuple[int, ...]) -> Iterator[Addresses]:
    with ApacheKafka(
        brokers=furniture.brokers,
        properties=furniture.properties,
        users=furniture.users,
        advertised_ports=proxies,
        heap_mb=1024,
    ) as kafka:
        plain = kafka.bootstrap_servers.split(",")
        sasl = kafka.sasl_bootstrap_servers.split(",") if furniture.users else []
        yield Addresses(plain, sasl, list(zip(proxies, kafka.client_ports, strict=False)))
