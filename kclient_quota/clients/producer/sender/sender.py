"""The one thread that sends what waits for the quota, and serves librdkafka's events meanwhile.

It belongs to one producer, of which it holds a weak reference only, starts with the first message that must pass the
queue, and ends with the producer, or when nothing limits it any more. It is never the main thread, so that no signal
comes between two of its lines. The application's callbacks it puts into the outbox: they run in its own calls.
"""

import logging
import threading
from collections import deque
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

from kclient_quota.clients.calls import held_briefly, is_fatal, needed, undisturbed
from kclient_quota.clients.producer.core import ProducerCore, Sent
from kclient_quota.clients.producer.outbox import Handed, Outbox
from kclient_quota.clients.producer.sender.answers import Answers, give_back, tell_fatal
from kclient_quota.clients.producer.sender.beginning import ASK_MS
from kclient_quota.clients.producer.sender.finding import RouteFinder
from kclient_quota.clients.producer.sender.kept import Kept
from kclient_quota.clients.producer.sender.lines import NOT_THERE, PartitionLines, hand_over
from kclient_quota.clients.producer.sender.queue_metrics import QueueMetrics
from kclient_quota.clients.producer.sender.straight import Straight
from kclient_quota.clients.throttle_log import WARN_EVERY_MS, WorthLog
from kclient_quota.clock import Clock
from kclient_quota.pacing.sending.turns import Waiting

if TYPE_CHECKING:
    import weakref

    from kclient_quota.clients.producer.caller.waiting import WaitingProducer
    from kclient_quota.clients.producer.routes import Broker
    from kclient_quota.clients.producer.transaction import Transaction
    from kclient_quota.clients.quota_state import BrokerQuotaState

logger = logging.getLogger("kclient_quota")

POLL_MS: Final = 10
"""Longest poll while messages are on their way: how soon a new one is noticed."""
QUIET_MS: Final = 50
"""For so long it goes on polling while nothing comes of what is on its way: to look at everything costs 0.4 ms."""
IDLE_MS: Final = 500
"""How long to sleep when there is nothing to do: how soon a producer that is gone is noticed."""
ANSWER_MS: Final = 3_000
"""So long after the first delivery most messages wait for a cluster that has not told the quota yet. A busy Apache
Kafka has taken a second and more; a producer of 51,200 B/s had sent 14 s' worth by then, and was throttled for it."""
FULL_MS: Final = 10
"""When to try again after librdkafka's queue was full."""


