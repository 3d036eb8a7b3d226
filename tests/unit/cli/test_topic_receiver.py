"""When who reads a topic of pushes has read what was there, by a clock that is moved by hand."""

import argparse
import logging
import threading
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.prometheus import PrometheusStore
from kclient_telemetry.receiver.queued import QueuedSink

from kclient_quota.cli import receive, telemetry_sources
from kclient_quota.clock import unix_ms
from kclient_quota.errors import ClusterError
from kclient_quota.operate.topic_receiver import FULL_BYTES, Sink, TopicReceiver, pushes_of_record
from kclient_quota.testing.clock import ManualClock
from tests.unit.telemetry.test_telemetry_prometheus import push
from tests.unit.telemetry.test_telemetry_prometheus_sink import LARGE, busy

POLL_MS = 200
IDLE_MS = 1_000


class Script:
    """A consumer whose group takes its time, and a partition of so many records."""

    poll_ms = POLL_MS

    def __init__(self, clock: ManualClock, *, joins_ms: int, first_ms: int, records: int, tells_end: bool) -> None:
        self.clock, self.joins_ms, self.first_ms = clock, joins_ms, first_ms
        self.left, self.records, self.tells_end = records, records, tells_end

    def is_joined(self) -> bool:
        return self.clock.now_ms() >= self.joins_ms

    def assignment(self) -> list[Any]:
        return [SimpleNamespace(topic="t", partition=0)] if self.is_joined() else []

    def get_watermark_offsets(self, _partition: Any, *, cached: bool) -> tuple[int, int]:
        assert cached
        return (0, self.records) if self.clock.now_ms() >= self.first_ms else (-1001, -1001)

    def poll(self, _timeout_s: float) -> Any:
        self.clock.sleep_ms(self.poll_ms)
        if self.clock.now_ms() < self.first_ms:
            return None
        if not self.left:
            return message(self.records, KafkaError(KafkaError._PARTITION_EOF)) if self.tells_end else None
        self.left -= 1
        return message(self.records - self.left - 1)

    def commit(self, **_offsets: Any) -> None:
        pass


def message(offset: int, error: KafkaError | None = None) -> Any:
    told = {"error": error, "topic": "t", "partition": 0, "offset": offset, "timestamp": (0, 0), "value": b""}
    told["headers"] = None
    return SimpleNamespace(**{name: lambda value=value: value for name, value in told.items()})


def run(**script: Any) -> tuple[int, int]:
    """How many records were read, and when it ended."""
    clock = ManualClock(0)
    consumer: Any = Script(clock, **script)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock, consumer.is_joined)
    receiver.run(lambda: False, idle_ms=IDLE_MS)
    return receiver.received.records, clock.now_ms()


@pytest.mark.parametrize("tells_end", [True, False], ids=["told of its end", "always written to"])
@pytest.mark.parametrize(("joins_ms", "first_ms"), [(0, 0), (3_000, 3_000), (0, 5_000), (3_000, 9_000)])
def test_it_is_not_idle_before_it_has_read_what_was_there(joins_ms: int, first_ms: int, tells_end: bool) -> None:
    read, ended_ms = run(joins_ms=joins_ms, first_ms=first_ms, records=20, tells_end=tells_end)
    assert read == 20
    assert ended_ms <= first_ms + 20 * POLL_MS + IDLE_MS + POLL_MS


def test_an_empty_partition_is_read_at_once() -> None:
    assert run(joins_ms=0, first_ms=400, records=0, tells_end=True) == (0, IDLE_MS)


def test_a_group_that_never_begins_is_not_waited_for_for_ever() -> None:
    assert run(joins_ms=10**9, first_ms=10**9, records=1, tells_end=True) == (0, 120_000)


def test_a_group_that_waits_for_two_members_that_were_killed_is_waited_for() -> None:
    """For one after the other, a session each: the second had joined to be given what the first one had."""
    read, ended_ms = run(joins_ms=89_000, first_ms=91_000, records=20, tells_end=True)
    assert read == 20
    assert ended_ms <= 91_000 + 20 * POLL_MS + IDLE_MS + POLL_MS


