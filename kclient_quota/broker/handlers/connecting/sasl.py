"""Authentication.

SaslHandshake (17) v1 · SaslAuthenticate (36) v0-2.
KIP-43, KIP-84 (SCRAM), KIP-152 (errors in words), KIP-255 (OAUTHBEARER), KIP-368 (sessions that end;
`connections.max.reauth.ms`).

Behaviour: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 with the passwords in `cluster.users`, SCRAM with `cluster.scram` as
well (AlterUserScramCredentials), OAUTHBEARER by `cluster.tokens`. After a failure the connection is closed.
Versions: SaslAuthenticate 1 session lifetime (KIP-368); 2 flexible.
Gaps: no SaslHandshake v0 (tokens without Kafka's framing), no GSSAPI or delegation tokens; SASL extensions of
OAUTHBEARER are passed over.
"""

from secrets import token_hex

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.security.sasl_mechanisms import (
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    SaslAuthenticator,
    SaslConfig,
)
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

REAUTH_KEY = "connections.max.reauth.ms"


def _config(context: Context) -> SaslConfig:
    lifetime = context.cluster.config(BROKER, "", REAUTH_KEY)
    users = {name: str(password) for name, password in context.cluster.users.items()}
    tokens = context.cluster.tokens
    return SaslConfig(
        users,
        mechanisms=(PASSWORD_MECHANISMS if users or tokens is None else ()) + ((OAUTHBEARER,) if tokens else ()),
        tokens=tokens,
        session_lifetime_ms=int(lifetime or 0),
        salt=context.cluster.cluster_id.encode(),
        scram=context.cluster.scram,
    )


@handler(SaslHandshakeRequest, min_version=1, max_version=1, before_authentication=True)
async def sasl_handshake(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agree on a mechanism."""
    config = _config(context)
    if not context.connection.listener.startswith("SASL"):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=list(config.mechanisms))
    authenticator = context.connection.sasl
    if not isinstance(authenticator, SaslAuthenticator):
        authenticator = context.connection.sasl = SaslAuthenticator(config)
    error = authenticator.handshake(request.mechanism, token_hex(16))
    if error is not ErrorCode.NONE:
        context.connection.close_after_response = not context.connection.is_authenticated
    return SaslHandshakeResponse(error_code=error, mechanisms=list(config.mechanisms))


@handler(SaslAuthenticateRequest, min_version=0, max_version=2, before_authentication=True)
async def sasl_authenticate(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Take one token."""
    authenticator = context.connection.sasl
    if not isinstance(authenticator, SaslAuthenticator):
        context.connection.close_after_response = True
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received before SaslHandshake",
            auth_bytes=b"",
        )
    step = authenticator.authenticate(bytes(request.auth_bytes), context.scheduler.date_ms())
    if step.error is not ErrorCode.NONE:
        context.connection.close_after_response = True
    elif step.principal is not None:
        context.connection.principal = step.principal
        context.connection.is_authenticated = True
        lifetime_ms = step.session_lifetime_ms  # sessions last by the clock, which tokens are not dated by
        context.connection.session_ends_ms = context.now_ms + lifetime_ms if lifetime_ms else None
    return SaslAuthenticateResponse(
        error_code=step.error,
        error_message=step.message,
        auth_bytes=step.token,
        session_lifetime_ms=step.session_lifetime_ms,
    )
