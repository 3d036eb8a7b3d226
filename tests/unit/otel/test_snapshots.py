"""What OpenTelemetry is told of clients that come and go between two collections."""

import gc
from typing import Any

import pytest

from kclient_quota.clients import live
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.metrics import MetricName
from kclient_quota.otel import definitions as d
from kclient_quota.otel.snapshot import Snapshots, points_of

pytestmark = pytest.mark.usefixtures("only_what_is_new")

WAITED = "kafka.producer.quota_wait_time_total"


class Client:
    """As much of a producer as is looked at."""

    def __init__(self, waited: float) -> None:
        self.waited = waited
        live.opened(self)

    def produce(self) -> None:
        """Says what it is."""

    def __len__(self) -> int:
        return 0

    def metrics(self) -> dict[MetricName, float]:
        """What it has waited."""
        return {MetricName("quota-wait-time-total", "producer-metrics", "", (("client-id", "jobs"),)): self.waited}

    def quota_state(self) -> dict[int, Any]:
        """Of no broker."""
        return {}

    def close(self) -> None:
        """As a client does it."""
        live.closes(self)


class Sharing:
    """As much of a ShareConsumer: no positions, as it has none."""

    def metrics(self) -> dict[MetricName, float]:
        return {MetricName("quota-wait-time-total", "consumer-metrics", "", (("client-id", "jobs"),)): 7.0}

    def quota_state(self) -> dict[int, Any]:
        """Of no broker."""
        return {}


class Broken(Client):
    """Whose application has a `metrics()` of its own, which fails; and so does how it is printed."""

    def metrics(self) -> dict[MetricName, float]:
        raise ValueError(self)

    def __repr__(self) -> str:
        raise ValueError


class Sending(Client):
    """Which has let so many bytes through to each broker."""

    def __init__(self, admitted: dict[int, int]) -> None:
        super().__init__(0.0)
        self.admitted = admitted

    def quota_state(self) -> dict[int, Any]:
        """As a producer's."""
        return {
            broker: BrokerQuotaState(1e6, "cluster", rate=1e6, throttled_until_ms=0, admitted=nbytes, outstanding=0)
            for broker, nbytes in self.admitted.items()
        }


class Watched:
    """Snapshots of these clients alone, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.snapshots = Snapshots(self.clients, lambda: self.now_ms)

    def clients(self) -> dict[int, Any]:
        return {number: each for number, each in live.clients().items() if isinstance(each, Client)}

    def let_through(self) -> dict[str | int, float]:
        """What is found a second later, by broker."""
        self.now_ms += 1_000
        return {where["kafka.broker.id"]: value for value, where in self.snapshots.of(d.USED.name)}

    def waited(self) -> list[float]:
        """What is found a second later."""
        self.now_ms += 1_000
        return [value for value, _ in self.snapshots.of(WAITED)]


def test_a_client_is_counted_that_came_and_went_before_anybody_looked(monkeypatch: Any) -> None:
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    client = Client(3.0)
    client.close()
    del client
    gc.collect()
    assert watched.waited() == [3.0]
    assert watched.waited() == [3.0]


def test_what_a_client_counted_after_the_last_look_is_not_lost_with_it(monkeypatch: Any) -> None:
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    client = Client(3.0)
    assert watched.waited() == [3.0]
    client.waited = 5.0
    client.close()
    del client
    gc.collect()
    assert watched.waited() == [5.0]


def test_bytes_for_a_broker_whose_number_is_not_known_yet_are_its_own_once_it_is(monkeypatch: Any) -> None:
    """They were under -1 until then: with producers that came and went that counter went up and down."""
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    producer = Sending({-1: 100})
    assert watched.let_through() == {}
    producer.admitted = {1: 150}
    assert watched.let_through() == {1: 150}
    short = Sending({-1: 70})
    assert watched.let_through() == {1: 150}
    short.close()
    assert watched.let_through() == {1: 150, -1: 70}


def test_what_is_given_back_or_forgotten_of_a_broker_shrinks_no_counter(monkeypatch: Any) -> None:
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    producer = Sending({1: 100, 2: 50})
    assert watched.let_through() == {1: 100, 2: 50}
    producer.admitted = {1: 90}
    assert watched.let_through() == {1: 100, 2: 50}
    producer.admitted = {1: 80}
    producer.close()
    assert watched.let_through() == {1: 100, 2: 50}


def test_what_is_closed_just_after_a_look_is_in_the_last_one() -> None:
    watched = Watched()
    client = Client(3.0)
    assert watched.waited() == [3.0]
    client.waited = 5.0
    watched.snapshots.on_close(next(iter(watched.clients())), client)
    assert [value for value, _ in watched.snapshots.of(WAITED)] == [5.0]


def test_a_client_that_stands_where_another_one_stood_is_another_one() -> None:
    watched = Watched()
    ids, counted = set(), 0.0
    for _ in range(1_000):  # the interpreter gives an address again as soon as it is free: here the second time
        client = Client(3.0)
        counted += 3.0
        assert watched.waited() == [counted]
        if id(client) in ids:
            return
        ids.add(id(client))
        del client
        gc.collect()
    raise AssertionError("no address came twice")


def test_who_never_collects_keeps_a_bounded_number(monkeypatch: Any) -> None:
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    for _ in range(1_500):
        Client(1.0).close()
    gc.collect()
    assert watched.waited() == [1_000.0]


def test_a_client_closes_whatever_it_says_of_itself_and_others_are_seen(monkeypatch: Any) -> None:
    """Its `close()` failed, and left librdkafka's part open and in its group."""
    watched = Watched()
    monkeypatch.setattr(live, "closing", [watched.snapshots.on_close])
    client, broken = Client(3.0), Broken(1.0)
    assert watched.waited() == [3.0]
    broken.close()
    client.close()
    assert watched.waited() == [3.0]


def test_clients_are_made_while_others_are_looked_for(monkeypatch: Any) -> None:
    """One that closed meanwhile raised "dictionary changed size during iteration" instead."""
    found: list[int] = []

    class OneMoreEachTime(live.WeakValueDictionary[int, Any]):
        def items(self) -> Any:
            for item in super().items():
                live.opened(made[0])
                yield item

    monkeypatch.setattr(live, "_open", OneMoreEachTime())
    monkeypatch.setattr(live, "closing", [lambda number, _: found.append(number)])
    made = [Client(1.0), Client(2.0)]
    made[1].close()
    assert len(found) == 1


def test_a_share_consumer_is_looked_at_too() -> None:
    """It had no metrics, nor had any other client beside it, and its `close()` failed."""
    assert [value for (name, _), value in points_of(Sharing()).items() if name.endswith("wait_time_total")] == [7.0]