class Broken(Script):
    """One that stands still for a while, after so many records: an election, a throttled fetch, a rebalance."""

    def __init__(self, clock: ManualClock, *, after: int, still_ms: int, loses: bool = False) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=500, tells_end=True)
        self.after, self.loses, self.until_ms, self.still_ms = after, loses, 0, still_ms

    def is_still(self) -> bool:
        return self.clock.now_ms() < self.until_ms

    def is_joined(self) -> bool:
        return not (self.loses and self.is_still())

    def poll(self, timeout_s: float) -> Any:
        if not self.until_ms and self.records - self.left == self.after:
            self.until_ms = self.clock.now_ms() + self.still_ms
        if self.is_still():
            self.clock.sleep_ms(POLL_MS)
            return None
        return super().poll(timeout_s)


@pytest.mark.parametrize("loses", [False, True], ids=["throttled", "in a rebalance"])
def test_it_does_not_end_in_the_middle_however_long_it_has_read(loses: bool) -> None:
    clock = ManualClock(0)
    consumer: Any = Broken(clock, after=400, still_ms=10 * IDLE_MS, loses=loses)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock, consumer.is_joined)
    receiver.run(lambda: False, idle_ms=IDLE_MS)
    assert receiver.received.records == 500


def test_who_gives_up_before_the_end_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    consumer: Any = Broken(clock, after=400, still_ms=10**9)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock, consumer.is_joined)
    receiver.run(lambda: False, idle_ms=IDLE_MS)
    assert (receiver.received.records, clock.now_ms()) == (400, 400 * POLL_MS + 60_000)
    assert "nothing has come for 60 s, and its end was not reached" in caplog.text


def test_a_member_that_was_killed_is_waited_for_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    assert run(joins_ms=30_000, first_ms=30_000, records=20, tells_end=True)[0] == 20
    assert caplog.text.count("a member that was killed is waited for, as long as its session") == 1


def test_a_sink_that_has_lost_something_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=500, tells_end=True)
    taken: list[Any] = []
    sink = Sink(taken.append, lambda: (1, 0), lambda: max(0, len(taken) - 7))
    receiver = TopicReceiver(consumer, [sink], clock, consumer.is_joined)
    assert not receiver.run(lambda: False, idle_ms=IDLE_MS)
    assert (receiver.lost(), receiver.left()) == (1, 2)
    assert not caplog.text


@pytest.mark.parametrize(("done_ms", "ends_ms"), [(30_000, 31_000), (10**9, 5_000)], ids=["slow", "away"])
def test_it_is_not_idle_while_a_sink_gets_on(done_ms: int, ends_ms: int) -> None:
    """A disk that is slow has most of what was read still before it when all is read; one that stands still may go."""
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=20, tells_end=True)
    left = Sink(lambda _: None, lambda: (1, max(0, done_ms - clock.now_ms()) if done_ms < 10**9 else 1))
    assert TopicReceiver(consumer, [left], clock).run(lambda: False, idle_ms=IDLE_MS)
    assert abs(clock.now_ms() - ends_ms) <= POLL_MS


class Held(Script):
    """One of which nothing comes while it is paused."""

    def __init__(self, clock: ManualClock, records: int) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=records, tells_end=True)
        self.is_paused = False

    def pause(self, _partitions: list[Any]) -> None:
        self.is_paused = True

    def resume(self, _partitions: list[Any]) -> None:
        self.is_paused = False

    def poll(self, timeout_s: float) -> Any:
        if self.is_paused:
            self.clock.sleep_ms(POLL_MS)
            return None
        return super().poll(timeout_s)


