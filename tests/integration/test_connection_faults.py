"""Brokers that are slow, silent, gone or no brokers at all: one ClusterError each, in time, and the socket closed."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError, WireError
from kclient_quota.testing.clock import ManualClock
from kclient_quota.wire.codec import decode
from kclient_quota.wire.connection import Connection, ConnectionSettings, Sasl
from kclient_quota.wire.frame import decode_request_header, encode_response
from kclient_quota.wire.messages import (
    API,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersionsResponse.ApiVersion(api_key=key, max_version=9) for key in (3, 17, 18, 36)]
)


def read_exactly(peer, size):
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def read_request(peer):
    frame = read_exactly(peer, int.from_bytes(read_exactly(peer, 4), "big"))
    header, start = decode_request_header(frame)
    return header, decode(API[header.api_key].request, header.api_version, frame, start)


def answer(peer, header, response):
    peer.sendall(b"".join(encode_response(response, header.api_version, header.correlation_id)))


def answer_versions(peer):
    header, _ = read_request(peer)
    answer(peer, header, VERSIONS)


@contextmanager
def broker(script):
    """A listener that plays the script with everyone who connects."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                try:
                    script(peer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield ConnectionSettings("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def silent(peer):
    peer.recv(1 << 20)
    peer.recv(1 << 20)  # until the client gives up


def closing(peer):
    peer.recv(1)


def web_server(peer):
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    peer.recv(1 << 20)


def silent_after_versions(peer):
    answer_versions(peer)
    silent(peer)


def half_an_answer(peer):
    answer_versions(peer)
    header, _ = read_request(peer)
    frame = b"".join(encode_response(MetadataResponse(cluster_id="c"), header.api_version, header.correlation_id))
    peer.sendall(frame[:-3])


def garbage(peer):
    answer_versions(peer)
    header, _ = read_request(peer)
    peer.sendall(b"\0\0\0\x0c" + header.correlation_id.to_bytes(4, "big") + b"\0" + b"\xff" * 7)


def wrong_correlation(peer):
    answer_versions(peer)
    header, _ = read_request(peer)
    header.correlation_id += 5
    answer(peer, header, MetadataResponse())


FAULTS = [
    pytest.param(silent, r"did not answer ApiVersions within 300 ms", id="silent"),
    pytest.param(closing, r"did not answer ApiVersions: .*(closed the connection|reset by peer)", id="closing"),
    pytest.param(web_server, r"did not answer ApiVersions: a frame of 1213486160 bytes is refused", id="web server"),
    pytest.param(silent_after_versions, r"did not answer MetadataRequest within 300 ms", id="silent later"),
    pytest.param(half_an_answer, r"did not answer MetadataRequest: the broker closed the connection", id="half"),
    pytest.param(garbage, r"did not answer MetadataRequest: MetadataResponse v9", id="garbage"),
    pytest.param(wrong_correlation, r"MetadataRequest: .*correlation id 6, which was never asked", id="correlation"),
]


def patience(script):
    """For opening and for asking: little only where nothing else would end it, as scripts may be slow."""
    return (300 if script is silent else 60_000), (300 if script is silent_after_versions else 60_000)


@pytest.mark.parametrize(("script", "problem"), FAULTS)
def test_faults_are_one_clear_error(script, problem):
    with broker(script) as settings:
        connection = Connection(settings, SYSTEM_CLOCK)
        open_ms, send_ms = patience(script)
        with pytest.raises(ClusterError, match=problem) as caught:
            connection.open(timeout_ms=open_ms).send(MetadataRequest(), timeout_ms=send_ms)
        assert settings.peer in str(caught.value)
        with pytest.raises(ClusterError, match="is closed; open a new one"):
            connection.send(MetadataRequest(), version=9)


def waits_for_versions(connection):
    connection.open(timeout_ms=60_000)


def waits_for_an_answer(connection):
    connection.open(timeout_ms=60_000).send(MetadataRequest(), timeout_ms=60_000)


@pytest.mark.parametrize(
    ("script", "waits", "tls"),
    [
        pytest.param(silent, waits_for_versions, ssl.create_default_context(), id="handshake"),
        pytest.param(silent, waits_for_versions, None, id="versions"),
        pytest.param(silent_after_versions, waits_for_an_answer, None, id="answer"),
    ],
)
def test_close_ends_what_waits_in_another_thread(script, waits, tls):
    """A broker that says nothing would be waited for until the time is over."""
    asked = threading.Event()

    def told(peer):
        if script is silent_after_versions:
            answer_versions(peer)
        peer.recv(1)
        asked.set()
        silent(peer)

    failures = []

    def wait():
        try:
            waits(connection)
        except ClusterError as error:
            failures.append(str(error))

    with broker(told) as settings:
        connection = Connection(replace(settings, tls=tls), SYSTEM_CLOCK)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert asked.wait(30)
        connection.close()
        waiting.join(20)
        is_waiting = waiting.is_alive()
    waiting.join(60)
    assert not is_waiting
    assert [failure.partition(": ")[2] for failure in failures] == ["the connection was closed meanwhile"]


def test_who_waits_for_tls_is_not_left_with_a_descriptor_that_may_be_another_connection_s():
    closed, asked = threading.Event(), threading.Event()
    descriptors = []

    class Watched(ssl.SSLSocket):
        def do_handshake(self, *args):
            try:
                super().do_handshake(*args)
            finally:
                assert closed.wait(30)
                descriptors.append(self.fileno())
                descriptors.append(self)

    def told(peer):
        peer.recv(1)
        asked.set()
        silent(peer)

    def wait():
        with pytest.raises(ClusterError, match="closed meanwhile"):
            connection.open(timeout_ms=60_000)

    tls = ssl.create_default_context()
    tls.sslsocket_class = Watched
    with broker(told) as settings:
        connection = Connection(replace(settings, tls=tls), SYSTEM_CLOCK)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert asked.wait(30)
        connection.close()
        connection.close()
        closed.set()
        waiting.join(60)
    while_it_waited, secured = descriptors
    assert while_it_waited >= 0
    assert secured.fileno() < 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_nobody_listens():
    settings = ConnectionSettings("127.0.0.1", free_port())
    with pytest.raises(ClusterError, match=r"did not accept a connection: .*refused; check bootstrap\.servers"):
        Connection(settings, SYSTEM_CLOCK).open(timeout_ms=60_000)


def test_a_name_that_does_not_resolve():
    settings = ConnectionSettings("no-such-host.invalid", 9092)
    with pytest.raises(ClusterError, match=r"no-such-host\.invalid:9092 .*(resolve|within)"):
        Connection(settings, SYSTEM_CLOCK).open(timeout_ms=3000)


NO_NAMES = pytest.mark.parametrize("host", ["a..b", "x" * 70, "\udcff"], ids=["empty label", "long label", "no text"])


@NO_NAMES
def test_what_cannot_be_a_name_is_said_at_once(host):
    with pytest.raises(ClusterError, match="does not resolve"):
        Connection(ConnectionSettings(host, 9092), SYSTEM_CLOCK).open(timeout_ms=60_000)


def test_a_deadline_that_is_over_before_it_starts():
    with broker(silent_after_versions) as settings, pytest.raises(ClusterError, match="within 0 ms"):
        Connection(settings, SYSTEM_CLOCK).open(timeout_ms=0)


def test_no_socket_is_left_when_the_time_is_up_with_an_address_to_try(monkeypatch):
    class Watched(socket.socket):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            opened.append(self)

    def resolve_slowly(connection, deadline):
        clock.sleep_ms(400)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 9))]

    opened = []
    clock = ManualClock(1000)
    monkeypatch.setattr(Connection, "_resolve", resolve_slowly)
    monkeypatch.setattr(socket, "socket", Watched)
    with pytest.raises(ClusterError, match="within 400 ms"):
        Connection(ConnectionSettings("127.0.0.1", 9), clock).open(timeout_ms=400)
    assert [each.fileno() for each in opened] == [-1]


