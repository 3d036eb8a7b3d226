"""What a producer's configuration becomes before librdkafka sees it: safe defaults, our callbacks, the limit's finder."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from kclient_quota.clients.gate import ProducerGates
from kclient_quota.clients.limits import Limit, LimitFinder, LimitWatch
from kclient_quota.config import QuotaConfig

STATISTICS_MS: Final = 1_000
LEAST_BATCH_BYTES: Final = 16_384
MOST_BATCH_BYTES: Final = 1_000_000


def with_defaults(conf: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    out = dict(conf)
    if _may_be_idempotent(conf):
        out.setdefault("enable.idempotence", True)
    if limit.byte_rate is not None and not {"batch.size"} & out.keys():
        out["batch.size"] = int(min(max(limit.byte_rate / 2, LEAST_BATCH_BYTES), MOST_BATCH_BYTES))
    return out


def _may_be_idempotent(conf: Mapping[str, Any]) -> bool:
    return True


def with_callbacks(conf: Mapping[str, Any], gates: ProducerGates) -> dict[str, Any]:
    out = dict(conf)
    out["statistics.interval.ms"] = STATISTICS_MS
    out["stats_cb"] = gates.on_statistics
    theirs = conf.get("throttle_cb")

    def on_throttle(event: Any) -> None:
        gates.on_throttle(event.broker_name, event.broker_id, round(event.throttle_time * 1000))
        if theirs is not None:
            theirs(event)

    out["throttle_cb"] = on_throttle
    return out


def keep_alive(heartbeat: Any) -> Callable[[], Any] | None:
    if heartbeat is None:
        return None
    return getattr(heartbeat, "keep_alive", None) or (lambda: heartbeat.consume(0, 0))


def limit_finder(ours: QuotaConfig, conf: Mapping[str, Any]) -> LimitFinder:
    return LimitFinder(ours, conf, byte_rate_key="producer_byte_rate", quota_types=("PRODUCE", "REQUEST"), callback=None, ask=None)


def watch(finder: LimitFinder, gates: ProducerGates) -> LimitWatch:
    me = weakref.ref(gates)

    def on_limit(limit: Limit) -> None:
        gates = me()
        if gates is not None:
            gates.on_limit(limit)

    return LimitWatch(finder, on_limit)
