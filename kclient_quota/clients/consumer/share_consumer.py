"""`ShareConsumer`: a drop-in for confluent_kafka's that asks for records only when its quota lets them through.

confluent_kafka's is a preview of KIP-932. It asks for records while it is polled, and no longer than until some have
come. So whoever polls it only when the broker's window takes the next batch is never refused, and nothing is acquired
that is not delivered (`kclient_quota.pacing.fetching.share_fetch` says why that matters).
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast
from weakref import ReferenceType, finalize, ref

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka._model import Messages

from kclient_quota.clients.agents import CShareConsumer
from kclient_quota.clients.calls import (
    CallApart,
    NotMade,
    ends_ms,
    has_started,
    interruptible,
    log_in_as,
    merged,
    refused_callbacks,
    seconds,
)
from kclient_quota.clients.consumer import settings
from kclient_quota.clients.consumer.share_bytes import ShareBytes, come_again
from kclient_quota.clients.interceptor import ConsumerInterceptors, closing_unless_made, load
from kclient_quota.clients.librdkafka.keys import explained
from kclient_quota.clients.librdkafka.statistics_schedule import over, unless_old
from kclient_quota.clients.limits import (
    Limit,
    LimitFinder,
    LimitWatch,
    longest_throttle_ms,
    warn_of_default_client_id,
)
from kclient_quota.clients.partition_leaders import PartitionLeaders
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.shared_pace import SharedAccounts, pace_key, shared_accounts
from kclient_quota.clients.telemetry.methods import TelemetryMethods
from kclient_quota.clients.telemetry.reporter import ENABLE_KEY, new_telemetry
from kclient_quota.clients.throttle_log import ThrottleLog
from kclient_quota.clock import SYSTEM_CLOCK, sleep
from kclient_quota.config import Backoff, LimitSource, QuotaConfig, client_id_of, split, whole_number
from kclient_quota.metrics import SHARE_CONSUMER, ClientThrottleMetrics, MetricName
from kclient_quota.pacing.fetching.fetch_sizes import MOST_FETCH_BYTES, sizes_that_stay
from kclient_quota.pacing.fetching.share_fetch import ANY_BROKER, SharePacer, ShareState
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE

logger = logging.getLogger("kclient_quota")

SLICE_MS: Final = 500
"""How long librdkafka is polled at a time, so that what it says of throttles is heard."""
NAP_MS: Final = 100
"""How long is slept at a time: a limit may change meanwhile."""
ANSWER_MS: Final = 4_000
"""How long the constructor waits for a cluster that is slow to say which quota applies: sizes stay as they are then."""
CLOSE_S: Final = 5
"""How long `close` waits for librdkafka, which waits for a muted broker."""
_SIZE_KEYS: Final = ("fetch.max.bytes", "message.max.bytes")


class PacedShareConsumer(CShareConsumer, TelemetryMethods):
    """All of `ShareConsumer` but what a tracing agent puts in the place of confluent_kafka's class."""

    # What a subclass finds that has not called __init__: confluent_kafka says then that it is closed.
    _kq_paces = False
    _kq_asked: SharedAccounts | None = None  # those that know of a request under way
    _kq_closing: CallApart | None = None
    _kq_pace = cast("SharedAccounts", NotMade(confluent_kafka.IllegalStateException, "Share consumer closed"))
    _kq_throttle_metrics = cast("ClientThrottleMetrics", _kq_pace)
    _kq_untold: deque[Any] = deque()  # noqa: RUF012 - of one that was never made: always empty

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = merged(args, kwargs)
        conf, ours = split(given)
        finder = LimitFinder(ours, conf, byte_rate_key=CONSUMER_BYTE_RATE)
        self._kq_asks_with = finder.conf
        limit = settings.NO_LIMIT if ours.backoff is Backoff.OFF else finder.find(ANSWER_MS)
        warn_of_default_client_id(conf, limit)
        self._kq_client_id = client_id_of(conf)
        self._kq_limit = limit
        self._kq_paces = ours.backoff is not Backoff.OFF
        now_ms = SYSTEM_CLOCK.now_ms()
        self._kq_pace_of_user = partial(_pace_of, self._kq_asks_with, ours)
        self._kq_pace = self._kq_pace_of_user(limit)
        if self._kq_paces:
            self._kq_pace.follow(limit)
        self._kq_leaders = PartitionLeaders(self._kq_asks_with)
        self._kq_longest_throttle_ms = longest_throttle_ms(conf, limit)
        self._kq_interval_ms = settings.max_poll_interval_ms(conf)
        self._kq_polled_at_ms = now_ms
        self._kq_log = ThrottleLog(self._kq_client_id, "share fetches are spaced", ours.backoff)
        self._kq_throttle_metrics = ClientThrottleMetrics(SHARE_CONSUMER, self._kq_client_id)
        self._kq_interceptors = ConsumerInterceptors(load(ours.interceptors, given, ("on_consume",)))
        self._kq_events: deque[Any] = deque()
        self._kq_untold: deque[Any] = deque()  # which the application has yet to be told of
        self._kq_their_throttle_cb: Callable[[Any], Any] | None = conf.get("throttle_cb")
        self._kq_asked_at_ms = now_ms
        self._kq_said_too_large = 0
        # Threads that look after a consumer must not keep it alive.
        me = ref(self)
        self._kq_telemetry = telemetry = new_telemetry(SHARE_CONSUMER, conf, partial(_metrics_of, me))
        self._kq_on_statistics = None if telemetry is None else unless_old(telemetry.on_statistics, SYSTEM_CLOCK)
        statistics, self._kq_their_stats_cb = over(conf, SYSTEM_CLOCK, wanted=telemetry is not None)
        final = {
            **_sizes(conf, limit, learn=ours.limit_source is LimitSource.LEARNED),
            # a Ctrl-C in a callback of Python's own would cost the messages that have come
            **dict.fromkeys(("stats_cb", "throttle_cb"), self._kq_events.append),
            **refused_callbacks(conf),
            **statistics,
        }
        self._kq_bytes = ShareBytes(whole_number(final, ["fetch.max.bytes"], MOST_FETCH_BYTES))
        if telemetry is not None:
            final[ENABLE_KEY] = False
        try:
            with closing_unless_made(self._kq_interceptors):
                super().__init__(settings.without_an_empty_group(final))
        except KafkaException as error:
            raise explained(error) from None
        self._kq_start_telemetry()
        watch = LimitWatch(finder, partial(_tell_limit, me))
        self._kq_ask_soon = watch.ask_soon
        self._kq_stop_watch = finalize(self, watch.close)
        if self._kq_paces and finder.may_change:
            watch.start()

    def poll(self, timeout: float = -1) -> Messages:
        """As confluent_kafka's; empty when the quota lets nothing through within `timeout`."""
        timeout_s = seconds(timeout)
        if not isinstance(timeout_s, int | float):
            return super().poll(timeout)  # which says what is wrong
        end_ms = ends_ms(timeout_s, SYSTEM_CLOCK.now_ms())
        has_committed = False
        while True:
            self._kq_tell()  # while nothing is in hand that would be lost with what their callback raises
            now_ms = SYSTEM_CLOCK.now_ms()
            left_ms = SLICE_MS if end_ms is None else max(0, end_ms - now_ms)
            wait_ms = self._kq_wait_ms(now_ms)
            if wait_ms == 0:
                messages = self._kq_poll_for(min(left_ms, SLICE_MS))
                if len(messages) or (end_ms is not None and SYSTEM_CLOCK.now_ms() >= end_ms):
                    return messages
                continue
            if not has_committed:
                # it would have been with the next fetch, which may be ten seconds away
                has_committed = True
                super().commit_async()
                self._kq_hear()
            if left_ms == 0:
                return Messages()
            sleep(min(wait_ms, left_ms, NAP_MS) / 1000)

    def _kq_wait_ms(self, now_ms: int) -> int:
        """How long not to ask librdkafka for anything."""
        if not self._kq_paces or self._kq_limit.unlimited or now_ms - self._kq_polled_at_ms > self._kq_interval_ms // 2:
            return 0
        if self._kq_asked is not None:
            # what the request that is still under way brings was let through when it was sent
            return 0
        pace = self._kq_pace
        with pace.lock:
            wait_ms = pace.pacer.wait_ms(now_ms)
            too_large = pace.pacer.too_large
        if too_large and too_large != self._kq_said_too_large:
            self._kq_said_too_large = too_large
            logger.warning("Share consumer %r asks for nothing: %s", self._kq_client_id, self._kq_stall(too_large))
        return NAP_MS if wait_ms is None else wait_ms

    def _kq_poll_for(self, timeout_ms: int) -> Messages:
        asked = self._kq_asked
        if asked is None:
            asked = self._kq_pace
            with asked.lock:
                asked.pacer.asks()
            self._kq_asked, self._kq_asked_at_ms = asked, SYSTEM_CLOCK.now_ms()
        messages: Messages = interruptible(super().poll, timeout_ms / 1000)
        now_ms = self._kq_polled_at_ms = SYSTEM_CLOCK.now_ms()
        whole = [message for message in messages if message.error() is None]
        if whole:
            received: dict[int, int] = {}
            try:
                received = self._kq_by_broker(whole, now_ms)
            finally:  # whatever comes, a Ctrl-C too: others of this process wait for the answer
                self._kq_asked = None
                with asked.lock:
                    asked.pacer.answered(received, self._kq_asked_at_ms, now_ms, again=come_again(whole))
            for broker in received:
                self._kq_throttle_metrics.record(broker, responses=1, throttled=0, sum_ms=0, max_ms=0, now_ms=now_ms)
        self._kq_hear()
        if not (self._kq_interceptors and whole):
            return messages
        errors = [message for message in messages if message.error() is not None]
        return Messages(errors + self._kq_interceptors.on_consume(whole))

    def _kq_by_broker(self, messages: list[Any], now_ms: int) -> dict[int, int]:
        """Wire bytes of each broker, about."""
        received = self._kq_bytes.by_partition(messages)
        if not self._kq_paces or self._kq_limit.unlimited:
            return {ANY_BROKER: sum(received.values())}
        return self._kq_leaders.by_broker(received, now_ms)

    def _kq_hear(self) -> None:
        """Heed what librdkafka has said of throttles and of itself."""
        while self._kq_events:
            event = self._kq_events.popleft()
            theirs = self._kq_their_throttle_cb
            if isinstance(event, str):
                theirs = self._kq_their_stats_cb
                if self._kq_on_statistics is not None:
                    self._kq_on_statistics(event)
            elif (throttle_ms := round(event.throttle_time * 1000)) > 0:
                self._kq_on_throttle(event, throttle_ms, SYSTEM_CLOCK.now_ms())
            if theirs is not None:
                self._kq_untold.append(partial(theirs, event))
        self._kq_log.on_time(SYSTEM_CLOCK.now_ms())

    def _kq_tell(self) -> None:
        """Tell the application of it."""
        while self._kq_untold:
            self._kq_untold.popleft()()

    def _kq_on_throttle(self, event: Any, throttle_ms: int, now_ms: int) -> None:
        pace = self._kq_pace
        with pace.lock:
            pace.pacer.on_throttle(event.broker_id, min(throttle_ms, self._kq_longest_throttle_ms), now_ms)
        self._kq_leaders.doubt()
        self._kq_throttle_metrics.record(
            event.broker_id, responses=1, throttled=1, sum_ms=throttle_ms, max_ms=throttle_ms, now_ms=now_ms
        )
        self._kq_log.on_throttle(event.broker_name, throttle_ms, self._kq_limit, now_ms)
        if self._kq_log.asks(now_ms):
            self._kq_ask_soon()

    def _kq_on_limit(self, limit: Limit) -> None:
        """The cluster says something else; in the watch's own thread."""
        self._kq_limit = limit
        self._kq_pace.follow(limit)

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times by Kafka's names: `{MetricName(name, group, tags): float}`, in milliseconds."""
        return self._kq_throttle_metrics.collect(SYSTEM_CLOCK.now_ms())

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by broker id; `stall` says why nothing comes.

        Number -1 stands for brokers of which nothing was heard yet, or of which nobody says what they lead.
        """
        pace = self._kq_pace
        with pace.lock:
            states = pace.pacer.states(SYSTEM_CLOCK.now_ms())
        return {broker: self._kq_state(state) for broker, state in states.items()}

    def _kq_state(self, state: ShareState) -> BrokerQuotaState:
        return BrokerQuotaState(
            limit=self._kq_limit.byte_rate,
            source=self._kq_limit.source.value,
            rate=state.rate,
            throttled_until_ms=state.throttled_ms,
            admitted=state.received_bytes,
            outstanding=0,
            stall=self._kq_stall(state.too_large) if state.too_large else None,
        )

    def _kq_stall(self, nbytes: int) -> str:
        return (
            f"the next batch has about {nbytes:,} bytes more than its quota lets through at once (consumer_byte_rate "
            f"{self._kq_limit.byte_rate or 0:,.0f}): raise the quota, or let producers make smaller batches. Asking "
            "again would have the broker archive its records after five attempts"
        )

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka's; telemetry and questions about quotas follow."""
        super().set_sasl_credentials(username, password)
        is_another = log_in_as(self._kq_asks_with, username, password)
        if is_another:
            self._kq_pace = self._kq_pace_of_user(self._kq_limit)
        if is_another or not self._kq_limit.known:
            self._kq_ask_soon()
        self._kq_renew_telemetry(username, password)

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object, /) -> bool | None:
        PacedShareConsumer.close(self)  # confluent_kafka's leaves a `with` by its own
        return None

    def close(self) -> None:
        """As confluent_kafka's, but for five seconds at most.

        librdkafka waits for its last ShareFetch, which a broker that has muted the connection does not read, until
        `socket.timeout.ms` is over. It goes on with that in a thread of its own, where the acknowledgement callback is
        called for what was still to be acknowledged.

        Raises:
            IllegalStateException: called from the acknowledgement callback; nothing has changed.
        """
        if self._kq_closing is None:
            try:
                super().subscription()
            except confluent_kafka.IllegalStateException:
                super().close()  # refused here and now if a callback calls it; otherwise it was closed before
                return
            self._kq_stop_telemetry()
            self._kq_stop_watch()
            asked, self._kq_asked = self._kq_asked, None
            if asked is not None:
                with asked.lock:
                    asked.pacer.answered({}, self._kq_asked_at_ms, SYSTEM_CLOCK.now_ms())
            close_theirs = super().close

            def begin() -> None:
                self._kq_closing = CallApart(close_theirs)

            if not has_started(begin, "close a share consumer"):
                close_theirs()
        closing = self._kq_closing  # begun by now, or by a call that a Ctrl-C has ended
        if closing is not None and not closing.wait(CLOSE_S):
            logger.warning(
                "Share consumer %r is muted by its broker; librdkafka closes it within socket.timeout.ms",
                self._kq_client_id,
            )
        self._kq_interceptors.close()
        if closing is not None and closing.is_done:
            self._kq_closing = None
            closing.result()


