"""Scenes for the way to the broker: connections that are refused or lost, leaders that go and come back."""

from dataclasses import replace
from typing import Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import CONSUME, PRODUCE, Assignment
from kclient_quota.certify.scene import Judge, Scene
from kclient_quota.certify.scenes.consuming import receives
from kclient_quota.certify.scenes.preparing import lift_connections, move_leader, quota, refuse_connections, throttle
from kclient_quota.certify.scenes.producing import all_delivered, both
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict, passed, weak

_PRODUCE, _FETCH = 0, 1
_CALM_PER_S: Final = 10
_FLOOD = Assignment(PRODUCE, 500, pause_ms=5, config={"request.timeout.ms": 5_000, "delivery.timeout.ms": 120_000})


def connects_calmly(within_ms: int) -> Judge:
    """Whoever is refused comes again, but not in a hurry."""

    def judge(seen: Seen) -> Verdict:
        first_ms: dict[int, int] = {}
        for sent in seen.sent:
            first_ms.setdefault(sent.connection, sent.at_ms)
        made = [at_ms for at_ms in first_ms.values() if at_ms < seen.started_ms + within_ms]
        rate = len(made) / (within_ms / 1000)
        return (passed if rate <= _CALM_PER_S else weak)(f"{rate:.1f} connections a second")

    return judge


def _cut(cluster: EmbeddedBroker, name: str) -> None:
    cluster.kill_connections(name)


def _restart_leader(cluster: EmbeddedBroker, _name: str) -> None:
    cluster.restart(1)


SCENES = (
    Scene(
        "connections-refused",
        "Who is refused because its address has opened too many connections tries again, calmly; nothing is lost.",
        "KIP-612, Proposed Changes: IP connection rate limit",
        replace(_FLOOD, messages=100),
        both(all_delivered(100), connects_calmly(10_000)),
        prepare=refuse_connections,
        afterwards=lift_connections,
    ),
    Scene(
        "produce-connection-lost-in-throttle",
        "A connection that is lost in mid-throttle costs no message and doubles none.",
        "KIP-98 (idempotent producers); KIP-219",
        _FLOOD,
        all_delivered(500),
        prepare=throttle(_PRODUCE, 6_000),
        meanwhile=_cut,
        after_ms=3_000,
    ),
    Scene(
        "produce-leader-restarts-in-throttle",
        "A leader that restarts in mid-throttle (a rolling restart) costs no message and doubles none.",
        "KIP-101, KIP-279 (acknowledged records survive a change of leader)",
        replace(_FLOOD, config={**_FLOOD.config, "acks": "all"}),
        all_delivered(500),
        prepare=quota(producer_byte_rate=40_000),
        meanwhile=_restart_leader,
        after_ms=5_000,
        brokers=3,
        within_ms=90_000,
    ),
    Scene(
        "produce-leader-moves-in-throttle",
        "A partition that goes to other brokers in mid-throttle, its old leader staying up, loses and doubles nothing.",
        "KIP-455 (reassignment of partitions); KIP-98 (idempotent producers)",
        replace(_FLOOD, config={**_FLOOD.config, "acks": "all"}),
        all_delivered(500),
        prepare=throttle(_PRODUCE, 6_000),
        meanwhile=move_leader,
        after_ms=2_000,
        brokers=3,
        within_ms=90_000,
    ),
    Scene(
        "consume-leader-moves-in-throttle",
        "A partition that goes to other brokers in a fetch throttle costs a consumer no message, and none comes twice.",
        "KIP-455 (reassignment of partitions); KIP-320 (positions hold at another leader)",
        Assignment(CONSUME, messages=700),
        receives(700),
        prepare=quota(consumer_byte_rate=40_000),
        filled=700,
        meanwhile=move_leader,
        after_ms=6_000,
        brokers=3,
    ),
    Scene(
        "consume-connection-lost-in-throttle",
        "A connection that is lost in mid-throttle costs a consumer no message, and none comes twice.",
        "KIP-74 and KIP-219; positions are the consumer's own",
        Assignment(CONSUME, messages=300),
        receives(300),
        prepare=throttle(_FETCH, 6_000),
        filled=300,
        meanwhile=_cut,
        after_ms=1_000,
    ),
)
