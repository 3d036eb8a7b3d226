# ruff: noqa: SLF001 - callbacks of a consumer that must not keep it alive live beside it, not in it
"""`Consumer`: a drop-in for confluent_kafka's that takes messages at the pace of its quota."""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from kclient_quota.clients.agents import CConsumer, place, with_methods
from kclient_quota.clients.calls import NotMade, interruptible, log_in_as, merged
from kclient_quota.clients.consumer import settings
from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.consumer.receiving.fetching import made_apart
from kclient_quota.clients.consumer.receiving.held import key_of
from kclient_quota.clients.consumer.receiving.listening import Listener
from kclient_quota.clients.consumer.receiving.recovering import in_turn
from kclient_quota.clients.consumer.storing import Storing
from kclient_quota.clients.consumer.watching import WATCHING, PollWatch
from kclient_quota.clients.heartbeat import CLOSED
from kclient_quota.clients.interceptor import ConsumerInterceptors, closing_unless_made, load
from kclient_quota.clients.librdkafka.keys import explained
from kclient_quota.clients.limits import LimitFinder, LimitWatch, longest_throttle_ms, warn_of_default_client_id
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.shared_pace import SharedLimit, pace_key, shared_limit
from kclient_quota.clients.telemetry.methods import TelemetryMethods
from kclient_quota.clients.telemetry.reporter import ENABLE_KEY, new_telemetry
from kclient_quota.clients.throttle_log import ThrottleLog
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.config import Backoff, LimitSource, QuotaConfig, client_id_of, split
from kclient_quota.metrics import CONSUMER, MetricName
from kclient_quota.pacing.fetching.fetch_sizes import with_sizes
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]
LEFT_OUT: Any = ...
"""In place of an argument: confluent_kafka takes no None for a callback."""