@pytest.mark.parametrize(("records", "ends_ms"), [(500, 60_000), (20, IDLE_MS)], ids=["more to read", "all read"])
def test_a_full_collector_that_is_away_is_not_waited_for_for_a_day(
    records: int, ends_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With less before it than makes it full `--idle-exit` ended in time, with more only when pushes were given up."""
    clock = ManualClock(0)
    consumer: Any = Held(clock, records)
    taken: list[Any] = []
    away = Sink(taken.append, lambda: (len(taken), FULL_BYTES + 1 if len(taken) >= 20 else len(taken)))
    is_whole = TopicReceiver(consumer, [away], clock).run(lambda: clock.now_ms() > 3_600_000, idle_ms=IDLE_MS)
    assert abs(clock.now_ms() - (20 * POLL_MS + ends_ms)) <= 2 * POLL_MS
    assert len(taken) == 20
    assert is_whole is (records == 20)
    told = "what was read has not been taken for 60 s, and its end was not reached"
    assert caplog.text.count(told) == (records != 20)


def test_a_full_sink_that_gets_on_is_waited_for() -> None:
    clock = ManualClock(0)
    consumer: Any = Held(clock, 500)
    taken: list[Any] = []
    slow = Sink(taken.append, lambda: (1, max(0, FULL_BYTES + 10**6 * len(taken) - 100 * clock.now_ms())))
    assert TopicReceiver(consumer, [slow], clock).run(lambda: clock.now_ms() > 10**8, idle_ms=IDLE_MS)
    assert len(taken) == 500


def test_files_are_closed_before_a_collector_is_waited_for(tmp_path: Path) -> None:
    """One that is away takes all the time that there is, and a file under way would never get its name."""
    parser = argparse.ArgumentParser()
    receive.add_arguments(parser)
    to = ["--otlp", "http://127.0.0.1:9", "--jsonl", str(tmp_path), "--metrics-port", "0"]
    _, closers = receive._sinks(parser.parse_args(["--from-topic", "t", *to]))
    for close in closers:
        close(0)
    kinds = [type(close.__self__) for close in closers]
    assert kinds.index(QueuedSink) < kinds.index(OtlpExporter)


class Orders(Script):
    """A topic that has no telemetry in it."""

    def poll(self, timeout_s: float) -> Any:
        found = super().poll(timeout_s)
        if found is not None and found.error() is None:
            found.value = lambda: b'{"order": 1}'
        return found


def test_a_wrong_topic_is_a_line_a_minute_not_one_for_each_of_its_records(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads them, a slow collector of lines mostly, would hold up the reading, or be full."""
    clock = ManualClock(0)
    consumer: Any = Orders(clock, joins_ms=0, first_ms=0, records=500, tells_end=True)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock)
    receiver.run(lambda: False, idle_ms=IDLE_MS)
    assert receiver.received.unreadable == 500
    told = [record.message.partition(" is no client telemetry and is passed over: ") for record in caplog.records]
    assert [where for where, *_ in told] == ["t[0]@0", "t[0]@300"]
    assert "before" not in told[0][2]
    assert told[1][2].endswith("; 299 before it were not, either")


class Late(Script):
    """Each of its records is of a time of its own, and may be told to have others behind it, or an end before it."""

    def __init__(self, clock: ManualClock, told: list[tuple[int, int | None]]) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=0, tells_end=True)
        self.told, self.at, self.end = told, 0, 0

    def get_watermark_offsets(self, _partition: Any, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self.end

    def poll(self, timeout_s: float) -> Any:
        if not self.told:
            return super().poll(timeout_s)
        pause_ms, old_ms = self.told.pop(0)
        self.clock.sleep_ms(pause_ms)
        if old_ms is None:
            return message(self.at, KafkaError(KafkaError._PARTITION_EOF))
        self.at += 1
        behind = next((at for at, (pause_ms, _) in enumerate(self.told) if pause_ms), len(self.told))
        self.end = self.at + behind  # what comes without a pause was fetched with it
        found = message(self.at - 1)
        found.timestamp = lambda: (1, unix_ms() - old_ms)
        return found


@pytest.mark.parametrize(
    ("told", "warned"),
    [
        pytest.param([(0, None), (5_000, 90_000)], [85], id="the next one after its end"),
        pytest.param([(0, 700_000), (5_000, 700_000)], [695], id="the one after its last one, without an end"),
        pytest.param([(0, None)] + [(60_000, 600_000)] * 12, [540, 540], id="a line in ten minutes"),
        pytest.param([(0, None), (5_000, 50_000)], [], id="less than a minute"),
        pytest.param([(0, 700_000)], [], id="who begins with an old one"),
        pytest.param([(0, 700_000)] * 9, [], id="a backlog"),
        pytest.param([(0, None), (700_000, 700_000)], [], id="it may have been there since"),
        pytest.param([(0, None), (1_000, 700_000), (0, 0)], [], id="others have come with it, when it could be read"),
    ],
)
def test_a_clock_that_is_behind_is_told_from_a_backlog(
    told: list[tuple[int, int | None]], warned: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients were silent ones to a page and to `top`, which stayed empty without a word."""
    clock = ManualClock(0)
    consumer: Any = Late(clock, told)
    TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock).run(lambda: not consumer.told)
    lines = [record.getMessage() for record in caplog.records if "stamped" in record.getMessage()]
    assert [line.partition("at least ")[2].partition(" s ")[0] for line in lines] == [str(late) for late in warned]


def test_reading_waits_for_the_page_as_for_any_sink() -> None:
    """After ten minutes away it has all of them to read, faster than a page takes them: it dropped half, deltas too."""
    parser = argparse.ArgumentParser()
    receive.add_arguments(parser)
    (page,), (close,) = receive._sinks(parser.parse_args(["--from-topic", "t", "--metrics-port", "0"]))
    endpoint: Any = close.__self__
    with busy(endpoint.store):
        push(endpoint, LARGE)
        assert page.waiting()[1] > len(LARGE), "what makes it full"
        assert page.waiting()[0] == 0, "and nothing that would not be committed: a page ends with its process"
    close(60_000)
    assert page.waiting() == (0, 0)


def test_one_more_line_of_librdkafka_a_minute_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("kclient_quota.of_a_test")
    logger.addFilter(telemetry_sources._seldom())
    for number in range(100):
        logger.error("FAIL: b:1: Connect failed (after %dms in state CONNECT)", number)
    logger.error("FAIL: b:2: Connect failed (after 1ms in state CONNECT)")
    assert [record.getMessage()[:9] for record in caplog.records] == ["FAIL: b:1", "FAIL: b:2"]


@pytest.mark.parametrize(
    ("records", "slow", "is_warned"), [(0, "finish", False), (3, "finish", True), (3, "close", False)]
)
def test_who_leaves_a_group_that_is_slow_to_let_go_warns_of_what_comes_twice(
    records: int, slow: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing read there is nothing to commit, and what is committed is not read again."""
    lets_go = threading.Event()
    waits: dict[str, Any] = {slow: lets_go.wait}
    consumer: Any = SimpleNamespace(close=waits.get("close", lambda: None))
    received = SimpleNamespace(records=records)
    receiver: Any = SimpleNamespace(finish=waits.get("finish", lambda: None), received=received)
    receive._leave(receiver, consumer, 200)
    lets_go.set()
    assert ("the cluster does not answer" in capsys.readouterr().err) is is_warned


class Group:
    """A consumer that is told of its partitions by hand."""

    problem: KafkaError | None = None

    def __init__(self, _conf: dict[str, Any]) -> None:
        self.is_closed = False

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.problem, partitions=[0])})

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        assert topics == ["t"]
        self.callbacks = callbacks

    def tell(self, what: str, *partitions: int) -> None:
        self.callbacks[what](self, [SimpleNamespace(topic="t", partition=each) for each in partitions])

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("kclient_quota.clients.consumer.Consumer", Group)
    monkeypatch.setattr(telemetry_sources, "configuration", lambda _options: {"bootstrap.servers": "host:1"})
    return SimpleNamespace(from_topic="t", timeout=1.0)


