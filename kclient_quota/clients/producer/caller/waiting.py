"""How a producer's calls let time pass: callbacks are served, and the heartbeat goes on."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from kclient_quota.clients.agents import CProducer
from kclient_quota.clients.calls import (
    CallApart,
    ends_ms,
    inside,
    interruptible,
    may_be_a_handlers,
    moments,
)
from kclient_quota.clients.producer.outbox import Callback, Handed, Outbox
from kclient_quota.clients.producer.transaction import Transaction
from kclient_quota.clock import Clock, is_cooperative, sleep
from kclient_quota.errors import QUEUE_FULL

if TYPE_CHECKING:
    from typing import Self

    from kclient_quota.clients.producer.sender.beginning import Beginning
    from kclient_quota.clients.producer.sender.hearing import Hearing
    from kclient_quota.clients.producer.sender.sender import Sender

SLICE_MS: Final = 100
"""Longest wait at once: how soon Ctrl-C, a raised quota and the heartbeat are noticed."""
PURGE_MS: Final = 2_000
"""How long reports of purged messages may take."""
TOLD_MS: Final = 3_000
"""How long the sender may take to do what a call wants: it may be asking librdkafka for a topic, for two seconds."""
END_S: Final = 5
"""How long librdkafka's end may take, once everything has been reported."""
IN_C_S: Final = 0.003
"""For how long it is waited within confluent_kafka where a signal's handler may come: brokers nearby have answered by
then, and a flush has librdkafka send what lingers. (Of one millisecond `rd_kafka_flush` makes none.)"""
LEAST_IN_C_S: Final = 0.001
"""The same of a `poll()` that may wait for much longer: a broker on the same machine answers within it."""

PRODUCE_IN_C: Final = CProducer.produce
POLL_IN_C: Final = CProducer.poll
"""confluent_kafka's own, where nobody's stands before it: `super()` would cost half as much as the call, and names of
arguments as much."""
NOW: Final = 0
"""The timestamp of a message that librdkafka is to give it, when it takes it."""


@cache
def _unmade() -> Outbox:
    """What all have that are not made yet; by a call, since locks must not be older than what replaces them."""
    outbox = Outbox()
    outbox.is_open, outbox.is_lull = True, False
    return outbox