class Sender:
    """Sends for one producer.

    Args:
        outbox: where its callers put messages.
        core: decides.
        transaction: the open transaction, near whose end messages go one by one.
        clock: monotonic milliseconds.
        lock: held while the core is used, so that others may look at it: by `undisturbed()`.
        metrics: told of what leaves the queue, and how.
        worth: told of it, too.
        keeps: whether librdkafka is given nothing that it may not send yet.
    """

    def __init__(
        self,
        outbox: Outbox,
        core: ProducerCore,
        transaction: "Transaction",
        *,
        clock: Clock,
        lock: Any,
        metrics: QueueMetrics,
        worth: WorthLog,
        keeps: bool = False,
    ) -> None:
        self.outbox = outbox
        self.core = core
        self.clock = clock
        self.lock = lock
        self.metrics = metrics
        self._worth = worth
        self.wants_flush = False
        self._transaction = transaction
        self._silent_until_ms = -inf
        self._one = threading.Lock()
        self._is_first = True  # one that nothing has come for yet
        self._came: deque[Any] = deque()
        self._lines = PartitionLines()
        self._kept = Kept(self._lines, is_needed=keeps)
        self._answers = Answers(outbox, transaction, clock, metrics, worth)
        self.straight = Straight(outbox, core, self._lines)
        self._routes = RouteFinder(core, clock, lock)

    def run(self, me: "weakref.ref[WaitingProducer]") -> None:
        """Until the producer is gone, closed, or free."""
        needed(self._run, me)

    def _run(self, me: "weakref.ref[WaitingProducer]") -> None:
        outbox = self.outbox
        if me() is None:
            self._leave()
            return
        if not self._one.acquire(blocking=False):
            return  # another is running
        outbox.sender, is_free = threading.get_ident(), False
        outbox.is_running, outbox.has_no_thread = True, False
        try:
            if self._is_first and not outbox.notices:
                outbox.inbox.wait(IDLE_MS / 1000)  # without the producer, which whoever made it may not keep
            self._is_first = False
            while not (outbox.stops or outbox.is_forked or outbox.is_ending):
                producer = me()
                if producer is None:
                    self._leave()
                    return
                wait_ms: float = IDLE_MS
                try:
                    if is_free := self._opens() and not (outbox.in_flight or self.straight.is_late):
                        self.straight.serve_what_nobody_polls_for(producer)
                        return
                    wait_ms = self._step(producer)
                    is_idle = self._poll(producer, wait_ms)
                except BaseException as error:  # noqa: BLE001 - whatever it is, what waits is not to wait for ever
                    self.go_on(error)
                    is_idle = True
                del producer
                if is_idle:
                    outbox.inbox.wait(max(1, min(wait_ms, POLL_MS if self.wants_flush else IDLE_MS)) / 1000)
        finally:
            outbox.is_running = outbox.is_spare = False
            outbox.sender = 0
            self._one.release()
            if is_free and (self.straight.is_late or not outbox.inbox.empty()):
                outbox.wake()  # it has come just now; whoever it was that started another one found this one here

    def _leave(self) -> None:
        """There is no producer to be found: its weak references end before destructors run; who flushes there sends."""
        self.outbox.has_no_thread = True

    def step_here(self, producer: "WaitingProducer") -> float:
        """What the thread would do, once, in a caller's; returns after how many milliseconds to do it again."""
        if not self._one.acquire(blocking=False):
            return POLL_MS  # somebody else does it
        try:
            return needed(self._step, producer)
        finally:
            self._one.release()

    def flush_ends_in(self, time_ms: float) -> None:
        """Somebody flushes for so long: who has less time than the wait for the quota may take has messages left."""
        if 0 < time_ms < ANSWER_MS and not self.core.limit.known:
            undisturbed(self.lock, self.core.wait_no_longer)

    def go_on(self, error: BaseException) -> None:
        """What is fatal the application's next call raises; the rest is logged once a minute."""
        if is_fatal(error):
            self.outbox.is_broken = True
            self.outbox.reports.append((tell_fatal, self.outbox, error))
            self.outbox.tell()
        elif self.clock.now_ms() >= self._silent_until_ms:
            self._silent_until_ms = self.clock.now_ms() + WARN_EVERY_MS
            logger.error("A producer's sender goes on after an error", exc_info=error)

    def _opens(self) -> bool:
        """Whether nothing limits the producer and nothing waits; its callers go straight to librdkafka then."""
        outbox, now_ms = self.outbox, self.clock.now_ms()
        with self.lock:
            self.hear(now_ms)
        if self.core.is_limited(now_ms) or self._came or self._kept or not self.core.is_empty:
            return False
        with self._alone() as is_alone:
            self.straight.begin_lull()
            outbox.is_open = is_alone and outbox.inbox.empty() and not outbox.notices
            if outbox.notices:  # just now, by somebody who did not see it open
                outbox.is_open = False
            return outbox.is_open

    def _alone(self) -> AbstractContextManager[bool]:
        """Whether no caller puts in a message meanwhile; a signal's handler may hold one up there, and wait for us."""
        return held_briefly(self.outbox.lock)

    def _poll(self, producer: "WaitingProducer", wait_ms: float) -> bool:
        """Serve librdkafka's events; whether there is nothing to wait for but a caller."""
        outbox = self.outbox
        if outbox.is_mixed:
            if not outbox.is_spare:
                self.straight.note_left(producer.with_librdkafka() - outbox.in_flight)
            if outbox.is_mixed:
                return True
        if not outbox.in_flight:
            producer.serve_librdkafka(0)
            return True
        serve = producer.flush_librdkafka if self.wants_flush else producer.serve_librdkafka
        for _ in range(max(1, int(min(wait_ms, QUIET_MS) / POLL_MS))):
            served = serve(min(wait_ms, POLL_MS) / 1000)
            producer.hasten_librdkafka(ASK_MS)
            if served or self.wants_flush or outbox.has_work:
                break
        return False

    def _step(self, producer: "WaitingProducer") -> float:
        """All that can be done now; returns after how many milliseconds to look again."""
        self._empty_inbox()
        with self.lock:
            self.hear(self.clock.now_ms())
        self._routes.find(producer, {item.topic for item in self._came if isinstance(item, Waiting)})
        wait_ms = self._pass_on(producer)
        if self.core.is_spare_due or (self.core.is_free and not self.outbox.is_open):
            # Callers who never pause would keep the inbox filled: for once they wait until it has been emptied. They
            # do not wait for the cluster's answer about a new topic: that is asked for in the next step.
            with self._alone():
                self._empty_inbox()
                if all(self._routes.has(item.topic) for item in self._came if isinstance(item, Waiting)):
                    wait_ms = self._pass_on(producer)
                self._opens()
        return 0 if self._came else wait_ms

    def _empty_inbox(self) -> None:
        came, items = self._came, self.outbox.inbox.items
        while items:
            came.append(items.popleft())

    def _pass_on(self, producer: "WaitingProducer") -> float:
        outbox, core = self.outbox, self.core
        finished = outbox.finished
        with self.lock:
            now_ms = self.clock.now_ms()
            self.hear(now_ms)
            core.is_careful = self._transaction.is_late(now_ms)
            is_reported = self._collect(now_ms)
            while self._came:
                self._take(self._came.popleft(), now_ms)
            for message in core.admit(now_ms, self._answers.claim, give_back):
                self._answers.answer(message.payload)
                self._worth.on_full(now_ms)
            for message, why in core.lost(now_ms):
                self._answers.lose(message, why)
            keeps = core.is_limited(now_ms) and not (core.is_spare_due or outbox.is_mixed)
            sends = self._kept.due(core.sent(now_ms), now_ms, keeps=keeps)
        refused = self._hand_all(producer, sends)
        with self.lock:
            for sent, rest in reversed(refused):
                core.put_back(sent, rest, now_ms)
            wait_ms = core.wait_ms(now_ms)
            self.set_free(now_ms)
        if is_reported:  # not what was dropped or given up before librdkafka had it, which is finished as well
            producer.begun_with_librdkafka()
        if finished < outbox.finished:
            outbox.tell()
        for sent in sends[: len(sends) - len(refused[1:])]:
            self._tell_of(sent, now_ms)
        return FULL_MS if refused else wait_ms

    def set_free(self, now_ms: int) -> None:
        """Say how much of each lane may come without asking, and how much need not come here at all."""
        outbox, core = self.outbox, self.core
        outbox.free_bytes = {
            lane: 0 if outbox.notices else core.free_bytes(now_ms, lane) for lane in self.metrics.lanes
        }
        with self._alone() as is_alone:
            is_at_work = is_alone and outbox.is_running and not outbox.closing
            if is_at_work and len(self.metrics.lanes) == 1 and not self._transaction.possible:
                may = outbox.inbox.empty() and not (self._came or self._kept or outbox.notices)
                self.straight.give(now_ms, may=may)

    def state(self, only_id: int, now_ms: int) -> "dict[int, BrokerQuotaState]":
        """What is known about each broker; see the core's."""
        if not self.outbox.is_running:
            self.hear(now_ms)
        return self.core.state(only_id, now_ms)

    def expect_anew(self, handed: Handed) -> None:
        """When there is room for a message that waits, as things are now."""
        for message in self.core.all_before():
            if message.payload is handed:
                handed.retry_after_ms, handed.broker_id = self.core.retry(message, self.clock.now_ms())

    def hear(self, now_ms: int) -> None:
        """Tell the core what librdkafka and the cluster have said."""
        while self.outbox.notices:
            self.outbox.notices.popleft()(self.core, now_ms)

    # Messages that come -------------------------------------------------------------------------------------------

    def _take(self, item: Any, now_ms: int) -> None:
        """A message, or something to do."""
        if not isinstance(item, Waiting):
            if item is not None:
                item(self)
            return
        handed: Handed = item.payload
        # Before the queue has it: a caller who has been told that it was not taken must not find it sent.
        if not self._answers.claim(item):
            return
        # Read once, after it was claimed: whose time runs out meanwhile sees that it is claimed, and waits for the end.
        is_hasty = handed.is_hasty
        wait_ms = self.core.offer(item, now_ms, is_patient=not is_hasty)
        if not wait_ms:
            self._answers.answer(handed)
            return
        handed.retry_after_ms, handed.broker_id = self.core.retry(item, now_ms)
        self._answers.say_no(handed) if is_hasty else give_back(item)

    def purge(self) -> None:
        """Report all that wait here as purged; those whose callers still wait are left to them."""
        self._lines.purge()
        for message in self.core.waiting():
            if not self._answers.claim(message):
                continue
            if message.payload.waits:
                self._answers.say_no(message.payload)
            else:
                self._answers.fail(message, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - confluent_kafka's name
        for message in [*self._kept.purge(self.clock.now_ms()), *self.core.purge()]:
            self._answers.fail(message, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - confluent_kafka's name

    def finish(self) -> None:
        """Report what is left when the thread has ended, and librdkafka: nobody else would."""
        self._empty_inbox()
        now_ms = self.clock.now_ms()
        while self._came:
            self._take(self._came.popleft(), now_ms)
        self.purge()
        self._collect(now_ms)
        self.straight.report_late(all_of_them=True)

    def end_transaction(self) -> None:
        """What callers still wait with does not become part of a transaction that is being committed."""
        for message in self.core.waiting():
            message.payload.is_over = True
            if not self._answers.refuse(message.payload):
                self._came.append(message)

    # Messages that go ---------------------------------------------------------------------------------------------

    def _hand_all(self, producer: "WaitingProducer", sends: list[Sent]) -> list[tuple[Sent, list[Waiting]]]:
        """Hand over in order; returns what librdkafka has no room for now, and all after it, which would overtake."""
        for number, sent in enumerate(sends):
            if rest := self._hand(producer, sent):
                return [(sent, rest), *((later, later.messages) for later in sends[number + 1 :])]
        return []

    def _tell_of(self, sent: Sent, now_ms: int) -> None:
        """Say what has gone; afterwards, since an application's logging may fail, which must cost no message."""
        self.metrics.on_sent(sent, now_ms)
        if not self._worth.is_done:
            first, payloads = sent.messages[0], [message.payload for message in sent.messages]
            self._worth.on_sent(first.topic, payloads, sent.fill, now_ms - first.queued_at_ms, now_ms)

    def _hand(self, producer: "WaitingProducer", sent: Sent) -> list[Waiting]:
        """Hand messages that leave together to librdkafka; returns those that it has no room for."""
        for number, message in enumerate(sent.messages):
            handed: Handed = message.payload
            partition = sent.partition if sent.partition >= 0 else handed.partition
            self.outbox.in_flight += 1
            try:
                placed = hand_over(producer, message, partition)
            except BufferError:
                self.outbox.in_flight -= 1
                return sent.messages[number:]
            except KeyboardInterrupt:  # of the main thread's, where that does the work here
                raise
            except BaseException as error:  # noqa: BLE001 - an agent's wrapper may raise anything
                self.outbox.in_flight -= 1
                with self.lock:
                    self.core.on_delivered(sent.broker, message.raw_bytes, self.clock.now_ms())
                self._answers.refuse_for_good(message, error)
            else:
                # Reports are taken by this thread alone: not before this.
                self._lines.add((message.topic, placed), sent.broker, message, self.clock.now_ms())
                if placed != partition:
                    with self.lock:
                        self.core.brokers.doubt(message.topic)
        return []

    def _collect(self, now_ms: int) -> bool:
        """Take the reports that librdkafka has made; whether there were any."""
        settled: dict[Broker, int] = {}
        failed: set[Broker] = set()
        for place, line in self._lines:
            for (broker, message, _, number), is_waited_for in line.reported(now_ms):
                settled[broker] = settled.get(broker, 0) + message.raw_bytes * is_waited_for
                for error, reported in message.payload.report.items():
                    self.straight.report(place, number, message.payload.callback, error, reported)
                    if error is not None:
                        failed.add(broker)
                        if error.code() in NOT_THERE:
                            self.core.brokers.doubt(place[0])
                self.outbox.in_flight -= 1  # not before: what callers hand over would be told of at once
                self.outbox.finished += 1
            if line.look():
                self.core.brokers.doubt(place[0])
        self.straight.report_late()
        for broker, raw_bytes in settled.items():
            self.core.on_delivered(broker, raw_bytes, now_ms, arrived=broker not in failed)
        return bool(settled)
