"""The exporter's queue, batches, retries and account, with a sender that does what the test says."""

import threading
from dataclasses import dataclass

import pytest
from kclient_telemetry.receiver import otlp_export
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_grpc import GrpcSender
from kclient_telemetry.receiver.otlp_http import HttpSender
from kclient_telemetry.receiver.otlp_senders import Outcome, Status

ACCEPTED, RETRY, REFUSED = Outcome(Status.ACCEPTED), Outcome(Status.RETRY, "busy"), Outcome(Status.REFUSED, "bad")
UNREADABLE = Outcome(Status.UNREADABLE, "bad data")


@dataclass
class Push:
    enriched: bytes


class Sender:
    """Answers with what `answer` says; tells when `expected` exports have come."""

    def __init__(self, answer=lambda body: ACCEPTED, expected=1):
        self.answer = answer
        self.bodies = []
        self.expected = expected
        self.reached = threading.Event()
        self.closed = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def send(self, body):
        assert self.gate.wait(60)
        self.bodies.append(body)
        if len(self.bodies) >= self.expected:
            self.reached.set()
        return self.answer(body)

    def close(self):
        self.closed.set()
        self.gate.set()


def exporter_with(sender, **options):
    defaults = {"linger_ms": 0, "retry_first_ms": 1, "retry_longest_ms": 2, "uniform": lambda: 0.5}
    return OtlpExporter(sender, **(defaults | options))


def balanced(counters):
    dropped = counters.dropped_queue_full + counters.dropped_refused + counters.dropped_expired
    return counters.received == counters.exported + dropped + counters.queued_pushes


def test_pushes_that_wait_together_go_out_together():
    sender = Sender(expected=2)
    sender.gate.clear()
    exporter = exporter_with(sender, batch_bytes=4)
    for body in (b"a", b"b", b"c", b"dd", b"toolong", b"e"):
        exporter.accept(Push(body))
    sender.gate.set()
    exporter.close(60_000)
    assert b"".join(sender.bodies) == b"abcddtoolonge"
    assert b"toolong" in sender.bodies
    assert all(len(body) <= 4 for body in sender.bodies if body != b"toolong")
    counters = exporter.counters
    assert (counters.received, counters.exported, counters.queued_pushes, counters.queued_bytes) == (6, 6, 0, 0)
    assert counters.requests == len(sender.bodies) < 6
    assert sender.closed.is_set()


def test_what_is_queued_is_waited_for_and_no_longer_than_asked():
    sender = Sender()
    exporter = exporter_with(sender)
    exporter.accept(Push(b"a"))
    exporter.complete(60_000)
    assert exporter.counters.exported == 1
    sender.gate.clear()
    exporter.accept(Push(b"b"))
    exporter.complete(1)
    assert exporter.counters.queued_pushes == 1
    sender.gate.set()
    exporter.close(60_000)
    exporter.complete(60_000)


def test_a_push_waits_a_moment_for_company():
    sender = Sender()
    exporter = exporter_with(sender, linger_ms=120_000, batch_bytes=3)
    for body in (b"a", b"b", b"c"):
        exporter.accept(Push(body))
    assert sender.reached.wait(60)
    assert sender.bodies == [b"abc"]
    exporter.close(60_000)


def test_what_is_worth_repeating_is_repeated():
    outcomes = iter([RETRY, Outcome(Status.RETRY, "busy", retry_after_ms=3), ACCEPTED])
    sender = Sender(lambda body: next(outcomes), expected=3)
    exporter = exporter_with(sender)
    exporter.accept(Push(b"x"))
    assert sender.reached.wait(60)
    exporter.close(60_000)
    counters = exporter.counters
    assert (counters.requests, counters.retries, counters.exported) == (3, 2, 1)
    assert sender.bodies == [b"x"] * 3


def test_what_goes_on_failing_is_given_up_and_counted(caplog):
    sender = Sender(lambda body: RETRY)
    exporter = exporter_with(sender, give_up_after_ms=10)
    exporter.accept(Push(b"x"))
    assert sender.reached.wait(60)
    exporter.close(60_000)
    counters = exporter.counters
    assert (counters.dropped_expired, counters.exported, counters.queued_bytes, counters.undelivered) == (1, 0, 0, 0)
    assert "1 pushes of client telemetry are lost" in caplog.text


