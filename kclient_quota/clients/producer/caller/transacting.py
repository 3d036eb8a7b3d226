"""Transactions of a producer under a quota: its doors, and how one is aborted before its time is over.

Librdkafka aborts when it knows what became of everything that it has sent, and rightly so: a request that the broker
reads late would become part of the next transaction. So messages must not wait in flight for longer than a transaction
has left, behind whatever throttle: where aborting is asked for, they time out after a third of it
(`message.timeout.ms`), upon which librdkafka raises the producer's epoch (KIP-360), so that what is read late is
refused for its own; and near its end nothing is sent while anything is unanswered. The coordinator is spoken to on a
connection of its own, which no throttle of produce requests mutes.

`send_offsets_to_transaction()` needs the group's coordinator as well. While nobody is, or the one that was is gone from
the cluster, librdkafka forgets the time that it was given: it waits until any of its connections comes or goes. So it
waits in a thread of its own, and the application goes on in time.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kclient_quota.clients.calls import CallApart, undisturbed
from kclient_quota.clients.producer.caller.waiting import PURGE_MS, SLICE_MS, WaitingProducer
from kclient_quota.clients.producer.transaction import Event
from kclient_quota.errors import QuotaThrottledError

GRACE_MS: Final = 1_000
"""So much later than librdkafka ought to, we say ourselves that a call's time is over."""
SILENT_MS: Final = 1_000
"""A broker that has told of no throttle, and answers nothing for so long, may be gone. librdkafka finds out after
`socket.timeout.ms`, on each connection by itself: who waits there for one before using the next waits for all of them
in turn."""


