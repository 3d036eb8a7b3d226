"""Scenes for share groups (KIP-932)."""

import signal
from collections.abc import Mapping
from typing import Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import SHARE_CONSUME, Assignment
from kclient_quota.certify.scene import Judge, Prepare, Scene
from kclient_quota.certify.scenes.preparing import configure_group, quota, throttle
from kclient_quota.certify.scenes.producing import closes
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict, failed, passed, weak

_SHARE_FETCH: Final = 78
_TWELVE_HOURS_MS: Final = 12 * 3_600_000
_KIP_932: Final = "KIP-932, Fetching and acknowledging records; In-flight records"
_READ = Assignment(SHARE_CONSUME, messages=900)


def nothing_is_used_up(count: int) -> Judge:
    """Every record comes, at its first delivery: deliveries that nobody saw are none."""

    def judge(seen: Seen) -> Verdict:
        missing = count - len(seen.received)
        again = sum(event.delivery > 1 for event in seen.events)
        if missing:
            return failed(f"{missing} of {count} messages never came; {again} came with a delivery count above 1")
        return (weak if again else passed)(f"{count} came, {again} with a delivery count above 1")

    return judge


_FEW: Final = {"share.delivery.count.limit": 2, "share.record.lock.duration.ms": 15_000}
"""So that what Kafka's defaults (5 deliveries, 30 s) use up in minutes is used up within a scene."""


def _group(configs: Mapping[str, object], **quotas: float) -> Prepare:
    """The group reads from the beginning."""

    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        configure_group(cluster.bootstrap_servers, name, {"share.auto.offset.reset": "earliest", **configs})
        if quotas:
            quota(**quotas)(cluster, name)

    return prepare


def _muted(cluster: EmbeddedBroker, name: str) -> None:
    _group({})(cluster, name)
    throttle(_SHARE_FETCH, _TWELVE_HOURS_MS, times=3)(cluster, name)


SCENES = (
    Scene(
        "share-under-quota",
        "A share group under a byte quota gets every record: none is archived that nobody was given.",
        f"{_KIP_932}; KIP-13: bytes over the quota are delayed, never dropped",
        _READ,
        nothing_is_used_up(900),
        prepare=_group(_FEW, consumer_byte_rate=30_000),
        filled=900,
        within_ms=90_000,
        nobody="Spring for Apache Kafka, reference, Poison Message Protection: “Every time a record is acquired by a "
        "consumer in a share group, the broker increments an internal delivery count.” No client can release what it "
        "never heard of.",
    ),
    Scene(
        "share-under-quota-released",
        "A broker that gives back what it acquired for an answer sent empty delivers every record, counted once.",
        f"{_KIP_932}; what Kafka would have to do (docs, share groups)",
        _READ,
        nothing_is_used_up(900),
        prepare=_group({}, consumer_byte_rate=30_000),
        filled=900,
        within_ms=90_000,
        broker={"manner": "released"},
    ),
    Scene(
        "share-interrupted-in-throttle",
        "Ctrl-C in a share fetch's throttle of twelve hours ends a share consumer within ten seconds.",
        "KIP-102 (close with a timeout)",
        Assignment(SHARE_CONSUME, messages=1_000_000),
        closes,
        prepare=_muted,
        filled=300,
        stop_after_ms=5_000,
        stops_by=signal.SIGINT,
    ),
)
