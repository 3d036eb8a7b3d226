"""`Producer`: a drop-in for confluent_kafka's that hands messages over only when their broker may take them.

While nothing limits it, `produce()` goes straight to librdkafka. While a quota applies, it puts the message into the
`outbox`; the `sender` takes it from there, as the `core` decides, and what became of it is told in `poll()` and
`flush()`.
"""

import logging
import threading
import weakref
from _thread import start_new_thread
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka
from confluent_kafka import KafkaException

from kclient_quota.clients.agents import AsGiven, CProducer, is_watched, place, with_methods
from kclient_quota.clients.calls import (
    ENDLESS_S,
    NotMade,
    held_with,
    is_fatal,
    log_in_as,
    merged,
    put_off,
    seconds,
    undisturbed,
)
from kclient_quota.clients.producer.caller.taking import BLOCK_MS, TakingProducer, only_errors, raw_bytes
from kclient_quota.clients.producer.caller.waiting import NOW, POLL_IN_C, PRODUCE_IN_C, PURGE_MS
from kclient_quota.clients.producer.outbox import RECORD_BYTES, Callback, Handed
from kclient_quota.clients.producer.transaction import Transaction
from kclient_quota.clients.telemetry.methods import TelemetryMethods
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.errors import MISTAKEN, lost_interrupt

if TYPE_CHECKING:
    from typing import Self

    from kclient_quota.clients.interceptor import ProducerInterceptors
    from kclient_quota.clients.producer.sender.hearing import Hearing
    from kclient_quota.clients.producer.sender.sender import Sender
    from kclient_quota.clients.quota_state import BrokerQuotaState
    from kclient_quota.metrics import MetricName

logger = logging.getLogger("kclient_quota")


