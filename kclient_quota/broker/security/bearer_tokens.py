"""Bearer tokens (JWT, RFC 7519) as Kafka's OAUTHBEARER takes them: unsecured ones, and such signed HS256 or RS256.

Follows Kafka's `OAuthBearerUnsecuredValidatorCallbackHandler` and `BrokerJwtValidator`. The keys come as a JSON Web Key
Set (RFC 7517), as `sasl.oauthbearer.jwks.endpoint.url` would serve it. Pure: time is handed in.
"""

import base64
import binascii
import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNSECURED, HS256, RS256 = "none", "HS256", "RS256"
_PARTS = 3
_SHA256_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
"""RFC 8017, 9.2: what stands before a SHA-256 digest in an RSA signature."""
_LAST_S = (2**63 - 1) // 1000
"""The last second whose milliseconds fit Kafka's int64."""


class TokenError(ValueError):
    """A token that is not accepted; the message says why."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens a broker takes.

    Attributes:
        jwks: the keys for signed tokens: `{"keys": [{"kty": "oct", "k": ...}, {"kty": "RSA", "n": ..., "e": ...}]}`,
            each with a `kid` where there are several.
        is_unsecured: whether tokens without a signature are taken; never outside of tests.
        audience: what the token's `aud` must name, None for anything.
        issuer: what its `iss` must be, None for anything.
        principal_claim: the claim with the user's name.
    """

    jwks: Mapping[str, Any] | None = None
    is_unsecured: bool = False
    audience: str | None = None
    issuer: str | None = None
    principal_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was found good; `expires_ms` is in milliseconds since 1970."""

    principal: str
    expires_ms: int


def accept(text: str, rules: TokenRules, now_ms: int) -> Token:
    """Check a token.

    Raises:
        TokenError: it is malformed, badly signed, expired or meant for somebody else.
    """
    parts = text.split(".")
    if len(parts) != _PARTS:
        raise TokenError(f"a JWT has {_PARTS} parts, not {len(parts)}")
    header, claims = _json(parts[0]), _json(parts[1])
    algorithm = header.get("alg")
    if algorithm == UNSECURED:
        if not rules.is_unsecured or parts[2]:
            raise TokenError("unsecured tokens are not taken")
    else:
        _check_signature(algorithm, header.get("kid"), rules, f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2]))
    return _read(claims, rules, now_ms)


def _read(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> Token:
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenError("the token has no expiry (exp)")
    if expires_ms <= now_ms:
        raise TokenError("the token has expired")
    if "nbf" in claims and (begins_ms := _time_ms(claims, "nbf")) is not None and begins_ms > now_ms:
        raise TokenError("the token is not valid yet (nbf)")
    audiences = claims.get("aud", [])
    named = audiences if isinstance(audiences, list) else [audiences]
    if rules.audience is not None and rules.audience not in named:
        raise TokenError(f"the token is not meant for {rules.audience} (aud)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenError(f"the token is not from {rules.issuer} (iss)")
    principal = claims.get(rules.principal_claim)
    if not isinstance(principal, str) or not principal:
        raise TokenError(f"the token names nobody ({rules.principal_claim})")
    if not _is_text(principal):
        raise TokenError(f"the token's {rules.principal_claim} has half of a character")
    return Token(principal, expires_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """A time in milliseconds since 1970, of a claim in seconds; None where it is none."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # As Java turns a number into its longest integer: whatever is later, or earlier, is at its end.
    return int(max(-_LAST_S, min(value, _LAST_S)) * 1000)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_signature(algorithm: Any, key_id: Any, rules: TokenRules, signed: bytes, signature: bytes) -> None:
    kind, verify = ("oct", _verify_hs256) if algorithm == HS256 else ("RSA", _verify_rs256)
    keys = [
        key
        for key in (rules.jwks or {}).get("keys", [])
        if algorithm in (HS256, RS256) and key.get("kty") == kind and (key_id is None or key_id == key.get("kid"))
    ]
    if not any(verify(key, signed, signature) for key in keys):
        raise TokenError(f"no key of ours has signed this token ({algorithm})")


def _verify_hs256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    return hmac.compare_digest(hmac.digest(_bytes(key["k"]), signed, "sha256"), signature)


def _verify_rs256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    """RSASSA-PKCS1-v1_5 (RFC 8017, 8.2.2): the one encoding that a signature may hold is built and compared whole."""
    modulus, exponent = (int.from_bytes(_bytes(key[part])) for part in ("n", "e"))
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(signature)
    tail = _SHA256_DIGEST_INFO + hashlib.sha256(signed).digest()
    padding = size - len(tail) - 3
    if len(signature) != size or number >= modulus or padding < 8:  # noqa: PLR2004 - the RFC's least padding
        return False
    expected = b"\x00\x01" + b"\xff" * padding + b"\x00" + tail
    return hmac.compare_digest(pow(number, exponent, modulus).to_bytes(size), expected)


def _json(part: str) -> Mapping[str, Any]:
    data = _bytes(part)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenError("a part of the JWT is no JSON") from error
    if not isinstance(value, dict):
        raise TokenError("a part of the JWT is no JSON object")
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenError("a part of the JWT is no base64") from error
