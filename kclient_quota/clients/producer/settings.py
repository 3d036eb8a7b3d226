"""What a producer's configuration becomes before librdkafka sees it: safe defaults and our callbacks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from kclient_quota.clients.calls import refused_callbacks
from kclient_quota.clients.heartbeat import CLOSED
from kclient_quota.clients.librdkafka.statistics_schedule import schedule, unless_old
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.clients.producer.transaction import MESSAGE_TIMEOUT, TIMEOUT_MS, Transaction
from kclient_quota.clients.telemetry.reporter import ENABLE_KEY, ClientTelemetry
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.config import TransactionTimeout, whole_number
from kclient_quota.errors import ConfigError

logger = logging.getLogger("kclient_quota")

STATISTICS_MS: Final = 1_000
CALM_STATISTICS_MS: Final = 5_000
"""How often librdkafka tells while nothing limits: often enough for the averages."""
LINGER_MS: Final = 10
THEIR_LINGER_MS: Final = 5
"""librdkafka's own."""
SHORT_LINGER_MS: Final = 20
"""What is kept from librdkafka until there is an answer lingers after that, too: up to so long that is worth it.
Without linger its thread does not look all the time, and the first message kept would leave before the others."""
LINGERS_FROM: Final = 10_000
"""So many messages librdkafka's queue must hold, a batch's by its own settings: a shorter one would be full, and
nothing would go, for as long as it lingers."""
PATIENT_MS: Final = 500
"""A message that is given up sooner goes as confluent_kafka's own settings have it: behind five requests of its
partition an idempotent producer's waits for one more round trip, in which its time is over. 80 ms away, 200 messages a
second over four partitions, `message.timeout.ms=100`: 53 of 2,000 were given up, none with these."""
LEAST_BATCH_BYTES: Final = 16_384
MOST_BATCH_BYTES: Final = 1_000_000
BATCH_MS: Final = 500
"""How much of the limit one batch may take."""
COMPRESSED: Final = 16
"""So many times as many bytes may a batch hold that is compressed: librdkafka's `batch.size` counts them before, and
what leaves the queue together must not be divided, as each batch begins to compress anew."""
HARDER: Final = {"zstd": 9, "lz4": 9, "gzip": 9}
"""`compression.level` under a small quota: batches of 64 JSON orders take 7 % less with zstd, 16 % with lz4, 4 % with
gzip than at librdkafka's own level, for up to 8 ms of processor time each, outside Python."""
HARDER_BYTES: Final = 1_100_000
"""Largest quota, in bytes per second, for which that is worth its processor time."""

IDLE_MS: Final = 30_000
"""After so long without use a transactional producer closes a connection; librdkafka never does. What waits for a
coordinator that is gone looks for another one whenever a connection comes or goes, and only then: half of the default
`transaction.timeout.ms` leaves it time to go on."""

MESSAGE_TIMEOUT_MS: Final = 300_000
NO_TIMEOUT_MS: Final = 1 << 40
MESSAGE_BYTES: Final = 1_000_000
QUEUE_MESSAGES: Final = 100_000
QUEUE_KBYTES: Final = 1 << 20

_ACKS = ("acks", "request.required.acks")
_IN_FLIGHT = ("max.in.flight", "max.in.flight.requests.per.connection")
_RETRIES = ("retries", "message.send.max.retries")
_LINGER = ("linger.ms", "queue.buffering.max.ms")
_BACKPRESSURE = ("queue.buffering.backpressure.threshold",)
_MOST_IN_FLIGHT = 5


