"""What a producer's callers and its sender hand each other.

A signal's handler, and with it an interrupt, comes between any two lines of the main thread. So a caller changes
nothing here that takes two steps: it puts a message into `inbox` and takes reports out of `reports`, each in one call
of C. Everything else belongs to the sender, which is never the main thread.
"""

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat, starmap
from operator import call
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from kclient_quota.clients.calls import Bell, held_with, is_needed
from kclient_quota.clock import monotonic, sleep

logger = logging.getLogger("kclient_quota")

Callback = Callable[[KafkaError | None, Message], Any]
Report = tuple[Any, ...]
"""A callback of the application's and what it is called with."""

RECORD_BYTES: Final = 12
"""What a record of format 2 adds to its key and value, about."""
LONGEST_END_S: Final = 1.0
"""A sender's longest step, about: it looks whether it is to end after each."""
MOST_NOTICES: Final = 1_000
"""While there is no sender, older ones mean nothing."""

_take: Final = deque.popleft


@dataclass(slots=True, eq=False)
class Handed:
    """A message as `produce()` was given it, and what becomes of it.

    Attributes:
        value: its value.
        key: its key.
        partition: as it was asked for; -1 for any.
        callback: the application's.
        timestamp: its time, in milliseconds since 1970.
        headers: its headers.
        context: the caller's context, where somebody wants to see it.
        waits: whether the caller waits for an answer.
        is_hasty: whether it wants one at once, even if that is no.
        claim: whoever takes its only element decides: the sender, that the message is taken, or the caller, that not.
        is_refused: the sender has not taken it.
        is_over: because its transaction is being ended.
        answered: held until the sender has decided.
        retry_after_ms: after how long to come again, when it was not taken.
        broker_id: whose quota is used up then.
        report: librdkafka puts its report here, error and message. A dictionary's own method is the callback, so that
            no line of Python runs where an interrupt might lose it.
    """

    value: Any
    key: Any
    partition: int
    callback: Callback | None
    timestamp: int
    headers: Any
    context: Any = None
    waits: bool = False
    is_hasty: bool = False
    claim: list[bool] = field(default_factory=lambda: [True])
    is_refused: bool = False
    is_over: bool = False
    answered: Any = None
    retry_after_ms: int = 0
    broker_id: int | None = None
    report: dict[KafkaError | None, Message] = field(default_factory=dict)

    def decide(self) -> bool:
        """Whether this call is the first to decide what becomes of the message."""
        try:
            return self.claim.pop()
        except IndexError:
            return False


class Inbox:
    """What one sender is to do, in order; it alone takes.

    Attributes:
        items: that.
        bell: rung when there is more.
    """

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.bell = Bell()

    def put(self, item: Any) -> None:
        """Add something."""
        self.items.append(item)
        self.bell.ring()

    def empty(self) -> bool:
        """Whether nothing is there."""
        return not self.items

    def wait(self, timeout_s: float) -> None:
        """Until something is there, or not."""
        if not self.items:
            self.bell.wait(timeout_s)


def _barred(bar: str, *doors: str, when: bool) -> Any:
    """Whether something bars doors when it is, or is not, so: each step is one call of C's."""

    def get(outbox: "Outbox") -> bool:
        return (bar in getattr(outbox, doors[0])) is when

    def put(outbox: "Outbox", it: bool) -> None:
        for door in doors:
            (set.add if it is when else set.discard)(getattr(outbox, door), bar)

    return property(get, put)


