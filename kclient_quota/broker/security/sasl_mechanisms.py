"""The server's side of SASL PLAIN, SCRAM and OAUTHBEARER (KIP-12, KIP-84, KIP-152, KIP-255, KIP-368).

Follows Kafka 4's `SaslServerAuthenticator`, `PlainSaslServer`, `ScramSaslServer` and `OAuthBearerSaslServer`. As in
Kafka, passwords are taken as they are, without SASLprep. Time and nonces are handed in.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kclient_quota.broker.security.bearer_tokens import TokenError, TokenRules, accept
from kclient_quota.broker.security.scram_credentials import MECHANISMS as SCRAM_MECHANISMS
from kclient_quota.broker.security.scram_credentials import ScramCredential, algorithm_of, credential
from kclient_quota.broker.security.scram_server import ScramError, ScramServer
from kclient_quota.wire.error_codes import ErrorCode

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
SCRAM_ITERATIONS = 4096
PLAIN_TOKENS = 3


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """What a listener demands.

    Attributes:
        users: password by user name.
        mechanisms: those that are offered, of `MECHANISMS`.
        tokens: which bearer tokens are taken; None for none.
        session_lifetime_ms: after which a client must authenticate again (`connections.max.reauth.ms`); 0: never, but
            for tokens, which expire.
        salt: random bytes from which each user's SCRAM salt is derived.
        scram: credentials that take the place of those that follow from passwords, by user and mechanism; None for no
            credential.
    """

    users: Mapping[str, str]
    mechanisms: tuple[str, ...] = PASSWORD_MECHANISMS
    tokens: TokenRules | None = None
    session_lifetime_ms: int = 0
    salt: bytes = b"kclient-quota"
    scram: Mapping[tuple[str, int], ScramCredential | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SaslStep:
    """What to answer to one token.

    Attributes:
        error: NONE, or why the connection ends here.
        message: Kafka's words for the error.
        token: bytes for the client.
        principal: the user's name, once it is proven.
        session_lifetime_ms: for how long; 0: for as long as the connection lasts.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    principal: str | None = None
    session_lifetime_ms: int = 0


class SaslAuthenticator:
    """Authentication state of one connection.

    Args:
        config: what the listener demands.
    """

    def __init__(self, config: SaslConfig) -> None:
        self._config = config
        self._mechanism: str | None = None
        self._scram: ScramServer | None = None
        self._refusal = ""
        self._principal: str | None = None

    @property
    def principal(self) -> str | None:
        """The user that is authenticated, or None."""
        return self._principal

    def handshake(self, mechanism: str, nonce: str) -> ErrorCode:
        """SaslHandshake: begin, or begin again, with a mechanism.

        Args:
            mechanism: as the client names it.
            nonce: printable random characters, for SCRAM.
        """
        if mechanism not in self._config.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        self._scram = None
        self._refusal = ""
        if mechanism.startswith("SCRAM"):
            self._scram = ScramServer(mechanism, self._credentials, nonce)
        return ErrorCode.NONE

    def authenticate(self, token: bytes, now_ms: int) -> SaslStep:
        """SaslAuthenticate: one token of the client's."""
        if self._mechanism is None:
            return SaslStep(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received before SaslHandshake")
        if self._mechanism == OAUTHBEARER:
            return self._bearer(token, now_ms)
        if self._scram is None:
            return self._plain(token, now_ms)
        try:
            return self._scram_step(self._scram, token, now_ms)
        except ScramError as error:
            usual = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            return self._failed(str(error) or f"{usual}{self._mechanism}")

    def _plain(self, token: bytes, now_ms: int) -> SaslStep:
        parts = token.split(b"\0")
        if len(parts) != PLAIN_TOKENS:
            return self._failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorization_id, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            return self._failed("Authentication failed: Invalid username or password")
        refusal = self._plain_refusal(authorization_id, user, password)
        return self._failed(f"Authentication failed: {refusal}") if refusal else self._succeeded(user, b"", now_ms)

    def _plain_refusal(self, authorization_id: str, user: str, password: str) -> str | None:
        if not user:
            return "username not specified"
        if not password:
            return "password not specified"
        expected = self._config.users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            return "Invalid username or password"
        if authorization_id not in {"", user}:
            return "Client requested an authorization id that is different from username"
        return None

    def _bearer(self, message: bytes, now_ms: int) -> SaslStep:
        """RFC 7628: a refusal is explained first, and stands once the client has acknowledged it."""
        if self._refusal:
            return self._failed(f"Authentication failed: {self._refusal}")
        try:
            token = accept(_bearer_token(message), self._config.tokens or TokenRules(), now_ms)
        except TokenError as error:
            self._refusal = str(error)
            return SaslStep(token=b'{"status":"invalid_token"}')
        return self._succeeded(token.principal, b"", now_ms, token.expires_ms)

    def _scram_step(self, server: ScramServer, token: bytes, now_ms: int) -> SaslStep:
        if not server.has_begun:
            return SaslStep(token=server.first(token))
        proof = server.final(token)
        return self._succeeded(server.user, proof, now_ms)

    def _credentials(self, user: str) -> ScramCredential | None:
        mechanism = next(number for number, name in SCRAM_MECHANISMS.items() if name == self._mechanism)
        if (user, mechanism) in self._config.scram:
            return self._config.scram[user, mechanism]
        password = self._config.users.get(user)
        if password is None:
            return None
        algorithm = algorithm_of(SCRAM_MECHANISMS[mechanism])
        salt = hashlib.sha256(self._config.salt + f"\0{algorithm}\0{user}".encode()).digest()[:16]
        return credential(mechanism, salt, _salted(algorithm, password, salt), SCRAM_ITERATIONS)

    def _succeeded(self, user: str, token: bytes, now_ms: int, expires_ms: int | None = None) -> SaslStep:
        if self._principal not in {None, user}:
            return self._failed(
                f"Cannot change principals during re-authentication from User.{self._principal}: User.{user}"
            )
        self._principal = user
        self._mechanism = self._scram = None
        lifetime_ms = self._config.session_lifetime_ms
        if expires_ms is not None:
            # a token's session ends with it, whether sessions end otherwise or not
            lifetime_ms = min(lifetime_ms or expires_ms - now_ms, expires_ms - now_ms)
        return SaslStep(token=token, principal=user, session_lifetime_ms=lifetime_ms)

    def _failed(self, message: str) -> SaslStep:
        self._mechanism = self._scram = None
        return SaslStep(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


@lru_cache(maxsize=1024)
def _salted(algorithm: str, password: str, salt: bytes) -> bytes:
    """Milliseconds of work by design; once for each user, however often a stranger begins to authenticate."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, SCRAM_ITERATIONS)


def _bearer_token(message: bytes) -> str:
    """The token in a client's first message: `n,,^Aauth=Bearer TOKEN^A[key=value^A...]^A`."""
    try:
        header, *pairs = message.decode().split("\x01")
    except UnicodeDecodeError as error:
        raise TokenError("the client's message is no text") from error
    fields = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    scheme, _, token = fields.get("auth", "").partition(" ")
    if not header.startswith("n,") or scheme.lower() != "bearer":
        raise TokenError("the client's message holds no bearer token")
    return token.strip()
