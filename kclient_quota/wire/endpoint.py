"""Where to connect, how to log in, how long anything may take: what a connection is told."""

from __future__ import annotations

import secrets
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient_quota.errors import ClusterError, WireError
from kclient_quota.wire.frame import MAX_FRAME_BYTES
from kclient_quota.wire.session import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kclient_quota.clock import Clock

DEFAULT_TIMEOUT_MS = 30_000
RECEIVE_BYTES = 1 << 16
_NONCE_BYTES = 18


@dataclass(frozen=True, slots=True)
class Sasl:
    """How to log in.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: for PLAIN and SCRAM.
        password: for PLAIN and SCRAM.
        token: for OAUTHBEARER: called for every log-in, returns the token and its SASL extensions; may block.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], tuple[str, Mapping[str, str]]] | None = field(default=None, repr=False)

    def credentials(self) -> Credentials:
        """What one attempt needs: a token where tokens are asked for, a nonce of its own."""
        token, extensions = self.token() if self.token else ("", {})
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return Credentials(self.mechanism, self.username, self.password, token, extensions, nonce)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where to connect and how.

    Attributes:
        host: name or address.
        port: TCP port.
        client_id: sent with every request; quotas by client-id go by it.
        tls: context for TLS, None for plain TCP.
        sasl: how to log in, None for not at all.
        max_frame_bytes: longer responses are refused.
        family: which of the host's addresses count: AF_INET, AF_INET6, or AF_UNSPEC for all.
    """

    host: str
    port: int
    client_id: str = "kclient-quota"
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None
    max_frame_bytes: int = MAX_FRAME_BYTES
    family: int = socket.AF_UNSPEC

    @property
    def peer(self) -> str:
        """`host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Deadline:
    """What is left of an operation's time."""

    def __init__(self, clock: Clock, timeout_ms: int, peer: str, action: str) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._end_ms = clock.now_ms() + timeout_ms
        self._peer = peer
        self._action = action

    def left_seconds(self) -> float:
        """Seconds left, more than zero."""
        left_ms = self._end_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise self.expired()
        return left_ms / 1000

    def expired(self) -> ClusterError:
        """The error that says that nothing is left."""
        return ClusterError(
            f"{self._peer} did not {self._action} within {self._timeout_ms} ms; is it reachable, and is the "
            "security.protocol the listener's?"
        )

    def failed(self, error: Exception) -> ClusterError:
        """The error that says what went wrong before the time was up."""
        reason = str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = "check ssl.ca.location and that the certificate names this host"
        elif isinstance(error, ssl.SSLError):
            remedy = "check security.protocol: is the listener a TLS one?"
        elif isinstance(error, WireError):
            remedy = "check that the port is a Kafka listener's and security.protocol is the listener's"
        else:
            remedy = "check bootstrap.servers and the listener's security.protocol"
        return ClusterError(f"{self._peer} did not {self._action}: {reason}; {remedy}")
