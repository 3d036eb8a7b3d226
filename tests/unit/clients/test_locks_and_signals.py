"""A signal's handler comes between any two lines of a call that holds a lock, and wants it, or waits for who does."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.metric import MetricName

from kclient_quota.clients import calls
from kclient_quota.clients.limits import LimitWatch
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.clients.producer.sender.queue_metrics import QueueMetrics
from kclient_quota.clients.shared_pace import SharedAccounts, SharedLimit
from kclient_quota.clients.telemetry.reporter import ClientTelemetry
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.cluster.late_lock import LateLock
from kclient_quota.config import Backoff
from kclient_quota.pacing.fetching.share_fetch import SharePacer
from kclient_quota.pacing.neighbours import Need, Part
from kclient_quota.testing.clock import ManualClock
from tests.apart import apart
from tests.signals import interrupted
from tests.unit.clients.producer_world import LIMITED

METRIC = MetricName("group", "name", ())


class Member:
    """Of those who share a limit."""


def shared_limit() -> list[Callable[[], object]]:
    shared, me, other = SharedLimit(), Member(), Member()
    return [lambda: shared.part(me, 0, Need(True, 9.0, 1), 10.0), lambda: shared.leave(other)]


def hearing() -> list[Callable[[], object]]:
    heard = Hearing(Outbox(), "app", LIMITED, Backoff.BLOCK, ManualClock())
    return [heard.metrics, lambda: heard.on_statistics('{"brokers": {}}'), lambda: heard.waited.add(5, 5)]


def queue_metrics() -> list[Callable[[], object]]:
    figures = QueueMetrics("app", ["a", "b"])
    return [lambda: figures.collect(1)]


def wait_time() -> list[Callable[[], object]]:
    waited = WaitTime()
    return [lambda: waited.add(5, 5), lambda: waited.metrics("producer", "app", 5)]


def telemetry() -> list[Callable[[], object]]:
    told = ClientTelemetry("consumer", {"bootstrap.servers": "localhost:1"}, dict)

    def rebalance() -> None:
        told.rebalance_began()
        told.rebalance_ended()

    return [lambda: told.on_commit(0), rebalance, lambda: told.client_instance_id(5), told.close]


def application_metrics() -> list[Callable[[], object]]:
    collector = Collector()
    return [
        lambda: collector.register_metric_for_subscription(METRIC, int, unix_ms=1),
        lambda: collector.unregister_metric_from_subscription(METRIC),
    ]


def accounts() -> list[Callable[[], object]]:
    of_all = SharedAccounts(SharePacer(10.0, samples=11, window_ms=1_000))
    return [lambda: of_all.follow(LIMITED)]


def watch() -> list[Callable[[], object]]:
    class Finder:
        has_callback = is_away = False

        def close(self) -> None:
            """Nothing."""

    watching = LimitWatch(Finder(), lambda _: None)  # type: ignore[arg-type] # all that is asked of it here
    return [watching.ask_soon, watching.close]


def late_lock() -> list[Callable[[], object]]:
    lock = LateLock()

    def hold() -> None:
        with lock:
            lock.__class__.__name__.lower()

    return [hold]


OWN = [shared_limit, hearing, queue_metrics, wait_time, telemetry, application_metrics, accounts, watch, late_lock]
OF_OTHERS = [shared_limit, hearing, queue_metrics, wait_time]


def each_line(these: list[Callable[[], object]], do: Callable[[Callable[[], object]], Any]) -> None:
    for call in these:
        for other in these:
            at = 0
            while interrupted(call, lambda other=other: do(other), at):  # type: ignore[misc] # which is there by now
                at += 1
            assert at


@pytest.mark.parametrize("made", OWN)
def test_the_handlers_own_call_is_let_in(made: Callable[[], list[Callable[[], object]]]) -> None:
    """It waited for ever for the one that it had interrupted."""
    each_line(made(), lambda call: call())


@pytest.mark.parametrize("made", OF_OTHERS)
def test_threads_for_which_the_handler_waits_are_let_in(
    made: Callable[[], list[Callable[[], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that counts, or a thread that polls, waited for ever for the call that the handler had interrupted."""
    monkeypatch.setattr(calls, "LONGEST_LOCK_S", 0.001)
    each_line(made(), apart)


def test_a_destructor_that_closes_a_consumer_is_let_in_where_another_asks_for_its_part() -> None:
    """It runs in the same thread, which waited for itself for ever; in the midst of a look at all that share."""
    shared, others = SharedLimit(), [Member() for _ in range(3)]

    class Collects(dict[int | None, Need]):
        def get(self, *args: Any) -> Any:
            while others:
                shared.leave(others.pop())
            return super().get(*args)

    for other in others:
        shared._needs[other] = Collects({0: Need(True, 9.0, 1)})
    parts: list[Part] = []
    asking = threading.Thread(
        target=lambda: parts.append(shared.part(Member(), 0, Need(True, 9.0, 1), 10.0)), daemon=True
    )
    asking.start()
    asking.join(10)
    assert [part.sharers for part in parts] == [2]