def sent_at_once(sender, bodies):
    """An exporter that has found all of these waiting together."""
    exporter = exporter_with(sender, linger_ms=120_000, batch_bytes=sum(map(len, bodies)))
    for body in bodies:
        exporter.accept(Push(body))
    exporter.close(60_000)
    assert balanced(exporter.counters)
    return exporter.counters


def test_one_bad_push_takes_no_other_with_it():
    bodies = [b"%03d" % number for number in range(256)]
    bodies[77] = b"!!!"
    sender = Sender(lambda body: UNREADABLE if b"!" in body else ACCEPTED)
    counters = sent_at_once(sender, bodies)
    assert (counters.exported, counters.dropped_refused) == (255, 1)
    assert counters.requests == 1 + 2 * 8, "halves of halves"


def test_who_is_refused_altogether_does_not_ask_push_by_push():
    sender = Sender(lambda body: REFUSED)
    counters = sent_at_once(sender, [b"push"] * 300)
    assert (counters.exported, counters.dropped_refused, counters.requests) == (0, 300, 1)


def test_a_collector_that_asks_to_be_left_alone_is_and_loses_nothing(monkeypatch):
    """Ten minutes, though a batch is given up after five: waited out, and nothing else is sent meanwhile."""
    clock = [0]
    monkeypatch.setattr(otlp_export, "_now_ms", lambda: clock[0])
    waits = []

    def wait_for(condition, predicate, timeout=None):
        if timeout and timeout > 100:
            waits.append(timeout)
            clock[0] += round(timeout * 1000)
            return predicate()
        return original(condition, predicate, timeout)

    original = threading.Condition.wait_for
    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    outcomes = iter([Outcome(Status.RETRY, "busy", retry_after_ms=600_000)])
    sender = Sender(lambda body: next(outcomes, ACCEPTED), expected=3)
    exporter = exporter_with(sender, give_up_after_ms=300_000, batch_bytes=1)
    exporter.accept(Push(b"x"))
    exporter.accept(Push(b"y"))
    assert sender.reached.wait(60)
    exporter.close(60_000)
    assert waits == [600]
    assert sender.bodies == [b"x", b"x", b"y"]
    assert (exporter.counters.exported, exporter.counters.dropped_expired) == (2, 0)


def test_a_collector_that_is_away_is_a_line_and_one_that_is_back(caplog):
    answers = [RETRY, ACCEPTED, RETRY, RETRY, RETRY, ACCEPTED, ACCEPTED, RETRY, RETRY, REFUSED]
    sender = Sender(lambda body: answers.pop(0), expected=10)
    exporter = exporter_with(sender, batch_bytes=1)
    for body in (b"1", b"2", b"3", b"4"):
        exporter.accept(Push(body))
    assert sender.reached.wait(60)
    exporter.close(60_000)
    told = [record.message for record in caplog.records]
    away = "the collector does not take client telemetry, which waits for it: busy"
    assert told[:3] == [away, "the collector answers again", away]
    assert told.count(away) == 2
    assert exporter.counters.exported == 3


def test_of_several_collectors_every_line_says_which(caplog):
    answers = [RETRY, RETRY, ACCEPTED, REFUSED, Outcome(Status.ACCEPTED, "soon")]
    answers.append(Outcome(Status.ACCEPTED, "late", rejected_points=1))
    sender = Sender(lambda body: answers.pop(0), expected=6)
    exporter = exporter_with(sender, batch_bytes=1, queue_bytes=4, name="http://one:4318/v1/metrics")
    sender.gate.clear()
    for body in (b"1", b"2", b"3", b"4", b"5"):
        exporter.accept(Push(body))
    sender.gate.set()
    assert sender.reached.wait(60)
    exporter.close(60_000)
    told = [record.message for record in caplog.records]
    assert len(told) == 6
    assert all("http://one:4318/v1/metrics" in line for line in told), told