class PacedProducer(TakingProducer, TelemetryMethods):
    """All of `Producer` but its place in line with the classes that tracing agents put in confluent_kafka's place."""

    # What a subclass finds that has not called __init__: confluent_kafka says then that it is closed.
    _kq_chain = cast("ProducerInterceptors", ())
    _kq_asks_produce = _kq_errors_only = False
    _kq_clock: Clock = SYSTEM_CLOCK
    _kq_transaction = Transaction()
    _kq_max_block_ms = 0
    _kq_raises = False
    _kq_closed = True
    _kq_closing = threading.RLock()  # of one whose subclass has forgotten to make it; each has its own
    _kq_abandoned = False
    _kq_sender = cast("Sender", NotMade(RuntimeError, "Producer has been closed"))
    _kq_hearing = cast("Hearing", _kq_sender)

    def __init__(self, *config: Mapping[str, Any], heartbeat: Any = None, **kwargs: Any) -> None:
        given = merged(config, kwargs)
        # What a producer is made of is loaded with the first one, not with the class.
        from kclient_quota.clients.interceptor import closing_unless_made  # noqa: PLC0415
        from kclient_quota.clients.librdkafka.keys import explained  # noqa: PLC0415
        from kclient_quota.clients.producer.assembly import Parts  # noqa: PLC0415
        from kclient_quota.clients.producer.caller.batch import is_batch, produce_each  # noqa: PLC0415
        from kclient_quota.clients.producer.settings import keep_alive  # noqa: PLC0415

        # Kept, as a destructor may send a batch while the interpreter ends, which loads nothing any more.
        self._kq_is_batch, self._kq_produce_each = is_batch, produce_each
        self._kq_heartbeat = keep_alive(heartbeat)
        parts = Parts(given, SYSTEM_CLOCK)
        self._kq_ask_conf, self._kq_follow_user = parts.ask_conf, parts.follow_user
        self._kq_client_id = parts.client_id
        self._kq_max_block_ms, self._kq_raises = parts.max_block_ms, parts.raises
        self._kq_sorting, self._kq_chain = parts.sorting, parts.chain
        self._kq_default_callback: Callback | None = parts.inner.get("on_delivery")
        self._kq_errors_only = parts.errors_only
        self._kq_transaction, self._kq_new_waiting = parts.transaction, parts.new_waiting
        self._kq_most_bytes, self._kq_most_value_bytes = parts.most_bytes, parts.most_value_bytes
        self._kq_most_messages, self._kq_wait_log = parts.most_messages, parts.wait_log
        self._kq_outbox, self._kq_beginning = parts.outbox, parts.beginning
        self._kq_waiting: dict[int, Handed] = {}
        self._kq_said: set[str] = set()
        self._kq_closed = self._kq_abandoned = False
        self._kq_closing = held_with()
        self._kq_hearing, self._kq_sender, self._kq_telemetry = parts.hearing, parts.sender, parts.telemetry
        try:
            with closing_unless_made(parts.chain):
                super().__init__(parts.configuration())
        except KafkaException as error:
            raise explained(error) from None
        self._kq_asks_produce = is_watched(super().produce)
        self._kq_is_watched = self._kq_asks_produce or self._kq_errors_only or bool(self._kq_chain)
        self._kq_outbox.is_watched = self._kq_is_watched or self._kq_beginning.is_wanted
        self._kq_outbox.polls_straight = not is_watched(super().poll)
        self._kq_start_telemetry()
        self._kq_stop_watch = weakref.finalize(self, parts.watch().close)
        self._kq_outbox.begin(partial(start_new_thread, self._kq_sender.run, (weakref.ref(self),)))

    # Doors --------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Send a message: at once, or by way of the queue while a quota applies; arguments as confluent_kafka's.

        Waits, or raises, while that queue is full.

        Raises:
            QuotaThrottledError: after `max.block.ms`; at once with `quota.backoff=raise`. Never inside a callback.
            KafkaException: within a transaction, as `commit_transaction()`.
        """
        callback = on_delivery if callback is None else callback
        outbox = self._kq_outbox
        if not outbox.bars:
            if headers is None and timestamp is NOW:  # to parse four arguments more is a tenth of a call
                PRODUCE_IN_C(self, topic, value, key, partition, callback)
            else:
                PRODUCE_IN_C(self, topic, value, key, partition, callback, None, timestamp, headers)
            return
        if not outbox.spare_bars and outbox.spare > 0:
            outbox.is_mixed = True
            try:
                if headers is None and timestamp is NOW:
                    PRODUCE_IN_C(self, topic, value, key, partition, callback)
                else:
                    PRODUCE_IN_C(self, topic, value, key, partition, callback, None, timestamp, headers)
            except BufferError:
                outbox.is_spare = False  # where a quota applies it waits for room
            else:
                size = (
                    RECORD_BYTES + len(value)
                    if type(value) is bytes and key is None and not headers  # a call costs as much as all of this
                    else raw_bytes(value, key, headers)
                )
                outbox.spare -= size  # no call here, in which another thread might take from it, too
                outbox.is_mixed = True  # again: another thread's poll may have found nothing left just before
                return
        if self._kq_errors_only:
            callback = only_errors(self._kq_default_callback if callback is None else callback)
        if self._kq_chain:
            self._kq_produce_watched(topic, value, key, partition, callback, timestamp, headers)
        else:
            self._kq_take(topic, value, key, partition, callback, timestamp, headers)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
    ) -> int:
        """Send several messages, as `{"value": ..., "key": ...}`; waits as `produce()` does, for each of them.

        Messages that are not taken within `max.block.ms` get an `_error`, as those that a full queue refuses.

        Returns:
            how many were taken.

        Raises:
            QuotaThrottledError: none was.
        """
        callback = on_delivery if callback is None else callback
        is_plain = not (self._kq_outbox.bars - {"watcher", "lull"} or self._kq_chain or self._kq_errors_only)
        if (is_plain and not self._kq_outbox.is_behind) or not self._kq_is_batch(messages):
            self._kq_outbox.end_lull()  # before librdkafka has any
            taken = super().produce_batch(topic, messages, partition, callback)  # or it says what is wrong
            if taken and self._kq_beginning.is_wanted:
                self._kq_begin(topic)
            return taken
        return self._kq_produce_each(partial(Producer.produce, self, topic), messages, partition, callback)

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and other callbacks, for `timeout` seconds at most; -1: until there is one.

        A signal is noticed within a tenth of a second.

        Returns:
            how many were served.
        """
        outbox = self._kq_outbox
        # For a poll(0) after every message, to look at more would be most of its cost.
        is_free = not outbox.bars or not (outbox.spare_bars or outbox.in_flight)
        is_direct = is_free and type(timeout) is int and not timeout
        if not is_direct:
            timeout = seconds(timeout)
            if self._kq_is_for_librdkafka(timeout):
                return super().poll(timeout)  # which says what is wrong
            is_direct = not timeout and outbox.is_polled_straight
        if is_direct and not (outbox.calling or outbox.reports or outbox.silent or outbox.raised):
            try:
                return POLL_IN_C(self, timeout) if outbox.polls_straight else super().poll(timeout)
            except MISTAKEN as error:
                raise lost_interrupt(error) from None
            finally:
                if outbox.calling:
                    outbox.calling.pop(threading.get_ident(), None)
        outbox.raise_kept()
        return self._kq_serve(timeout * 1000 if timeout >= 0 else inf)

    def flush(self, timeout: float = -1) -> int:
        """Wait until every message is delivered, those that wait for the quota included; `timeout` seconds at most.

        Serves callbacks and the heartbeat meanwhile. What a callback raises is raised at the end, as confluent_kafka
        does; and, by this or by `poll()`, what one raised while `produce()` waited.

        Returns:
            how many messages are left.

        Raises:
            KafkaException: within a transaction, as `commit_transaction()`.
        """
        timeout = seconds(timeout)
        if self._kq_is_for_librdkafka(timeout):
            return super().flush(timeout)  # which says what is wrong
        if self._kq_outbox.is_needed():  # a destructor's
            put_off(Producer.flush, self, timeout)
            return self._kq_count()
        left = self._kq_deliver(self._kq_deadline_ms(timeout))
        self._kq_outbox.raise_kept()
        return left

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop messages; each gets a delivery report that says so.

        Args:
            in_queue: those that are not sent yet, which are all that wait for the quota, too.
            in_flight: those that are sent and not answered.
            blocking: whether to wait until they are gone.
        """
        if self._kq_outbox.is_forked:
            self._kq_outbox.finished = self._kq_outbox.accepted
            return
        if in_queue and self._kq_outbox.has_sender:
            self._kq_tell_sender(lambda sender: sender.purge())
        super().purge(in_queue, in_flight, blocking)
        if blocking:
            self._kq_await_reports()

    def __len__(self) -> int:
        return self._kq_count()

    def close(self, *_args: Any, **_kwargs: Any) -> bool:
        """Deliver what there is and close; takes little more than `max.block.ms`.

        What cannot be delivered by then is purged: at once where the broker's throttle lasts longer. Every message
        gets its delivery report. What a callback raises is raised when all is done. Who produces meanwhile in another
        thread is refused; callbacks are not.

        Returns:
            True; False if a transaction is open and its coordinator does not answer in time. The broker aborts it then,
            after `transaction.timeout.ms`, and this client's last threads end with the object. False in a child process
            that was forked from the producer's, too: there is nothing to close. And in a callback: it is closed by
            another thread then, once that has returned.
        """
        if self._kq_outbox.is_forked:
            self._kq_closed = self._kq_abandoned = True  # librdkafka's threads, and telemetry's, are the parent's
            return False
        if self._kq_outbox.is_inside():  # in a callback: its message is not delivered before it returns
            put_off(Producer.close, self)
            return False
        with self._kq_closing:  # by one thread; a signal's handler may do it while it is being done
            try:
                is_closed = self._kq_close()
            except RuntimeError:
                if not self._kq_closed:
                    raise
                is_closed = not self._kq_abandoned
        self._kq_outbox.raise_kept()  # a callback's, which may be a RuntimeError as well
        return is_closed

    def _kq_close(self) -> bool:
        if not self._kq_closed:
            clock = self._kq_clock
            deadline_ms = clock.now_ms() + self._kq_max_block_ms
            self._kq_outbox.close()  # what other threads have got in by now is delivered, too
            left = self._kq_drain(deadline_ms, lambda: self._kq_holds_up(deadline_ms, min))  # then it is in vain
            if left:
                logger.warning("Producer closes with %d messages that its broker did not take: they are purged", left)
                self._kq_purge_rest()
            self._kq_stop_sender()
            self._kq_closed = True
            self._kq_stop_telemetry()
            self._kq_stop_watch()
            self._kq_chain.close()
            if not self._kq_leave_transaction(max(PURGE_MS, deadline_ms - clock.now_ms()) / 1000):
                logger.warning("Producer closes with a transaction open that its coordinator did not abort in time")
                self._kq_abandoned = True
        if self._kq_abandoned:
            return False
        try:
            is_closed = self._kq_close_apart()
        except KafkaException as error:
            if not is_fatal(error):
                raise
            self._kq_sender.go_on(error)  # who closes has it logged, below
            is_closed = super().close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a callback's; others are called before it is raised
            is_closed, self._kq_outbox.raised = True, error
        if (raised := self._kq_outbox.raised) is not None and is_fatal(raised):
            self._kq_outbox.raised = None
            self._kq_sender.go_on(raised)  # as above: it was heard of while what there was was delivered
        # What the sender, held up for longer than this may take, has not reported; and events of the last moment.
        undisturbed(self._kq_sender.lock, self._kq_sender.finish)
        self._kq_outbox.serve_all()
        return is_closed

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object, /) -> bool | None:
        Producer.close(self)
        return None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on; another user's quota is asked for at once."""
        super().set_sasl_credentials(username, password)
        self._kq_follow_user(is_another=log_in_as(self._kq_ask_conf, username, password))
        self._kq_renew_telemetry(username, password)

    @contextmanager
    def blocking_at_most(self, timeout: float) -> Iterator["Self"]:
        """Within this context `produce()` waits for the quota no longer than `timeout` seconds, for `max.block.ms`."""
        token = BLOCK_MS.set(round(min(timeout, ENDLESS_S) * 1000))
        try:
            yield self
        finally:
            BLOCK_MS.reset(token)

    # Being seen ---------------------------------------------------------------------------------------------------

    def metrics(self) -> "dict[MetricName, float]":
        """Throttle and waiting times by Kafka's names, in ms: per client, and per broker with the tag `node-id`."""
        # In a child a thread of the parent's may hold the lock.
        return {} if self._kq_outbox.is_forked else self._kq_hearing.metrics()

    def quota_state(self) -> "dict[int, BrokerQuotaState]":
        """What is known about the quota on each broker, by its id; -1 as long as that is not known."""
        if self._kq_outbox.is_forked:
            return {}
        state = partial(self._kq_sender.state, self._kq_hearing.only_id, self._kq_clock.now_ms())
        found: dict[int, BrokerQuotaState] = undisturbed(self._kq_sender.lock, state)
        waiting = Counter(handed.broker_id for handed in list(self._kq_waiting.values()))
        return {
            number: replace(state, waiting=waiting[number] if len(found) > 1 else waiting.total())
            for number, state in found.items()
        }


_BASES, _METHODS = place(confluent_kafka.Producer, CProducer, PacedProducer, (PacedProducer, AsGiven))


if TYPE_CHECKING:

    class Producer(PacedProducer):
        """What mypy sees."""

else:

    @with_methods(_METHODS)
    class Producer(*_BASES):
        """confluent_kafka's Producer under a quota.

        While a quota applies, messages wait in a queue of up to `quota.max.delay.ms`, and `produce()` waits while that
        is full (`quota.backoff=block`, up to `max.block.ms`) or raises `QuotaThrottledError` (`raise`); callbacks are
        served meanwhile. While none applies `produce()` goes straight to librdkafka.

        Args:
            config: confluent_kafka's configuration and, all optional, ours (`kclient_quota.config.QUOTA_KEYS`).
            heartbeat: a consumer to keep in its group while this producer waits.
            kwargs: further configuration, as confluent_kafka takes it.

        Raises:
            ConfigError: one of our keys is misspelt or cannot be used.
        """

        # Each call begins with it; in the dictionary of an object made of C's it takes three times as long to find.
        # Here, and not further up, no base class can have another layout.
        __slots__ = ("_kq_outbox",)
