# ruff: noqa: SLF001 - callbacks of a consumer that must not keep it alive live beside it, not in it
"""`Consumer`: a drop-in for confluent_kafka's that takes messages at the pace of its quota."""

import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, cast, overload

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from kclient_quota.clients import consumer_settings as settings
from kclient_quota.clients.admission import BrokerQuotaState
from kclient_quota.clients.consumer_gate import ConsumerGate
from kclient_quota.clients.fetch_pacing import RECORD_BYTES
from kclient_quota.clients.fetch_sizes import with_sizes
from kclient_quota.clients.heartbeat import Beat
from kclient_quota.clients.held import HeldMessages, Partition
from kclient_quota.clients.interceptor import ConsumerInterceptors, load
from kclient_quota.clients.librdkafka_keys import explained
from kclient_quota.clients.stepping_aside import aside
from kclient_quota.clients.telemetry import TelemetryMethods, new_telemetry
from kclient_quota.config import split
from kclient_quota.metrics import CONSUMER, MetricName

SLICE_MS: Final = 100
"""Longest sleep of a waiting call: how soon Ctrl-C is noticed."""
STORE_EVERY_MS: Final = 1_000
MOST_AT_ONCE: Final = 1_000_000
"""What confluent_kafka's `consume` takes at most."""
NO_OFFSET: Final = 0
"""Offsets below this are librdkafka's signs for none."""

_Plain = confluent_kafka.Consumer
_DOORS: Final = ("poll", "consume")
"""What is confluent_kafka's own again while nothing is to be paced."""
_poll = _Plain.poll
_consume = _Plain.consume

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]


