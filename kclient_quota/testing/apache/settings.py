"""The brokers' property files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Where one broker listens; a port of 0 means that it has no such listener.

    Clients that come by `client_port` are told `advertised_port`: what a proxy stands before.
    """

    node_id: int
    plain_port: int
    controller_port: int = 0
    sasl_port: int = 0
    tls_port: int = 0
    client_port: int = 0
    advertised_port: int = 0


def layouts(
    count: int, free_ports: Callable[[int], list[int]], *, sasl: bool, tls: bool, advertised: Sequence[int] = ()
) -> list[Layout]:
    """Gives every broker its ports; the first is the controller as well."""
    ports = iter(free_ports(1 + count * 4))
    controller = next(ports)
    return [
        Layout(
            node_id=node_id,
            plain_port=next(ports),
            controller_port=controller if node_id == 1 else 0,
            sasl_port=next(ports) if sasl else 0,
            tls_port=next(ports) if tls else 0,
            client_port=next(ports) if advertised else 0,
            advertised_port=advertised[node_id - 1] if advertised else 0,
        )
        for node_id in range(1, count + 1)
    ]


def broker_properties(
    layout: Layout, cluster: Sequence[Layout], folder: Path, users: Mapping[str, str], tls_pem: Path | None
) -> dict[str, str]:
    """A small, quick broker: few threads, no rebalance delay, single-replica internal topics, no automatic topics."""
    listeners = {"PLAINTEXT": layout.plain_port}
    if layout.sasl_port:
        listeners["SASL_PLAINTEXT"] = layout.sasl_port
    if layout.tls_port:
        listeners["SSL"] = layout.tls_port
    told = dict(listeners)
    if layout.client_port:
        listeners["CLIENTS"], told["CLIENTS"] = layout.client_port, layout.advertised_port
    advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in told.items())
    if layout.controller_port:
        listeners["CONTROLLER"] = layout.controller_port
    return {
        "process.roles": "broker,controller" if layout.controller_port else "broker",
        "node.id": str(layout.node_id),
        "controller.quorum.voters": f"1@127.0.0.1:{cluster[0].controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in (
                ("PLAINTEXT", "PLAINTEXT"),
                ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
                ("SSL", "SSL"),
                ("CONTROLLER", "PLAINTEXT"),
                ("CLIENTS", "PLAINTEXT"),
            )
        ),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": advertised,
        "log.dirs": str(folder / f"broker-{layout.node_id}"),
        "control.bootstrap": ",".join(f"127.0.0.1:{broker.plain_port}" for broker in cluster),
        "metric.reporters": "Recorder",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.cleaner.threads": "1",
        **(_sasl(users) if layout.sasl_port else {}),
        **(_tls(tls_pem) if tls_pem is not None else {}),
    }


def render(properties: Mapping[str, str]) -> str:
    """A Java property file; keys are plain, values are escaped."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _sasl(users: Mapping[str, str]) -> dict[str, str]:
    known = " ".join(f"user_{_name(user)}={_quoted(password)}" for user, password in users.items())
    prefix = "listener.name.sasl_plaintext"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}.plain.sasl.jaas.config": f"{module} required {known};",
        **{
            f"{prefix}.{mechanism}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for mechanism in ("scram-sha-256", "scram-sha-512")
        },
    }


def _tls(pem: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem), "ssl.client.auth": "none"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _name(user: str) -> str:
    if not user.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"user {user!r}: only letters, digits, '-' and '_' can be given to Kafka's PLAIN login module")
    return user
