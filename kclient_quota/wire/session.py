"""The client's side of one connection as a pure protocol: requests in, bytes out; bytes in, responses out.

`ClientSession` frames requests, pairs responses with them and knows which versions both ends speak. `negotiate` and
`authenticate` are conversations: generators that yield a request and are sent its response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kclient_quota import __version__
from kclient_quota.errors import ClusterError, WireError
from kclient_quota.wire.api import API_VERSIONS_KEY
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode, error_name
from kclient_quota.wire.frame import (
    MAX_FRAME_BYTES,
    FrameSplitter,
    RequestHeader,
    decode_response_header,
    encode_request,
    response_header_version,
)
from kclient_quota.wire.messages import (
    API,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kclient_quota.wire.scram import scram

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from kclient_quota.wire.codec import Part
    from kclient_quota.wire.schema import Request, Response

    Conversation = Generator[tuple[Request, int], Response]

SOFTWARE_NAME = "kclient-quota"
SOFTWARE_VERSION = __version__
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_CORRELATION_MASK = 0x7FFFFFFF
_REAUTHENTICATE_PERCENT = 85
_ERROR_CODE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Credentials:
    """What SASL needs of one attempt.

    Attributes:
        mechanism: one of `MECHANISMS`.
        username: for PLAIN and SCRAM.
        password: for PLAIN and SCRAM.
        token: for OAUTHBEARER.
        extensions: SASL extensions of OAUTHBEARER (KIP-342).
        nonce: SCRAM's client nonce, random printable ASCII; new for every attempt.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = field(default="", repr=False)


class Answer(NamedTuple):
    """A response and the request's correlation id."""

    correlation_id: int
    response: Response


class _Pending(NamedTuple):
    request: type[Request]
    version: int