class Kept(Script):
    """Keeps what is committed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=20, tells_end=True)
        self.committed: list[int] = []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.committed += [each.offset for each in offsets]


def taken_away(how: str, *, waits: int) -> list[int]:
    """What is committed of a partition that is taken away after seven records; a sink is left with `waits`."""
    clock = ManualClock(0)
    consumer: Any = Kept(clock)
    left = [7]
    sink = Sink(lambda _: None, lambda: (left[0], 0), complete=lambda _ms: left.__setitem__(0, waits))
    receiver = TopicReceiver(consumer, [sink], clock)
    receiver.run(lambda: receiver.received.records == 7)
    getattr(receiver, how)(consumer.assignment())
    left[0] = 0
    receiver.finish()  # somebody else may be further on by now
    return consumer.committed


@pytest.mark.parametrize(
    ("how", "waits", "committed"),
    [("hand_over", 0, [7]), ("hand_over", 1, [6]), ("hand_over", 7, []), ("forget", 0, [])],
    ids=["handed on in time", "all but the last one", "not handed on", "lost"],
)
def test_of_partitions_that_are_taken_away_is_committed_what_was_handed_on_before(
    how: str, waits: int, committed: list[int]
) -> None:
    assert taken_away(how, waits=waits) == committed


class Again(Script):
    """A partition of which records are read again, as after a rebalance."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=7, tells_end=True)
        self.unix_ms = 0

    def poll(self, timeout_s: float) -> Any:
        found = super().poll(timeout_s)
        found.timestamp = lambda: (0, self.unix_ms)
        return found