class WaitingProducer(CProducer):
    """What stands between a producer's doors and librdkafka."""

    _kq_outbox: Outbox
    _kq_asks_produce: bool
    _kq_flushes_in_slices = False  # whether a flush is made of many, and has more time than each of them
    _kq_is_watched = True  # whether somebody wants to look at each message
    _kq_transaction: Transaction
    _kq_clock: Clock
    _kq_heartbeat: Callable[[], Any] | None
    _kq_max_block_ms: int
    _kq_most_messages: int
    _kq_raises: bool
    _kq_closed: bool
    if TYPE_CHECKING:  # nothing that `typing.get_type_hints()` of a subclass could not resolve
        _kq_beginning: Beginning
        _kq_sender: Sender
        _kq_hearing: Hearing

    def __new__(cls, *_args: Any, **_kwargs: Any) -> "Self":
        """An object that is as good as closed until `__init__()` is called, which a subclass may forget."""
        made = super().__new__(cls)
        object.__setattr__(made, "_kq_outbox", _unmade())  # a subclass's own may need what is not there yet
        return made

    # What the sender calls ----------------------------------------------------------------------------------------

    def with_librdkafka(self) -> int:
        """Messages that librdkafka has, or has not reported yet."""
        return super().__len__()

    def serve_librdkafka(self, timeout_s: float) -> int:
        """Serve its events, and wait for some; not within C where that would stop all greenlets."""
        if not (timeout_s and is_cooperative()):
            return super().poll(timeout_s)
        served = super().poll(0)
        if not served:
            sleep(timeout_s)
        return served

    def flush_librdkafka(self, timeout_s: float) -> int:
        """Serve its events, and have it send without lingering."""
        return super().flush(timeout_s)

    def ask_librdkafka(self, topic: str | None, timeout_s: float) -> Any:
        """Metadata of a topic, or of all."""
        return super().list_topics(topic, timeout_s)

    def hand_to_librdkafka(self, topic: str, partition: int, handed: Handed) -> None:
        """Hand a message over, in its caller's context where somebody wants to see that."""
        give = self._kq_pass_on if handed.context is None else partial(handed.context.run, self._kq_pass_on)
        give(topic, handed.value, handed.key, partition, handed.report.__setitem__, handed.timestamp, handed.headers)

    def begun_with_librdkafka(self) -> None:
        """Something has come of its messages."""
        self._kq_beginning.over()

    def hasten_librdkafka(self, within_ms: float) -> None:
        """First messages have been waited for: if librdkafka still has some, it may have no producer id yet."""
        if not self._kq_beginning.is_under_way:
            return
        if not self._kq_count():
            self.begun_with_librdkafka()
        elif self._kq_beginning.is_due:  # its events are counted as well: none may be a message, which costs an answer
            self._kq_beginning.ask(self.ask_librdkafka, within_ms)

    def _kq_pass_on(
        self, topic: str, value: Any, key: Any, partition: int, callback: Callback | None, timestamp: int, headers: Any
    ) -> None:
        """What confluent_kafka's `produce()` does."""
        if self._kq_asks_produce:
            # OpenTelemetry's instrumentation finds headers by their keyword, and takes a seventh argument for them
            super().produce(topic, value, key, partition, callback, timestamp=timestamp, headers=headers)
        else:
            PRODUCE_IN_C(self, topic, value, key, partition, callback, None, timestamp, headers)
        if self._kq_beginning.is_wanted:
            self._kq_begin(topic)

    def _kq_is_for_librdkafka(self, timeout: float) -> bool:
        """Whether it is to say what is wrong with a call; in a forked child it would wait for threads that are not."""
        return (self._kq_closed and not self._kq_outbox.is_forked) or not isinstance(timeout, (int, float))

    def _kq_begin(self, topic: str) -> None:
        """The first message has been handed over; others may go straight."""
        self._kq_beginning.begin(topic)
        self._kq_outbox.is_watched = self._kq_is_watched

    def _kq_count(self) -> int:
        """Messages that wait for the quota, those that librdkafka has, and reports that nobody has polled for."""
        outbox = self._kq_outbox
        if outbox.is_forked:
            return len(outbox)
        before = outbox.in_flight
        direct = super().__len__() - max(before, outbox.in_flight)
        # in the order in which they go from one to the next, so as to miss none
        return max(0, direct) + len(outbox) + sum(map(len, list(outbox.late.values()))) + len(outbox.reports)

    # Letting time pass --------------------------------------------------------------------------------------------

    def _kq_serve(self, timeout_ms: float, *, all_of_them: bool = False) -> int:
        """Serve callbacks for up to so long, or until there was one; returns how many.

        What one raises ends this, or, with `all_of_them`, is kept for the `poll()` or `flush()` that ends next.
        """
        outbox = self._kq_outbox
        serve = outbox.serve_all if all_of_them else outbox.serve
        if outbox.is_forked:
            outbox.wait_for_news(min(timeout_ms, SLICE_MS) / 1000)
            return 0
        began_ms = self._kq_clock.now_ms()
        deadline_ms = began_ms + timeout_ms
        while True:
            served = serve()
            now_ms = self._kq_clock.now_ms()
            left_ms = 0 if served else deadline_ms - now_ms
            if outbox.is_inside() or self._kq_closed or outbox.is_forked:  # by a callback, just now
                return served
            slice_ms = self._kq_send_here(self._kq_beginning.slice_ms(max(0, min(left_ms, SLICE_MS))))
            is_direct = outbox.is_open or outbox.is_mixed or not outbox.is_running
            if is_direct:
                # what the sender has, or hands over meanwhile, is reported by that, and counts then
                counts = outbox.is_open or outbox.is_mixed or not len(outbox)
                events = self._kq_poll_direct(slice_ms / 1000, now_ms - began_ms, all_of_them=all_of_them)
                served += events if counts else 0
                if outbox.is_mixed:
                    self._kq_sender.straight.note_left(super().__len__())
                served += serve()
                outbox.wake_for_what_is_left()
            elif not served and slice_ms:
                outbox.wait_for_news(slice_ms / 1000)
                served = serve()
            if is_direct and left_ms > 0:  # otherwise the sender does
                self.hasten_librdkafka(deadline_ms - self._kq_clock.now_ms())
            if served or left_ms < 1:  # librdkafka waits for whole milliseconds
                return served

    def _kq_poll_direct(self, timeout_s: float, waited_ms: int, *, all_of_them: bool) -> int:
        """Have librdkafka call the callbacks of what callers handed over themselves, and those of events."""
        if not (timeout_s and may_be_a_handlers()):
            return self._kq_call_direct(super().poll, timeout_s, keeps=all_of_them)
        in_c_s = LEAST_IN_C_S if timeout_s >= SLICE_MS / 1000 and not waited_ms else 0.0
        served = self._kq_call_direct(super().poll, in_c_s, keeps=all_of_them)
        for _ in moments(timeout_s - in_c_s, waited_ms / 1000):
            if served or self._kq_closed:
                break
            served = self._kq_call_direct(super().poll, 0, keeps=all_of_them)
        return served

    def _kq_flush_direct(self, timeout_s: float, waited_ms: int, *, stays_out: bool) -> None:
        """The same, without lingering, until it has sent all; it calls all callbacks, and then raises what one did.

        Args:
            timeout_s: for so long.
            waited_ms: its caller has waited for so long before.
            stays_out: not to wait within confluent_kafka, as a signal's handler may come.
        """
        if not stays_out:
            self._kq_call_direct(super().flush, timeout_s, keeps=True)
            return
        self._kq_call_direct(super().flush, min(timeout_s, IN_C_S), keeps=True)
        for _ in moments(timeout_s - IN_C_S, waited_ms / 1000):
            if self._kq_closed or not super().__len__():
                break
            self._kq_call_direct(super().poll, 0, keeps=True)

    def _kq_call_direct(self, work: Callable[[float], int], timeout_s: float, *, keeps: bool) -> int:
        """Call librdkafka; what a callback raises is raised or kept."""
        try:
            return cast("int", self._kq_inside(work, timeout_s))
        except BaseException as error:
            if not keeps or self._kq_closed or isinstance(error, KeyboardInterrupt):
                raise
            self._kq_outbox.raised = error
            return 1

    def _kq_send_here(self, slice_ms: float) -> float:
        """Do the sender's work where there can be none; returns how much of the time is left."""
        if not self._kq_outbox.needs_help:
            return slice_ms
        wait_ms = min(self._kq_sender.step_here(self), slice_ms)
        if not self.with_librdkafka():
            self._kq_clock.sleep_ms(int(wait_ms))
            return slice_ms - wait_ms
        return wait_ms

    def _kq_inside(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call librdkafka, which may call the application's callbacks: these must not wait for the quota."""
        return inside(self._kq_outbox.calling, interruptible, work, *args)

    def _kq_let_pass(self, wait_ms: float) -> None:
        """Let time pass as an application that polls does; a callback that raises does not end the call."""
        self._kq_serve(wait_ms, all_of_them=True)
        if self._kq_outbox.is_forked:  # by that callback: it may be to end the child
            self._kq_outbox.raise_kept()
        elif self._kq_heartbeat is not None:
            self._kq_heartbeat()

    def _kq_await_polled(self, most_ms: int) -> None:
        """Poll while there are as many messages as librdkafka takes, for what callers have handed over themselves.

        Their reports are told in the application's own calls only, and until then they take up librdkafka's room: who
        polls only when `produce()` raises would never hear that it is full, and what waits in the queue would expire.

        Raises:
            BufferError: as plain confluent_kafka's, there is still no room.
        """
        clock, is_first = self._kq_clock, True
        deadline_ms = clock.now_ms() + most_ms
        while self._kq_outbox.is_mixed and not self._kq_closed and self._kq_count() >= self._kq_most_messages:
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0 and not is_first:
                raise BufferError(QUEUE_FULL)
            is_first = False
            self._kq_let_pass(max(0, min(left_ms, SLICE_MS)))

    def _kq_deadline_ms(self, timeout: float) -> int | None:
        return ends_ms(timeout, self._kq_clock.now_ms())

    def _kq_left_s(self, deadline_ms: int | None) -> float:
        return -1 if deadline_ms is None else max(0, deadline_ms - self._kq_clock.now_ms()) / 1000

    def _kq_drain(self, deadline_ms: int | None, stop: Callable[[], bool] | None = None) -> int:
        """Deliver until all is, `deadline_ms` or `stop()`; returns what is left. What callbacks raise is kept."""
        outbox, clock = self._kq_outbox, self._kq_clock
        if outbox.is_forked:
            return len(outbox)
        outbox.inbox.bell.ring()
        began_ms, stays_out = clock.now_ms(), may_be_a_handlers()
        try:
            while True:
                self._kq_sender.wants_flush = True  # again: another thread's flush may have ended
                left_ms = inf if deadline_ms is None else max(0, deadline_ms - clock.now_ms())
                self._kq_sender.flush_ends_in(inf if self._kq_flushes_in_slices else left_ms)
                slice_ms = min(SLICE_MS, left_ms)
                if stop is not None and stop():
                    slice_ms = 0
                self._kq_send_here(slice_ms)
                # What callers have handed over themselves the sender leaves to them. Some of its own may be among it,
                # and lingers until somebody flushes.
                is_direct = outbox.is_open or not outbox.is_running or (outbox.is_mixed and bool(super().__len__()))
                if is_direct and not outbox.is_inside():
                    self._kq_drain_direct(
                        self._kq_beginning.slice_ms(slice_ms), deadline_ms, began_ms, stays_out=stays_out
                    )
                elif self._kq_count():
                    self._kq_serve(slice_ms, all_of_them=True)
                if outbox.is_inside():
                    return self._kq_count()
                if self._kq_heartbeat is not None:
                    self._kq_heartbeat()
                left = self._kq_count()
                if not left:
                    outbox.silent.clear()  # nobody needs to poll for those any more
                    outbox.is_lull = True
                    self._kq_sender.straight.note_left(super().__len__())
                if not left or not slice_ms:
                    return left
        finally:
            self._kq_sender.wants_flush = False

    def _kq_drain_direct(self, slice_ms: float, deadline_ms: int | None, began_ms: int, *, stays_out: bool) -> None:
        """Have librdkafka deliver for so long, or until it has delivered all."""
        outbox, clock = self._kq_outbox, self._kq_clock
        # One call of confluent_kafka's calls all callbacks before it raises what one did; slices only where there is
        # something else to do meanwhile, or a signal's handler may.
        is_plain = outbox.is_open and not (outbox.in_flight or stays_out or self._kq_beginning.is_under_way)
        timeout_s = self._kq_left_s(deadline_ms) if is_plain and self._kq_heartbeat is None else slice_ms / 1000
        outbox.serve_all()  # first: they are of earlier messages
        self._kq_flush_direct(timeout_s, clock.now_ms() - began_ms, stays_out=stays_out)
        outbox.serve_all()
        outbox.wake_for_what_is_left()
        if slice_ms:
            self.hasten_librdkafka(inf if deadline_ms is None else deadline_ms - clock.now_ms())

    # Its sender, and its end ------------------------------------------------------------------------------------------

    def _kq_tell_sender(self, work: "Callable[[Sender], None]", within_ms: int = TOLD_MS) -> bool:
        """Have the sender do something before anything else that comes, and wait for that; whether it has.

        If it has not it does so later, still before all that comes after this call.
        """
        done = threading.Lock()
        done.acquire()

        def do(sender: "Sender") -> None:
            try:
                work(sender)
            finally:
                done.release()

        outbox = self._kq_outbox
        if outbox.needs_help:
            work(self._kq_sender)
            return True
        outbox.inbox.put(do)
        left_ms, until_ms = within_ms, self._kq_clock.now_ms() + within_ms
        while left_ms > 0:  # by the clock: on a busy machine each slice takes longer than it should
            if done.acquire(timeout=min(SLICE_MS, left_ms) / 1000):
                return True
            outbox.wake()  # it may have ended just now
            left_ms = until_ms - self._kq_clock.now_ms()
        return False

    def _kq_stop_sender(self) -> None:
        """Wait until it has left librdkafka, which must not be closed under its hands."""
        self._kq_outbox.stops = True
        self._kq_outbox.inbox.put(None)
        while self._kq_outbox.is_running:
            self._kq_outbox.wait_for_news(0.01)

    def _kq_close_apart(self) -> bool:
        """Have librdkafka end, which waits for calls that are under way: one may be waiting for this.

        That is a `poll(0)` which a signal's handler has interrupted; nobody can tell.
        """
        end = None
        if not self._kq_outbox.needs_help:  # then no thread can be started
            with suppress(RuntimeError):
                end = CallApart(self._kq_inside, super().close)
        if end is None:
            return bool(self._kq_inside(super().close))
        return end.wait(END_S) and bool(end.result())
