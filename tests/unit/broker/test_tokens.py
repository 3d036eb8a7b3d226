"""Which JWTs are taken; RFC 7515's own examples as the oracle."""

import base64
import json

import pytest

from kclient_quota.broker.security.bearer_tokens import TokenError, TokenRules, accept
from kclient_quota.broker.security.sasl_mechanisms import SaslAuthenticator, SaslConfig
from kclient_quota.wire.error_codes import ErrorCode

# RFC 7515, A.1: HS256 with this key over claims of "joe" that expire at 1300819380
RFC_KEY = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
RFC_TOKEN = (
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
    ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
)
RFC_RULES = TokenRules(jwks={"keys": [{"kty": "oct", "k": RFC_KEY}]}, principal_claim="iss")
EXPIRES_MS = 1_300_819_380_000
UNSECURED = TokenRules(is_unsecured=True)


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token(algorithm="none", **claims):
    return f"{encoded({'alg': algorithm})}.{encoded({'sub': 'alice', 'exp': 10, **claims})}."


DEEP = base64.urlsafe_b64encode(b"[" * 99_999).decode()


@pytest.mark.parametrize("exp", [1e18, 1e307, 10**400], ids=["1e18", "1e307", "10**400"])
def test_what_expires_later_than_kafka_can_say_expires_as_late_as_it_can(exp):
    taken = accept(token(exp=exp), UNSECURED, 0)
    assert 2**63 - 2000 < taken.expires_ms < 2**63


def test_the_example_of_the_rfc():
    taken = accept(RFC_TOKEN, RFC_RULES, EXPIRES_MS - 1)
    assert (taken.principal, taken.expires_ms) == ("joe", EXPIRES_MS)


def test_the_example_of_the_rfc_too_late():
    with pytest.raises(TokenError, match="expired"):
        accept(RFC_TOKEN, RFC_RULES, EXPIRES_MS)


@pytest.mark.parametrize("position", [5, 60, -3])
def test_a_changed_character(position):
    changed = "A" if RFC_TOKEN[position] != "A" else "B"
    index = position % len(RFC_TOKEN)
    with pytest.raises(TokenError):
        accept(RFC_TOKEN[:index] + changed + RFC_TOKEN[index + 1 :], RFC_RULES, 0)


@pytest.mark.parametrize(
    ("text", "rules", "why"),
    [
        (token(), TokenRules(), "unsecured tokens are not taken"),
        (token() + "AAAA", UNSECURED, "unsecured tokens are not taken"),
        (token(exp=None), UNSECURED, "no expiry"),
        (token(exp=True), UNSECURED, "no expiry"),
        (token(exp=float("inf")), UNSECURED, "no expiry"),
        (token(aud=7), TokenRules(is_unsecured=True, audience="a"), "not meant for a"),
        (token(nbf=9), UNSECURED, "not valid yet"),
        (token(sub=""), UNSECURED, "names nobody"),
        (token(sub="\ud800"), UNSECURED, "half of a character"),
        (f"{DEEP}.{encoded({})}.", UNSECURED, "no JSON"),
        (f"{encoded({'alg': 'none'})}.{DEEP}.", UNSECURED, "no JSON"),
        (token(nbf=1e307), UNSECURED, "not valid yet"),
        (token(exp=-(10**400)), UNSECURED, "expired"),
        (token(sub=7), UNSECURED, "names nobody"),
        (token(aud="b"), TokenRules(is_unsecured=True, audience="a"), "not meant for a"),
        (token(iss="b"), TokenRules(is_unsecured=True, issuer="a"), "not from a"),
        (token("HS256"), UNSECURED, "no key of ours"),
        (token("ES256"), RFC_RULES, "no key of ours"),
        (token(["HS256"]), RFC_RULES, "no key of ours"),
        ("a.b", UNSECURED, "3 parts"),
        ("!.b.c", UNSECURED, "base64"),
        ("AAAA.AAAA.", UNSECURED, "no JSON"),
        (f"{encoded([])}.{encoded({})}.", UNSECURED, "no JSON object"),
    ],
)
def test_what_is_refused(text, rules, why):
    with pytest.raises(TokenError, match=why):
        accept(text, rules, 5_000)


@pytest.mark.parametrize("audience", ["a", ["x", "a"]])
def test_an_audience_may_be_one_of_several(audience):
    assert accept(token(aud=audience), TokenRules(is_unsecured=True, audience="a"), 0).principal == "alice"


def authenticator(lifetime_ms=0):
    config = SaslConfig({}, mechanisms=("OAUTHBEARER",), tokens=UNSECURED, session_lifetime_ms=lifetime_ms)
    made = SaslAuthenticator(config)
    assert made.handshake("OAUTHBEARER", "nonce") is ErrorCode.NONE
    return made


def message(text):
    return f"n,,\x01auth=Bearer {text}\x01\x01".encode()


@pytest.mark.parametrize(("most_ms", "lifetime_ms"), [(60_000, 6_000), (0, 6_000), (2_000, 2_000)])
def test_a_session_ends_with_its_token_or_before(most_ms, lifetime_ms):
    step = authenticator(most_ms).authenticate(message(token()), 4_000)
    assert (step.principal, step.session_lifetime_ms) == ("alice", lifetime_ms)


def test_a_refusal_is_explained_and_then_stated():
    refused = authenticator()
    first = refused.authenticate(message(token(exp=1)), 4_000)
    assert (first.error, json.loads(first.token)) == (ErrorCode.NONE, {"status": "invalid_token"})
    second = refused.authenticate(b"\x01", 4_000)
    assert (second.error, second.message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: the token has expired",
    )


@pytest.mark.parametrize("first", [b"", b"\xff", b"n,,\x01\x01", b"y\x01auth=Bearer x\x01\x01"])
def test_what_is_no_bearer_message(first):
    assert b"invalid_token" in authenticator().authenticate(first, 0).token
