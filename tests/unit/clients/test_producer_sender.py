"""Whose word counts about a message: its caller's, who has gone, or the sender's, who has taken it."""

import threading
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException

from kclient_quota.clients.producer.core import Lost
from kclient_quota.clients.producer.outbox import Handed
from kclient_quota.clients.producer.sender.answers import NO_TOPIC_MS
from kclient_quota.clients.producer.sender.sender import Sender
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.clients.producer_world import LIMITED, core_of, sender_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Core:
    """Takes what is offered, or lets it wait."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self.is_hasty = False
        self.meanwhile: Callable[[], object] = int
        self.offered: list[Waiting] = []

    def offer(self, message: Waiting, _now_ms: int, *, is_patient: bool) -> int:
        assert is_patient is not self.is_hasty
        self.meanwhile()
        self.offered.append(message)
        return self.wait_ms

    def retry(self, _message: Waiting, _now_ms: int) -> tuple[int, None]:
        return self.wait_ms, None


def message() -> tuple[Waiting, Handed]:
    handed = Handed(b"v", None, -1, None, 0, None, waits=True)
    handed.answered = threading.Lock()
    handed.answered.acquire()
    return Waiting("t", -1, 100, 0, handed, None), handed


def test_what_its_caller_has_given_up_is_not_sent() -> None:
    core = Core(0)
    sender, (waiting, handed) = sender_of(core), message()
    assert handed.decide(), "the caller's time is over: it says that the message was not taken"
    sender._take(waiting, 0)
    assert core.offered == []
    assert sender.outbox.finished == 1


@pytest.mark.parametrize("has_been_looked_at", [False, True])
def test_what_its_caller_has_given_up_is_forgotten_at_once_and_never_reported(has_been_looked_at: bool) -> None:
    core: Any = Core(50)
    sender, (waiting, handed) = sender_of(core), message()
    heard: list[Any] = []
    handed.callback = lambda error, _: heard.append(error)
    outbox = sender.outbox
    outbox.stops = True  # there is no thread to wake
    assert outbox.put(waiting)
    if has_been_looked_at:
        sender._take(outbox.inbox.items.popleft(), 0)
    assert len(outbox) == 1
    assert outbox.give_up(handed)
    assert len(outbox) == 0
    handed.waits = False
    core.purge, core.waiting = list, lambda: [waiting] if has_been_looked_at else []
    sender.purge()
    if not has_been_looked_at:
        sender._take(outbox.inbox.items.popleft(), 0)
    assert (outbox.accepted, outbox.finished, outbox.given_up) == (1, 1, set())
    outbox.serve()
    assert heard == []


@pytest.mark.parametrize(
    ("wait_ms", "news", "polls"),
    [
        (1_000, None, 5),
        (25, None, 2),
        (3, None, 1),
        (1_000, lambda _sender: 1, 2),
        (1_000, lambda sender: sender.outbox.inbox.put("a message"), 2),
        (1_000, lambda sender: sender.outbox.notices.append(lambda *_: None), 2),
        (1_000, lambda sender: setattr(sender.outbox, "stops", True), 2),
        (1_000, lambda sender: setattr(sender.outbox, "is_ending", True), 2),
        (1_000, lambda sender: setattr(sender.outbox, "is_mixed", True), 2),
        (1_000, lambda sender: setattr(sender, "wants_flush", True), 2),
    ],
    ids=[
        "nothing",
        "soon",
        "at once",
        "an event",
        "a message",
        "a notice",
        "the end",
        "an exit",
        "a caller",
        "a flush",
    ],
)
def test_while_nothing_comes_of_what_is_on_its_way_it_polls_and_does_nothing_else(
    wait_ms: float, news: Any, polls: int
) -> None:
    """Each look at everything took 0.4 ms: of a message a fiftieth of a second each there were three."""
    sender, waits = sender_of(Core(0)), []
    sender.outbox.in_flight = 1

    def serve(timeout_s: float) -> int:
        waits.append(timeout_s)
        return news(sender) or 0 if news and len(waits) == 2 else 0

    producer: Any = SimpleNamespace(serve_librdkafka=serve, hasten_librdkafka=lambda _ms: None)
    assert not sender._poll(producer, wait_ms)
    assert waits == [min(wait_ms, 10) / 1_000] * polls


def test_what_comes_is_taken_in_order_behind_what_had_come_before() -> None:
    sender = sender_of(Core(0))
    sender._came.append(0)
    for number in (1, 2, 3):
        sender.outbox.inbox.put(number)
    sender._empty_inbox()
    assert list(sender._came) == [0, 1, 2, 3]
    assert sender.outbox.inbox.empty()


def test_what_has_arrived_is_told_once_for_each_broker_up_to_the_first_that_has_not() -> None:
    core: Any = Core(0)
    told: list[Any] = []
    core.on_delivered = lambda *given, arrived: told.append((*given, arrived))
    sender, brokers = sender_of(core), core_of(LIMITED).brokers
    brokers.is_split = True
    one, two = brokers.get(1), brokers.get(2)
    line = sender._lines.of(("t", 0))
    for broker, nbytes, has_arrived in ((one, 10, True), (two, 200, True), (one, 3_000, True), (two, 4, False)):
        waiting, handed = message()
        waiting.raw_bytes = nbytes
        error = KafkaError(KafkaError._MSG_TIMED_OUT) if nbytes == 3_000 else None
        handed.report = {error: nbytes} if has_arrived else {}  # type: ignore[dict-item] # stands for a message
        handed.callback = lambda error, reported: None
        sender._lines.add(("t", 0), broker, waiting, 0)
    sender.outbox.in_flight = 4
    sender._collect(7)
    assert told == [(one, 3_010, 7, False), (two, 200, 7, True)], "what was given up has not arrived"
    assert [reported[2] for reported in sender.outbox.reports] == [10, 200, 3_000]
    assert (len(line.gone), sender.outbox.in_flight, sender.outbox.finished) == (1, 1, 3)


def test_what_is_taken_is_answered_and_can_no_more_be_given_up() -> None:
    core = Core(0)
    sender, (waiting, handed) = sender_of(core), message()
    sender._take(waiting, 0)
    assert core.offered == [waiting]
    assert handed.answered.acquire(blocking=False)
    assert not handed.decide()


@pytest.mark.parametrize("waits", [True, False])
def test_what_waits_for_room_may_still_be_given_up(waits: bool) -> None:
    core = Core(50)
    sender, (waiting, handed) = sender_of(core), message()
    handed.waits = waits
    sender._take(waiting, 0)
    assert handed.retry_after_ms == 50
    assert not handed.answered.acquire(blocking=False)
    assert handed.decide()


def test_what_is_not_taken_although_its_callers_time_ran_out_meanwhile_is_refused() -> None:
    """The caller sees that the sender has claimed it, and waits for its answer: it must not get lost between them."""
    core = Core(50)
    sender, (waiting, handed) = sender_of(core), message()
    handed.is_hasty = core.is_hasty = True

    def time_is_up() -> None:
        handed.waits = handed.is_hasty = False
        assert not handed.claim

    core.meanwhile = time_is_up
    sender._take(waiting, 0)
    assert handed.answered.acquire(blocking=False)
    assert handed.is_refused
    assert sender.outbox.finished == 1


def test_what_was_left_to_the_sender_waits_and_is_reported_when_it_is_purged() -> None:
    core: Any = Core(50)
    sender, (waiting, handed) = sender_of(core), message()
    heard: list[Any] = []
    handed.callback = lambda error, _: heard.append(error.name())
    handed.waits = handed.is_hasty = False
    sender._take(waiting, 0)
    assert not handed.is_refused
    core.purge, core.waiting = list, lambda: [waiting]
    sender.purge()
    sender.outbox.serve()
    assert heard == ["_PURGE_QUEUE"]


def test_what_expires_is_reported_in_librdkafkas_words_first() -> None:
    sender, (waiting, handed) = sender_of(Core(0)), message()
    heard: list[Any] = []
    handed.callback = lambda error, reported: heard.append((error.str(), reported.topic()))
    sender._answers.lose(waiting, Lost.EXPIRED)
    sender.outbox.serve()
    ((text, topic),) = heard
    assert text.startswith("Local: Message timed out (not sent while")
    assert topic == "t"


class Cluster:
    """What a sender asks and hands messages to."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.handed: list[str] = []
        self.asked: list[tuple[str, bool]] = []
        self.begun = 0
        self.meanwhile: Callable[[], object] = int

    def begun_with_librdkafka(self) -> None:
        self.begun += 1

    def ask_librdkafka(self, topic: str, _timeout_s: float) -> Any:
        """Which says whether callers would have to wait for it."""
        self.asked.append((topic, self.sender.outbox.lock._is_owned()))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})}, brokers=[1])

    def hand_to_librdkafka(self, topic: str, _partition: int, _handed: Handed) -> None:
        self.handed.append(topic)
        self.meanwhile()


