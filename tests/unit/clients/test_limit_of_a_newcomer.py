"""What was heard last of a quota holds for all that share a pace: for those who were there, and when they have gone."""

import gc
from collections.abc import Mapping
from typing import Any

import pytest

from kclient_quota import ClientQuotaCallback
from kclient_quota.clients.producer.assembly import Parts
from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.testing.clock import ManualClock

pytestmark = pytest.mark.usefixtures("only_what_is_new")


class Told(ClientQuotaCallback):
    """The cluster, as far as clients ask it."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        return {}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.rate if quota_type is ClientQuotaType.PRODUCE else None


class Member:
    """One producer, without a client."""

    def __init__(self, cluster: Told, clock: ManualClock) -> None:
        conf: dict[str, Any] = {"bootstrap.servers": "localhost:1", "client.id": "app", "enable.metrics.push": False}
        self.parts = Parts({**conf, "client.quota.callback.class": cluster}, clock)
        self.clock = clock
        self.pacer(1)

    def pacer(self, broker: int) -> Any:
        return self.parts.sender.core.brokers.get(broker).queue.pace._pacer

    def rate(self, broker: int = 1) -> float:
        return float(self.pacer(broker).rate())

    def look(self) -> None:
        """Ask again, as its watch does once a minute, and attend to it."""
        self.parts.hearing.on_limit(self.parts._finder.find())
        self.parts.sender.hear(self.clock.now_ms())


@pytest.mark.parametrize("now", [2_000_000.0, 5_000.0], ids=["raised", "lowered"])
@pytest.mark.parametrize("goes", [False, True], ids=["lives", "gone"])
def test_whoever_comes_brings_the_limit_of_now(now: float, goes: bool) -> None:
    """A producer kept the pace of one that had gone for ever: its watch found nothing that it did not know."""
    cluster, clock = Told(20_000.0), ManualClock(1_000)
    first: Member | None = Member(cluster, clock)
    cluster.rate = now
    second = Member(cluster, clock)
    if goes:
        first = None
        gc.collect()
    clock.sleep_ms(20_000)
    second.look()
    assert second.rate() == pytest.approx(now, rel=0.1)
    if first is not None:
        assert first.rate() == pytest.approx(now, rel=0.1)


def test_whoever_has_not_looked_yet_brings_nothing_old() -> None:
    """One that was made before a change, and comes to another broker after it, has the others' newer knowledge."""
    cluster, clock = Told(20_000.0), ManualClock(1_000)
    first = Member(cluster, clock)
    cluster.rate = 2_000_000.0
    second = Member(cluster, clock)
    assert first.rate(2) == second.rate(2) == pytest.approx(2_000_000, rel=0.1)
    assert first.pacer(2) is second.pacer(2)


def test_what_one_has_heard_that_has_gone_is_found_not_to_hold() -> None:
    """It heard of a limit that was there for seconds: the others, who never knew of it, find what they know already."""
    cluster, clock = Told(20_000.0), ManualClock(1_000)
    first: Member | None = Member(cluster, clock)
    second = Member(cluster, clock)
    assert first is not None
    cluster.rate = 2_000_000.0
    first.look()
    first = None
    gc.collect()
    cluster.rate = 20_000.0
    clock.sleep_ms(20_000)
    second.look()
    clock.sleep_ms(200)
    second.pacer(1).admit_at_ms(1, clock.now_ms())  # rates are reckoned anew ten times a second, when one is asked for
    assert second.rate() == pytest.approx(20_000, rel=0.1)


def test_what_one_has_given_up_to_strangers_stays_given_up_when_others_hear_of_the_same_limit() -> None:
    cluster, clock = Told(20_000.0), ManualClock(1_000)
    first, second = Member(cluster, clock), Member(cluster, clock)
    cluster.rate = 40_000.0
    first.look()
    pacer = first.pacer(1)
    pacer.on_sent(300_000, clock.now_ms())
    clock.sleep_ms(5_000)
    pacer.on_throttle(1_000, clock.now_ms())
    given_up = first.rate()
    assert given_up < 30_000
    second.look()
    assert second.rate() == given_up


def test_no_quota_any_more_is_heard_too() -> None:
    cluster, clock = Told(20_000.0), ManualClock(1_000)
    first = Member(cluster, clock)
    cluster.rate = None
    second = Member(cluster, clock)
    clock.sleep_ms(20_000)
    assert first.pacer(1) is second.pacer(1)
    assert first.rate() == float("inf")
