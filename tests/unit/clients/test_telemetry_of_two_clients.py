"""What is pushed of a consumer that fetches by a second client: of both, as if they were one."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.consumer.receiving.listening import Listener
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.telemetry.required_metrics import RequiredMetrics
from kclient_quota.clients.throttle_log import ThrottleLog
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.metrics import CONSUMER
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.testing.clock import ManualClock

LIMIT = Limit(100_000.0, None, LimitSource.CLUSTER)


def event(name: str, rx_bytes: int, *, group: bool = False, **partition: int) -> str:
    """Statistics of one client that has received so much of broker 1."""
    broker = {"name": "b:9092/1", "nodename": "b:9092", "nodeid": 1, "source": "learned", "connects": 1}
    queue = {"partition": 0, "broker": 1, "fetch_state": "active", "fetchq_size": 0, "fetchq_cnt": 0}
    told: dict[str, Any] = {
        "name": name,
        "time": 1,
        "brokers": {"b:9092/1": {**broker, "rx": 1, "rxbytes": rx_bytes}},
        "topics": {"t": {"topic": "t", "partitions": {"0": {**queue, **partition}}}},
    }
    return json.dumps({**told, "cgrp": {"assignment_size": 1, "rebalance_cnt": 1}} if group else told)


class Telemetry:
    """Counts as the real one does while somebody has subscribed."""

    def __init__(self, clock: ManualClock) -> None:
        self.required = RequiredMetrics(CONSUMER, "app")
        self.clock = clock

    def on_event(self, decode: Callable[[], Mapping[str, Any]]) -> None:
        self.required.on_statistics(decode(), self.clock.now_ms())

    def said(self, name: str) -> float:
        samples = [*self.required.sums(), *self.required.gauges(self.clock.now_ms())]
        return next(value for found, value in samples if found.name == name)


def test_bytes_and_lag_are_those_of_both() -> None:
    """Bytes stood still at those of the first one, and the lag at what that had prefetched."""
    clock = ManualClock(1_000)
    core = ConsumerCore(Backoff.BLOCK, "app", LIMIT, FetchSizes(16_000, 16_000), 300_000, clock.now_ms())
    listener = Listener(core, clock, ThrottleLog("app", "fetches are spaced", Backoff.BLOCK))
    telemetry = listener.telemetry = Telemetry(clock)  # type: ignore[assignment]
    listener.callbacks({}, ConsumerInterceptors([]))

    def member(rx_bytes: int, stored: int) -> None:
        text = event(
            "app#consumer-1",
            rx_bytes,
            group=True,
            stored_offset=stored,
            committed_offset=-1001,
            ls_offset=900,
            consumer_lag=7,
        )
        listener.events.append(text)
        listener.hear()
        clock.sleep_ms(250)

    def fetcher(rx_bytes: int, end: int, number: int = 2) -> None:
        listener.fetcher_events.append(
            event(f"app#consumer-{number}", rx_bytes, ls_offset=end, stored_offset=-1001, consumer_lag=-1)
        )
        listener.hear()

    member(2_000_000, 893)
    assert (telemetry.said("incoming-byte-total"), telemetry.said("records-lag-max")) == (2_000_000, 7)
    listener.is_split = True
    member(2_000_100, 893)  # before the other one has said anything
    assert telemetry.said("incoming-byte-total") == 2_000_100
    fetcher(50_000, 5_000)
    member(2_000_200, 1_000)
    assert (telemetry.said("incoming-byte-total"), telemetry.said("records-lag-max")) == (2_050_200, 4_000)
    fetcher(4_000_000, 5_000)
    member(2_000_300, 1_500)
    assert (telemetry.said("incoming-byte-total"), telemetry.said("records-lag-max")) == (6_000_300, 3_500)
    fetcher(4_500_000, 5_000, number=3)  # another one in its place, with other sizes
    member(2_000_400, 1_600)
    assert (telemetry.said("incoming-byte-total"), telemetry.said("records-lag-max")) == (10_500_400, 3_400)
    assert telemetry.said("connection-creation-total") == 3
    assert telemetry.said("assigned-partitions") == 1
