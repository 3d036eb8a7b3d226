"""Which broker records came from, by who leads their partition; what nobody tells is everybody's."""

from collections.abc import Iterable

import pytest

from kclient_quota.clients.partition_leaders import PartitionLeaders
from kclient_quota.cluster import asking as module
from kclient_quota.pacing.fetching.share_fetch import ANY_BROKER

CONF = {"bootstrap.servers": "one:9092", "client.id": "app"}


class Cluster:
    """Who leads what, and how often that was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leaders: dict[tuple[str, int], int] = {}
        self.asked: list[set[str]] = []
        monkeypatch.setattr(module.Asking, "leaders", lambda _, topics, _deadline_ms: self.ask(topics))

    def ask(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        self.asked.append(set(topics))
        return dict(self.leaders)


def test_bytes_go_to_the_leader_and_it_is_asked_for_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.leaders = {("a", 0): 1, ("a", 1): 2, ("b", 0): 1}
    leaders = PartitionLeaders(CONF)
    assert leaders.by_broker({("a", 0): 10, ("a", 1): 20}, 0) == {1: 10, 2: 20}
    assert leaders.by_broker({("a", 0): 10}, 59_000) == {1: 10}
    assert len(cluster.asked) == 1
    cluster.leaders[("a", 0)] = 3
    assert leaders.by_broker({("a", 0): 10, ("b", 0): 5}, 60_000) == {3: 10, 1: 5}
    assert cluster.asked == [{"a"}, {"a", "b"}]


def test_what_nobody_tells_is_everybodys_and_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    leaders = PartitionLeaders(CONF)
    assert leaders.by_broker({("a", 0): 10, ("b", 0): 5}, 0) == {ANY_BROKER: 15}
    # an answer that does not come holds the application up for a second, once a minute
    assert leaders.by_broker({("a", 0): 10}, 59_000) == {ANY_BROKER: 10}
    assert len(cluster.asked) == 1
    cluster.leaders = {("a", 0): 1}
    assert leaders.by_broker({("a", 0): 10, ("b", 0): 5}, 60_000) == {1: 10, ANY_BROKER: 5}
    assert leaders.by_broker({("b", 0): 5}, 65_000) == {ANY_BROKER: 5}
    assert len(cluster.asked) == 3


def test_a_throttle_is_a_reason_to_ask_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.leaders = {("a", 0): 1}
    leaders = PartitionLeaders(CONF)
    leaders.by_broker({("a", 0): 10}, 0)
    cluster.leaders = {("a", 0): 2}
    leaders.doubt()
    assert leaders.by_broker({("a", 0): 10}, 4_000) == {1: 10}
    assert leaders.by_broker({("a", 0): 10}, 6_000) == {2: 10}


def test_a_cluster_that_cannot_be_asked_is_no_failure() -> None:
    leaders = PartitionLeaders({"bootstrap.servers": ""})
    assert leaders.by_broker({("a", 0): 10}, 0) == {ANY_BROKER: 10}
