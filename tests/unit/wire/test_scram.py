"""SCRAM as Kafka and librdkafka speak it: names and passwords as they are."""

import pytest

from kclient_quota.broker.security.sasl_mechanisms import SaslAuthenticator, SaslConfig
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.session import _EXCHANGES, Credentials

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(username="user", password="pencil", mechanism="SCRAM-SHA-256", nonce=NONCE):
    return _EXCHANGES[mechanism](Credentials(mechanism, username, password, nonce=nonce))


def test_the_example_of_rfc_7677():
    client = exchange()
    assert next(client) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.send(FIRST) == b"c=biws," + FIRST.partition(b",")[0] + b"," + PROOF
    with pytest.raises(StopIteration):
        client.send(VERDICT)


# what SASLprep (RFC 4013) makes something else of, or refuses
@pytest.mark.parametrize("password", ["µ²½", "cafe\u0301", "a\xa0b", "so\xadft", "ﬁ", "😀", "\u0378", "\x07", "a=b,c"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_is_what_the_broker_has_been_given(mechanism, password):
    broker = SaslAuthenticator(SaslConfig({"a=b,c": password}))
    assert broker.handshake(mechanism, "broker") is ErrorCode.NONE
    client = exchange("a=b,c", password, mechanism)
    step = broker.authenticate(next(client), 0)
    step = broker.authenticate(client.send(step.token), 0)
    assert (step.error, step.principal) == (ErrorCode.NONE, "a=b,c")
    with pytest.raises(StopIteration):
        client.send(step.token)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"e=unknown-user", "it answers unknown-user"),
        (FIRST.replace(b"rOpr", b"xOpr"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (FIRST.replace(b"4096", b"0"), "'0' iterations"),
        (FIRST.replace(b"4096", b"4000000000"), "'4000000000' iterations"),
        (FIRST.replace(b"4096", b"-1"), "'-1' iterations"),
        (FIRST.replace(b",i=4096", b""), "'' iterations"),
        (FIRST.replace(b"W22", b"?"), "is not base64"),
        (b"\xff", "utf-8"),
        (b"", "nonce"),
    ],
)
def test_what_is_no_challenge_is_refused(said, why):
    client = exchange()
    next(client)
    with pytest.raises(ValueError, match=why):
        client.send(said)


@pytest.mark.parametrize("said", [VERDICT.replace(b"6rr", b"7rr"), b"e=invalid-proof", b"v=", b"", b"v=?"])
def test_a_broker_that_does_not_know_the_password_is_found_out(said):
    client = exchange()
    next(client)
    client.send(FIRST)
    with pytest.raises(ValueError, match=r"signature|invalid-proof|base64"):
        client.send(said)
