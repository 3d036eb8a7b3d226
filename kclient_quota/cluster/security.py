"""From a librdkafka configuration to what a connection of our own needs: addresses, TLS context, SASL.

The keys are librdkafka's and mean what they mean there, so that a client's own dictionary can be handed over as it is.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kclient_quota.config import as_read, client_id_of, sasl_mechanism, security_protocol, without_callbacks
from kclient_quota.errors import ConfigError
from kclient_quota.wire.endpoint import ConnectionSettings, Sasl
from kclient_quota.wire.session import MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_PORT = 9092
PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_LAST_PORT = 0xFFFF
_PORT = re.compile(r"\s*[+-]?[0-9]+")
_KEYSTORES = ("ssl.keystore.location", "ssl_certificate", "ssl_key", "ssl_ca", "ssl.engine.location", "ssl.providers")
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
_TRUE = ("true", "1", "t", "yes", "on")
_FALSE = ("false", "0", "f", "no", "off")


@dataclass(frozen=True, slots=True)
class Security:
    """What holds for every broker of a cluster.

    Attributes:
        client_id: sent with every request.
        tls: context, or None for plain TCP.
        sasl: how to log in, or None.
        family: which of a host's addresses count, as Python's sockets have it.
    """

    client_id: str
    tls: ssl.SSLContext | None
    sasl: Sasl | None
    family: int

    def settings(self, host: str, port: int) -> ConnectionSettings:
        """Settings for one broker."""
        return ConnectionSettings(host, port, self.client_id, self.tls, self.sasl, family=self.family)


def parse_security(conf: Mapping[str, Any]) -> Security:
    """Read security keys and build the TLS context, files included.

    Raises:
        ConfigError: a value cannot be used; the message names the key.
    """
    protocol = security_protocol(conf)
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol!r} is unknown; use one of {', '.join(PROTOCOLS)}")
    tls = _tls_context(conf) if protocol.endswith("ssl") else None
    sasl = _sasl(conf) if protocol.startswith("sasl") else None
    family = as_read(conf, "broker.address.family", "any").lower()
    if family not in _FAMILIES:
        raise ConfigError(f"broker.address.family={family!r} is unknown; use one of {', '.join(_FAMILIES)}")
    return Security(client_id_of(conf), tls, sasl, _FAMILIES[family])


class CurrentSecurity:
    """What a configuration's files hold now: certificates that are renewed count from the next connection on.

    Clients live longer than certificates, and those that are made later share the connection of earlier ones. Files
    that are gone, or just being written, change nothing: clients may have been made by somebody who may read them.

    Args:
        conf: a librdkafka configuration.

    Raises:
        ConfigError: it cannot be used.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        # clients share connections: the callbacks of one, and so that one, must not be kept by another
        self._conf = without_callbacks(conf)
        self._found = parse_security(conf)

    def settings(self, host: str, port: int) -> ConnectionSettings:
        """Settings for a new connection to one broker."""
        if self._found.tls is not None:
            with suppress(ConfigError):
                self._found = parse_security(self._conf)
        return self._found.settings(host, port)


def parse_bootstrap_servers(conf: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Hosts and ports of `bootstrap.servers`, in order, as librdkafka reads them.

    Like librdkafka it reads no further than the first that names another protocol, and goes on without those that
    nobody could connect to.

    Raises:
        ConfigError: the key is missing, or none of what it has is an address.
    """
    text = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
    if not isinstance(text, str) or not text.replace(",", " ").strip():
        raise ConfigError('bootstrap.servers is missing; set it to "host:port", several separated by commas')
    protocol = security_protocol(conf)
    parts = [_url(part.strip(), protocol) for part in text.split(",") if part.strip()]
    own = [bare for named, bare in takewhile(lambda part: part[0] == protocol, parts)]
    if not own:
        raise ConfigError(
            f"bootstrap.servers: {'://'.join(parts[0])!r} is not for security.protocol={protocol}; set that, or write "
            "host:port"
        )
    found = [address for address in map(_address, own) if address]
    if not found:
        raise ConfigError(f"bootstrap.servers: {own[0]!r} is no address; write host:port")
    return found


def _url(text: str, default: str) -> tuple[str, str]:
    """Its protocol, in small letters, and what follows, without what looks like a path."""
    protocol, is_url, rest = text.partition("://")
    return (protocol.lower(), rest.partition("/")[0]) if is_url else (default, text)


def _address(text: str) -> tuple[str, int] | None:
    """Without a host it is this machine; what stands behind a port's digits does not count (C's `atoi`)."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PORT)  # an IPv6 address without brackets has no port
    digits = _PORT.match(port)
    number = int(digits[0]) & _LAST_PORT if digits else 0
    if host.startswith("["):
        host, bracket, _ = host[1:].partition("]")
        number = number if bracket else 0
    return (host or "localhost", number) if number else None


