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
from kclient_quota.clients.consumer_gate import ConsumerGate
from kclient_quota.clients.gate import DEFAULT_CLIENT_ID, warn_of_default_client_id
from kclient_quota.clients.interceptor import ConsumerInterceptors, load
from kclient_quota.clients.librdkafka.keys import explained
from kclient_quota.clients.paced_consumer import DOORS, PacedConsumer
from kclient_quota.clients.poll_watch import POLL_WATCH, Watched
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.stepping_aside import aside
from kclient_quota.clients.telemetry import TelemetryMethods, new_telemetry
from kclient_quota.config import Backoff, LimitSource, split
from kclient_quota.metrics import CONSUMER, MetricName
from kclient_quota.pacing.fetch_sizes import with_sizes

STORE_EVERY_MS: Final = 1_000
NO_OFFSET: Final = 0
"""Offsets below this are librdkafka's signs for none."""

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]


class Consumer(PacedConsumer, TelemetryMethods):
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
        limit = settings.NO_LIMIT if ours.backoff is Backoff.OFF else finder.find()
        warn_of_default_client_id(conf, limit)
        conf, sizes = with_sizes(
            conf,
            limit.byte_rate,
            follow=limit.source is not LimitSource.CONFIG,
            learn=ours.limit_source is LimitSource.LEARNED and ours.backoff is not Backoff.OFF,
        )
        interceptors = ConsumerInterceptors(load(ours.interceptors, given, ("on_consume", "on_commit")))
        client_id = str(conf.get("client.id", DEFAULT_CLIENT_ID))
        gate = ConsumerGate(ours.backoff, client_id, limit, sizes, settings.max_poll_interval_ms(conf))
        self._prepare(gate, interceptors)
        self._stores = settings.stores_offsets(conf)
        self._stored: dict[tuple[str, int], int] = {}
        self._stored_at_ms = gate.clock.now_ms()
        self._watched = Watched(client_id, gate.heartbeat, gate.clock)
        self._stop_poll_watch = weakref.finalize(self, POLL_WATCH.remove, gate.heartbeat)
        self._metrics = partial(settings.metrics, gate, self._idle, self._waited, client_id)
        self._telemetry = new_telemetry(CONSUMER, conf, self._metrics)
        me = weakref.ref(self)
        try:
            super().__init__(
                settings.with_callbacks(
                    conf,
                    gate,
                    limit=limit,
                    after_statistics=partial(_after_statistics, me),
                    interceptors=interceptors,
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
        if ours.backoff is not Backoff.OFF:
            watch.start()

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
        self._gate.heartbeat.on_poll(self._clock.now_ms())
        POLL_WATCH.add(self._watched)
        if self._telemetry is not None:
            self._telemetry.rebalance_began()

    def unsubscribe(self) -> None:
        """As confluent_kafka's."""
        self._store_received()
        super().unsubscribe()
        POLL_WATCH.remove(self._gate.heartbeat)

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
        return self._metrics()

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
        self._stop_poll_watch()
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
    try:
        if call is not None:
            consumer._gate.call_back(call, consumer, partitions)
    finally:
        consumer._forget(partitions)
        if consumer._telemetry is not None:
            consumer._telemetry.rebalance_began()


def _on_assign(call: RebalanceCallback | None, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Partitions are being assigned; confluent_kafka does it unless the callback has."""
    if call is not None:
        consumer._gate.call_back(call, consumer, partitions)
    if consumer._telemetry is not None:
        consumer._telemetry.rebalance_ended()


def _after_statistics(me: "weakref.ref[Consumer]") -> None:
    consumer = me()
    if consumer is None:
        return
    consumer._sample()
    if consumer._clock.now_ms() - consumer._stored_at_ms >= STORE_EVERY_MS:
        consumer._store_received()


def _take_stance(me: "weakref.ref[Consumer]") -> None:
    """Put the gate before a consumer's doors, or take it away."""
    consumer = me()
    if consumer is None:
        return
    gated = consumer._gate.paced or bool(consumer._held or consumer._interceptors or consumer._idle.wanted)
    if consumer._gated == gated:
        return
    cls = type(consumer)
    consumer._gated = gated
    consumer._settle_quick()
    consumer._gate.left = 0.0
    if not gated:
        consumer._idle.forget()
    consumer.__class__ = cls.__mro__[1] if gated else aside(cls, Consumer, confluent_kafka.Consumer, DOORS)