@pytest.mark.parametrize(
    ("how", "waits", "unix_ms", "given"),
    [
        ("hand_over", 7, 0, 7),
        ("hand_over", 3, 0, 7),
        ("forget", 7, 0, 7),
        ("hand_over", 0, 0, 14),
        ("hand_over", 7, 5, 14),
    ],
    ids=["a dead collector", "a slow one", "lost", "handed on and forgotten", "a topic that was made anew"],
)
def test_what_sinks_still_have_is_not_given_to_them_again_when_its_partition_comes_back(
    how: str, waits: int, unix_ms: int, given: int
) -> None:
    """With a collector that is away each rebalance doubled what waits for it, and what other sinks had written."""
    clock = ManualClock(0)
    consumer: Any = Again(clock)
    consumer.commit = lambda **_offsets: None
    pushes: list[Any] = []
    receiver = TopicReceiver(consumer, [Sink(pushes.append, lambda: (waits, 0))], clock)
    receiver.run(lambda: len(pushes) == 7)
    getattr(receiver, how)(consumer.assignment())
    consumer.left, consumer.unix_ms = waits or 7, unix_ms  # from what is committed, but where that got lost
    receiver.run(lambda: not consumer.left)
    assert (len(pushes), receiver.received.records, receiver.received.pushes) == (given, given, given)


@pytest.mark.parametrize("begins", [0, 4])
def test_what_was_handed_on_while_its_partition_was_away_is_not_given_again(begins: int) -> None:
    """Full sinks: nothing is read of a partition that has come back until they have room, and then it was all new."""
    clock = ManualClock(0)
    consumer: Any = Again(clock)
    committed: list[int] = []
    consumer.commit = lambda *, offsets, asynchronous: committed.extend(each.offset for each in offsets)
    left = [7]
    pushes: list[Any] = []
    receiver = TopicReceiver(consumer, [Sink(pushes.append, lambda: (left[0], 0))], clock)
    receiver.run(lambda: len(pushes) == 7)
    receiver.hand_over(consumer.assignment())
    left[0] = 0
    receiver.finish()
    assert not committed  # somebody else may be further on
    consumer.left = 7 - begins
    receiver.run(lambda: not consumer.left)
    assert len(pushes) == 7
    receiver.finish()
    assert committed[-1] == 7
    receiver.hand_over(consumer.assignment())
    consumer.left = 7  # an administrator wants it read again
    receiver.run(lambda: not consumer.left)
    assert len(pushes) == 14


def test_a_topic_that_is_made_anew_is_not_committed_at_the_offsets_of_the_one_before() -> None:
    """Who goes on from there finds nothing at that offset, and without --from-beginning passes over all there is."""
    clock = ManualClock(0)
    consumer: Any = Again(clock)
    committed: list[int] = []
    consumer.commit = lambda *, offsets, asynchronous: committed.extend(each.offset for each in offsets)
    left = [7]
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (left[0], 0))], clock)
    receiver.run(lambda: receiver.received.records == 7)
    receiver.finish()  # nothing yet
    consumer.left, consumer.records, consumer.unix_ms = 3, 3, 5
    receiver.run(lambda: receiver.received.records == 10)
    left[0] = 3  # those of before are handed on
    receiver.finish()
    left[0] = 0
    receiver.finish()
    assert committed == [3]


class Many(Script):
    """A topic of pushes over as many partitions as it has records, while nobody says that they are handed on."""

    poll_ms = 1

    def poll(self, timeout_s: float) -> Any:
        found = super().poll(timeout_s)
        partition = found.offset() % 100
        found.partition = lambda: partition
        return found


def test_what_many_pushes_leave_to_keep_track_of_is_let_go_in_one_go() -> None:
    """The time grew with their square: 30,000 took 0.7 s of CPU, eight times as many sixty times as long."""

    def let_go_s(records: int) -> float:
        clock = ManualClock(0)
        consumer: Any = Many(clock, joins_ms=0, first_ms=0, records=records, tells_end=True)
        left = [records]
        receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (left[0], 0))], clock)
        receiver.run(lambda: not consumer.left)
        left[0] = 0
        began_s = time.thread_time()
        receiver.finish()
        return time.thread_time() - began_s

    assert let_go_s(40_000) < 24 * let_go_s(5_000)


def test_a_collector_that_is_away_for_a_day_costs_nothing_where_nothing_comes() -> None:
    clock = ManualClock(0)
    consumer: Any = Many(clock, joins_ms=0, first_ms=0, records=1_000, tells_end=True)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (1, 0))], clock)
    receiver.run(lambda: not consumer.left)
    consumer.poll = lambda _timeout_s: clock.sleep_ms(POLL_MS)
    tracemalloc.start()
    try:
        end_ms = clock.now_ms() + 3_600_000
        receiver.run(lambda: clock.now_ms() > end_ms)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 100_000


