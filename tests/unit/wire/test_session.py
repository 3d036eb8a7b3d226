"""The client's protocol without a socket, against a broker written down in the test."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from kclient_quota.errors import ClusterError, WireError
from kclient_quota.wire.codec import encode
from kclient_quota.wire.frame import encode_response
from kclient_quota.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kclient_quota.wire.session import ClientSession, Credentials, authenticate, negotiate

VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in ((3, 0, 99), (17, 0, 1), (18, 0, 4), (22, 7, 9), (36, 0, 2))
    ]
)


def session():
    return ClientSession("broker:9092", "app")


def converse(conversation, *answers):
    """Run a conversation with these answers; what was asked, and what it returned."""
    asked = [next(conversation)]
    for answer in answers:
        try:
            asked.append(conversation.send(answer))
        except StopIteration as end:
            return asked, end.value
    raise AssertionError(f"the conversation wants more: {asked[-1]}")


def ready():
    made = session()
    converse(negotiate(made), VERSIONS)
    return made


def frame_of(correlation_id, response, version):
    return b"".join(encode_response(response, version, correlation_id))


def test_versions_are_the_newest_common_ones():
    made = ready()
    assert made.pick_version(MetadataRequest()) == 13
    assert made.pick_version(SaslHandshakeRequest()) == 1
    with pytest.raises(
        ClusterError, match="broker:9092 speaks no version of it, we speak DescribeClientQuotas"
    ) as caught:
        made.pick_version(DescribeClientQuotasRequest())
    assert caught.value.error_code == 35
    with pytest.raises(ClusterError, match="speaks versions 7 to 9 of it, we speak InitProducerId versions 0 to 5"):
        made.pick_version(InitProducerIdRequest())


def test_api_versions_is_asked_again_in_version_0():
    made = session()
    asked, _ = converse(negotiate(made), ApiVersionsResponse(error_code=35), VERSIONS)
    assert [version for _, version in asked] == [4, 0]
    assert asked[0][0].client_software_name == "kclient-quota"
    assert made.versions[18] == (0, 4)


@pytest.mark.parametrize("body", ["0023", "0023" + "02" + "0012" * 3 + "00", "002300000000", "0023ffffffff"])
def test_the_body_behind_error_35_is_not_trusted(body):
    made = session()
    correlation_id, _ = made.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    raw = correlation_id.to_bytes(4, "big") + bytes.fromhex(body)
    (answer,) = made.receive(len(raw).to_bytes(4, "big") + raw)
    assert answer.response == ApiVersionsResponse(error_code=35)


def test_other_refusals_of_api_versions_are_errors():
    with pytest.raises(ClusterError, match=r"refused ApiVersions: CLUSTER_AUTHORIZATION_FAILED \(31\)"):
        converse(negotiate(session()), ApiVersionsResponse(error_code=31))


def test_answers_are_paired_with_what_was_asked():
    made = ready()
    first, frame = made.send(MetadataRequest(), 9)
    second, _ = made.send(MetadataRequest(), 0)
    assert b"".join(frame)[4:8].hex() == "00030009"
    answers = made.receive(
        frame_of(second, MetadataResponse(), 0) + frame_of(first, MetadataResponse(cluster_id="c"), 9)
    )
    assert [(answer.correlation_id, answer.response.cluster_id) for answer in answers] == [(second, None), (first, "c")]


def test_answers_nobody_asked_for_lose_the_connection():
    with pytest.raises(WireError, match="correlation id 7, which was never asked"):
        ready().receive(frame_of(7, MetadataResponse(), 0))


def test_tags_of_the_header_are_skipped():
    made = ready()
    correlation_id, _ = made.send(MetadataRequest(), 9)
    raw = correlation_id.to_bytes(4, "big") + b"\1\1\3new" + encode(MetadataResponse(), 9)
    (answer,) = made.receive(len(raw).to_bytes(4, "big") + raw)
    assert answer.response == MetadataResponse()


def test_produce_without_acks_is_refused():
    with pytest.raises(WireError, match="acks=0 is never answered"):
        ready().send(ProduceRequest(acks=0), 9)


def test_produce_without_acks_is_told_and_nothing_is_expected():
    made = ready()
    first = b"".join(made.tell(ProduceRequest(acks=0), 9))
    correlation_id, _ = made.send(MetadataRequest(), 9)
    assert int.from_bytes(first[8:12]) == correlation_id - 1
    (answer,) = made.receive(frame_of(correlation_id, MetadataResponse(), 9))
    assert answer.correlation_id == correlation_id


def test_what_is_answered_is_not_told():
    with pytest.raises(WireError, match="acks=1 is answered"):
        ready().tell(ProduceRequest(acks=1), 9)


def test_plain():
    asked, lifetime_ms = converse(
        authenticate(ready(), Credentials("PLAIN", "alice", "sécret")),
        SaslHandshakeResponse(mechanisms=["PLAIN"]),
        SaslAuthenticateResponse(session_lifetime_ms=60_000),
    )
    assert asked[0] == (SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert asked[1] == (SaslAuthenticateRequest(auth_bytes="\0alice\0sécret".encode()), 2)
    assert lifetime_ms == 60_000


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_scram_both_sides_prove_themselves(mechanism, password):
    server_side = ScramMechanism(mechanism)
    salt, stored_key, server_key, rounds = server_side.make_auth_info("secret")
    server = server_side.make_server(lambda _user: (salt, stored_key, server_key, rounds))
    conversation = authenticate(ready(), Credentials(mechanism, "alice", password, nonce="n0nce"))
    next(conversation)
    first, _ = conversation.send(SaslHandshakeResponse())
    assert first.auth_bytes == b"n,,n=alice,r=n0nce"
    server.set_client_first(first.auth_bytes.decode())
    final, _ = conversation.send(SaslAuthenticateResponse(auth_bytes=server.get_server_first().encode()))
    if password == "wrong":
        with pytest.raises(ClusterError, match=r"refused the SCRAM.*SASL_AUTHENTICATION_FAILED \(58\) bad"):
            conversation.send(SaslAuthenticateResponse(error_code=58, error_message="bad"))
        return
    server.set_client_final(final.auth_bytes.decode())
    with pytest.raises(StopIteration):
        conversation.send(SaslAuthenticateResponse(auth_bytes=server.get_server_final().encode()))


def test_a_server_that_does_not_know_the_password_is_found_out():
    conversation = authenticate(ready(), Credentials("SCRAM-SHA-256", "alice", "secret", nonce="n0nce"))
    next(conversation)
    conversation.send(SaslHandshakeResponse())
    conversation.send(SaslAuthenticateResponse(auth_bytes=b"r=n0nceX,s=QSXCR+Q6sek8bf92,i=4096"))
    with pytest.raises(ClusterError, match="could not prove that it knows the password"):
        conversation.send(SaslAuthenticateResponse(auth_bytes=b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))


def test_oauthbearer_with_extensions_and_a_refusal():
    conversation = authenticate(ready(), Credentials("OAUTHBEARER", token="tok", extensions={"tenant": "a"}))
    next(conversation)
    first, _ = conversation.send(SaslHandshakeResponse())
    assert first.auth_bytes == b"n,,\x01auth=Bearer tok\x01tenant=a\x01\x01"
    second, _ = conversation.send(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    assert second.auth_bytes == b"\x01"
    with pytest.raises(ClusterError, match="or the token"):
        conversation.send(SaslAuthenticateResponse(error_code=58))


def test_an_unsupported_mechanism_names_those_offered():
    with pytest.raises(ClusterError, match=r"set sasl\.mechanism to one of those it offers: PLAIN, OAUTHBEARER"):
        converse(
            authenticate(ready(), Credentials("SCRAM-SHA-256", "a", "b")),
            SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", "OAUTHBEARER"]),
        )


def test_reauthentication_is_due_before_the_lifetime_ends():
    made = session()
    made.authenticated(0, 500)
    assert not made.needs_reauthentication(1 << 40)
    made.authenticated(10_000, 500)
    assert not made.needs_reauthentication(8_999)
    assert made.needs_reauthentication(9_000)
