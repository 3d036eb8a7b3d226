"""A consumer's gate: owns the clock, the metrics and the words in the log; decides through `fetch_pacing`."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Message

from kclient_quota.clients.heartbeat import Heartbeat
from kclient_quota.clients.librdkafka.statistics import StatisticsReader
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.request_quota import JoinWatch, is_request_throttle
from kclient_quota.clients.stall import StallWatch
from kclient_quota.clients.throttle_log import ThrottleLog, words
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.config import Backoff
from kclient_quota.metrics import CONSUMER, ClientThrottleMetrics, MetricName
from kclient_quota.pacing.fetch import ONLY, RECORD_BYTES, FetchPacer
from kclient_quota.pacing.fetch_broker import BrokerPace
from kclient_quota.pacing.fetch_sizes import FetchSizes
from kclient_quota.pacing.fetch_statistics import fetch_statistics

logger = logging.getLogger("kclient_quota")

COORDINATOR: Final = "GroupCoordinator"
"""The name of the connection to the group coordinator, which heartbeats go over."""
MOST_LATENESS_MS: Final = 600_000
"""An event that seems to have waited longer than this tells that the clock has jumped."""
CROWD_WINDOWS: Final = 2
"""Who learns is refused for so many samples of the window, again and again, by a crowd; by a batch that cannot come for
longer."""
REQUEST_THROTTLE_MS: Final = 1_000
"""A request quota never throttles for longer than one window."""


class ConsumerGate:
    """Everything of one consumer that is not librdkafka's and not about offsets. Belongs to the polling thread.

    Args:
        backoff: whether to pace at all.
        client_id: for metrics and the log.
        limit: what was found before the consumer was made.
        sizes: how it fetches.
        max_poll_interval_ms: Kafka's setting of this name.
        clock: monotonic milliseconds.

    Attributes:
        left: bytes granted and not yet taken, as `fetch_pacing` counts them; infinite without a pace.
        in_callback: whether a callback of the application's runs, in which nothing may be taken out of the queue.
    """

    def __init__(
        self,
        backoff: Backoff,
        client_id: str,
        limit: Limit,
        sizes: FetchSizes,
        max_poll_interval_ms: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        now_ms = clock.now_ms()
        self.clock = clock
        self.limit = limit
        self.left = 0.0
        self.in_callback = False
        self.on_stance: Callable[[], None] | None = None
        self.ask_soon: Callable[[], None] | None = None
        self.heartbeat = Heartbeat(max_poll_interval_ms, now_ms)
        self._backoff = backoff
        self._client_id = client_id
        self._pacer = FetchPacer(limit.byte_rate, sizes, now_ms, samples=limit.samples, window_ms=limit.window_ms)
        self._reader = StatisticsReader()
        self._metrics = ClientThrottleMetrics(CONSUMER, client_id)
        self._stalls: dict[int, StallWatch] = {}
        self._joining = JoinWatch(client_id)
        self._only: int | None = ONLY
        self._granted = 0.0
        self._taken: dict[int, int] = {}
        self._responses: dict[int, int] = {}
        self._received_bytes = 0
        self._received_messages = 0
        self._new_limit: Limit | None = None
        self._ts_offset_ms: int | None = None
        self._log = ThrottleLog(client_id, "fetches are spaced", backoff)
        self._said_misfit = False
        self._stands_back = False

    # Taking -------------------------------------------------------------------------------------------------------

    @property
    def paced(self) -> bool:
        """Whether messages must wait: a limit is known or learnt, and the client's sizes let spacing follow it."""
        return self._backoff is not Backoff.OFF and self._pacer.paced and self._pacer.fits and not self._stands_back

    def stand_back(self, back: bool) -> None:
        """Leave waiting out throttles to librdkafka, or no longer."""
        self._stands_back = back
        self.left = 0.0
        self.review()

    def ask(self) -> int:
        """0 when something may be taken now, else how many milliseconds to wait."""
        return self._refill() if self.left <= 0.0 or self._pacer.big_batches else 0

    @property
    def lends(self) -> bool:
        """Whether a caller may use up `left` by itself, subtracting what it takes, without `charge`."""
        return self._only is not None and not self._pacer.big_batches

    def _refill(self) -> int:
        now_ms = self.clock.now_ms()
        self._apply_limit()
        taken = self._settle()
        if not self.paced:
            self.left = self._granted = float("inf")
            return 0
        granted, wait_ms = self._pacer.grant(now_ms, taken)
        self.left = self._granted = granted
        return wait_ms

    def most_messages(self, count: int) -> int:
        """How many of `count` messages to take at once."""
        if self.left == float("inf"):
            return count
        return min(count, max(1, int(self.left / self._pacer.message_bytes)))

    def charge(self, messages: list[Message]) -> None:
        """These were taken out of librdkafka's queue."""
        nbytes = sum(map(len, messages)) + RECORD_BYTES * len(messages)
        self.left -= nbytes
        self._pacer.on_messages(nbytes, len(messages))
        if self._only is not None:
            return
        leaders = self._pacer.leaders
        for message in messages:
            node = leaders.get((message.topic() or "", _number(message.partition())))
            if node is not None:
                self._taken[node] = self._taken.get(node, 0) + len(message) + RECORD_BYTES

    def _settle(self) -> Mapping[int, int]:
        """What was taken since the last grant, by broker."""
        if self._only is not None:
            taken = {self._only: max(0, int(self._granted - self.left))} if self._granted < float("inf") else {}
        else:
            taken, self._taken = self._taken, {}
        self._received_bytes += sum(taken.values())
        self._granted = self.left
        return taken

    # What librdkafka and the cluster say --------------------------------------------------------------------------

    def on_statistics(self, text: str) -> None:
        """One statistics event."""
        now_ms = self.clock.now_ms()
        self.heartbeat.on_poll(now_ms)
        statistics = json.loads(text)
        for delta in self._reader.differences(statistics):
            if delta.name != COORDINATOR:
                answered = self._responses.get(delta.node_id, 0)
                self._responses[delta.node_id] = answered + delta.responses - delta.throttled
            self._metrics.record(
                delta.node_id,
                responses=delta.responses,
                throttled=delta.throttled,
                sum_ms=delta.throttled_sum_ms,
                max_ms=delta.throttled_max_ms,
                now_ms=now_ms,
            )
        self._apply_limit()
        self._pacer.on_statistics(fetch_statistics(statistics, self._responses, self._made_at_ms(statistics, now_ms)))
        nodes = self._pacer.paces.keys()
        self._only = next(iter(nodes)) if len(nodes) == 1 else None
        self._note_messages(int(statistics.get("rxmsgs", 0)))
        self._note_stalls(now_ms)
        self._joining.check(self.limit, now_ms, fetches=bool(self._pacer.leaders))
        self._log.on_time(now_ms)
        self.review()

    def on_throttle(self, broker_name: str, broker_id: int, throttle_ms: int) -> None:
        """One throttle event; broker -1 is a coordinator or not identified yet, and goes by its address."""
        if throttle_ms <= 0:
            return
        now_ms = self.clock.now_ms()
        if broker_id < 0:
            broker_id = _known(self._reader.node_id(broker_name.rpartition("/")[0] or broker_name), broker_id)
        if is_request_throttle(throttle_ms, self.limit, fetches=bool(self._pacer.leaders)):
            self._joining.on_throttle(throttle_ms, now_ms)
            self._mute(broker_id, now_ms + throttle_ms)
        else:
            self._watch_stall(broker_id, throttle_ms, now_ms)
            self._pacer.on_throttle(broker_id, throttle_ms, now_ms)
        self._log.on_throttle(broker_name, throttle_ms, self.limit, now_ms)
        if self.ask_soon is not None and self._log.asks(now_ms):
            self.ask_soon()
        self._warn_misfit()
        self.review()

    def on_limit(self, limit: Limit) -> None:
        """The limit was asked for again; called from any thread."""
        self._new_limit = limit
        if limit.byte_rate != self.limit.byte_rate:
            self.left = 0.0
        self.review()

    def call_back(self, call: Callable[..., Any], *args: Any) -> None:
        """Call the application, which is inside a poll now."""
        self.in_callback = True
        try:
            call(*args)
        finally:
            self.in_callback = False

    def review(self) -> None:
        """Step in or aside, as things stand."""
        if self.left == float("inf") and self.paced:
            # What was granted while nothing was to be paced.
            self.left = 0.0
        if self.on_stance is not None:
            self.on_stance()

    def _apply_limit(self) -> None:
        limit, self._new_limit = self._new_limit, None
        if limit is None:
            return
        before, self.limit = self.limit, limit
        if before.byte_rate != limit.byte_rate:
            self._pacer.set_limit(limit.byte_rate)
            logger.info("The consumer quota of client %r is now %s", self._client_id, words(limit))
        self._warn_misfit()

    def _made_at_ms(self, statistics: Mapping[str, Any], now_ms: int) -> int:
        """When an event was made, by our clock: the shortest way that one has taken is taken for no time at all."""
        made_ms = int(statistics.get("ts", 0)) // 1000
        offset_ms = now_ms - made_ms
        before_ms = self._ts_offset_ms
        if before_ms is None or not before_ms <= offset_ms <= before_ms + MOST_LATENESS_MS:
            self._ts_offset_ms = offset_ms
            return now_ms
        return made_ms + before_ms

    # What users are told ------------------------------------------------------------------------------------------

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times and polling by Kafka's names."""
        now_ms = self.clock.now_ms()
        found = self._metrics.collect(now_ms)
        tags = (("client-id", self._client_id),)
        beat = self.heartbeat
        found[MetricName("last-poll-seconds-ago", "consumer-metrics", tags)] = beat.unpolled_ms(now_ms) / 1000
        found[MetricName("poll-headroom-ms", "consumer-metrics", tags)] = float(beat.headroom_ms(now_ms))
        stalled = sum(1 for watch in self._stalls.values() if watch.stall is not None)
        found[MetricName("fetch-stalled-brokers", "consumer-fetch-manager-metrics", tags)] = float(stalled)
        return found

    def state(self) -> dict[int, BrokerQuotaState]:
        """What is known about each broker, by its id; -1 as long as none is known."""
        now_ms = self.clock.now_ms()
        return {node: self._state(node, pace, now_ms) for node, pace in self._pacer.paces.items()}

    def _state(self, node: int, pace: BrokerPace, now_ms: int) -> BrokerQuotaState:
        watch = self._stalls.get(node)
        stall = None if watch is None or watch.stall is None else watch.stall.words(self.limit.byte_rate)
        return BrokerQuotaState(
            limit=self.limit.byte_rate,
            source=str(self.limit.source),
            rate=pace.rate,
            throttled_until_ms=max(0, pace.throttled_until_ms - now_ms),
            admitted=pace.received_bytes or 0,
            outstanding=self._pacer.queued_bytes,
            stall=stall,
        )

    def _mute(self, node: int, until_ms: int) -> None:
        """The broker answers nothing until then, which says nothing of how many bytes may be fetched."""
        pace = self._pacer.paces.get(node) or self._pacer.paces.get(ONLY)
        if pace is not None:
            pace.throttled_until_ms = max(pace.throttled_until_ms, until_ms)

    def _watch_stall(self, node: int, throttle_ms: int, now_ms: int) -> None:
        pace = self._pacer.paces.get(node) or self._pacer.paces.get(ONLY)
        if pace is None or (self.limit.request_percentage is not None and throttle_ms <= REQUEST_THROTTLE_MS):
            return
        if self.limit.byte_rate is None and throttle_ms <= CROWD_WINDOWS * self.limit.window_ms:
            return
        window = pace.window
        self._stalls.setdefault(node, StallWatch()).on_throttle(
            throttle_ms,
            limit=self.limit.byte_rate,
            own_bytes=window.received_total(now_ms),
            window_ms=window.size_ms(now_ms),
            least_window_ms=window.least_window_ms,
            now_ms=now_ms,
        )
        self._note_stalls(now_ms)

    def _note_stalls(self, now_ms: int) -> None:
        for node, watch in self._stalls.items():
            stall = watch.check(now_ms)
            if stall is not None:
                logger.warning("Client %r, broker %d: %s", self._client_id, node, stall.words(self.limit.byte_rate))

    def _note_messages(self, total: int) -> None:
        if total <= self._received_messages:
            return
        self._received_messages = total
        for node, watch in self._stalls.items():
            if watch.on_messages():
                logger.warning("Client %r, broker %d: messages come again", self._client_id, node)

    def _warn_misfit(self) -> None:
        if self._backoff is Backoff.OFF or self._pacer.fits or self._said_misfit or self.limit.unlimited:
            # A throttle that contradicts what is known is being asked about.
            return
        self._said_misfit = True
        logger.warning(
            "Client %r queues or fetches in sizes that its quota (%s) cannot be followed with, and librdkafka's sizes "
            "are fixed when a client is made: leave queued.max.messages.kbytes and fetch.* out, or make it anew",
            self._client_id,
            words(self.limit),
        )


def _number(partition: int | None) -> int:
    return -1 if partition is None else partition


def _known(found: int | None, default: int) -> int:
    return default if found is None else found