@contextmanager
def black_hole(port):
    """An address at which nobody answers, not even with a refusal: as many wait there to be accepted as may."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(hole.getsockname())
            except TimeoutError:
                break
        yield "127.0.0.2"


def test_a_name_of_which_the_first_address_is_dead(monkeypatch):
    """As of a machine that is gone, or IPv6 that leads nowhere: librdkafka takes the next, too."""

    def answering(peer):
        answer_versions(peer)
        peer.recv(1)

    with broker(answering) as settings, black_hole(settings.port) as dead:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, settings.port)) for host in (dead, "127.0.0.1")]
        monkeypatch.setattr(Connection, "_resolve", lambda _connection, _deadline: found)
        with Connection(ConnectionSettings("two", settings.port), SYSTEM_CLOCK).open(timeout_ms=4_000) as connection:
            assert connection.versions
        monkeypatch.setattr(Connection, "_resolve", lambda _connection, _deadline: found[:1])
        with pytest.raises(ClusterError, match="did not accept a connection within 300 ms"):
            Connection(ConnectionSettings("one", settings.port), SYSTEM_CLOCK).open(timeout_ms=300)


def test_an_address_of_the_other_family_is_none_of_the_broker_s():
    """`broker.address.family`: somebody else may listen there."""

    def answering(peer):
        answer_versions(peer)
        peer.recv(1)

    with broker(answering) as settings:
        with pytest.raises(ClusterError, match="does not resolve"):
            Connection(replace(settings, family=socket.AF_INET6), SYSTEM_CLOCK).open(timeout_ms=4_000)
        with Connection(replace(settings, family=socket.AF_INET), SYSTEM_CLOCK).open(timeout_ms=4_000) as connection:
            assert connection.versions


def test_closed_by_another_thread_while_it_is_opened(monkeypatch):
    connect = Connection._connect

    def connect_and_lose_interest(connection, deadline):
        connect(connection, deadline)
        opened.append(connection._socket)
        connection.close()

    opened = []
    monkeypatch.setattr(Connection, "_connect", connect_and_lose_interest)
    with broker(answer_versions) as settings:
        with pytest.raises(ClusterError, match="is closed"):
            Connection(settings, SYSTEM_CLOCK).open(60_000)
        assert opened[0].fileno() == -1


def test_an_unwritable_request_leaves_the_connection_open():
    def answering(peer):
        answer_versions(peer)
        header, _ = read_request(peer)
        answer(peer, header, MetadataResponse(cluster_id="c"))

    with broker(answering) as settings, Connection(settings, SYSTEM_CLOCK) as connection:
        with pytest.raises(WireError):
            connection.send(MetadataRequest(topics=5))
        assert connection.send(MetadataRequest()).cluster_id == "c"


def test_the_session_is_renewed_before_its_lifetime_ends():
    seen = []

    def logging_in(peer):
        while True:
            header, _ = read_request(peer)
            seen.append(header.api_key)
            answers = {
                3: MetadataResponse(),
                17: SaslHandshakeResponse(),
                18: VERSIONS,
                36: SaslAuthenticateResponse(session_lifetime_ms=10_000),
            }
            answer(peer, header, answers[header.api_key])

    clock = ManualClock(1000)
    with broker(logging_in) as plain:
        settings = ConnectionSettings(plain.host, plain.port, sasl=Sasl("PLAIN", "u", "p"))
        with Connection(settings, clock) as connection:
            connection.send(MetadataRequest())
            clock.sleep_ms(8_000)
            connection.send(MetadataRequest())
            clock.sleep_ms(600)
            connection.send(MetadataRequest())
    assert seen == [18, 17, 36, 3, 3, 17, 36, 3]


def test_a_socket_of_greenlets_is_closed_by_its_own_methods():
    """eventlet's has no method of the class's own: `close()` raised an AttributeError."""

    class Green:
        def __init__(self):
            self.told = []

        def __getattr__(self, name):
            return lambda *_: self.told.append(name)

    connection = Connection(ConnectionSettings("127.0.0.1", 1), SYSTEM_CLOCK)
    green = connection._socket = Green()
    connection.close()
    assert green.told == ["shutdown", "close"]