class Consumer(_Plain, TelemetryMethods):
    """confluent_kafka's Consumer under a quota.

    While a quota applies, `poll()` and `consume()` hand messages over evenly, which makes librdkafka fetch evenly, and
    never wait longer than the caller's own `timeout`. While none applies they are confluent_kafka's own.

    Args:
        config: confluent_kafka's configuration and, all optional, ours (see `kclient_quota.config.QUOTA_KEYS`).
        kwargs: further configuration, as confluent_kafka takes it.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        given = {**(config or {}), **kwargs}
        conf, ours = split(given)
        self._asks_with = dict(conf)
        finder = settings.limit_finder(ours, self._asks_with)
        limit = finder.find()
        client_id = str(conf.get("client.id", "rdkafka"))
        conf, sizes = with_sizes(conf, limit.byte_rate, known=limit.known)
        self._interceptors = ConsumerInterceptors(load(ours.interceptors, given, ("on_consume", "on_commit")))
        self._gate = gate = ConsumerGate(ours.backoff, client_id, limit, sizes, settings.max_poll_interval_ms(conf))
        self._clock = gate.clock
        self._held = HeldMessages()
        self._paused: set[Partition] = set()
        self._paused_by_us: list[TopicPartition] = []
        self._stores = settings.stores_offsets(conf)
        self._stored: dict[Partition, int] = {}
        self._stored_at_ms = self._clock.now_ms()
        self._gated = True
        self._closed = False
        self._rebalancing = False
        # Bytes that `poll` may take without further ado; 0 where every call needs a closer look.
        self._quick = 0.0
        me = weakref.ref(self)
        self._telemetry = new_telemetry(CONSUMER, conf, gate.metrics)
        try:
            super().__init__(
                settings.with_callbacks(
                    conf,
                    gate,
                    limit=limit,
                    after_statistics=partial(_after_statistics, me),
                    interceptors=self._interceptors,
                    telemetry=self._telemetry,
                )
            )
        except KafkaException as error:
            raise explained(error) from None
        self._start_telemetry()
        gate.on_stance = partial(_take_stance, me)
        watch = settings.watch(finder, gate)
        gate.ask_soon = watch.ask_soon
        self._stop_watch = weakref.finalize(self, watch.close)
        gate.review()
        watch.start()

    # Receiving ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """As confluent_kafka's; waits at most `timeout` seconds for the quota, too."""
        if self._quick > 0.0:
            message = _poll(self, timeout)
            if message is not None:
                self._quick -= len(message) + RECORD_BYTES
            return message
        messages = self._receive(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As confluent_kafka's; waits at most `timeout` seconds for the quota, too."""
        if not 0 < num_messages <= MOST_AT_ONCE or self._closed:
            return _consume(self, num_messages, timeout)
        return self._receive(num_messages, timeout)

    def keep_alive(self) -> None:
        """Stay in the group without receiving anything: for an application that waits for something else.

        Cheap; call it a few times a second. Rebalances are served every few seconds, which takes messages out of
        librdkafka's queue; they are held until the application receives them.
        """
        if self._closed or self._rebalancing:
            return
        self._settle_quick()
        beat = self._gate.heartbeat.due(self._clock.now_ms())
        if beat is Beat.TOUCH:
            _consume(self, 0, 0)
        elif beat is Beat.POLL:
            self._poll_ahead()

    def _receive(self, count: int, timeout: float) -> list[Message]:
        gate = self._gate
        clock = self._clock
        now_ms = clock.now_ms()
        self._settle_quick()
        deadline_ms = None if timeout < 0 else now_ms + int(timeout * 1000)
        while True:
            if self._held:
                messages = self._held.take(count, self._paused)
                if messages:
                    self._after_held()
                    return self._deliver(messages)
            wait_ms = gate.ask()
            remaining_ms = SLICE_MS if deadline_ms is None else max(0, deadline_ms - clock.now_ms())
            if not wait_ms:
                messages = _consume(self, gate.most_messages(count), min(remaining_ms, SLICE_MS) / 1000)
                gate.heartbeat.on_poll(now_ms)
                if messages:
                    gate.charge(messages)
                    self._lend_quick(count)
                    return self._deliver(messages)
            else:
                self.keep_alive()
                clock.sleep_ms(min(wait_ms, remaining_ms, SLICE_MS))
            now_ms = clock.now_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                return []

    def _lend_quick(self, count: int) -> None:
        """Let the next calls of `poll` use up the grant by themselves."""
        gate = self._gate
        if count == 1 and gate.lends and not self._held and not self._interceptors:
            self._quick, gate.left = gate.left, 0.0

    def _settle_quick(self) -> None:
        """Give back what `poll` has not used up."""
        self._gate.left += self._quick
        self._quick = 0.0

    def _poll_ahead(self) -> None:
        """Serve callbacks and rebalances; what comes out of the queue is held."""
        messages = _consume(self, 1, 0)
        if not messages:
            return
        self._gate.charge(messages)
        self._held.add(messages)
        if self._held.full and not self._paused_by_us:
            mine = [part for part in super().assignment() if (part.topic, part.partition) not in self._paused]
            super().pause(mine)
            self._paused_by_us = mine
        self._gate.review()

    def _after_held(self) -> None:
        """Some of what was held has been handed over."""
        if self._paused_by_us and not self._held.full:
            mine, self._paused_by_us = self._paused_by_us, []
            super().resume([part for part in mine if (part.topic, part.partition) not in self._paused])
        if not self._held:
            self._gate.review()

    def _deliver(self, messages: list[Message]) -> list[Message]:
        if not self._interceptors:
            return messages
        errors = [message for message in messages if message.error() is not None]
        if len(errors) == len(messages):
            return messages
        return errors + self._interceptors.on_consume([message for message in messages if message.error() is None])

    # Offsets: what the application has received -------------------------------------------------------------------

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As confluent_kafka's: what the application has received."""
        found = super().position(partitions)
        first = self._held.first_offsets() if self._held else {}
        return [_at(part, first.get((part.topic, part.partition))) for part in found]

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """As confluent_kafka's, which refuses it unless `enable.auto.offset.store` is false."""
        if self._stores:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG,
                    "StoreOffsets failed: Local: Invalid argument or configuration "
                    "(set enable.auto.offset.store to false)",
                )
            )
        super().store_offsets(message, offsets)

    @overload
    def commit(self, *, asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]: ...
    @overload
    def commit(self, *, message: Message, asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, message: Message, asynchronous: Literal[False]) -> list[TopicPartition]: ...
    @overload
    def commit(self, *, offsets: list[TopicPartition], asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, offsets: list[TopicPartition], asynchronous: Literal[False]) -> list[TopicPartition]: ...
    def commit(self, *args: Any, **kwargs: Any) -> list[TopicPartition] | None:
        """As confluent_kafka's; without arguments it commits what the application has received."""
        self._store_received()
        began_ms = self._clock.now_ms()
        done = cast("list[TopicPartition] | None", super().commit(*args, **kwargs))
        if done is not None and self._telemetry is not None:
            self._telemetry.on_commit(began_ms)
        if done is not None and self._interceptors:
            self._interceptors.on_commit([part for part in done if part.error is None])
        return done

    def _store_received(self, partitions: list[TopicPartition] | None = None) -> None:
        """Store the position of every assigned partition that has moved, as librdkafka would have done by itself."""
        if not self._stores or self._closed:
            return
        assigned = super().assignment() if partitions is None else partitions
        moved = [
            part
            for part in self.position(assigned)
            if part.offset >= NO_OFFSET and self._stored.get((part.topic, part.partition)) != part.offset
        ]
        self._stored_at_ms = self._clock.now_ms()
        if not moved:
            return
        try:
            super().store_offsets(offsets=moved)
        except KafkaException:
            # None of them is assigned any more: there is nothing left to store for.
            return
        self._stored.update({(part.topic, part.partition): part.offset for part in moved})

    # Assignment ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """As confluent_kafka's."""
        given: dict[str, Any] = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        ours = {"on_assign": _on_assign, "on_revoke": _on_gone, "on_lost": _on_gone}
        callbacks = {
            name: partial(ours[name], call) if callable(call) else call
            for name, call in given.items()
            if call is not None
        }
        callbacks.setdefault("on_assign", partial(_on_assign, None))
        callbacks.setdefault("on_revoke", partial(_on_gone, None))
        super().subscribe(topics, **callbacks)
        if self._telemetry is not None:
            self._telemetry.rebalance_began()

    def unsubscribe(self) -> None:
        """As confluent_kafka's."""
        self._store_received()
        super().unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's."""
        self._store_received()
        super().assign(partitions)
        self._forget(None)

    def unassign(self) -> None:
        """As confluent_kafka's."""
        self._store_received()
        super().unassign()
        self._forget(None)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's."""
        self._store_received(partitions)
        super().incremental_unassign(partitions)
        self._forget(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """As confluent_kafka's; what is held of the partition is forgotten."""
        # A seek makes librdkafka forget the position.
        self._store_received([partition])
        super().seek(partition)
        self._held.drop([partition])
        self._after_held()

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's; what is held of them is handed over after `resume()`."""
        super().pause(partitions)
        self._paused.update((part.topic, part.partition) for part in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's."""
        self._paused.difference_update((part.topic, part.partition) for part in partitions)
        ours = {(part.topic, part.partition) for part in self._paused_by_us}
        super().resume([part for part in partitions if (part.topic, part.partition) not in ours])

    def _forget(self, partitions: list[TopicPartition] | None) -> None:
        """Partitions went away."""
        self._held.drop(partitions)
        if partitions is None:
            self._paused.clear()
            self._paused_by_us = []
            self._stored.clear()
        else:
            gone = {(part.topic, part.partition) for part in partitions}
            self._paused -= gone
            self._paused_by_us = [part for part in self._paused_by_us if (part.topic, part.partition) not in gone]
            for partition in gone:
                self._stored.pop(partition, None)
        self._gate.review()

    # Being seen and ending ----------------------------------------------------------------------------------------

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times and polling by Kafka's names: `{MetricName(name, group, tags): float}`, in milliseconds."""
        return self._gate.metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by broker id; `stall` says why nothing comes."""
        return self._gate.state()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka's; the cluster is asked with them, too."""
        self._asks_with.update({"sasl.username": username, "sasl.password": password})
        self._renew_telemetry(username, password)
        super().set_sasl_credentials(username, password)

    def close(self) -> None:
        """As confluent_kafka's: leaves the group and commits what the application has received."""
        if self._closed:
            return
        self._stop_telemetry()
        self._stop_watch()
        self._store_received()
        super().close()
        self._closed = True
        self._quick = float("inf")
        self._held.drop()
        self._interceptors.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()


def _at(part: TopicPartition, first: tuple[int, int | None] | None) -> TopicPartition:
    """A position, put back to the first message that is held."""
    if first is None:
        return part
    offset, epoch = first
    return TopicPartition(part.topic, part.partition, offset, leader_epoch=-1 if epoch is None else epoch)


def _on_gone(call: RebalanceCallback | None, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Partitions are being revoked, or were lost: what was received of them is stored, what is held is forgotten."""
    consumer._store_received(partitions)
    consumer._rebalancing = True
    try:
        if call is not None:
            call(consumer, partitions)
    finally:
        consumer._rebalancing = False
        consumer._forget(partitions)
        if consumer._telemetry is not None:
            consumer._telemetry.rebalance_began()


def _on_assign(call: RebalanceCallback | None, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Within a rebalance callback nothing may poll, not even to stay alive."""
    consumer._rebalancing = True
    try:
        if call is not None:
            call(consumer, partitions)
    finally:
        consumer._rebalancing = False
    if consumer._telemetry is not None:
        consumer._telemetry.rebalance_ended()


def _after_statistics(me: "weakref.ref[Consumer]") -> None:
    consumer = me()
    if consumer is not None and consumer._clock.now_ms() - consumer._stored_at_ms >= STORE_EVERY_MS:
        consumer._store_received()


def _take_stance(me: "weakref.ref[Consumer]") -> None:
    """Put the gate before a consumer's doors, or take it away."""
    consumer = me()
    if consumer is None:
        return
    gated = consumer._gate.paced or bool(consumer._held) or bool(consumer._interceptors)
    if consumer._gated == gated:
        return
    cls = type(consumer)
    consumer._gated = gated
    consumer._settle_quick()
    consumer._gate.left = 0.0
    consumer.__class__ = cls.__mro__[1] if gated else aside(cls, Consumer, _Plain, _DOORS)
