"""What a producer is made of, put together from its configuration.

Loaded when the first producer is made, not with the class: a program that only names `Producer` starts without it.
"""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from kclient_quota.clients.calls import CallApart, do_put_off, undisturbed
from kclient_quota.clients.ends import expect_end
from kclient_quota.clients.interceptor import ProducerInterceptors, load
from kclient_quota.clients.librdkafka.partitioner import DEFAULT, Partitioner
from kclient_quota.clients.limits import (
    UNKNOWN,
    Limit,
    LimitFinder,
    LimitWatch,
    longest_throttle_ms,
    warn_of_default_client_id,
)
from kclient_quota.clients.producer import settings
from kclient_quota.clients.producer.caller.taking import raw_bytes
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.outbox import Handed, Outbox, at_exit
from kclient_quota.clients.producer.routes import Routes
from kclient_quota.clients.producer.sender.beginning import Beginning
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.clients.producer.sender.sender import ANSWER_MS, Sender
from kclient_quota.clients.producer.sorting import Sorting
from kclient_quota.clients.shared_pace import SharedPace, pace_key, shared_pace
from kclient_quota.clients.telemetry.reporter import new_telemetry
from kclient_quota.clients.throttle_log import WorthLog
from kclient_quota.clients.wait_time import WaitLog
from kclient_quota.clock import Clock
from kclient_quota.config import Backoff, client_id_of, is_true, split, whole_number, without_callbacks
from kclient_quota.metrics import PRODUCER
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import SendQueue
from kclient_quota.pacing.sending.turns import Waiting
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE

ERRORS_ONLY_KEY: Final = "delivery.report.only.error"