class PacedConsumer(Storing, TelemetryMethods):
    """All of `Consumer` but its place in line with the classes that tracing agents put in confluent_kafka's place."""

    # What a subclass finds that has not called __init__: confluent_kafka says then that it is closed.
    _kq_core = cast("ConsumerCore", NotMade(RuntimeError, CLOSED))
    _kq_metrics = cast("partial[dict[MetricName, float]]", _kq_core)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = merged(args, kwargs)
        conf, ours = split(given)
        finder = LimitFinder(ours, conf, byte_rate_key=CONSUMER_BYTE_RATE)
        self._kq_asks_with = finder.conf
        limit = settings.NO_LIMIT if ours.backoff is Backoff.OFF else finder.find()
        warn_of_default_client_id(conf, limit)
        learn = ours.limit_source is LimitSource.LEARNED and ours.backoff is not Backoff.OFF
        conf, sizes = with_sizes(conf, limit.byte_rate, learn=learn)
        client_id = client_id_of(conf)
        clock = SYSTEM_CLOCK
        interval_ms = settings.max_poll_interval_ms(conf)
        self._kq_limit_of_user = partial(_limit_of, self._kq_asks_with, ours)
        longest_ms = longest_throttle_ms(conf, limit)
        shared = self._kq_limit_of_user()
        core = ConsumerCore(ours.backoff, client_id, limit, sizes, interval_ms, clock.now_ms(), shared, longest_ms)
        listener = Listener(core, clock, ThrottleLog(client_id, "fetches are spaced", ours.backoff))
        interceptors = ConsumerInterceptors(load(ours.interceptors, given, ("on_consume", "on_commit")))
        self._kq_prepare(listener, interceptors)
        self._kq_metrics = partial(settings.metrics, core, self._kq_idle, self._kq_waited, client_id, clock)
        self._kq_telemetry = listener.telemetry = new_telemetry(CONSUMER, conf, self._kq_metrics)
        final = listener.callbacks(conf, interceptors)
        if self._kq_telemetry is not None:
            final[ENABLE_KEY] = False
        self._kq_prepare_storing(conf)
        if self._kq_stores:
            final[settings.STORE_KEY] = False
        self._kq_prepare_fetching(final, listener.fetcher_events.append)
        try:
            with closing_unless_made(interceptors):
                super().__init__(settings.without_an_empty_group({**final, **sizes.imposed}))
        except KafkaException as error:
            raise explained(error) from None
        except SystemError as error:
            raise settings.what_went_wrong(error) from None
        self._kq_is_open = True
        self._kq_review()
        self._kq_store_beside()
        self._kq_poll_watch = PollWatch(client_id, core.heartbeat, clock)
        self._kq_stop_poll_watch = weakref.finalize(self, WATCHING.remove, self._kq_poll_watch)
        self._kq_start_telemetry()
        watch = LimitWatch(finder, core.on_limit)
        self._kq_ask_soon = listener.ask_soon = watch.ask_soon
        self._kq_stop_watch = weakref.finalize(self, watch.close)
        listener.tell()
        if ours.backoff is not Backoff.OFF and finder.may_change:
            watch.start()

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
        """Commit a message's offset or given ones; without either, all that the application has received."""
        named = {**dict(zip(("message", "offsets"), args, strict=False)), **kwargs}
        if named.get("message") is None and named.get("offsets") is None:
            self._kq_store_received()
        began_ms = SYSTEM_CLOCK.now_ms()
        done = cast("list[TopicPartition] | None", super().commit(*args, **kwargs))
        if done is not None and self._kq_telemetry is not None:
            self._kq_telemetry.on_commit(began_ms)
        if done is not None and self._kq_is_open and self._kq_interceptors:
            self._kq_interceptors.on_commit([part for part in done if part.error is None])
        return done

    # Assignment ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = LEFT_OUT,
        on_revoke: RebalanceCallback | None = LEFT_OUT,
        on_lost: RebalanceCallback | None = LEFT_OUT,
    ) -> None:
        """Join the group for these topics (a pattern begins with ^); callbacks hear of partitions that come and go."""
        given: dict[str, Any] = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        ours = {"on_assign": _on_assign, "on_revoke": _on_gone, "on_lost": _on_gone}
        callbacks = {
            name: partial(ours[name], call) if callable(call) else call
            for name, call in given.items()
            if call is not LEFT_OUT
        }
        callbacks.setdefault("on_assign", partial(_on_assign, None))
        callbacks.setdefault("on_revoke", partial(_on_gone, None))
        super().subscribe(topics, **callbacks)
        self._kq_core.heartbeat.on_poll(self._kq_clock.now_ms())
        WATCHING.add(self._kq_poll_watch)
        if self._kq_telemetry is not None:
            self._kq_telemetry.rebalance_began()

    def unsubscribe(self) -> None:
        """Leave the group's topics."""
        self._kq_store_received()
        super().unsubscribe()
        WATCHING.remove(self._kq_poll_watch)

    @in_turn
    def assign(self, partitions: list[TopicPartition], /) -> None:
        """Receive of exactly these partitions, from the offsets that they name."""
        self._kq_store_received()
        self._kq_no_more_of(super().assignment())
        with self._kq_alone():  # who stores beside would take a former position for one of these
            super().assign(partitions)
            self._kq_forget(None)
            self._kq_received.begin(partitions)
            self._kq_begin_at(partitions)
        self._kq_assign_anew(partitions)

    @in_turn
    def incremental_assign(self, partitions: list[TopicPartition], /) -> None:
        """Receive of these partitions, too."""
        with self._kq_alone():
            super().incremental_assign(partitions)
            self._kq_received.begin(partitions)
            self._kq_begin_at(partitions)
        self._kq_follow_assignment()

    @in_turn
    def unassign(self) -> None:
        """Receive of no partition any more."""
        self._kq_store_received()
        self._kq_no_more_of(super().assignment())
        super().unassign()
        self._kq_forget(None)
        self._kq_follow_assignment()

    @in_turn
    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        """Receive of these partitions no more."""
        self._kq_store_received(partitions)
        super().incremental_unassign(partitions)
        self._kq_forget(partitions)
        self._kq_follow_assignment()

    @in_turn
    def seek(self, partition: TopicPartition) -> None:
        """Go on at the partition's offset; what is held of it is forgotten."""
        # A seek makes librdkafka forget the position. To ask for that of a partition which is not assigned would make
        # librdkafka know it, and say something else about the seek.
        if isinstance(partition, TopicPartition):
            sought = key_of(partition)
            self._kq_store_received([part for part in super().assignment() if key_of(part) == sought])
            self._kq_rest_no_more(sought)
        self._kq_seek_in_source(partition)
        self._kq_note_handed()
        self._kq_no_more_of([partition])
        self._kq_core.on_forgotten(self._kq_held.drop([partition]), [key_of(partition)])
        self._kq_sought.pop(key_of(partition), None)
        self._kq_received.begin([partition])
        self._kq_note_starts([partition])
        self._kq_resume_ours()

    def _kq_begin_for_group(self, partitions: list[TopicPartition]) -> None:
        """The group says where these begin, whatever the application has said when it assigned them by itself.

        librdkafka tells nobody that what was assigned so is gone when the group's partitions take its place.
        """
        self._kq_was_silent = False
        self._kq_note_handed()
        self._kq_held.drop(partitions)
        begun = [TopicPartition(part.topic, part.partition) for part in partitions]
        self._kq_received.begin(begun)
        self._kq_note_starts(begun)
        for part in begun:
            self._kq_sought.pop(key_of(part), None)
            self._kq_stored.pop(key_of(part), None)
        self._kq_release(begun)

    def _kq_forget(self, partitions: list[TopicPartition] | None) -> None:
        """Partitions went away.

        librdkafka keeps what of them is paused for when they come again: ours ends here, the application's stays.
        """
        self._kq_was_silent = False
        self._kq_note_handed()
        ahead = self._kq_held.first_offsets()  # by these librdkafka's positions go on for a moment
        nbytes = self._kq_held.drop(partitions)
        named = None if partitions is None else list(map(key_of, partitions))
        self._kq_core.on_forgotten(nbytes, named)
        if partitions is None:
            self._kq_anew.update(ahead)
            self._kq_received.forget()
            self._kq_sought.clear()
            self._kq_starts.clear()
            self._kq_stored.clear()
            self._kq_rest(frozenset())
            self._kq_resume_ours()
            return
        gone = set(map(key_of, partitions))
        self._kq_held.gone |= gone
        self._kq_anew |= gone & ahead.keys()
        self._kq_received.begin([TopicPartition(topic, number) for topic, number in gone])
        for partition in gone:
            self._kq_stored.pop(partition, None)
            self._kq_sought.pop(partition, None)
            self._kq_starts.pop(partition, None)
        self._kq_rest(self._kq_resting - gone)
        self._kq_resume_ours()

    def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka's, in callbacks as well: there it is asked by another client.

        confluent_kafka forgets with it which call the callback is in. At the next one within that call, ours for
        statistics if no other, it aborts the process.
        """
        if not self._kq_is_open or not self._kq_listener.in_callback:
            return super().list_topics(*args, **kwargs)
        asking = made_apart({**self._kq_fetcher_conf, "enable.metrics.push": False, "enable.auto.commit": False})
        try:
            return asking.list_topics(*args, **kwargs)
        finally:
            asking.close()

    # Being seen and ending ----------------------------------------------------------------------------------------

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times and polling by Kafka's names: `{MetricName(name, group, tags): float}`, in milliseconds."""
        return self._kq_metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by broker id; `stall` says why nothing comes."""
        return self._kq_core.state(self._kq_clock.now_ms())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on; another user's quota is asked for at once."""
        super().set_sasl_credentials(username, password)
        is_another = log_in_as(self._kq_asks_with, username, password)
        if is_another:
            self._kq_core.share_with(self._kq_limit_of_user())
        if is_another or not self._kq_core.limit.known:  # nobody has told it, as these were refused, maybe
            self._kq_ask_soon()
        self._kq_renew_telemetry(username, password)

    @in_turn
    def close(self) -> None:
        """Commit what the application has received (with `enable.auto.commit`), leave the group, close."""
        if not self._kq_is_open:
            super().close()
            return
        if self._kq_listener.in_callback and self._kq_filling == threading.get_ident():
            self._kq_put_off = partial(PacedConsumer.close, self)  # nothing where it is being closed
            return
        self._kq_filling = threading.get_ident()
        self._kq_stop_telemetry()
        self._kq_stop_poll_watch()
        self._kq_stop_watch()
        try:
            self._kq_end_storing()
            self._kq_serve_before_close()
        except RuntimeError as error:
            if str(error) != CLOSED:  # by another thread, meanwhile
                raise
        finally:
            self._kq_close()

    def _kq_close(self) -> None:
        """Whatever a callback raises meanwhile, confluent_kafka's part is closed then, and so is ours."""
        try:
            interruptible(super().close)
        finally:
            self._kq_filling, self._kq_put_off = 0, None
            if self._kq_fetcher is not None:
                self._kq_fetcher.close()
            self._kq_is_open = False
            self._kq_core.leave()
            self._kq_credit = 0.0
            self._kq_held.drop()
            self._kq_interceptors.close()
        self._kq_listener.raise_kept()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
        /,
    ) -> bool | None:
        PacedConsumer.close(self)
        return None