def test_records_that_are_no_pushes_are_not_kept_track_of_while_a_collector_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What sinks hold is bounded in bytes; these are not with any sink."""
    caplog.set_level(logging.CRITICAL, "kclient_quota")
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=5_000, tells_end=True)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (1, 0))], clock)
    receiver.run(lambda: receiver.received.pushes == 1)
    poll = consumer.poll

    def damaged(timeout_s: float) -> Any:
        found = poll(timeout_s)
        found.value = lambda: b"no push"
        return found

    consumer.poll = damaged
    tracemalloc.start()
    try:
        receiver.run(lambda: not consumer.left)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert receiver.received.unreadable == 4_999
    assert used < 200_000


def test_files_are_completed_before_a_collector_that_is_away_is_waited_for() -> None:
    """It takes all the time that there is; with files of a minute nothing of that minute could be committed."""
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=0, tells_end=True)
    had: list[int] = []
    collector = Sink(lambda _: None, lambda: (1, 0), complete=clock.sleep_ms, is_remote=True)
    files = Sink(lambda _: None, lambda: (0, 0), complete=had.append)
    TopicReceiver(consumer, [collector, files], clock).hand_over(consumer.assignment())
    assert had[0] > 0


class Holding(Script):
    """A consumer whose partitions change, as librdkafka has it: those that are taken away forget that they pause."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, joins_ms=0, first_ms=0, records=10**6, tells_end=False)
        self.mine, self.held = [0], set[int]()

    def assignment(self) -> list[Any]:
        return [SimpleNamespace(topic="t", partition=each) for each in self.mine]

    def pause(self, partitions: list[Any]) -> None:
        self.held |= {part.partition for part in partitions}

    def resume(self, partitions: list[Any]) -> None:
        self.held -= {part.partition for part in partitions}

    def poll(self, timeout_s: float) -> Any:
        self.clock.sleep_ms(self.poll_ms)
        return super().poll(timeout_s) if self.held < set(self.mine) else None


@pytest.mark.parametrize("after", [[0], [0, 1], [1]], ids=["the same", "one more", "others"])
@pytest.mark.parametrize("how", ["hand_over", "forget"])
def test_nothing_is_read_for_sinks_that_are_full_after_a_rebalance_either(how: str, after: list[int]) -> None:
    """It was, until there was no room at all: the receiver ended, whenever a collector was away for long."""
    clock = ManualClock(0)
    consumer: Any = Holding(clock)
    held = [0]
    pushes: list[Any] = []
    receiver = TopicReceiver(consumer, [Sink(pushes.append, lambda: (len(pushes), held[0]))], clock)
    receiver.run(lambda: len(pushes) == 5)
    held[0] = FULL_BYTES + 1
    end_ms = clock.now_ms() + 10 * POLL_MS
    receiver.run(lambda: clock.now_ms() > end_ms)
    getattr(receiver, how)(consumer.assignment())
    consumer.mine, consumer.held = after, set()
    end_ms = clock.now_ms() + 10 * POLL_MS
    receiver.run(lambda: clock.now_ms() > end_ms)
    assert (len(pushes), consumer.held) == (5, set(after))
    held[0] = 0
    receiver.run(lambda: len(pushes) == 6)
    assert not consumer.held


@pytest.mark.parametrize(("gone", "heard"), [("on_revoke", "hand_over"), ("on_lost", "forget")])
def test_receivers_are_told_of_partitions_that_are_taken_away(options: Any, gone: str, heard: str) -> None:
    told: list[Any] = []
    receivers: list[Any] = []
    group: Any = telemetry_sources.subscribed(options, {}, lambda: False, receivers)[0]
    group.tell(gone, 1)
    receivers.append(SimpleNamespace(**{heard: told.extend}))
    group.tell(gone, 0)
    assert [part.partition for part in told] == [0]


@pytest.mark.parametrize("gone", ["on_revoke", "on_lost"])
def test_who_has_been_taken_its_partitions_has_not_joined(options: Any, gone: str) -> None:
    consumer, is_joined = telemetry_sources.subscribed(options, {}, lambda: False)
    group: Any = consumer
    assert not is_joined()
    group.tell("on_assign", 0)
    assert is_joined()
    group.tell(gone, 0)
    assert not is_joined()
    group.tell("on_assign")  # a member too many
    assert is_joined()


def test_part_of_the_partitions_taken_leaves_the_rest_to_be_read_to_their_end() -> None:
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=0, tells_end=True)
    receiver = TopicReceiver(consumer, [], clock, lambda: False)
    receiver.run(lambda: clock.now_ms() > 0)
    assert receiver.has_caught_up()