def test_callers_do_not_wait_while_the_cluster_is_asked_about_a_new_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of(LIMITED)
    monkeypatch.setattr(type(core), "is_spare_due", True)
    sender = sender_of(core)
    cluster: Any = Cluster(sender)

    def comes(topic: str) -> None:
        cluster.meanwhile = int
        sender.outbox.inbox.put(Waiting(topic, 0, 100, 0, Handed(b"v", None, 0, None, 0, None)))

    comes("orders")
    cluster.meanwhile = lambda: comes("new")
    assert sender._step(cluster) == 0
    assert cluster.asked == [("orders", False)]
    assert cluster.handed == ["orders"]
    sender._step(cluster)
    assert cluster.asked == [("orders", False), ("new", False)]
    assert not sender._came


@pytest.mark.parametrize(
    "room", [[4, 0], [4, 1, 0], [0, 1, 0]], ids=["stays full", "one leaves soon", "one leaves at once"]
)
def test_what_librdkafka_has_no_room_for_goes_before_what_comes_after_it(room: list[int]) -> None:
    """Its queue empties in a thread of its own: between two messages there may be room again."""
    core = core_of(replace(LIMITED, byte_rate=10_000_000))
    sender = sender_of(core)
    sender._worth.is_done = True
    clock: Any = sender.clock
    cluster: Any = Cluster(sender)
    left, taken = list(room), list[int]()

    def hand_to_librdkafka(_topic: str, _partition: int, handed: Handed) -> None:
        if left and not left[0]:
            del left[0]
            raise BufferError("Local: Queue full")
        if left:
            left[0] -= 1
        taken.append(int(handed.value))

    cluster.hand_to_librdkafka = hand_to_librdkafka
    for number in range(200):
        handed = Handed(b"%d" % number, None, 0, None, 0, None)
        sender.outbox.inbox.put(Waiting("orders", 0, 100_000, 0, handed))
    for _ in range(400):
        sender._step(cluster)
        clock.sleep_ms(100)
        core.on_delivered(core.brokers.get(1), core.brokers.get(1).queue.pace.outstanding, clock.now_ms())
    assert taken == list(range(200))


