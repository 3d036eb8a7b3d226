"""Which ways lead into a broker, and on which ports."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kclient_quota.errors import ConfigError

PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL = "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One way into every broker.

    Attributes:
        name: Kafka's listener name, here its security protocol: PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL.
        tls: the server's certificate and what it demands, or None.
        needs_authentication: whether SASL must come first.
        ports: by broker id; 0 or absent picks a free one.
    """

    name: str
    tls: ssl.SSLContext | None
    needs_authentication: bool
    ports: Mapping[int, int]


def listener_specs(
    ports: Mapping[str, Mapping[int, int]], *, has_users: bool, tls_pem: Path | None
) -> list[ListenerSpec]:
    """PLAINTEXT always; SASL with users, TLS with a certificate, both together with both.

    Args:
        ports: by listener name and broker id.
        has_users: whether there is anybody to authenticate.
        tls_pem: certificate chain and key.

    Raises:
        ConfigError: the certificate cannot be used.
    """
    tls = None if tls_pem is None else _server_context(tls_pem)
    wanted: list[tuple[str, ssl.SSLContext | None, bool]] = [(PLAINTEXT, None, False)]
    if tls is not None:
        wanted.append((SSL, tls, False))
    if has_users:
        wanted.append((SASL_PLAINTEXT, None, True))
    if has_users and tls is not None:
        wanted.append((SASL_SSL, tls, True))
    return [ListenerSpec(name, context, needs, ports.get(name, {})) for name, context, needs in wanted]


def spread_ports(name: str, ports: int | Sequence[int], ids: range) -> dict[int, int]:
    """Ports by broker id: one number is the first broker's, the others follow; 0 stays 0.

    Raises:
        ConfigError: there are more or fewer ports than brokers.
    """
    if isinstance(ports, int):
        return {broker_id: ports + broker_id - ids[0] if ports else 0 for broker_id in ids}
    if len(ports) != len(ids):
        raise ConfigError(f"{name} names {len(ports)} ports for {len(ids)} brokers; give one each, or 0")
    return dict(zip(ids, ports, strict=True))


def _server_context(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(pem)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_pem {pem}: {error}; it must hold a certificate chain and its key") from error
    return context