def test_a_topic_that_may_not_be_read_is_said_at_once(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "problem", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ClusterError, match=r"t cannot be read: .*uthoriz") as caught:
        telemetry_sources.subscribed(options, {}, lambda: False)
    assert caught.value.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED


NO_GROUP, NO_TOPIC = KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("code", "right"), [(NO_GROUP, "READ on the group"), (NO_TOPIC, "READ on the topic")])
@pytest.mark.parametrize("reads", [False, True])
def test_what_may_not_be_read_ends_who_has_read_nothing_and_the_right_is_named(
    caplog: pytest.LogCaptureFixture, code: int, right: str, reads: bool
) -> None:
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=int(reads), tells_end=False)
    told = [message(0, KafkaError(code))]
    poll = consumer.poll
    consumer.poll = lambda timeout_s: poll(timeout_s) or (told and told.pop()) or None
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock)
    if reads:
        receiver.run(lambda: clock.now_ms() > IDLE_MS)
        assert right in caplog.text
    else:
        with pytest.raises(ClusterError, match=right) as caught:
            receiver.run(lambda: clock.now_ms() > IDLE_MS)
        assert caught.value.error_code == code


class Silent(Group):
    """Its coordinator says nothing; who polls is told why, if there is a reason."""

    polled: KafkaError | None = None
    told: tuple[int, ...] = ()

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf)
        self.conf, self.clock, self.errors = conf, ManualClock(0), list(self.told)

    def poll(self, _timeout_s: float) -> Any:
        while self.errors:
            self.conf["error_cb"](KafkaError(self.errors.pop(0)))
        return None if self.polled is None else message(0, self.polled)

    def committed(self, _parts: Any, timeout_s: float) -> Any:
        self.clock.sleep_ms(round(timeout_s * 1000))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def silent(options: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Silent] = []

    def make(conf: dict[str, Any]) -> Silent:
        made.append(Silent(conf))
        monkeypatch.setattr(telemetry_sources, "SYSTEM_CLOCK", made[0].clock)
        return made[0]

    monkeypatch.setattr("kclient_quota.clients.consumer.Consumer", make)
    options.timeout = 30.0
    return made


def test_a_group_that_may_not_be_read_is_said_before_its_place_has_been_waited_for(
    options: Any, silent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silent, "polled", KafkaError(NO_GROUP))
    with pytest.raises(ClusterError, match="READ on the group"):
        telemetry_sources.subscribed(options, {}, lambda: False, new_at_end=True)
    assert (silent[0].is_closed, silent[0].clock.now_ms()) == (True, 1_000)


def test_who_waits_for_the_groups_place_hears_ctrl_c_within_a_second(options: Any, silent: Any) -> None:
    telemetry_sources.subscribed(options, {}, lambda: bool(silent) and silent[0].clock.now_ms() > 500, new_at_end=True)
    assert silent[0].clock.now_ms() == 1_000


def test_a_group_that_says_nothing_of_its_place_is_read_all_the_same(
    options: Any, silent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry_sources.subscribed(options, {}, lambda: False, new_at_end=True)
    assert silent[0].clock.now_ms() == 30_000
    assert "where the group has read to is not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "said", "after_ms"),
    [
        ((KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN), "refused the credentials: .*uthent", 1_000),
        ((KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN), "did not answer within 30 s: .*SSL", 30_000),
    ],
)
def test_why_no_broker_answers_is_said_and_refused_credentials_at_once(
    options: Any, silent: Any, monkeypatch: pytest.MonkeyPatch, told: Any, said: str, after_ms: int
) -> None:
    def unanswered(self: Silent, _topic: str, timeout_s: float) -> Any:
        self.clock.sleep_ms(round(timeout_s * 1000))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(Silent, "told", told)
    monkeypatch.setattr(Silent, "list_topics", unanswered)
    with pytest.raises(ClusterError, match=f"host:1 {said}"):
        telemetry_sources.subscribed(options, {}, lambda: False)
    assert silent[0].clock.now_ms() == after_ms


def test_a_leader_to_be_elected_is_waited_for(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "problem", KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    _, is_joined = telemetry_sources.subscribed(options, {}, lambda: False)
    assert not is_joined()


class Quick(Script):
    """Counts how often it is asked for its partitions; a record takes ten milliseconds."""

    poll_ms, asked = 10, 0

    def assignment(self) -> list[Any]:
        self.asked += 1
        return super().assignment()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("records", "warns"), [(300, False), (8_000, True)])