def test_what_is_given_up_before_librdkafka_has_it_is_no_sign_of_its_first_report() -> None:
    """Lanes drop within milliseconds what librdkafka asks a producer id for, for half a second if nobody hastens it."""
    core = core_of(LIMITED)
    sender = sender_of(core)
    cluster: Any = Cluster(sender)
    sent, given_up = Handed(b"v", None, 0, None, 0, None), Handed(b"v", None, 0, None, 0, None)
    sender.outbox.inbox.put(Waiting("orders", 0, 100, 0, sent))
    sender._step(cluster)
    assert given_up.decide()
    sender.outbox.inbox.put(Waiting("orders", 0, 100, 0, given_up))
    sender._step(cluster)
    assert (cluster.handed, sender.outbox.finished, cluster.begun) == (["orders"], 1, 0)
    sent.report[None] = SimpleNamespace()
    sender._step(cluster)
    assert (sender.outbox.finished, cluster.begun) == (2, 1)


def test_what_goes_wrong_while_it_is_told_of_costs_no_message() -> None:
    """An application's logging filter may raise, or a module that is loaded then be gone."""
    core = core_of(LIMITED)
    sender = sender_of(core)
    cluster: Any = Cluster(sender)

    def fails(*_: Any) -> None:
        raise ImportError("No module named 'lz4.frame'")

    worth: Any = sender._worth
    clock: Any = sender.clock
    worth.on_sent = fails
    for partition in range(3):
        handed = Handed(b"v", None, partition, None, 0, None)
        sender.outbox.inbox.put(Waiting("orders", partition, 100, 0, handed))
    for _ in range(20):
        with suppress(ImportError):
            sender._step(cluster)
        clock.sleep_ms(100)
        for broker in core.brokers:
            core.on_delivered(broker, broker.queue.pace.outstanding, sender.clock.now_ms())
    assert cluster.handed == ["orders"] * 3
    assert core.is_empty


