"""Which ways lead into a broker, and on which ports."""

import ipaddress
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    ports: Mapping[str, Mapping[int, int]],
    *,
    has_users: bool,
    tls_pem: Path | None,
    tls_client_ca: Path | None = None,
    wanted_names: Sequence[str] | None = None,
) -> list[ListenerSpec]:
    """PLAINTEXT unless others are named; SASL with users, TLS with a certificate, both together with both.

    Args:
        ports: by listener name and broker id; SASL_SSL has those of SSL where that is not served.
        has_users: whether there is anybody to authenticate.
        tls_pem: certificate chain and key.
        wanted_names: serve these only; None for all that can be served.
        tls_client_ca: who must have signed clients' certificates on the SSL listener; None asks for none.

    Raises:
        ConfigError: the certificate cannot be used.
    """
    tls = None if tls_pem is None else _server_context(tls_pem)
    if tls_client_ca is not None and tls_pem is None:
        raise ConfigError("tls_client_ca needs tls_pem, the brokers' own certificate")
    wanted: list[tuple[str, ssl.SSLContext | None, bool]] = [(PLAINTEXT, None, False)]
    if tls_pem is not None:
        wanted.append((SSL, _server_context(tls_pem, tls_client_ca), False))
    if has_users:
        wanted.append((SASL_PLAINTEXT, None, True))
    if has_users and tls is not None:
        wanted.append((SASL_SSL, tls, True))
    if wanted_names is not None and SSL not in wanted_names:
        ports = {**ports, SASL_SSL: ports.get(SSL, {})}
    found = [ListenerSpec(name, context, needs, ports.get(name, {})) for name, context, needs in wanted]
    if wanted_names is None:
        return found
    for name in wanted_names:
        if name not in {spec.name for spec in found}:
            raise ConfigError(
                f"listeners names {name}: SASL needs users= or oauth=, TLS tls_pem=, and names are Kafka's"
            )
    if not wanted_names:
        raise ConfigError("listeners must name at least one, such as SASL_SSL")
    return [spec for spec in found if spec.name in wanted_names]


def address_of(host: str, port: int) -> str:
    """As clients write it in `bootstrap.servers`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def told_host(host: str, advertised: str | None) -> str:
    """What clients are told to connect to; "every address" is none that one can connect to.

    Raises:
        ConfigError: what is advertised can be no host.
    """
    if advertised is not None:
        if not _is_host(advertised):
            raise ConfigError(f"advertised_host {advertised!r}: write a name or an address alone, without a port")
        return advertised
    return "localhost" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound


def _is_host(text: str) -> bool:
    if ":" not in text:
        return re.fullmatch(r"[^\s/]+", text) is not None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


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


def _server_context(pem: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(pem)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_pem {pem}: {error}; it must hold a certificate chain and its key") from error
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls_client_ca {client_ca}: {error}; it must hold certificates") from error
    return context


_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """A client certificate's subject as Kafka's default principal has it (RFC 2253): `CN=alice,O=Example`."""
    pairs = [pair for names in certificate.get("subject", ()) for pair in names]
    return ",".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in reversed(pairs))


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in ',+"\\<>;' else character for character in value)
