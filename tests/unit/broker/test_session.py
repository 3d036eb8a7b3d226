"""A server session without broker, cluster, clock or socket: usable by whoever answers or passes on requests."""

import mmap
from pathlib import Path

import pytest

from kclient_quota.broker.network.frame_buffers import FrameBuffers
from kclient_quota.broker.network.session import ReceiveBuffer, ServerSession, raw_request
from kclient_quota.broker.request.outcome import Outcome
from kclient_quota.wire.frame import RequestHeader, encode_request
from kclient_quota.wire.messages import MetadataRequest


class Proxy:
    """Answers nothing by itself; keeps what was asked, also of APIs that nobody knows."""

    def __init__(self, **changes):
        self.asked, self.changes, self.cancelled, self.goes_on = [], 0, 0, False
        self.session = ServerSession(self._take, ReceiveBuffer(), self._changed, **changes)

    def _take(self, frame, length, done):
        request = raw_request(frame, length)
        self.asked.append((request.header.api_key, request.header.correlation_id, bytes(request.body)))
        self.done = done
        return self

    def _changed(self):
        self.changes += 1

    def cancel(self):
        self.cancelled += 1
        return self.goes_on

    def out(self, now_ms=0):
        data = b"".join(self.session.output)
        self.session.output.clear()
        self.session.written(now_ms)
        return data


def frame(correlation_id, api_key=3, body=b"body"):
    header = api_key.to_bytes(2) + (0).to_bytes(2) + correlation_id.to_bytes(4) + b"\x00\x01c"
    return (len(header) + len(body)).to_bytes(4) + header + body


def test_requests_out_in_order_one_at_a_time():
    proxy = Proxy()
    proxy.session.feed(frame(1) + frame(2, api_key=9_999, body=b"unknown") + frame(3)[:7])
    assert proxy.asked == [(3, 1, b"body")]
    assert not proxy.session.is_reading
    proxy.done(Outcome([b"one"]))
    assert proxy.changes == 1
    assert proxy.out() == b"one"
    assert proxy.asked[1:] == [(9_999, 2, b"unknown")]
    proxy.done(Outcome([b"two"]))
    proxy.out()
    assert proxy.session.is_reading
    proxy.session.feed(frame(3)[7:])
    assert proxy.asked[2:] == [(3, 3, b"body")]


def test_muting_is_a_value():
    proxy = Proxy()
    proxy.session.feed(frame(1) + frame(2))
    proxy.done(Outcome([b"one"], mute_ms=250, at_ms=1_000))
    assert proxy.session.resumes_ms is None, "the mute begins when the answer is written"
    assert proxy.out(now_ms=1_003) == b"one"
    assert proxy.session.resumes_ms == 1_253
    assert not proxy.session.tick(1_252)
    assert len(proxy.asked) == 1
    assert proxy.session.tick(1_253)
    assert len(proxy.asked) == 2
    proxy.done(Outcome([b"late"], late_ms=100, at_ms=2_000))
    assert (proxy.out(), proxy.session.resumes_ms) == (b"", 2_100)
    proxy.session.tick(2_100)
    assert proxy.out() == b"late"


def test_the_end_is_a_value_too():
    proxy = Proxy()
    proxy.session.feed(frame(1))
    proxy.done(Outcome([b"bye"], must_close=True))
    assert proxy.out() == b"bye"
    assert proxy.session.is_over
    proxy = Proxy()
    proxy.session.feed(frame(1))
    proxy.session.lost()
    assert proxy.cancelled == 1


def test_what_came_whole_is_seen_to_though_its_client_is_gone():
    proxy = Proxy()
    proxy.goes_on = True
    proxy.session.feed(frame(1) + frame(2) + frame(3) + frame(4)[:-1])
    proxy.session.lost()
    assert not proxy.session.is_done
    proxy.done(Outcome([b"nobody reads it"], mute_ms=1_000))
    assert [asked[1] for asked in proxy.asked] == [1, 2], "one at a time"
    proxy.done(Outcome())
    proxy.goes_on = False
    assert [asked[1] for asked in proxy.asked] == [1, 2, 3]
    assert not proxy.session.is_done
    proxy.done(Outcome())
    assert (proxy.session.is_done, len(proxy.asked), proxy.out()) == (True, 3, b"")


def test_what_would_wait_for_nobody_is_called_off_and_the_next_taken_up():
    proxy = Proxy()
    proxy.session.feed(frame(1) + frame(2) + frame(3))
    proxy.session.lost()
    assert (len(proxy.asked), proxy.cancelled, proxy.session.is_done) == (3, 3, True)


@pytest.mark.parametrize("outcome", [Outcome(must_close=True), Outcome(is_ignored=True)])
def test_behind_what_has_ended_a_connection_nothing_is_taken_up(outcome):
    proxy = Proxy()
    proxy.session.feed(frame(1) + frame(2))
    proxy.done(outcome)
    proxy.session.lost()
    assert (len(proxy.asked), proxy.session.is_done) == (1, True)


def test_what_a_stranger_may_claim_can_change_with_every_request():
    most = [100]
    proxy = Proxy(most_bytes=lambda: most[0])
    most[0] = 1_000_000
    proxy.session.feed(frame(1, body=b"x" * 500_000))
    proxy.done(Outcome())
    proxy.out()
    assert len(proxy.asked[0][2]) == 500_000
    most[0] = 100
    proxy.session.feed(frame(2, body=b"x" * 101))
    assert proxy.session.is_broken
    assert len(proxy.asked) == 1


def test_a_claimed_length_costs_no_memory_until_its_bytes_come():
    session = ServerSession(lambda *_: None, ReceiveBuffer(), lambda: None)
    before = resident_kb()
    sessions = [ServerSession(lambda *_: None, ReceiveBuffer(), lambda: None) for _ in range(6)]
    for session in sessions:
        session.feed((100 * 1024 * 1024).to_bytes(4))
        assert session.is_reading
    assert resident_kb() - before < 20_000


def resident_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_frame_buffers_are_memory_that_comes_when_it_is_written_to():
    assert isinstance(FrameBuffers().take(1 << 20), mmap.mmap)


@pytest.mark.parametrize("piece", [1, 3, 50, 10_000])
def test_pipelined_requests_are_all_taken_up(piece):
    proxy, asked = (
        Proxy(),
        b"".join(
            b"".join(encode_request(MetadataRequest(topics=[]), RequestHeader(3, 9, number, "c")))
            for number in range(500)
        ),
    )
    while asked or not proxy.session.is_waiting_for_client:
        if proxy.session.is_reading:
            proxy.session.feed(asked[:piece])
            asked = asked[piece:]
        else:
            proxy.done(Outcome([b"x"]))
            assert proxy.out() == b"x"
    assert [correlation_id for _, correlation_id, _ in proxy.asked] == list(range(500))
