"""What a producer hears from librdkafka and of its limit: metrics, the log, and what its sender must know.

Events come in whichever thread serves librdkafka. The core belongs to the sender: it is told through the outbox.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import Any, Final

from confluent_kafka import KafkaError
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.calls import briefly, inside
from kclient_quota.clients.librdkafka.statistics import BrokerDelta, StatisticsReader, decoded
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.outbox import RECORD_BYTES, Outbox
from kclient_quota.clients.producer.sender.queue_metrics import QueueMetrics
from kclient_quota.clients.throttle_log import ThrottleLog, words
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.clock import Clock
from kclient_quota.config import Backoff
from kclient_quota.metrics import PRODUCER, ClientThrottleMetrics, MetricName
from kclient_quota.pacing.sending.lanes import Lane

logger = logging.getLogger("kclient_quota")

SPINS_FROM: Final = 100_000
"""So many looks of librdkafka's at what there is to do for one broker, between two events, and `SPINS_A_REQUEST` for
each request: less than a tenth of a processor. Where it does not spin it looks three times for each request, or ten."""
SPINS_A_REQUEST: Final = 1_000
FARTHEST_MS: Final = 1_000
"""An answer that takes longer is late for another reason than distance."""

Told = Callable[[ProducerCore, int], object]


class Hearing:
    """Of one producer, which it does not keep alive.

    Args:
        outbox: the producer's.
        client_id: for metrics and the log.
        limit: what was found before the producer was made.
        backoff: whether anything is done about throttles.
        clock: monotonic milliseconds.
        lanes: of its queue.

    Attributes:
        may_spin: `enable.idempotence`, and nobody was told yet what that takes here.
        only_id: the id of the broker that was heard of last; -1 before.
        waited: how long calls have waited for the quota.
        ask_soon: has the limit asked for again.
        is_followed: whether all that share the pace follow a limit, whoever of them has heard another one since.
        queue: what the queue has done.
    """

    def __init__(
        self,
        outbox: Outbox,
        client_id: str,
        limit: Limit,
        backoff: Backoff,
        clock: Clock,
        lanes: Sequence[Lane] = (Lane(),),
    ) -> None:
        self._outbox = outbox
        self._client_id = client_id
        self._limit = limit
        self._backoff = backoff
        self._clock = clock
        self._lock = reentrant_lock()
        self._unheard: deque[tuple[int, Told]] = deque()  # what was sent while there was no sender, and when
        self._reader = StatisticsReader()
        self._metrics = ClientThrottleMetrics(PRODUCER, client_id)
        self._log = ThrottleLog(client_id, "produce() backs off", backoff)
        self.may_spin = False
        self._spun: set[int] = set()
        self.only_id = -1
        self.waited = WaitTime()
        self.ask_soon: Callable[..., None] | None = None
        self.is_followed: Callable[[Limit], bool] | None = None
        self.queue = QueueMetrics(client_id, [lane.name for lane in lanes])
        if limit.known and not limit.unlimited and backoff is not Backoff.OFF:
            self._say("The producer quota of client %r is %s", limit)

    def on_statistics(self, text: str) -> None:
        """One statistics event."""
        now_ms = self._clock.now_ms()
        with briefly(self._lock):
            statistics = decoded(text)
            deltas = self._reader.differences(statistics)
            messages, message_bytes = self._reader.messages(statistics)
            for delta in deltas:
                delta.record(self._metrics, now_ms)
        inside(self._outbox.calling, self._log.on_time, now_ms)
        if self.may_spin:
            inside(self._outbox.calling, self._say_where_it_spins, deltas)
        if deltas and self._outbox.is_running:
            self.only_id = deltas[-1].node_id
            self._tell(partial(_sent, deltas, message_bytes + RECORD_BYTES * messages))
        elif deltas:
            self._keep(deltas, now_ms)
        if not self._limit.known:
            self._ask(now_ms, anew=False)

    def on_throttle(self, event: Any) -> None:
        """One throttle event."""
        throttle_ms = round(event.throttle_time * 1000)
        if throttle_ms <= 0:
            return
        broker_id = self._reader.throttling(event.broker_id, event.broker_name)
        at_ms = self._clock.now_ms()
        # within librdkafka's call; and a logging handler may send what it is given to Kafka, by this very producer
        inside(self._outbox.calling, self._log.on_throttle, event.broker_name, throttle_ms, self._limit, at_ms)
        self._ask(at_ms)
        # Against one of requests alone large batches help, which librdkafka makes of what piles up meanwhile.
        steps_in = not (self._limit.frees_bytes and self._limit.is_of_requests(throttle_ms))
        self._tell(lambda core, _now_ms: core.on_throttle(broker_id, throttle_ms, at_ms), steps_in=steps_in)

    def on_error(self, error: KafkaError) -> None:
        """One error event; of all connections being lost whoever sends must know."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._outbox.is_running:  # noqa: SLF001 - confluent_kafka's name
            self._tell(lambda core, _now_ms: core.brokers.lose())

    def on_limit(self, limit: Limit) -> None:
        """The limit was asked for again; from any thread."""
        before, self._limit = self._limit, limit
        if before != limit or (self.is_followed is not None and not self.is_followed(limit)):
            self._tell(lambda core, now_ms: core.set_limit(limit, now_ms), steps_in=not limit.frees_bytes)
        if before.byte_rate != limit.byte_rate or before.known != limit.known:  # whoever hears of it may take his time
            self._say("The producer quota of client %r is now %s", limit)

    def metrics(self) -> dict[MetricName, float]:
        """Throttle and waiting times by Kafka's names."""
        now_ms = self._clock.now_ms()
        with briefly(self._lock):
            waited = self.waited.metrics(PRODUCER, self._client_id, now_ms)
            return {**self._metrics.collect(now_ms), **waited, **self.queue.collect(now_ms)}

    def _keep(self, deltas: Sequence[BrokerDelta], now_ms: int) -> None:
        """Keep what callers have had librdkafka send, for a window: the first throttle after it counts that, too.

        Without it a limit that must be learnt from that throttle would be taken for next to nothing.
        """
        with briefly(self._lock):
            self._unheard.append((now_ms, partial(_sent, deltas, 0, at_ms=now_ms)))
            kept_ms = (self._limit.samples + 1) * self._limit.window_ms
            while now_ms - self._unheard[0][0] > kept_ms:
                self._unheard.popleft()

    def _tell(self, told: Told, *, steps_in: bool = False) -> None:
        """Tell the core, by way of the sender; `steps_in`: it limits, so there must be one."""
        outbox = self._outbox
        with briefly(self._lock):
            while self._unheard:
                outbox.notices.append(self._unheard.popleft()[1])
        outbox.notices.append(told)
        if not steps_in or self._backoff is Backoff.OFF:
            return
        if outbox.is_open or outbox.is_spare:
            outbox.is_mixed = True
            outbox.is_open = outbox.is_spare = False
            # Whatever serves this event is inside librdkafka, where it must not wait.
            outbox.calling[threading.get_ident()] = True
        # What was free before may not be any more: who comes until the sender has looked asks it.
        outbox.free_bytes = dict.fromkeys(outbox.free_bytes, 0)
        outbox.wake()

    def _ask(self, now_ms: int, *, anew: bool = True) -> None:
        """Have the limit asked for again, now and then; `anew`: what is being asked for just now is not enough."""
        if self.ask_soon is not None and self._log.asks(now_ms):
            self.ask_soon(anew=anew)

    def _say_where_it_spins(self, deltas: Sequence[BrokerDelta]) -> None:
        """Say once that distance costs a processor.

        While an idempotent producer's request for a partition is on its way and more than that lingers long enough
        behind it, librdkafka looks all the time whether it may send that, and may not
        (`rd_kafka_toppar_producer_serve` takes messages on their way for requests). It does so as well behind an answer
        that a throttle keeps back, or a broker that stands still: of these `linger.ms` ends nothing. One that has just
        come to a stand has answered in the same event; in the next one it has not.
        """
        before, self._spun = self._spun, set()
        for delta in deltas:
            is_far = not delta.throttled and 1 <= delta.round_trip_ms <= FARTHEST_MS
            if is_far and delta.wakeups >= max(SPINS_FROM, SPINS_A_REQUEST * delta.requests):
                self._spun.add(delta.node_id)
                if delta.node_id not in before:
                    continue
                self.may_spin = False
                logger.warning(
                    "Client %r: broker %d is %.0f ms away, and with enable.idempotence=true librdkafka spends up to a "
                    "processor on waiting for its answers: linger.ms=%d ends that, or enable.idempotence=false where "
                    "duplicates after a lost connection do not matter",
                    self._client_id,
                    delta.node_id,
                    delta.round_trip_ms,
                    ceil(1.1 * delta.round_trip_ms),
                )
                return

    def _say(self, text: str, limit: Limit) -> None:
        extra = {"client_id": self._client_id, "byte_rate": limit.byte_rate, "quota_source": str(limit.source)}
        logger.info(text, self._client_id, words(limit), extra=extra)


def _sent(
    deltas: Sequence[BrokerDelta], raw_bytes: int, core: ProducerCore, now_ms: int, *, at_ms: int | None = None
) -> None:
    """Librdkafka has sent so much; at `at_ms`, where there was no sender and callers have had it do so."""
    core.brokers.count(len({delta.node_id for delta in deltas}), now_ms)
    for delta in deltas:
        if delta.has_produced and delta.requests:
            core.brokers.meet(delta.node_id)
    # A broker does not count the four bytes of a request's length.
    counted = [(delta.node_id, delta.request_bytes - 4 * delta.requests) for delta in deltas]
    core.on_wire(counted, now_ms if at_ms is None else at_ms, raw_bytes, is_own=at_ms is None)