def _sasl(conf: Mapping[str, Any]) -> Sasl:
    mechanism = sasl_mechanism(conf) or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism={mechanism} is not spoken by connections of our own; use one of {', '.join(MECHANISMS)}"
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, token=_token_source(conf))
    username, password = as_read(conf, "sasl.username"), as_read(conf, "sasl.password")
    if not username or conf.get("sasl.password") is None:
        raise ConfigError(f"sasl.mechanism={mechanism} needs sasl.username and sasl.password")
    return Sasl(mechanism, username, password)


def _token_source(conf: Mapping[str, Any]) -> Callable[[], tuple[str, Mapping[str, str]]]:
    """What asks the application for a token, as confluent_kafka does: `oauth_cb(config) -> (token, expiry, ...)`."""
    callback = conf.get("oauth_cb")
    if not callable(callback):
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs oauth_cb here; librdkafka's own token retrieval "
            "(sasl.oauthbearer.method) cannot be borrowed from it"
        )
    config = conf.get("sasl.oauthbearer.config", "")

    def token() -> tuple[str, Mapping[str, str]]:
        try:
            text, _expiry, *more = callback(config)
        except BaseException as error:
            # A thread of ours must not end by a `sys.exit()` there, which would be heard by nobody: librdkafka asks
            # again, too. In the main thread a signal's handler may have raised it.
            if isinstance(error, Exception) or threading.current_thread() is threading.main_thread():
                raise
            raise RuntimeError(f"oauth_cb has raised {type(error).__name__}: {error}") from error
        extensions = more[1] if len(more) > 1 and more[1] else {}
        return text, extensions

    return token


def _tls_context(conf: Mapping[str, Any]) -> ssl.SSLContext:
    for key in _KEYSTORES:
        if conf.get(key):
            raise ConfigError(f"{key} cannot be used by connections of our own; give ssl.certificate.*, ssl.key.* PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verify = _boolean(conf, "enable.ssl.certificate.verification", default=True)
    algorithm = as_read(conf, "ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in {"https", "none"}:
        raise ConfigError(f"ssl.endpoint.identification.algorithm={algorithm!r} is unknown; use https or none")
    context.check_hostname = verify and algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify:
        _load_authorities(context, conf)
    _load_certificate(context, conf)
    _choose_ciphers(context, as_read(conf, "ssl.cipher.suites"))
    return context


def _choose_ciphers(context: ssl.SSLContext, suites: str) -> None:
    """As librdkafka: OpenSSL's own choice (Python's has less than some brokers offer), and its level decides."""
    _checked("ssl.cipher.suites", lambda: context.set_ciphers(suites or "DEFAULT"))
    if suites:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED  # before TLS 1.2 with @SECLEVEL=0 alone


def _load_authorities(context: ssl.SSLContext, conf: Mapping[str, Any]) -> None:
    location, pem, revoked = (as_read(conf, f"ssl.{name}") for name in ("ca.location", "ca.pem", "crl.location"))
    if location and location != "probe":
        kind = "capath" if Path(location).is_dir() else "cafile"
        _checked("ssl.ca.location", lambda: context.load_verify_locations(**{kind: location}))
    elif not pem:
        context.load_default_certs()
    if pem:
        plain = pem.encode("ascii", "replace").decode()  # comments may be beyond ASCII, which Python refuses
        _checked("ssl.ca.pem", lambda: context.load_verify_locations(cadata=plain))
    if revoked:
        _checked("ssl.crl.location", lambda: context.load_verify_locations(revoked))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, conf: Mapping[str, Any]) -> None:
    certificate, key, certificate_pem, key_pem, password = (
        as_read(conf, f"ssl.{name}")
        for name in ("certificate.location", "key.location", "certificate.pem", "key.pem", "key.password")
    )
    if not (certificate or certificate_pem):
        if key or key_pem:
            raise ConfigError("ssl.key.* is set without ssl.certificate.location or ssl.certificate.pem")
        return
    with tempfile.TemporaryDirectory(prefix="kclient-quota-") as folder:
        chain = certificate or _private_file(folder, "certificate.pem", certificate_pem)
        secret = key or (_private_file(folder, "key.pem", key_pem) if key_pem else None)
        # a password is always given, or OpenSSL would ask for one on the terminal
        _checked(
            "ssl.certificate.*, ssl.key.*, ssl.key.password",
            lambda: context.load_cert_chain(chain, secret, password=password),
        )


def _private_file(folder: str, name: str, content: str) -> str:
    """A file for OpenSSL, which reads keys from files only; nobody else may read it."""
    path = Path(folder, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.encode(errors="replace"))
    return str(path)


def _checked(key: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"{key} cannot be used: {error}") from error


def _boolean(conf: Mapping[str, Any], key: str, *, default: bool) -> bool:
    text = as_read(conf, key, str(default)).lower()
    if text not in _TRUE + _FALSE:
        raise ConfigError(f"{key}={text!r} is neither true nor false")
    return text in _TRUE