def test_a_look_to_the_end_says_when_it_was_not_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], records: int, warns: bool
) -> None:
    clock = ManualClock(0)
    consumer: Any = Quick(clock, joins_ms=0, first_ms=0, records=records, tells_end=True)
    monkeypatch.setattr(telemetry_sources, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(telemetry_sources, "subscribed", lambda *_: (consumer, consumer.is_joined))
    options: Any = SimpleNamespace(from_topic="t", prometheus=None)
    look, close = telemetry_sources.opened(options, lambda _: None, lambda: False, whole=True)
    look(1)
    close()
    assert ("the end of t was not reached within 61 s" in capsys.readouterr().err) is warns
    assert clock.now_ms() - min(consumer.poll_ms * records, 61_000) <= 100
    looks = (clock.now_ms() - 1_000) // 100 + 1
    commits = clock.now_ms() // 2_000
    assert consumer.asked <= looks + commits + 1


@pytest.mark.parametrize(
    ("headers", "interval_ms"),
    [
        ([("push_interval_ms", b"1000")], 1_000),
        ([("client_id", b"a"), ("push_interval_ms", b"3600000")], 3_600_000),
        ([], 300_000),
        *(
            ([("push_interval_ms", wrong)], 300_000)
            for wrong in (None, b"", b"-1", b"0", b"3600001", b"9" * 5_000, b"x")
        ),
    ],
)
def test_how_often_a_client_pushes_is_what_its_record_says_or_kafkas_default(headers: Any, interval_ms: int) -> None:
    assert pushes_of_record(b"", 0, headers)[0].context.push_interval_ms == interval_ms


def test_a_clients_last_push_is_known_by_its_header() -> None:
    assert not pushes_of_record(b"", 0)[0].payload.is_terminating
    assert pushes_of_record(b"", 0, [("terminating", b"true")])[0].payload.is_terminating


def test_counters_of_clients_that_push_every_five_minutes_add_up() -> None:
    """Kafka's default. Their series went after three minutes, and each push began anew."""
    store = PrometheusStore()
    delta = PushPoint(Point(PointKey("m.total"), MetricKind.SUM, 100), 100, 1, 2, delta=True)
    data = encode([delta], (("client_instance_id", "A" * 22),), 0).payload
    for minute in (0, 5, 10):
        store.accept(*pushes_of_record(data, minute * 60_000))
    (family,) = [family for family in store.families(14 * 60_000) if family.name == "m"]
    assert [value for _, _, value in family.samples] == [300]


def test_a_record_of_a_collector_is_of_all_the_clients_that_it_has_put_together() -> None:
    """Their counters were one, that of the first."""
    store = PrometheusStore()
    delta = PushPoint(Point(PointKey("m.total"), MetricKind.SUM, 100), 100, 1, 2, delta=True)
    who = [(("client_instance_id", letter * 21 + "A"), ("client_id", f"shop-{letter}")) for letter in "AB"]
    of_each = [encode([delta], each, 0).payload for each in (*who, who[0])]
    pushes = pushes_of_record(b"".join(of_each), 0)
    for each in pushes:
        store.accept(each)
    (family,) = [family for family in store.families(0) if family.name == "m"]
    assert [(labels["client_id"], value) for _, labels, value in family.samples] == [("shop-A", 200), ("shop-B", 100)]
    assert [len(each.enriched) for each in pushes] == [len(of_each[0]) * 2, len(of_each[1])]


def test_a_record_is_done_with_when_all_its_pushes_are() -> None:
    point = PushPoint(Point(PointKey("m"), MetricKind.GAUGE, 1), 1, 1, 2, delta=False)
    value = b"".join(encode([point], (("client_id", each),), 0).payload for each in "abc")
    clock = ManualClock(0)
    consumer: Any = Script(clock, joins_ms=0, first_ms=0, records=0, tells_end=True)
    committed: list[int] = []
    consumer.commit = lambda offsets, **_: committed.extend(each.offset for each in offsets)
    taken: list[Any] = []
    left = [1]
    receiver = TopicReceiver(consumer, [Sink(taken.append, lambda: (left[0], 0))], clock, consumer.is_joined)
    record = message(0)
    record.value = lambda: value
    receiver._take(record)
    receiver.finish()
    assert (len(taken), receiver.received.records, receiver.received.pushes, committed) == (3, 1, 3, [])
    left[0] = 0
    receiver.finish()
    assert committed == [1]