def _pace_of(conf: Mapping[str, Any], ours: QuotaConfig, limit: Limit) -> SharedAccounts:
    """The accounts of all consumers in this process which a broker counts together, of this limit if they are new."""
    pacer = SharePacer(limit.byte_rate, samples=limit.samples, window_ms=limit.window_ms)
    return shared_accounts(pace_key(conf, ours, ours.consumer_byte_rate), pacer)


def _sizes(conf: Mapping[str, Any], limit: Limit, *, learn: bool) -> dict[str, Any]:
    """With fetches that bring one batch each, unless the user has set their size."""
    if (limit.byte_rate is None and not learn) or "fetch.max.bytes" in conf:
        return dict(conf)
    sizes = sizes_that_stay(limit.byte_rate).conf
    return {**conf, **{key: sizes[key] for key in _SIZE_KEYS}}


def _metrics_of(me: "ReferenceType[PacedShareConsumer]") -> dict[MetricName, float]:
    consumer = me()
    return {} if consumer is None else consumer.metrics()


def _tell_limit(me: "ReferenceType[PacedShareConsumer]", limit: Limit) -> None:
    consumer = me()
    if consumer is not None:
        consumer._kq_on_limit(limit)  # noqa: SLF001 - one of its own


class ShareConsumer(PacedShareConsumer, confluent_kafka.ShareConsumer):
    """confluent_kafka's ShareConsumer (KIP-932, a preview) under a quota.

    `poll()` waits, within the caller's own `timeout`, until the quota lets the next batch through; meanwhile what was
    handed over before is acknowledged. While no quota applies it goes straight on. Each broker has an account of its
    own: records are its who leads their partition.

    What confluent_kafka's preview makes impossible: it chooses by itself which broker is asked next, so that the
    window of each must take a batch before any is asked; it counts bytes after decompression only; it acquires a batch
    whole, so that one larger than the window is asked for once before it is known; and its `close()` waits for a muted
    broker until `socket.timeout.ms` is over, which is why ours waits in a thread.

    Args:
        config: confluent_kafka's configuration and, all optional, ours (see `kclient_quota.config.QUOTA_KEYS`).
        kwargs: further configuration, as confluent_kafka takes it.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """


# Not below an agent's ShareConsumer, which would see each call once more.
class DeserializingShareConsumer(confluent_kafka.DeserializingShareConsumer, PacedShareConsumer):
    """confluent_kafka's DeserializingShareConsumer under a quota.

    Args:
        conf: confluent_kafka's configuration with `key.deserializer`, `value.deserializer` and, all optional, our keys.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """
