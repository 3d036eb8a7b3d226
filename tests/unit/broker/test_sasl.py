"""The server's side of SASL against an independent client (scramp's and kafka-python's), in memory."""

import pytest
import scramp

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.request.context import ConnectionState
from kclient_quota.broker.security.sasl_mechanisms import SaslAuthenticator, SaslConfig
from kclient_quota.broker.security.scram_credentials import credential
from kclient_quota.broker.security.scram_server import ScramError, ScramServer
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from kclient_quota.wire.scram import scram as client_scram
from tests.unit.broker.handler_node import Node

USERS = {"alice": "secret", "bøb": "pa=ss,wörd", "c=d,e": "µ² Ⅸ"}
SCRAM_USERS = ("alice", "c=d,e")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def authenticator(**changes):
    return SaslAuthenticator(SaslConfig(USERS, **changes))


def plain(server, token, now_ms=0):
    assert server.handshake("PLAIN", "n") is ErrorCode.NONE
    return server.authenticate(token, now_ms)


def scram(server, mechanism, user, password, now_ms=0):
    """A conversation with scramp's client; the last step, and the server's proof checked."""
    client = scramp.ScramClient([mechanism], user, password)
    assert server.handshake(mechanism, "servernonce") is ErrorCode.NONE
    step = server.authenticate(client.get_client_first().encode(), now_ms)
    if step.error is not ErrorCode.NONE:
        return step
    client.set_server_first(step.token.decode())
    step = server.authenticate(client.get_client_final().encode(), now_ms)
    if step.error is ErrorCode.NONE:
        client.set_server_final(step.token.decode())
    return step


@pytest.mark.parametrize("user", USERS)
def test_plain_takes_the_right_password(user):
    step = plain(authenticator(), f"\0{user}\0{USERS[user]}".encode())
    assert (step.error, step.principal) == (ErrorCode.NONE, user)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0secret", "Invalid username or password"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "different from username"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0\xff\xfe", "Invalid username or password"),
    ],
)
def test_plain_refuses_in_kafkas_words(token, words):
    step = plain(authenticator(), token)
    assert step.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert words in step.message
    assert step.principal is None


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", SCRAM_USERS)
def test_scram_proves_both_sides(mechanism, user):
    server = authenticator()
    client = client_scram(mechanism, user, USERS[user], "clientnonce")
    assert server.handshake(mechanism, "servernonce") is ErrorCode.NONE
    challenge = server.authenticate(next(client), 0).token
    step = server.authenticate(client.send(challenge), 0)
    assert (step.error, step.principal) == (ErrorCode.NONE, user)
    with pytest.raises(StopIteration):
        client.send(step.token)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_with_an_independent_client(mechanism):
    assert scram(authenticator(), mechanism, "alice", "secret").principal == "alice"


CLIENT_FIRST = {
    # as `ScramMessages` of kafka-clients 4.3.1 takes or refuses them
    "n,,n=alice,r=abc": "alice",
    "n,a=alice,n=alice,r=abc": "alice",
    "n,,n=c=3Dd=2Ce,r=abc": "c=d,e",
    "n,,n=a\tb,r=abc": "a\tb",
    "n,,m=x,n=alice,r=abc": "alice",
    "n,,n=alice,r=abc,foo=bar": "alice",
    "n,,n=bøb,r=abc": None,
    "n,,n=a²,r=abc": None,
    "n,,n=c=d,r=abc": None,
    "n,,n=,r=abc": None,
    "n,a=,n=alice,r=abc": None,
    "y,,n=alice,r=abc": None,
    "n,,n=alice,r=ab c": None,
    "n,,n=alice,r=abc\n": None,
    "n,,n=alice,r=abc,1=2": None,
}