def with_defaults(conf: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    """`conf` with safe defaults where the user has set nothing and their other settings allow it.

    Idempotence keeps retries from becoming duplicates; its cost in CPU time is won back by a little linger, except
    where librdkafka's queue is short. Neither is for messages that are given up within half a second (`PATIENT_MS`).
    Where it is known that no quota applies both stay as confluent_kafka has them: nothing waits in front of librdkafka
    then, which spends a processor on waiting for answers that take longer than messages linger, sends a fraction of
    what it could to brokers far away, and has the first message wait for an id.
    A batch takes no more than half a second of the limit. Under a small limit compression goes for bytes, not for
    speed. When all connections break at once, librdkafka begins anew from its bootstrap servers and gives up the
    brokers it knew; a `send_offsets_to_transaction()` that waits for one of them would then wait for ever, so
    transactions go without. A broker that has left the cluster is given up all the same: `IDLE_MS`.
    """
    out = dict(conf)
    if conf.get("transactional.id"):
        out.setdefault("metadata.recovery.strategy", "none")
        out.setdefault("connections.max.idle.ms", IDLE_MS)
    if limit.unlimited:
        return out
    everything = _everything(conf)
    is_patient = message_timeout_ms(everything) >= PATIENT_MS
    if is_patient and allows_idempotence(everything):
        out["enable.idempotence"] = True
    may_linger = is_patient and most_messages(conf) >= LINGERS_FROM
    if may_linger and not any(key in everything for key in _LINGER):
        out["linger.ms"] = LINGER_MS
    if limit.byte_rate is not None and "batch.size" not in conf:
        half_a_second = limit.byte_rate * BATCH_MS / 1000 * (COMPRESSED if is_compressed(conf) else 1)
        out["batch.size"] = int(min(max(half_a_second, LEAST_BATCH_BYTES), MOST_BATCH_BYTES))
    if limit.byte_rate is not None and limit.byte_rate <= HARDER_BYTES and "compression.level" not in everything:
        level = HARDER.get(codec(conf))
        if level is not None:
            out["compression.level"] = level
    return out


def transaction_of(conf: Mapping[str, Any], policy: TransactionTimeout = TransactionTimeout.REPORT) -> Transaction:
    """What a producer knows of its transactions before it has begun one."""
    timeout_ms = whole_number(conf, ["transaction.timeout.ms"], TIMEOUT_MS)
    return Transaction(
        timeout_ms,
        whole_number(conf, MESSAGE_TIMEOUT, timeout_ms // 3),
        possible="transactional.id" in conf,
        aborts=policy is TransactionTimeout.ABORT,
    )


def message_timeout_ms(conf: Mapping[str, Any]) -> int:
    """For how long a message is worth sending; librdkafka wants it longer than it lingers."""
    everything = _everything(conf)
    return whole_number(everything, MESSAGE_TIMEOUT, MESSAGE_TIMEOUT_MS) or NO_TIMEOUT_MS


def most_messages(conf: Mapping[str, Any]) -> int:
    """How many messages librdkafka takes that nobody has polled for the reports of."""
    return whole_number(conf, ["queue.buffering.max.messages"], QUEUE_MESSAGES) or QUEUE_MESSAGES


def is_compressed(conf: Mapping[str, Any]) -> bool:
    """Whether librdkafka compresses batches."""
    return codec(conf) != "none"


def codec(conf: Mapping[str, Any]) -> str:
    """`compression.type`."""
    return _first(_everything(conf), ("compression.type", "compression.codec"), "none")


def linger_ms(conf: Mapping[str, Any]) -> int:
    """For how long librdkafka may hold a message back."""
    return int(_number(_first(conf, _LINGER, THEIR_LINGER_MS)))


def lingers_shortly(conf: Mapping[str, Any]) -> bool:
    """Whether what librdkafka may not send yet is better kept from it."""
    return 0 < linger_ms(conf) <= SHORT_LINGER_MS


def in_flight(conf: Mapping[str, Any]) -> int:
    """How many requests librdkafka may have on their way to one broker; no more than an idempotent producer may."""
    return max(1, min(_MOST_IN_FLIGHT, whole_number(conf, _IN_FLIGHT, _MOST_IN_FLIGHT)))


def allows_idempotence(conf: Mapping[str, Any]) -> bool:
    """Whether the user left idempotence open and nothing they set contradicts it."""
    if "enable.idempotence" in conf:
        return False
    acks = _first(conf, _ACKS, "all")
    in_flight = whole_number(conf, _IN_FLIGHT, _MOST_IN_FLIGHT)
    retries = whole_number(conf, _RETRIES, 1)
    fifo = str(conf.get("queuing.strategy", "fifo")).lower() == "fifo"
    one_by_one = whole_number(conf, _BACKPRESSURE, 1) <= 1
    return acks in {"all", "-1"} and in_flight <= _MOST_IN_FLIGHT and retries > 0 and fifo and one_by_one


def _everything(conf: Mapping[str, Any]) -> Mapping[str, Any]:
    """With what is said of topics."""
    topics = conf.get("default.topic.config")
    return {**conf, **topics} if isinstance(topics, Mapping) else conf


def _first(conf: Mapping[str, Any], keys: tuple[str, ...], default: object) -> str:
    given = [conf[key] for key in conf if key in keys]  # librdkafka takes the last one
    return str(given[-1] if given else default).lower()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # for librdkafka to refuse
        return 0.0


def with_callbacks(
    conf: Mapping[str, Any],
    hearing: Hearing,
    limit: Limit,
    later: Callable[[Callable[[Any], Any]], Callable[[Any], Any]],
    telemetry: ClientTelemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """`conf` with our callbacks, each calling the user's own afterwards.

    Args:
        conf: the user's, without our keys.
        hearing: what hears of statistics, throttles and errors.
        limit: decides how often statistics are wanted.
        later: wraps a callback of the user's, so that it runs within a call of theirs.
        telemetry: hears of statistics, too; librdkafka's own is switched off for it.
        clock: decides when the user's own statistics are due.
    """
    out = dict(conf)
    ours_ms = CALM_STATISTICS_MS if limit.unlimited else STATISTICS_MS
    out["statistics.interval.ms"], tell_user = schedule(conf, ours_ms, clock)
    heard = [hearing.on_statistics] if telemetry is None else [hearing.on_statistics, telemetry.on_statistics]
    out["stats_cb"] = _both(
        [unless_old(hear, clock) for hear in heard], None if tell_user is None else later(tell_user)
    )
    throttle_cb = conf.get("throttle_cb")
    out["throttle_cb"] = _both([hearing.on_throttle], later(throttle_cb) if callable(throttle_cb) else None)
    error_cb = conf.get("error_cb")
    out["error_cb"] = _both([hearing.on_error], later(error_cb) if callable(error_cb) else None)
    out.update(refused_callbacks(conf))
    if telemetry is not None:
        out[ENABLE_KEY] = False
    return out


def _both(ours: Sequence[Callable[[Any], None]], theirs: Callable[[Any], Any] | None) -> Callable[[Any], None]:
    """A callback that tells ours first, and then the user's, whose errors go to the caller of poll()."""

    def tell(event: Any) -> None:
        for hear in ours:
            try:
                hear(event)
            except Exception:
                # An event that we fail to understand must not take anything from the application.
                logger.exception("An event of librdkafka's could not be handled")
        if theirs is not None:
            theirs(event)

    return tell


def keep_alive(heartbeat: Any) -> Callable[[], None] | None:
    """What keeps a consumer in its group without taking a message; does nothing once that is closed.

    Raises:
        ConfigError: it is one of asyncio, whose beats nobody would await here.
    """
    if heartbeat is None:
        return None
    ours = getattr(heartbeat, "keep_alive", None)
    beat = ours if callable(ours) else partial(heartbeat.consume, 0, 0)
    if iscoroutinefunction(beat):
        raise ConfigError(
            f"heartbeat: {type(heartbeat).__name__} is a consumer of asyncio, which this producer cannot keep in its "
            "group: use AIOProducer, or give a Consumer"
        )

    def keep() -> None:
        try:
            beat()
        except RuntimeError as error:  # a rebalance callback may raise one as well
            if str(error) != CLOSED:
                raise

    return keep