def test_a_collector_that_asks_to_be_left_alone_for_long_is_told_of_at_once(caplog):
    """A repetition, which would be the news otherwise, is an hour away."""
    outcome = Outcome(Status.RETRY, "HTTP 429", retry_after_ms=3_600_000)
    waits = threading.Event()
    exporter = exporter_with(Sender(lambda body: outcome), uniform=lambda: waits.set() or 0.5)
    exporter.accept(Push(b"x"))
    assert waits.wait(60)
    exporter.close(1)
    exporter._thread.join(60)  # what it says last would be the next test's
    told = [record.message for record in caplog.records]
    away = "the collector does not take client telemetry, which waits for it: HTTP 429; it asks to wait for 3600 s"
    assert told[:1] == [away]


def test_what_closing_cuts_off_is_one_line(caplog):
    """It was one for each batch: 64 for a queue that is full, above the one that counts them."""
    sender = Sender(lambda body: RETRY)
    exporter = exporter_with(sender, batch_bytes=1, retry_first_ms=60_000, retry_longest_ms=60_000)
    for _ in range(20):
        exporter.accept(Push(b"x"))
    assert sender.reached.wait(60)
    exporter.close(1)
    exporter._thread.join(60)
    assert exporter.counters.undelivered == 20
    told = [record.message for record in caplog.records if "not delivered" in record.message]
    assert told == ["20 pushes of client telemetry were not delivered before closing: busy"]


def test_what_closing_cuts_off_is_told_with_the_collectors_words_however_late_its_thread_wakes(caplog, monkeypatch):
    """It was `the exporter was closed` then, which whoever closed it knows."""
    exporter, closed = exporter_with(Sender(lambda body: RETRY)), threading.Event()
    waits = threading.Event()
    monkeypatch.setattr(exporter, "_pause", lambda *_: waits.set() or closed.wait(60))
    exporter.accept(Push(b"x"))
    assert waits.wait(60)
    exporter.close(0)
    closed.set()
    exporter._thread.join(60)
    assert caplog.records[-1].message == "1 pushes of client telemetry were not delivered before closing: busy"


def test_a_full_queue_drops_and_counts(caplog):
    sender = Sender()
    sender.gate.clear()
    exporter = exporter_with(sender, queue_bytes=10)
    for _ in range(5):
        exporter.accept(Push(b"four"))
    counters = exporter.counters
    assert (counters.dropped_queue_full, counters.queued_bytes) == (3, 8)
    assert balanced(counters)
    assert caplog.text.count("client telemetry is dropped") == 1
    sender.gate.set()
    exporter.close(60_000)
    assert exporter.counters.exported == 2


def test_points_a_collector_rejects_are_counted_and_told_of(caplog):
    sender = Sender(lambda body: Outcome(Status.ACCEPTED, "3 too old", rejected_points=3))
    exporter = exporter_with(sender, batch_bytes=1)
    for _ in range(5):
        exporter.accept(Push(b"x"))
    exporter.close(60_000)
    assert (exporter.counters.rejected_points, exporter.counters.exported) == (15, 5)
    told = [record.message for record in caplog.records]
    assert told == [f"{lost} points are lost, of exports that were taken: 3 too old" for lost in (3, 12)]


def test_what_a_collector_warns_of_though_it_takes_everything_is_told(caplog):
    sender = Sender(lambda body: Outcome(Status.ACCEPTED, "this tenant ends tomorrow"))
    exporter = exporter_with(sender, batch_bytes=1)
    for _ in range(5):
        exporter.accept(Push(b"x"))
    exporter.close(60_000)
    assert (exporter.counters.rejected_points, exporter.counters.exported) == (0, 5)
    assert [record.message for record in caplog.records] == [
        "the collector takes client telemetry, and says: this tenant ends tomorrow"
    ] * 2, "a line a minute, and one at the end"


@pytest.mark.parametrize("answer", [REFUSED, UNREADABLE])
def test_a_collector_that_refuses_everything_fills_no_log(caplog, answer):
    """Plain HTTP at a port of TLS is answered with a 400, a wrong token with a 401, each push of days."""
    exporter = exporter_with(Sender(lambda body: answer), batch_bytes=2)
    for _ in range(50):
        exporter.accept(Push(b"x"))
    exporter.close(60_000)
    assert exporter.counters.dropped_refused == 50
    told = [record.message for record in caplog.records]
    assert len(told) == 2
    assert sum(int(line.split()[0]) for line in told) == 50