class TransactingProducer(WaitingProducer):
    """The doors of transactions."""

    _kq_sending_offsets: CallApart | None = None  # what an application waits for, or has stopped waiting for
    _kq_raised_before: BaseException | None = None  # by callbacks, and not yet told when the transaction began

    def _kq_insist_on_parent(self) -> None:
        """In a forked child librdkafka would wait for threads that only the parent has.

        Raises:
            KafkaException: this is one.
        """
        if self._kq_outbox.is_forked:
            text = "this producer was made before the process was forked, whose parent has its transactions"
            raise KafkaException(KafkaError(KafkaError._STATE, f"{text}: make a producer in each process"))  # noqa: SLF001 - its name

    def init_transactions(self, timeout: float = -1, /) -> None:
        """As confluent_kafka's.

        Raises:
            KafkaException: as confluent_kafka's; and in a child process that was forked from the producer's, as by all
                doors of transactions.
        """
        self._kq_insist_on_parent()
        super().init_transactions(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction.

        With `quota.transaction.timeout=abort` it waits first while every broker throttles for longer than half of what
        a transaction may take: one begun now would have to be aborted.

        Raises:
            QuotaThrottledError: that lasts longer than `max.block.ms`; at once with `quota.backoff=raise`.
        """
        self._kq_insist_on_parent()
        clock = self._kq_clock
        deadline_ms = clock.now_ms() + self._kq_max_block_ms
        while not self._kq_closed and (wait_ms := self._kq_begin_wait_ms()):
            left_ms = deadline_ms - clock.now_ms()
            if self._kq_raises or self._kq_outbox.is_calling() or left_ms <= 0:
                text = f"a transaction would have to be aborted because of the throttle; begin it in {wait_ms} ms"
                raise QuotaThrottledError(text, retry_after_ms=wait_ms)
            self._kq_let_pass(min(wait_ms, left_ms, SLICE_MS))
        super().begin_transaction()
        self._kq_raised_before = self._kq_outbox.raised
        self._kq_transaction.on(Event.BEGIN, clock.now_ms())

    def _kq_begin_wait_ms(self) -> int:
        """For how long a transaction had better not be begun."""
        if not self._kq_transaction.aborts or self._kq_outbox.is_open:
            return 0
        return max(0, self._kq_throttled_for_ms(min, busy=False) - self._kq_transaction.most_wait_ms)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1, /
    ) -> None:
        """Have a consumer's offsets committed with the transaction; `timeout` in seconds.

        Under a quota it first delivers what there is and waits until no broker throttles: the request goes over the
        connection that a throttle mutes, where it could not be called back and the heartbeat would not go on. What a
        broker does not answer though nothing throttles is delivered meanwhile, as by plain confluent_kafka.

        Raises:
            KafkaException: as `commit_transaction()`; and when the time (none given: `transaction.timeout.ms`) is over
                and the group's coordinator has not answered. Its `txn_requires_abort()` is true then.
        """
        self._kq_insist_on_parent()
        deadline_ms = self._kq_deadline_ms(timeout)
        if not self._kq_outbox.is_open and self._kq_transaction.is_open and not self._kq_outbox.is_calling():
            self._kq_deliver(deadline_ms, self._kq_silence())
            self._kq_await_calm(deadline_ms)
        left_s = self._kq_left_s(deadline_ms)
        send = super().send_offsets_to_transaction
        sending = CallApart(send, positions, group_metadata, left_s)
        if self._kq_sending_offsets is None:  # otherwise librdkafka refuses another one
            self._kq_sending_offsets = sending
        if not self._kq_await_offsets(deadline_ms, sending):
            text = "send_offsets_to_transaction: the group's coordinator did not answer in time; abort, and begin anew"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, txn_requires_abort=True))  # noqa: SLF001
        sending.result()

    def _kq_await_offsets(self, deadline_ms: int | None, sending: CallApart | None) -> bool:
        """Wait until librdkafka has sent the offsets, without a time for `transaction.timeout.ms`; whether it has."""
        clock = self._kq_clock
        if sending is None:
            return True
        # The broker's time began with the first partition, which may have been long after begin_transaction().
        last_ms = GRACE_MS + (clock.now_ms() + self._kq_transaction.timeout_ms if deadline_ms is None else deadline_ms)
        while not sending.wait(max(0, min(last_ms - clock.now_ms(), SLICE_MS)) / 1000):
            if self._kq_heartbeat is not None:
                self._kq_heartbeat()
            if clock.now_ms() >= last_ms:
                return False
        if self._kq_sending_offsets is sending:
            self._kq_sending_offsets = None
        return True

    @contextmanager
    def _kq_ending(self) -> Iterator[None]:
        """Whatever other threads produce from here on is refused; what they have got in by now is not."""
        if not self._kq_transaction.possible:
            yield  # librdkafka says so, and others go on
            return
        outbox, ident = self._kq_outbox, threading.get_ident()
        ending = self._kq_transaction.ending
        is_inner = ident in ending  # a callback ends it in a call that was to do so
        try:
            with outbox.lock:
                ending.add(ident)
                outbox.bars.add("end")
            yield
        finally:
            if not is_inner:
                ending.discard(ident)
                if not ending:
                    outbox.bars.discard("end")

    def _kq_put_in_time(self, message: Any) -> bool:
        """As the outbox's `put()`; not into a transaction that another thread is ending, nor into none."""
        outbox = self._kq_outbox
        if not self._kq_transaction.possible:
            return outbox.put(message)
        with outbox.lock:
            self._kq_insist_on_taking()
            return outbox.put(message)

    def _kq_insist_on_taking(self) -> None:
        if not self._kq_outbox.is_calling():  # a callback's message is part of what is waited for
            self._kq_transaction.insist_on_taking(threading.get_ident())

    def commit_transaction(self, timeout: float = -1, /) -> None:
        """Deliver what there is and commit; does not wait for the quota until the transaction times out.

        Other threads' `produce()` is refused meanwhile, as by confluent_kafka. What a delivery callback has raised
        since the transaction began is raised before it is committed: it is still open, to be committed or aborted.

        Raises:
            KafkaException: with `quota.transaction.timeout=abort`, when it would. Its `txn_requires_abort()` is true,
                but it is aborted already: the `abort_transaction()` that usually follows has nothing left to do. The
                same when a callback of the heartbeat's consumer has ended it meanwhile.
        """
        self._kq_insist_on_parent()
        if self._kq_transaction.ended is not None:
            raise self._kq_transaction.ended
        with self._kq_ending():
            self._kq_commit(self._kq_deadline_ms(timeout))

    def _kq_commit(self, deadline_ms: int | None) -> None:
        if self._kq_transaction.is_open:
            if self._kq_outbox.has_sender:
                self._kq_tell_sender(lambda sender: sender.end_transaction())
            if self._kq_deliver(deadline_ms):
                text = "commit_transaction: messages still wait for the quota, or for a broker; try again"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))  # noqa: SLF001 - its name
            # Nobody else may ever tell: many applications call nothing but begin, produce and commit.
            if self._kq_outbox.raised is not self._kq_raised_before:
                self._kq_outbox.raise_kept()
            if self._kq_transaction.lost is not None:
                self._kq_insist_on_reason()
            self._kq_transaction.insist_on_all()
        self._kq_inside(super().commit_transaction, self._kq_left_s(deadline_ms))
        self._kq_transaction.on(Event.COMMIT)

    def _kq_insist_on_reason(self) -> None:
        """Have librdkafka say why the transaction cannot be committed, if it knows.

        Once it does it refuses messages in other words, "Erroneous state". To begin is refused while one is open, and
        where that must be aborted it says why; to commit would, where it need not be, leave out what was not sent.

        Raises:
            KafkaException: as confluent_kafka's `commit_transaction()`.
        """
        try:
            super().begin_transaction()
        except KafkaException as error:
            if error.args[0].txn_requires_abort() or error.args[0].fatal():
                raise

    def abort_transaction(self, timeout: float = -1, /) -> None:
        """Abort the transaction; does nothing when an error has told that it was ended already.

        Raises:
            KafkaException: as confluent_kafka's; `retriable()` while a `send_offsets_to_transaction()` whose time was
                over still waits for the group's coordinator, and while something holds up the producer's thread, which
                would go on with the transaction's messages in the next one.
        """
        self._kq_insist_on_parent()
        with self._kq_ending():
            self._kq_abort(self._kq_deadline_ms(timeout))

    def _kq_abort(self, deadline_ms: int | None) -> None:
        if self._kq_transaction.ended is None:
            # one that is not open will be refused
            if self._kq_transaction.is_open and not self._kq_drop_queue(self._kq_dropping_ms(deadline_ms)):
                text = "abort_transaction: something holds up the producer's thread; try again"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))  # noqa: SLF001 - its name
            if not self._kq_await_offsets(deadline_ms, self._kq_sending_offsets):
                text = "abort_transaction: the group's coordinator still does not answer; try again"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))  # noqa: SLF001 - its name
            self._kq_inside(super().abort_transaction, self._kq_left_s(deadline_ms))
            self._kq_tell_reports()
        self._kq_transaction.on(Event.ABORT)

    def _kq_dropping_ms(self, deadline_ms: int | None) -> int:
        """How long to wait for that: as long as the broker does, if nobody says."""
        if deadline_ms is None:
            return self._kq_transaction.timeout_ms
        return max(PURGE_MS, deadline_ms - self._kq_clock.now_ms())

    def _kq_drop_queue(self, within_ms: int = PURGE_MS) -> bool:
        """Messages that wait for the quota go with their transaction, and are reported as purged; whether they have."""
        return not self._kq_outbox.has_sender or self._kq_tell_sender(lambda sender: sender.purge(), within_ms)

    def _kq_tell_reports(self) -> None:
        """Call the application's callbacks with what has become of the transaction's messages."""
        self._kq_await_reports()
        self._kq_outbox.serve_all()  # the transaction is over, whatever they raise

    def _kq_await_reports(self) -> None:
        """Have the sender take what librdkafka has to report by now: it asks librdkafka between two steps."""
        for _ in range(2):
            if self._kq_outbox.has_sender:
                self._kq_tell_sender(lambda _: None)  # they are taken at the beginning of every step

    def _kq_leave_transaction(self, timeout_s: float) -> bool:
        """Abort what is open, before a close that would wait for that without limit; whether that was done."""
        if not self._kq_transaction.possible:
            return True
        try:
            self._kq_await_offsets(self._kq_deadline_ms(timeout_s), self._kq_sending_offsets)
            self._kq_inside(super().abort_transaction, timeout_s)
        except KafkaException as error:
            # Where none is open there is nothing that confluent_kafka's close() would wait for.
            return not (error.args[0].retriable() and self._kq_transaction.is_open)
        return True

    def _kq_await_calm(self, deadline_ms: int | None) -> None:
        """Wait until no broker throttles, or `deadline_ms`, as an application that polls does."""
        era = self._kq_transaction.open_era
        while wait_ms := self._kq_throttled_for_ms(max, busy=False):
            now_ms = self._kq_clock.now_ms()
            left_ms = wait_ms if deadline_ms is None else deadline_ms - now_ms
            if left_ms <= 0 or self._kq_count():
                return
            self._kq_mind_transaction(now_ms + wait_ms)
            self._kq_let_pass(min(wait_ms, left_ms, SLICE_MS))
            self._kq_transaction.insist(era)

    def _kq_mind_transaction(self, until_ms: int) -> None:
        """Tell of an open transaction that must not be waited for until `until_ms`, or abort it and raise."""
        transaction = self._kq_transaction
        if transaction.outlived_by(until_ms):
            if transaction.aborts and not self._kq_outbox.is_calling():
                raise self._kq_end_overdue()
            transaction.report()

    def _kq_end_overdue(self) -> KafkaException:
        """Abort the transaction within the application's call; returns what to raise."""
        transaction = self._kq_transaction
        self._kq_drop_queue()
        try:
            self._kq_inside(super().abort_transaction, transaction.left_ms(self._kq_clock.now_ms()) / 1000)
            self._kq_tell_reports()
        except KafkaException as error:
            # Told once; what follows is between the application and librdkafka.
            transaction.on(Event.ABORT)
            refused = transaction.refuse(aborted=False)
            refused.__cause__ = error
            return refused
        return transaction.expire()

    # Delivering in time -------------------------------------------------------------------------------------------

    def _kq_deliver(self, deadline_ms: int | None, stop: Callable[[], bool] = bool) -> int:
        """Deliver until all is, `deadline_ms` or `stop()`, minding an open transaction; returns what is left."""
        era = self._kq_transaction.open_era
        left = self._kq_deliver_in_time(deadline_ms, stop)
        self._kq_transaction.insist(era)
        return left

    def _kq_deliver_in_time(self, deadline_ms: int | None, stop: Callable[[], bool] = bool) -> int:
        last_ms = self._kq_transaction.last_ms
        if last_ms is None or self._kq_outbox.is_open:
            return self._kq_drain(deadline_ms)
        until_ms = last_ms if deadline_ms is None else min(last_ms, deadline_ms)
        left = self._kq_drain(until_ms, lambda: stop() or self._kq_holds_up(last_ms))
        now_ms = self._kq_clock.now_ms()
        if left and (now_ms >= last_ms or self._kq_holds_up(last_ms)):
            self._kq_mind_transaction(last_ms + 1)
        elif until_ms == deadline_ms or stop():
            return left
        return self._kq_drain(deadline_ms, stop) if left else 0

    def _kq_purge_rest(self) -> None:
        """Drop what there still is when a producer closes, and have that reported within `PURGE_MS`."""
        until_ms = self._kq_clock.now_ms() + PURGE_MS
        for _ in range(2):  # a callback may send again what it is told was purged
            self._kq_drop_queue(max(SLICE_MS, until_ms - self._kq_clock.now_ms()))
            super().purge(blocking=False)  # what is waited for are the reports
            if not self._kq_drain(until_ms):
                break

    def _kq_silence(self) -> Callable[[], bool]:
        """What says whether, by then, librdkafka has all that is left, and for `SILENT_MS` nothing was answered."""
        outbox, clock = self._kq_outbox, self._kq_clock
        since_ms, finished = clock.now_ms(), outbox.finished

        def is_silent() -> bool:
            nonlocal since_ms, finished
            has_moved = outbox.finished != finished or len(outbox) > outbox.in_flight
            if has_moved or self._kq_throttled_for_ms(max, busy=False):
                since_ms, finished = clock.now_ms(), outbox.finished
            return clock.now_ms() - since_ms >= SILENT_MS

        # Near its end such a transaction is to be aborted, which has to wait for whatever was begun here.
        return bool if self._kq_transaction.aborts else is_silent

    def _kq_throttled_for_ms(self, which: Callable[[list[int]], int], *, busy: bool = True) -> int:
        """For how long brokers throttle, by `min` or `max`: those that have yet to report something, or all."""
        sender = self._kq_sender
        throttles_ms = partial(sender.core.throttles_ms, self._kq_clock.now_ms(), busy=busy)
        return which(undisturbed(sender.lock, throttles_ms) or [0])

    def _kq_holds_up(self, deadline_ms: int, which: Callable[[list[int]], int] = max) -> bool:
        """Whether a broker that has yet to report something, with `min` each, throttles until after `deadline_ms`."""
        return self._kq_throttled_for_ms(which) > deadline_ms - self._kq_clock.now_ms()