def _limit_of(conf: Mapping[str, Any], ours: QuotaConfig) -> SharedLimit:
    """What a consumer shares with all of this process that a broker counts with it."""
    return shared_limit(pace_key(conf, ours, ours.consumer_byte_rate))


def _on_gone(call: RebalanceCallback | None, consumer: PacedConsumer, partitions: list[TopicPartition]) -> None:
    """Partitions are being revoked, or were lost: what was received of them is stored, what is held is forgotten."""
    consumer._kq_listener.call_back(consumer._kq_store_received, partitions)
    try:
        if call is not None:
            consumer._kq_listener.call_back(call, consumer, partitions)
    finally:
        consumer._kq_forget(partitions)
        consumer._kq_release(partitions)
        if consumer._kq_telemetry is not None:
            consumer._kq_telemetry.rebalance_began()


def _on_assign(call: RebalanceCallback | None, consumer: PacedConsumer, partitions: list[TopicPartition]) -> None:
    """Partitions are being assigned; confluent_kafka does it unless the callback has."""
    consumer._kq_begin_for_group(partitions)
    times_assigned = consumer._kq_times_assigned
    if call is not None:
        consumer._kq_listener.call_back(call, consumer, partitions)
    if consumer._kq_fetcher is not None and consumer._kq_times_assigned == times_assigned:
        consumer._kq_assign_paused(partitions)
    if consumer._kq_telemetry is not None:
        consumer._kq_telemetry.rebalance_ended()


class OneByOne(PacedConsumer):
    """One whose calls are looked at below: each message is asked for as the application asks for it."""

    _kq_reads_ahead = False


_BASES, _METHODS = place(confluent_kafka.Consumer, CConsumer, PacedConsumer, (OneByOne,))


if TYPE_CHECKING:

    class Consumer(PacedConsumer):
        """What mypy sees."""

else:

    @with_methods(_METHODS)
    class Consumer(*_BASES):
        """confluent_kafka's Consumer under a quota.

        While a quota applies, `poll()` and `consume()` hand messages over evenly, which makes librdkafka fetch evenly,
        those of batches worth seconds of the quota as soon as they have come, and never wait longer than the caller's
        own `timeout`. While none applies they go straight on.

        Args:
            config: confluent_kafka's configuration and, all optional, ours (see `kclient_quota.config.QUOTA_KEYS`).
            kwargs: further configuration, as confluent_kafka takes it.

        Raises:
            ConfigError: one of our keys is misspelt or cannot be used.
        """