def test_losses_of_the_minute_before_are_counted_in_the_next_line(caplog, monkeypatch):
    now_ms = [0]
    monkeypatch.setattr(otlp_export, "_now_ms", lambda: now_ms[0])
    losses = otlp_export._Losses()
    for now_ms[0] in range(0, 120_000, 1_000):
        losses.add(3, REFUSED)
    losses.tell_rest()
    losses.tell_rest()
    told = [record.message for record in caplog.records]
    assert [line.split()[0] for line in told] == ["3", "180", "177"]
    assert told[0] == "3 pushes of client telemetry are lost, refused: bad"


def test_what_a_stranger_says_is_one_line_and_moves_no_terminal(caplog):
    said = "HTTP 400 one\r\n\x1b[2Jtwo\u2028three" + "\n" + "x" * 60_000
    exporter = exporter_with(Sender(lambda body: Outcome(Status.REFUSED, said)))
    exporter.accept(Push(b"x"))
    exporter.close(60_000)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("1 pushes of client telemetry are lost, refused: HTTP 400 one [2Jtwo three x")
    assert line.isprintable()
    assert len(line) < 1_100


def test_closing_is_bounded_and_nothing_is_taken_afterwards():
    sender = Sender(lambda body: RETRY)
    exporter = exporter_with(sender, retry_first_ms=60_000, retry_longest_ms=60_000)
    exporter.accept(Push(b"x"))
    assert sender.reached.wait(60)
    exporter.close(50)
    exporter.close(60_000)
    exporter.accept(Push(b"y"))
    counters = exporter.counters
    assert (counters.dropped_expired, counters.dropped_queue_full, counters.undelivered) == (1, 1, 1)
    assert balanced(counters)


def test_closing_while_the_collector_hangs():
    sender = Sender(lambda body: RETRY)
    sender.gate.clear()
    exporter = exporter_with(sender)
    exporter.accept(Push(b"x"))
    exporter.close(20)
    assert sender.closed.is_set()
    exporter.close(60_000)
    assert exporter.counters.dropped_expired == 1


def test_a_sender_that_raises_loses_one_batch_and_no_more(caplog):
    def answer(body):
        if body == b"bad":
            raise ValueError("no such header")
        return ACCEPTED

    sender = Sender(answer)
    exporter = exporter_with(sender)
    exporter.accept(Push(b"bad"))
    assert sender.reached.wait(60)
    exporter.accept(Push(b"good"))
    exporter.close(60_000)
    counters = exporter.counters
    assert (counters.dropped_refused, counters.exported) == (1, 1)
    assert "ValueError: no such header" in caplog.text


def test_a_sender_that_raises_because_it_was_closed_has_refused_nothing():
    """gRPC's channel does: what counts as refused is committed by `receive`, and lost."""

    def answer(body):
        raise ValueError("Cannot invoke RPC on closed channel!")

    sender = Sender(answer)
    sender.gate.clear()
    exporter = exporter_with(sender)
    exporter.accept(Push(b"x"))
    exporter.close(20)
    exporter.close(60_000)
    counters = exporter.counters
    assert (counters.dropped_refused, counters.undelivered) == (0, 1)
    assert balanced(counters)


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", ""])
def test_endpoints_that_are_none(endpoint):
    with pytest.raises(ValueError, match="no OTLP/HTTP endpoint"):
        HttpSender(endpoint)
    with pytest.raises(ValueError, match="no OTLP/gRPC endpoint"):
        GrpcSender("")


@pytest.mark.parametrize(
    ("endpoint", "proxy", "address"),
    [
        ("http://[::1]", None, ("::1", 80)),
        ("http://[2001:db8::a]/otlp", None, ("2001:db8::a", 80)),
        ("https://[::1]", None, ("::1", 443)),
        ("http://[::1]:4318", None, ("::1", 4318)),
        ("http://collector:4318", "http://[2001:db8::1]", ("2001:db8::1", 80)),
    ],
)
def test_an_ipv6_address_without_a_port_is_connected_to(monkeypatch, endpoint, proxy, address):
    asked = []

    def refuse(where, *_: object, **__: object) -> None:
        asked.append(where)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("kclient_telemetry.receiver.otlp_http.getproxies", lambda: {"http": proxy} if proxy else {})
    assert HttpSender(endpoint).send(b"").status is Status.RETRY
    assert asked == [address]