class Outbox:
    """Between the callers of one producer and its sender.

    Attributes:
        inbox: messages, and what else the sender is to do, in order.
        notices: what librdkafka and the cluster have said, for the core.
        reports: delivery reports and events for the application's callbacks, which run in its own calls only.
        late: reports that wait for those of before, by partition, and in order; no partition leaves it.
        raised: what a callback has raised, the last of them, within a call that was not to end for it.
        silent: an entry for each message that no callback wants to hear of: `poll()` returns for it all the same.
        accepted: messages put into `inbox` so far.
        finished: messages that the sender is done with.
        no_topics: those that librdkafka refuses messages for: it says so itself, until when the sender asks again.
        given_up: what its callers wait with no more, until the sender has seen that.
        is_open: whether nothing limits the producer: its callers go straight to librdkafka.
        is_watched: whether interceptors or an agent look at each message, or at each report, or somebody waits for the
            first message's topic: none goes straight.
        is_lull: whether messages come seldom: those that go straight are reported by way of us.
        is_spare: whether most of a large quota is unused: callers hand over messages themselves while there is `spare`.
        spare: bytes that they may; several of them may each take from it what was left for the others.
        bars: why none goes straight; empty where it is open, and not watched. To look at more would be a good part of
            a call, and of what is changed in one step no interrupt, nor another thread, sees half.
        spare_bars: the same of what is to spare: none, or a watcher, or reports to come of what the sender had before.
        polls_straight: whether nobody stands before librdkafka's own `poll()`.
        is_mixed: librdkafka may have messages that it was given by callers: it calls their callbacks itself, so it is
            served in the application's own calls only.
        free_bytes: so much of each lane may be put into `inbox` without asking.
        in_flight: messages that librdkafka has from the sender.
        is_running: whether there is a sender.
        sender: the thread that is it; 0: none.
        stops: whether it is to end.
        closing: the thread that closes the producer, 0: none; only that, and callbacks until the end, produce then.
        is_ending: whether the interpreter is: its end stops threads anywhere, so senders have ended before, and callers
            do their work.
        has_no_thread: whether none could be started for a sender: callers do its work until one can.
        is_broken: whether librdkafka has met a fatal error: it says so of every message that it is given.
        is_forked: whether this is a child process, in which there is no sender, and not librdkafka's threads either.
        start: starts a sender; one that is superfluous ends at once.
        calling: threads that are in a callback of the application's; True for those inside librdkafka, too.
    """

    is_open: bool = _barred("limit", "bars", when=False)
    is_spare: bool = _barred("use", "spare_bars", when=False)
    is_watched: bool = _barred("watcher", "bars", "spare_bars", when=True)
    is_lull: bool = _barred("lull", "bars", when=True)

    def __init__(self) -> None:
        self.lock = held_with()
        self.bars, self.spare_bars = {"limit", "watcher", "lull"}, {"use", "watcher"}
        self.spare, self.polls_straight = 0.0, False
        self.inbox, self.news = Inbox(), Bell()
        self.notices: deque[Callable[[Any, int], object]] = deque(maxlen=MOST_NOTICES)
        self.reports, self.late = deque[Report](), dict[tuple[str, int], deque[Report]]()
        self.raised: BaseException | None = None
        self.silent = deque[None](maxlen=MOST_NOTICES)
        self.accepted = self.finished = self.in_flight = self.sender = self.closing = 0
        self.no_topics: dict[str, int] = {}
        self.given_up: set[Handed] = set()
        self.free_bytes: dict[str, int] = {}
        self.is_mixed = self.is_running = self.stops = self.is_broken = False
        self.is_ending = self.has_no_thread = self.is_forked = False
        self.start: Callable[[], object] = int
        self.calling: dict[int, bool] = {}
        _all.add(self)

    # Callers ------------------------------------------------------------------------------------------------------

    def put(self, message: Any) -> bool:
        """Hand a message to the sender; False when its caller is to hand it over himself.

        Raises:
            RuntimeError: the producer is being closed.
        """
        with self.lock:
            if self.closing and not (self.closing == threading.get_ident() or self.is_calling()):
                raise RuntimeError("Producer has been closed")
            # Decided here, and not only where the caller has looked: what he produces next would overtake this one.
            if self.is_open or self.has_spare:
                return False
            self.spare_bars.add("use")
            if self.closing and self.stops:  # a signal's handler has closed it since the first line; none comes below
                raise RuntimeError("Producer has been closed")
            self.accepted += 1
            self.inbox.items.append(message)  # a call of C: an interrupt comes before both lines, or after them
        self.inbox.bell.ring()
        if not self.is_running:
            self.wake()
        return True

    def close(self) -> None:
        """Take no message of other threads any more: who goes on producing would have this one wait for each."""
        with self.lock:
            self.closing = threading.get_ident()
            self.is_spare = False  # nor does anybody hand one over himself
            self.bars.add("close")

    def give_up(self, handed: Handed) -> bool:
        """A caller waits no longer: whether the message is not taken then."""
        self.given_up.add(handed)  # first: the sender takes it out when it has seen it
        if not handed.decide():
            self.given_up.discard(handed)
            return False
        self.wake()
        return True

    def end_lull(self) -> None:
        """Librdkafka is given the application's own callbacks."""
        self.is_mixed, self.is_lull = True, False

    @property
    def is_polled_straight(self) -> bool:
        """Whether a `poll(0)` has nothing to do but to have librdkafka call back."""
        return not (self.is_lull and self.is_mixed) if self.is_open else self.is_spare and not self.in_flight

    @property
    def is_behind(self) -> bool:
        """Whether something of before is to be told of yet, or may be."""
        return bool(self.in_flight or self.reports or any(self.late.values()))

    @property
    def has_spare(self) -> bool:
        """Whether callers may hand messages over themselves."""
        return self.is_spare and self.spare > 0

    def begin(self, start: Callable[[], object]) -> None:
        """Have senders started so: one at once where there is to be one, to hear what librdkafka tells meanwhile."""
        self.start = start
        if not self.is_open:
            self.wake()

    def wake(self) -> None:
        """There is something to do for the sender."""
        if self.is_running:
            self.inbox.put(None)
        elif not (self.is_forked or self.is_ending or self.stops):
            self._start()

    def wake_for_what_is_left(self) -> None:
        """There may be reports of what the sender has, or messages of one that has ended."""
        if self.in_flight or (len(self) and not self.is_running):
            self.wake()

    def _start(self) -> None:
        try:
            self.start()
        except RuntimeError as error:  # what waits is taken all the same
            if not self.has_no_thread:
                logger.warning("No thread can be started for a producer's sender: %s", error)
            self.has_no_thread = True  # until a sender runs

    @property
    def needs_help(self) -> bool:
        """Whether callers do the sender's work."""
        return self.is_ending or (self.has_no_thread and not self.is_running)

    @property
    def has_sender(self) -> bool:
        """Whether a sender is running, or has been started for what waits in `inbox`."""
        is_possible = not self.is_forked and not self.stops
        return self.is_running or (is_possible and (self.needs_help or not self.inbox.empty()))

    def __len__(self) -> int:
        """Messages that the sender is not done with, those that librdkafka has among them."""
        return max(0, self.accepted - self.finished - len(self.given_up))

    def serve(self) -> int:
        """Call the application's callbacks with what there is to report; returns how many.

        C takes a report and calls its callback in one: an interrupt comes before one is taken, or in the callback.
        """
        served, serving = 0, starmap(call, map(_take, repeat(self.reports)))
        ident = threading.get_ident()
        outer = self.calling.get(ident)
        self.calling[ident] = bool(outer)
        try:
            for _ in range(len(self.reports)):
                next(serving)  # a callback may raise StopIteration, which `for` would take for the end
                served += 1
        except IndexError as error:
            # Another thread has taken the rest; what a callback raises comes from further down.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
        finally:
            if outer is None:
                del self.calling[ident]
        while self.silent:
            with suppress(IndexError):  # another thread has taken the rest
                self.silent.popleft()
                served += 1
        return served

    def serve_all(self) -> int:
        """The same for all there is: what a callback raises is kept, for the others are to be called, too."""
        served = 0
        for _ in range(len(self.reports) + 1):
            try:
                return served + self.serve()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - anything that they raise, but Ctrl-C
                self.raised = error
                served += 1
        return served

    def raise_kept(self) -> None:
        """Raise what a callback has raised where nobody was told of it; not into another callback."""
        if self.raised is not None and not self.is_calling():
            error, self.raised = self.raised, None
            if error is not None:  # no other thread has done so just now
                raise error

    def is_calling(self) -> bool:
        """Whether the calling thread is in a callback of the application's, or needed: it must not wait then."""
        return threading.get_ident() in self.calling or is_needed()

    is_needed = staticmethod(is_needed)

    def is_inside(self) -> bool:
        """Whether librdkafka has called it there, or it is needed: it is not to be called again before that returns."""
        return self.calling.get(threading.get_ident(), False) or is_needed()

    def wait_for_news(self, timeout_s: float) -> None:
        """Until there is something to report, or room; or not."""
        self.news.wait(max(0.001, timeout_s))

    # The sender ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether callers or the cluster have something for the sender."""
        return bool(self.inbox.items or self.notices or self.stops or self.is_mixed or self.is_ending)

    def tell(self) -> None:
        """There are reports, or room."""
        self.news.ring()

    def after_fork(self) -> None:
        """This process is a child now: nobody sends here, and what the parent has to report is the parent's."""
        self.lock = held_with()
        self.inbox, self.news = Inbox(), Bell()
        for kept in (self.reports, self.late, self.silent, self.given_up):
            kept.clear()
        self.raised = None
        self.accepted = self.finished = self.in_flight = 0
        self.is_forked = True
        self.is_open = self.is_running = self.is_spare = False


_all: Final["weakref.WeakSet[Outbox]"] = weakref.WeakSet()


def _after_fork() -> None:
    for outbox in list(_all):
        outbox.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def at_exit() -> None:
    """Have all senders end while they can: what a destructor or a later exit handler flushes needs none."""
    outboxes = list(_all)
    for outbox in outboxes:
        outbox.is_ending = True
        outbox.inbox.bell.ring()
    until = monotonic() + LONGEST_END_S
    while any(outbox.is_running for outbox in outboxes) and monotonic() < until:
        sleep(0.001)