class Parts:
    """Of one producer.

    Args:
        given: the application's configuration, confluent_kafka's and ours.
        clock: the producer's.

    Attributes:
        ask_conf: with what the cluster is asked for the limit; `set_sasl_credentials` renews it.
        is_off: `quota.backoff=off`.
        raises: `quota.backoff=raise`.
        errors_only: `delivery.report.only.error`, where that is left to us.
        beginning: of its first message.
        message_ms: for how long a message is worth sending.
        most_bytes: of one message: librdkafka refuses a larger one at once.
        most_value_bytes: of one message's value: it never has room for a larger one; keys and headers do not count.
        most_messages: that nobody has polled for the reports of.
        inner: librdkafka's configuration, with the application's callbacks until `configuration()`, and without ours.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """

    def __init__(self, given: Mapping[str, Any], clock: Clock) -> None:
        conf, ours = split(given)
        self._finder = LimitFinder(ours, conf, byte_rate_key=PRODUCER_BYTE_RATE)
        self.ask_conf = self._finder.conf
        self.is_off = ours.backoff is Backoff.OFF
        self._limit = UNKNOWN if self.is_off else self._finder.find()
        self.client_id = client_id_of(conf)
        warn_of_default_client_id(conf, self._limit)
        self.max_block_ms = ours.max_block_ms
        self.raises = ours.backoff is Backoff.RAISE
        self.sorting = Sorting(ours)
        self.transaction = settings.transaction_of(conf, ours.transaction_timeout)
        self.inner = self.transaction.with_message_timeout(settings.with_defaults(conf, self._limit))
        # We leave out the others ourselves: of messages that are not reported the sender would have to guess which are
        # delivered, and not hear of the errors of those that it has taken for delivered.
        self.errors_only = not self.is_off and is_true(conf.get(ERRORS_ONLY_KEY))
        if self.errors_only:
            self.inner[ERRORS_ONLY_KEY] = False
        self.message_ms = settings.message_timeout_ms(conf)
        self.most_bytes = whole_number(conf, ["message.max.bytes"], settings.MESSAGE_BYTES)
        self.most_value_bytes = whole_number(conf, ["queue.buffering.max.kbytes"], settings.QUEUE_KBYTES) * 1024
        self.most_messages = settings.most_messages(conf)
        needs_id = is_true(self.inner.get("enable.idempotence")) and not conf.get("transactional.id")
        self.beginning = Beginning(clock, is_wanted=needs_id)
        self.outbox = Outbox()
        expect_end([at_exit, do_put_off])
        self.wait_log = WaitLog(self.client_id)
        self.hearing = Hearing(self.outbox, self.client_id, self._limit, ours.backoff, clock, self.sorting.lanes)
        self.hearing.may_spin = is_idempotent = is_true(self.inner.get("enable.idempotence"))
        self._ours = ours
        self._pace = pace = self._pace_of_user()
        undisturbed(pace.lock, pace.follow, self._limit, clock.now_ms())
        routes = Routes(Partitioner(str(conf.get("partitioner", DEFAULT))))
        core = ProducerCore(self._new_queue, routes, self._limit, ours.max_delay_ms)
        core.is_off, core.shared_pace = self.is_off, pace
        pace.join(core)
        self.sender = Sender(
            self.outbox,
            core,
            self.transaction,
            clock=clock,
            lock=pace.lock,
            metrics=self.hearing.queue,
            worth=WorthLog(self.client_id, settings.codec(conf), ours.max_delay_ms, CallApart),
            keeps=is_idempotent and settings.lingers_shortly(self.inner),
        )
        self.sender.set_free(clock.now_ms())
        self.outbox.is_open = not core.is_limited(clock.now_ms())
        self.telemetry = new_telemetry(PRODUCER, conf, self.hearing.metrics)
        # last: nothing above closes them if it fails
        self.chain = ProducerInterceptors(load(ours.interceptors, given, ("on_send", "on_acknowledgement")))

    def _answer_ms(self) -> int:
        """How long to wait for a cluster that has not told the limit yet.

        It may never: no call, message or transaction may come to its end by that.
        """
        if not self._finder.is_away or self._pace.limit is not None:
            return 0
        ends = [self.message_ms, self.max_block_ms, self.sorting.patience_ms]
        if self.transaction.possible:
            ends.append(self.transaction.timeout_ms)
        return min(ANSWER_MS, int(min(ends) / 2))

    def _new_queue(self, broker: int, limit: Limit) -> SendQueue:
        conf, shared, aborts = self.inner, self._pace, self.transaction.aborts
        pace = SendPace(
            _pacer(shared, broker, limit),
            BatchCost(compressed=settings.is_compressed(conf)),
            limit.byte_rate,
            linger_ms=settings.linger_ms(conf),
            max_delay_ms=self._ours.max_delay_ms,
            in_flight=settings.in_flight(conf),
            # a transaction that is to be aborted rather than waited for hears of each as the broker said it
            longest_throttle_ms=inf if aborts else longest_throttle_ms(conf, limit, self.message_ms),
            client_bytes=len(self.client_id.encode()),
            common=shared.common,
            answer_ms=0 if limit.known else self._answer_ms(),
        )
        return SendQueue(pace, self.sorting.lanes)

    def _pace_of_user(self) -> SharedPace:
        pace = shared_pace(pace_key(self.ask_conf, self._ours, self._ours.producer_byte_rate))
        self.hearing.is_followed = pace.has
        return pace

    def follow_user(self, *, is_another: bool) -> None:
        """`ask_conf` has other credentials: ask for the quota of another user, and for one that nobody has told yet."""
        core = self.sender.core
        if is_another:
            undisturbed(self.sender.lock, self._move_to_pace_of_user)
        if self.hearing.ask_soon is not None and (is_another or not core.limit.known):
            self.hearing.ask_soon()

    def _move_to_pace_of_user(self) -> None:
        core = self.sender.core
        self._pace = core.shared_pace = self._pace_of_user()
        self._pace.join(core)
        for broker in core.brokers:
            broker.queue.pace.move_to(_pacer(self._pace, broker.number, core.limit), self._pace.common)

    def configuration(self) -> dict[str, Any]:
        """What librdkafka gets; once, as threads hold what this is of, which is not to keep the application alive."""
        later = partial(_later, self.outbox)
        given, self.inner = self.inner, without_callbacks(self.inner)
        return settings.with_callbacks(given, self.hearing, self._limit, later, self.telemetry)

    def watch(self) -> LimitWatch:
        """What tells the producer of a new limit, and has its sender look; it does not keep it alive."""
        listener = weakref.ref(self.hearing)

        def on_limit(limit: Limit) -> None:
            if (hearing := listener()) is not None:
                hearing.on_limit(limit)

        watch = LimitWatch(self._finder, on_limit, partial(_look, weakref.ref(self.outbox)), asks=not self.is_off)
        self.hearing.ask_soon = watch.ask_soon
        if self._finder.may_change or self.is_off:
            watch.start()
        return watch

    def new_waiting(self, topic: str, partition: int, handed: Handed, now_ms: int) -> Waiting:
        """A message that is to wait for the quota."""
        nbytes = raw_bytes(handed.value, handed.key, handed.headers)
        return Waiting(topic, partition, nbytes, now_ms, handed, now_ms + self.message_ms)


def _look(outbox: "weakref.ref[Outbox]") -> None:
    """A sender looks once a minute where nothing limits, and so nobody sends."""
    if (found := outbox()) is not None and found.is_open:
        found.wake()


def _later(outbox: Outbox, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A callback of the application's that runs in its own calls: what the sender hears waits for them."""

    def tell(event: Any) -> None:
        callback(event)

    def call(event: Any) -> None:
        if threading.get_ident() == outbox.sender:
            outbox.reports.append((_unless_gone, told, event))
        else:
            tell(event)

    told = weakref.ref(tell)  # the sender's thread holds the outbox, which is not to keep the application alive
    return call


def _unless_gone(told: "weakref.ref[Callable[[Any], None]]", event: Any) -> None:
    if (tell := told()) is not None:
        tell(event)


def _pacer(shared: SharedPace, broker: int, limit: Limit) -> Pacer:
    """That of a broker, of the limit that was heard last, or of this one where nothing was."""
    told = shared.limit or limit
    return shared.pacer(broker, lambda: Pacer(told.byte_rate, samples=told.samples, window_ms=told.window_ms))
