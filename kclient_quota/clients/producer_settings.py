"""What a producer's configuration becomes before librdkafka sees it: safe defaults and our callbacks."""

import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

import confluent_kafka

from kclient_quota.clients import interrupts
from kclient_quota.clients.admission import RECORD_BYTES
from kclient_quota.clients.aside import CallbackGuard
from kclient_quota.clients.gate import ProducerGates
from kclient_quota.clients.interrupts import interruptible
from kclient_quota.clients.librdkafka.statistics_schedule import schedule
from kclient_quota.clients.limits import Limit, LimitFinder, LimitWatch
from kclient_quota.clients.native_throttling import NativeThrottling
from kclient_quota.clients.telemetry import ENABLE_KEY, ClientTelemetry
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.config import QuotaConfig
from kclient_quota.metrics import PRODUCER, MetricName
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE

STATISTICS_MS: Final = 1_000
CALM_STATISTICS_MS: Final = 5_000
"""How often librdkafka tells while nothing limits: often enough for the averages."""
LINGER_MS: Final = 10
LEAST_BATCH_BYTES: Final = 16_384
MOST_BATCH_BYTES: Final = 1_000_000
BATCH_MS: Final = 500
"""How much of the limit one batch may take."""

_ACKS = ("acks", "request.required.acks")
_IN_FLIGHT = ("max.in.flight", "max.in.flight.requests.per.connection")
_RETRIES = ("retries", "message.send.max.retries")
_LINGER = ("linger.ms", "queue.buffering.max.ms")
_MOST_IN_FLIGHT = 5


def is_true(value: Any) -> bool:
    """Whether librdkafka takes this for true."""
    return str(value).lower() in {"true", "1", "t"}


def with_defaults(conf: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    """`conf` with safe defaults where the user has set nothing and their other settings allow it.

    Idempotence keeps retries from becoming duplicates; its cost in CPU time is won back by a little linger. A batch
    takes no more than half a second of the limit.
    """
    out = dict(conf)
    everything = {**conf, **(conf.get("default.topic.config") or {})}
    if allows_idempotence(everything):
        out["enable.idempotence"] = True
    if not any(key in everything for key in _LINGER):
        out["linger.ms"] = LINGER_MS
    if limit.byte_rate is not None and "batch.size" not in conf:
        out["batch.size"] = int(min(max(limit.byte_rate * BATCH_MS / 1000, LEAST_BATCH_BYTES), MOST_BATCH_BYTES))
    return out


def linger_ms(conf: Mapping[str, Any]) -> int:
    """For how long librdkafka may hold a message back."""
    return int(_number(_first(conf, _LINGER, LINGER_MS)))


def allows_idempotence(conf: Mapping[str, Any]) -> bool:
    """Whether the user left idempotence open and nothing they set contradicts it."""
    if "enable.idempotence" in conf:
        return False
    acks = _first(conf, _ACKS, "all")
    in_flight = _first(conf, _IN_FLIGHT, _MOST_IN_FLIGHT)
    retries = _first(conf, _RETRIES, 1)
    fifo = str(conf.get("queuing.strategy", "fifo")).lower() == "fifo"
    return acks in {"all", "-1"} and _number(in_flight) <= _MOST_IN_FLIGHT and _number(retries) > 0 and fifo


def _first(conf: Mapping[str, Any], keys: tuple[str, ...], default: object) -> str:
    return str(next((conf[key] for key in keys if key in conf), default)).lower()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # for librdkafka to refuse
        return 0.0


def with_callbacks(
    conf: Mapping[str, Any],
    gates: ProducerGates,
    guard: CallbackGuard,
    limit: Limit,
    telemetry: ClientTelemetry | None = None,
) -> dict[str, Any]:
    """`conf` with our callbacks, each calling the user's own afterwards.

    Args:
        conf: the user's, without our keys.
        gates: what hears of statistics and throttles.
        guard: hears where callbacks are served.
        limit: decides how often statistics are wanted.
        telemetry: hears of statistics, too; librdkafka's own is switched off for it.
    """
    out = dict(conf)
    ours_ms = CALM_STATISTICS_MS if limit.unlimited else STATISTICS_MS
    out["statistics.interval.ms"], tell_user = schedule(conf, ours_ms, gates.clock)
    throttle_cb = conf.get("throttle_cb")
    native = NativeThrottling(confluent_kafka.libversion()[1], gates.stand_back)

    def on_statistics(text: str) -> None:
        guard.called_from(_poller(sys._getframe(1)))  # noqa: SLF001 - the poll's caller; there is no public name
        gates.on_statistics(text)
        native.on_statistics(text, gates.clock.now_ms())
        if telemetry is not None:
            telemetry.on_statistics(text)

    def on_throttle(event: Any) -> None:
        guard.called_from(_poller(sys._getframe(1)))  # noqa: SLF001 - as above
        throttle_ms = round(event.throttle_time * 1000)
        gates.on_throttle(event.broker_name, event.broker_id, throttle_ms)
        native.on_throttle(event.broker_id, throttle_ms, gates.clock.now_ms())

    out["stats_cb"] = interruptible(on_statistics, tell_user)
    out["throttle_cb"] = interruptible(on_throttle, throttle_cb)
    if callable(conf.get("error_cb")):
        out["error_cb"] = interruptible(theirs=conf["error_cb"])
    if telemetry is not None:
        out[ENABLE_KEY] = False
    return out


def _poller(frame: FrameType) -> FrameType:
    """The frame that polls, of the one that called a callback: the callback's own wrappers stand between them."""
    found: FrameType | None = frame
    while found is not None and found.f_code.co_filename == interrupts.__file__:
        found = found.f_back
    return found or frame


def keep_alive(heartbeat: Any) -> Callable[[], None] | None:
    """What keeps a consumer in its group without taking a message; does nothing once that is closed."""
    if heartbeat is None:
        return None
    ours = getattr(heartbeat, "keep_alive", None)
    beat = ours if callable(ours) else partial(heartbeat.consume, 0, 0)

    def keep() -> None:
        with suppress(RuntimeError):  # confluent_kafka's word for a consumer that is closed
            beat()

    return keep


def limit_finder(ours: QuotaConfig, conf: Mapping[str, Any]) -> LimitFinder:
    """Where a producer's limit comes from."""
    return LimitFinder(ours, conf, byte_rate_key=PRODUCER_BYTE_RATE)


def metrics(gates: ProducerGates, waited: WaitTime, client_id: str) -> dict[MetricName, float]:
    """All that a producer counts by itself; does not keep the producer alive."""
    return {**gates.metrics(), **waited.metrics(PRODUCER, client_id)}


def watch(finder: LimitFinder, gates: ProducerGates) -> LimitWatch:
    """A watch that tells the gates, and does not keep them alive."""
    listener = weakref.ref(gates)

    def on_limit(limit: Limit) -> None:
        gates = listener()
        if gates is not None:
            gates.on_limit(limit)

    return LimitWatch(finder, on_limit)


def is_batch(messages: object) -> bool:
    """Whether confluent_kafka would take these for a batch; otherwise it says what is wrong with them."""
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and isinstance(message.get("value"), (str, bytes, type(None)))
        and isinstance(message.get("key"), (str, bytes, type(None)))
        and isinstance(message.get("partition"), (int, type(None)))
        and message.get("timestamp") is None
        for message in messages
    )


def cost(message: Mapping[str, Any]) -> int:
    """Bytes of one message of a batch, as a gate counts them."""
    return RECORD_BYTES + len(message.get("value") or b"") + len(message.get("key") or b"")