@pytest.mark.parametrize("message", CLIENT_FIRST)
def test_scram_knows_the_names_that_kafka_knows(message):
    asked = []

    def credentials(user):
        asked.append(user)
        return credential(1, b"salt", b"salted", 4096)

    server = ScramServer("SCRAM-SHA-256", credentials, "servernonce")
    if CLIENT_FIRST[message] is None:
        with pytest.raises(ScramError):
            server.first(message.encode())
        assert asked == []
    else:
        assert server.first(message.encode()).startswith(b"r=abcservernonce,s=")
        assert asked == [server.user] == [CLIENT_FIRST[message]]


def test_scram_for_another_than_who_logs_in():
    server = authenticator()
    server.handshake("SCRAM-SHA-256", "servernonce")
    step = server.authenticate(b"n,a=c=3Dd=2Ce,n=alice,r=abc", 0)
    assert step.message == "Authentication failed: Client requested an authorization id that is different from username"


@pytest.mark.parametrize(
    "final", ["c=biws,r=abc,p=AAAA", "c=biws,r=abcservernonce,p=AAAA", "c=biws", "p=", "c=biw,r=abcservernonce,p=AAAA"]
)
def test_scram_refuses_what_proves_nothing(final):
    server = authenticator()
    server.handshake("SCRAM-SHA-256", "servernonce")
    assert server.authenticate(b"n,,n=alice,r=abc", 0).error is ErrorCode.NONE
    assert server.authenticate(final.encode(), 0).error is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_with_kafka_pythons_client(mechanism):
    from kafka.net.sasl.scram import ScramClient

    server, client = authenticator(), ScramClient("alice", "secret", mechanism)
    server.handshake(mechanism, "servernonce")
    client.process_server_first_message(server.authenticate(client.first_message(), 0).token)
    step = server.authenticate(client.final_message(), 0)
    assert step.principal == "alice"
    client.process_server_final_message(step.token)


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bøb", "pa=ss,wörd")])
def test_scram_refuses(mechanism, user, password):
    step = scram(authenticator(), mechanism, user, password)
    assert step.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert step.message.endswith(f"invalid credentials with SASL mechanism {mechanism}")


@pytest.mark.parametrize("token", [b"", b"n,,", b"\xff", b"n,,n=alice", b"y,,n=alice,r=", b"p=tls-unique,,n=alice,r=x"])
def test_scram_refuses_garbage(token):
    server = authenticator()
    server.handshake("SCRAM-SHA-256", "servernonce")
    assert server.authenticate(token, 0).error is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_conversation_has_an_order():
    server = authenticator(mechanisms=("SCRAM-SHA-256",))
    assert server.handshake("PLAIN", "n") is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert server.authenticate(b"\0alice\0secret", 0).error is ErrorCode.ILLEGAL_SASL_STATE
    assert scram(server, "SCRAM-SHA-256", "alice", "secret").error is ErrorCode.NONE
    assert server.authenticate(b"again", 0).error is ErrorCode.ILLEGAL_SASL_STATE


def test_a_session_ends_and_is_renewed_by_the_same_user_only():
    server = authenticator(session_lifetime_ms=1_000)
    first = plain(server, b"\0alice\0secret", 0)
    assert first.session_lifetime_ms == 1_000
    assert scram(server, "SCRAM-SHA-512", "alice", "secret", 1_001).session_lifetime_ms == 1_000
    step = plain(server, "\0bøb\0pa=ss,wörd".encode(), 1_500)
    assert step.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in step.message
    assert server.principal == "alice"


def test_a_session_lasts_by_the_clock_though_the_date_has_run_ahead_of_it():
    """After two hours of sleep a session of a second lasted for two hours."""
    node = Node()
    node.cluster.users["alice"] = "secret"
    node.cluster.set_config(BROKER, "", "connections.max.reauth.ms", "1000")
    node.connection = ConnectionState("SASL_PLAINTEXT", "127.0.0.1")
    now_ms = node.scheduler.now_ms()
    node.scheduler.date_ms = lambda: now_ms + 7_200_000
    node.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = node.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 1_000)
    assert node.connection.session_ends_ms == now_ms + 1_000