def test_who_comes_while_a_sender_ends_is_not_left_alone() -> None:
    """The one that it starts finds the other still there, and ends."""
    sender, starts = sender_of(Core(0)), []
    outbox = sender.outbox
    outbox.start = lambda: starts.append(None)

    def opens() -> bool:
        outbox.inbox.put("a message that has come just after the look")
        return True

    sender._opens = opens  # type: ignore[method-assign]
    producer: Any = SimpleNamespace(with_librdkafka=lambda: 0)
    sender.run(lambda: producer)  # type: ignore[arg-type] # stands for a weak reference
    assert len(starts) == 1


def test_callers_do_the_work_until_a_sender_runs_not_only_until_one_is_started() -> None:
    """One that is started while a caller does it ends at once."""
    sender = sender_of(Core(0))
    outbox = sender.outbox
    outbox.has_no_thread = True
    outbox.start = lambda: None
    outbox.wake()
    assert outbox.needs_help
    sender._opens = lambda: True  # type: ignore[method-assign]
    producer: Any = SimpleNamespace(with_librdkafka=lambda: 0)
    sender.run(lambda: producer)  # type: ignore[arg-type] # stands for a weak reference
    assert not outbox.needs_help


@pytest.mark.parametrize("timestamp", [1, 4_000_000_000_000], ids=["of 1970", "of 2096"])
def test_what_is_refused_has_waited_by_our_clock_and_no_time_as_all_that_fails(timestamp: int) -> None:
    sender, (waiting, handed) = sender_of(Core(0)), message()
    heard: list[Any] = []
    handed.timestamp, handed.callback = timestamp, lambda _error, reported: heard.append(reported)
    clock: Any = sender.clock
    clock.sleep_ms(1_500)
    sender._answers.fail(waiting, KafkaError._PURGE_QUEUE)
    sender.outbox.serve()
    assert [(each.timestamp(), each.latency()) for each in heard] == [((TIMESTAMP_NOT_AVAILABLE, -1), 1.5)]


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_a_message_was_refused_for_is_remembered(code: int) -> None:
    sender, (waiting, _) = sender_of(Core(0)), message()
    sender._answers.refuse_for_good(waiting, KafkaException(KafkaError(KafkaError._FATAL)))
    assert not sender.outbox.no_topics
    sender._answers.refuse_for_good(waiting, KafkaException(KafkaError(code)))
    assert sender.outbox.no_topics == {"t": sender.clock.now_ms() + NO_TOPIC_MS}