class ClientSession:
    """State of a connection: what was asked, what was answered, what the broker speaks.

    Args:
        peer: `host:port`, for messages.
        client_id: sent with every request.
        max_frame_bytes: longer responses are refused.
    """

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.peer = peer
        self.versions: dict[int, tuple[int, int]] = {}
        self.reauthenticate_at_ms: int | None = None
        self._client_id = client_id
        self._splitter = FrameSplitter(max_frame_bytes)
        self._pending: dict[int, _Pending] = {}
        self._next_correlation_id = 0

    def pick_version(self, request: Request) -> int:
        """The newest version that both ends speak.

        Raises:
            ClusterError: there is none (UNSUPPORTED_VERSION).
        """
        api = API[request.__schema__.api_key]
        low, high = self.versions.get(api.key, (0, -1))
        version = min(high, api.max_version)
        if version < max(low, api.min_version):
            spoken = f"versions {low} to {high} of it" if high >= 0 else "no version of it"
            raise ClusterError(
                f"{self.peer} speaks {spoken}, we speak {api.name} versions {api.min_version} to {api.max_version}; "
                "ask a broker that has the API",
                error_code=ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    def send(self, request: Request, version: int) -> tuple[int, list[Part]]:
        """The request's correlation id and its frame.

        Raises:
            WireError: the request cannot be written in this version, or would never be answered.
        """
        if isinstance(request, ProduceRequest) and request.acks == 0:
            raise WireError("a ProduceRequest with acks=0 is never answered; use acks=1 or acks=-1, or tell it")
        correlation_id, frame = self._framed(request, version)
        self._pending[correlation_id] = _Pending(type(request), version)
        return correlation_id, frame

    def tell(self, request: ProduceRequest, version: int) -> list[Part]:
        """The frame of a request that is never answered: one with acks=0.

        Raises:
            WireError: the request cannot be written in this version, or would be answered.
        """
        if request.acks != 0:
            raise WireError(f"a ProduceRequest with acks={request.acks} is answered; use send")
        return self._framed(request, version)[1]

    def _framed(self, request: Request, version: int) -> tuple[int, list[Part]]:
        correlation_id = self._next_correlation_id
        key = request.__schema__.api_key
        frame = encode_request(request, RequestHeader(key, version, correlation_id, self._client_id))
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        return correlation_id, frame

    def receive(self, data: bytes | bytearray | memoryview) -> list[Answer]:
        """The responses that these bytes complete.

        Raises:
            WireError: the bytes are no response to anything asked; the connection is lost.
        """
        return [self._answer(frame) for frame in self._splitter.feed(data)]

    def needs_reauthentication(self, now_ms: int) -> bool:
        """Whether the broker's session lifetime (KIP-368) is nearly over."""
        return self.reauthenticate_at_ms is not None and now_ms >= self.reauthenticate_at_ms

    def authenticated(self, lifetime_ms: int, now_ms: int) -> None:
        """Note how long the broker grants; 0 is for ever."""
        granted = lifetime_ms * _REAUTHENTICATE_PERCENT // 100
        self.reauthenticate_at_ms = now_ms + granted if lifetime_ms > 0 else None

    def _answer(self, frame: bytes) -> Answer:
        header, _ = decode_response_header(frame, 0)
        pending = self._pending.pop(header.correlation_id, None)
        if pending is None:
            raise WireError(f"a response with correlation id {header.correlation_id}, which was never asked")
        schema = pending.request.__schema__
        _, start = decode_response_header(frame, response_header_version(schema.api_key, pending.version))
        response = _decode_response(schema.api_key, pending.version, frame, start)
        return Answer(header.correlation_id, response)


def _decode_response(key: int, version: int, frame: bytes, start: int) -> Response:
    """Read a body; of an ApiVersions refusal only the code, since brokers differ in what follows it."""
    if key == API_VERSIONS_KEY and version:
        code = int.from_bytes(frame[start : start + _ERROR_CODE_BYTES], "big")
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return ApiVersionsResponse(error_code=code)
    return decode(API[key].response, version, frame, start)


def negotiate(session: ClientSession) -> Conversation:
    """Ask which versions the broker speaks: our newest ApiVersions first, version 0 if that is refused.

    Raises:
        ClusterError: the broker answers with an error.
    """
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
    response: Any = yield request, API[API_VERSIONS_KEY].max_version
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = yield ApiVersionsRequest(), 0
    if response.error_code:
        raise ClusterError(
            f"{session.peer} refused ApiVersions: {error_name(response.error_code)}; is it a Kafka broker?",
            error_code=response.error_code,
        )
    session.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def authenticate(session: ClientSession, credentials: Credentials) -> Generator[tuple[Request, int], Response, int]:
    """Log in, or log in again (KIP-368); returns the session's lifetime in ms, 0 for no limit.

    Raises:
        ClusterError: mechanism or credentials were refused.
    """
    handshake = SaslHandshakeRequest(mechanism=credentials.mechanism)
    response: Any = yield handshake, session.pick_version(handshake)
    if response.error_code:
        offered = ", ".join(response.mechanisms) or "none"
        raise ClusterError(
            f"{session.peer} refused SASL mechanism {credentials.mechanism}: {error_name(response.error_code)}; "
            f"set sasl.mechanism to one of those it offers: {offered}",
            error_code=response.error_code,
        )
    exchange = _EXCHANGES[credentials.mechanism](credentials)
    lifetime_ms = 0
    message: bytes | None = next(exchange)
    while message is not None:
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = yield request, session.pick_version(request)
        _check_authentication(session, credentials, response)
        lifetime_ms = response.session_lifetime_ms
        message = _next_message(session, exchange, response.auth_bytes)
    return lifetime_ms


def _check_authentication(session: ClientSession, credentials: Credentials, response: Any) -> None:
    if response.error_code:
        raise ClusterError(
            f"{session.peer} refused the {credentials.mechanism} credentials: {error_name(response.error_code)} "
            f"{response.error_message or ''}; check sasl.username and sasl.password, or the token",
            error_code=response.error_code,
        )


def _next_message(session: ClientSession, exchange: _Exchange, challenge: bytes) -> bytes | None:
    try:
        return exchange.send(challenge)
    except StopIteration:
        return None
    except ValueError as error:
        raise ClusterError(
            f"{session.peer} could not prove that it knows the password: {error}; check sasl.password and the broker",
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        ) from error


def _plain(credentials: Credentials) -> _Exchange:
    yield b"\0".join((b"", credentials.username.encode(), credentials.password.encode()))


def _scram(credentials: Credentials) -> _Exchange:
    return scram(credentials.mechanism, credentials.username, credentials.password, credentials.nonce)


def _oauthbearer(credentials: Credentials) -> _Exchange:
    extensions = "".join(f"{name}={value}\x01" for name, value in credentials.extensions.items())
    challenge = yield f"n,,\x01auth=Bearer {credentials.token}\x01{extensions}\x01".encode()
    if challenge:  # the broker explains a refusal, and states it once we have acknowledged (RFC 7628)
        yield b"\x01"


if TYPE_CHECKING:
    from collections.abc import Callable

    _Exchange = Generator[bytes, bytes]

_EXCHANGES: dict[str, Callable[[Credentials], _Exchange]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
}
