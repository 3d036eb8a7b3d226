"""What a consumer's configuration becomes before librdkafka sees it: our callbacks first, offsets in our hands."""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka

from kclient_quota.clients.consumer_gate import ConsumerGate
from kclient_quota.clients.heartbeat import DEFAULT_MAX_POLL_INTERVAL_MS
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.interrupts import interruptible
from kclient_quota.clients.librdkafka.statistics_schedule import schedule
from kclient_quota.clients.limits import Limit, LimitFinder, LimitWatch
from kclient_quota.clients.native_throttling import NativeThrottling
from kclient_quota.clients.poll_idle import PollIdle
from kclient_quota.clients.telemetry import ENABLE_KEY, ClientTelemetry
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.config import LimitSource, QuotaConfig, whole_number
from kclient_quota.metrics import CONSUMER, MetricName
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE

STATISTICS_MS: Final = 250
"""How often librdkafka tells while a limit is known or may be learnt."""
CALM_STATISTICS_MS: Final = 1_000
"""How often it tells while nothing limits."""
STORE_KEY: Final = "enable.auto.offset.store"
NO_LIMIT: Final = Limit(None, None, LimitSource.CONFIG)
"""What applies to a client that is not to be paced: by its own word, nothing."""


def stores_offsets(conf: Mapping[str, Any]) -> bool:
    """Whether the user leaves storing offsets to the client, which is the default."""
    return str(conf.get(STORE_KEY, True)).lower() in {"true", "1", "t"}


def max_poll_interval_ms(conf: Mapping[str, Any]) -> int:
    """Kafka's `max.poll.interval.ms`; the default where it is none, which is for librdkafka to refuse."""
    return whole_number(conf, ["max.poll.interval.ms"], DEFAULT_MAX_POLL_INTERVAL_MS)


def with_callbacks(
    conf: Mapping[str, Any],
    gate: ConsumerGate,
    *,
    limit: Limit,
    after_statistics: Callable[[], None],
    interceptors: ConsumerInterceptors,
    telemetry: ClientTelemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """`conf` with our callbacks, each calling the user's own afterwards.

    Args:
        conf: the user's, without our keys.
        gate: what hears of statistics and throttles.
        limit: decides how often statistics are wanted.
        after_statistics: called after the gate, before the user.
        interceptors: hear of commits.
        telemetry: hears of statistics, too; librdkafka's own is switched off for it.
        clock: decides when the user's own statistics are due.
    """
    out = dict(conf)
    ours_ms = CALM_STATISTICS_MS if limit.unlimited else STATISTICS_MS
    out["statistics.interval.ms"], tell_user = schedule(conf, ours_ms, clock)

    native = NativeThrottling(confluent_kafka.libversion()[1], gate.stand_back)

    def on_statistics(text: str) -> None:
        gate.on_statistics(text)
        native.on_statistics(text, gate.clock.now_ms())
        after_statistics()
        if telemetry is not None:
            telemetry.on_statistics(text)

    out["stats_cb"] = interruptible(on_statistics, _within(gate, tell_user))
    out["throttle_cb"] = interruptible(partial(_on_throttle, gate, native), _within(gate, conf.get("throttle_cb")))
    if telemetry is not None:
        out[ENABLE_KEY] = False
    if interceptors or callable(conf.get("on_commit")):
        out["on_commit"] = _commit_callback(gate, interceptors, conf.get("on_commit"))
    if callable(conf.get("error_cb")):
        out["error_cb"] = interruptible(theirs=_within(gate, conf["error_cb"]))
    if stores_offsets(conf):
        out[STORE_KEY] = False
    return out


def _within(gate: ConsumerGate, theirs: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A callback of the user's, during which the gate takes nothing."""
    return None if theirs is None else partial(gate.call_back, theirs)


def _on_throttle(gate: ConsumerGate, native: NativeThrottling, event: Any) -> None:
    throttle_ms = round(event.throttle_time * 1000)
    gate.on_throttle(event.broker_name, event.broker_id, throttle_ms)
    native.on_throttle(event.broker_id, throttle_ms, gate.clock.now_ms())


def _commit_callback(
    gate: ConsumerGate, interceptors: ConsumerInterceptors, theirs: Callable[[Any, Any], Any] | None
) -> Callable[[Any, Any], None]:
    def on_commit(error: Any, offsets: Any) -> None:
        if error is None:
            interceptors.on_commit(offsets)
        if theirs is not None:
            gate.call_back(theirs, error, offsets)

    return on_commit


def metrics(gate: ConsumerGate, idle: PollIdle, waited: WaitTime, client_id: str) -> dict[MetricName, float]:
    """All that a consumer counts by itself; does not keep the consumer alive."""
    polling = idle.metrics(client_id, gate.clock.now_ms())
    return {**gate.metrics(), **polling, **waited.metrics(CONSUMER, client_id)}


def watch(finder: LimitFinder, gate: ConsumerGate) -> LimitWatch:
    """A watch that tells the gate, and does not keep it alive."""
    listener = weakref.ref(gate)

    def on_limit(limit: Limit) -> None:
        gate = listener()
        if gate is not None:
            gate.on_limit(limit)

    return LimitWatch(finder, on_limit)


def limit_finder(ours: QuotaConfig, conf: Mapping[str, Any]) -> LimitFinder:
    """Where a consumer's limit comes from."""
    return LimitFinder(ours, conf, byte_rate_key=CONSUMER_BYTE_RATE)
