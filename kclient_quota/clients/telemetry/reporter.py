"""KIP-714 of our own clients: a reporter on a thread and a connection of its own, with the client's own security.

librdkafka pushes over a connection that the broker mutes while it throttles; this one is not muted with it.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from kclient_telemetry.kind import MetricKind
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.calls import briefly
from kclient_quota.clock import SYSTEM_CLOCK, Clock, SystemClock, unix_ms
from kclient_quota.config import client_id_of, is_true, without_callbacks
from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from kclient_telemetry.metric import Point

    from kclient_quota.metrics import MetricName

logger = logging.getLogger("kclient_quota")

ENABLE_KEY: Final = "enable.metrics.push"
CLOSE_MS: Final = 1_000
"""How long the terminating push may take: close() waits for it, and a process that ends."""
ABANDON_MS: Final = 10_000
"""The same after a destructor, which waits for nothing."""

NOT_ALONE_MS: Final = 1_000
"""How long the first question of a client waits that is not the only one of its process. Brokers count how many
connections an address opens (`connection_creation_rate`, what a vendor allows): of twenty clients that are made at once
those for telemetry took the places of librdkafka's own, which then waited for a window to pass. A program that has one
client, and ends within a second, has been asked what it is to push."""

_GROWING: Final = ("-total", "-count")


_running: weakref.WeakSet[ClientTelemetry] = weakref.WeakSet()


class MetricReader(Protocol):
    """Gives points, such as `kclient_telemetry.client.otel.KafkaMetricReader`."""

    def points(self) -> Iterable[Point]:
        """The current values."""
        ...


class ClientTelemetry:
    """One client's telemetry.

    Args:
        kind: "producer", "consumer" or "consumer-share".
        conf: the client's configuration; asked anew for every connection.
        throttle_times: the client's own `metrics()`; called in the thread that serves its callbacks.
        clock: for metrics and the connection.
    """

    def __init__(
        self,
        kind: str,
        conf: Mapping[str, Any],
        throttle_times: Callable[[], Mapping[MetricName, float]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        # what only a client that pushes needs is loaded by it, not by everybody who imports a client
        import random  # noqa: PLC0415

        from kclient_telemetry.client.collector import Collector  # noqa: PLC0415
        from kclient_telemetry.client.reporter import TelemetryReporter  # noqa: PLC0415
        from kclient_telemetry.client.runner import TelemetryRunner  # noqa: PLC0415
        from kclient_telemetry.naming import resource_labels  # noqa: PLC0415

        from kclient_quota.clients.librdkafka.statistics import decoded  # noqa: PLC0415
        from kclient_quota.clients.telemetry.required_metrics import RequiredMetrics  # noqa: PLC0415
        from kclient_quota.clients.telemetry.transport import BrokerTransport  # noqa: PLC0415

        self._decoded = decoded  # a destructor may flush, and so hear of statistics, when modules are gone
        self._clock = clock
        self._lock = reentrant_lock()
        self._required = RequiredMetrics(kind, client_id_of(conf))
        self._throttle_times = throttle_times
        self._throttles: Mapping[MetricName, float] = {}
        self._made_unix_ms = unix_ms()
        self._rebalancing_since_ms: int | None = None
        self._collector = Collector(resource_labels(f"kafka.{kind.partition('-')[0]}", conf))
        self._collector.add_source(self._points)
        self._reporter = TelemetryReporter(self._collector, uniform=random.Random().random)  # noqa: S311 - the application's own stay as they are
        self._conf = without_callbacks(conf)
        self._runner = TelemetryRunner(self._reporter, BrokerTransport(self._conf, clock), clock=SystemClock())

    def start(self) -> None:
        """Begin, in a thread; nothing is waited for."""
        self._throttles = self._throttle_times()
        is_alone = not _running
        self._runner.start(after_ms=0 if is_alone else NOT_ALONE_MS)
        _running.add(self)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on, and at once where the former ones were refused."""
        self._conf.update({"sasl.username": username, "sasl.password": password})
        self._runner.log_in_anew()

    # -- what the client tells

    def on_statistics(self, text: str) -> None:
        """Take a statistics event; cheap while nobody has subscribed."""
        self.on_event(lambda: self._decoded(text))

    def on_event(self, decode: Callable[[], Mapping[str, Any]]) -> None:
        """The same of one that may have been decoded already."""
        subscription = self._reporter.subscription
        if subscription is None or not subscription.selection:
            return
        statistics = decode()
        throttles = self._throttle_times()
        now_ms = self._clock.now_ms()
        with briefly(self._lock):
            self._required.on_statistics(statistics, now_ms, throttles)
            self._throttles = throttles

    def on_commit(self, began_ms: int) -> None:
        """A commit that began at `began_ms` of the clock was answered."""
        now_ms = self._clock.now_ms()
        with briefly(self._lock):
            self._required.on_commit(now_ms - began_ms, now_ms)

    def rebalance_began(self) -> None:
        """Partitions were asked for or taken away."""
        if self._rebalancing_since_ms is None:
            self._rebalancing_since_ms = self._clock.now_ms()

    def rebalance_ended(self) -> None:
        """Partitions were assigned."""
        since_ms, self._rebalancing_since_ms = self._rebalancing_since_ms, None
        if since_ms is not None:
            now_ms = self._clock.now_ms()
            with briefly(self._lock):
                self._required.on_rebalance(now_ms - since_ms, now_ms)

    # -- what the application asks

    def client_instance_id(self, timeout_ms: int) -> UUID | None:
        """The id, or None when no broker has given one within `timeout_ms`."""
        from kclient_telemetry.messages import KafkaUuid  # noqa: PLC0415 - as above

        found = self._runner.client_instance_id(timeout_ms)
        return None if found is None else KafkaUuid(int=found.int)

    def register(self, metric: MetricName, measure: Callable[[], Any], kind: MetricKind) -> None:
        """Push a metric of the application's."""
        self._collector.register_metric_for_subscription(metric, measure, kind, unix_ms=unix_ms())

    def unregister(self, metric: MetricName) -> None:
        """Push it no longer."""
        self._collector.unregister_metric_from_subscription(metric)

    def add_reader(self, reader: MetricReader) -> None:
        """Push all that `reader` gives."""
        self._collector.add_source(reader.points)

    def close(self) -> None:
        """Make the terminating push, if anything was ever subscribed to, and end; may be called again."""
        self._runner.close(0 if self._runner.client_instance_id(0) is None else CLOSE_MS)
        _running.discard(self)

    @property
    def is_running(self) -> bool:
        """Whether its thread has not ended."""
        return self._runner.is_running

    @property
    def is_awaited(self) -> bool:
        """Whether it may have something to push still: where no broker has told it an id, `close` waits for nothing."""
        return self.is_running and self._runner.client_instance_id(0) is not None

    def abandon(self) -> None:
        """As `close`, but waits for nothing: for a destructor."""
        self._runner.abandon(ABANDON_MS)

    # -- what is pushed

    def _points(self) -> list[Point]:
        from dataclasses import replace  # noqa: PLC0415 - as above

        from kclient_telemetry.naming import point_of  # noqa: PLC0415

        now_ms = self._clock.now_ms()
        with briefly(self._lock):
            gauges = list(self._required.gauges(now_ms))
            sums = list(self._required.sums())
            throttles = self._throttles
        for name, value in throttles.items():
            (sums if name.name.endswith(_GROWING) else gauges).append((name, value))
        return [point_of(name, value) for name, value in gauges] + [
            # since then, not since the first push: its bytes have taken longer than no time at all
            replace(point_of(name, value, MetricKind.SUM), start_unix_ms=self._made_unix_ms)
            for name, value in sums
        ]


def new_telemetry(
    kind: str, conf: Mapping[str, Any], throttle_times: Callable[[], Mapping[MetricName, float]]
) -> ClientTelemetry | None:
    """A client's telemetry, not yet started, unless `enable.metrics.push` is false.

    Where a connection of ours cannot be made (Kerberos, key stores), librdkafka is left to push by itself.

    Args:
        kind: "producer", "consumer" or "consumer-share".
        conf: librdkafka's configuration.
        throttle_times: the client's own `metrics()`.

    Returns:
        None where it is off or left to librdkafka; otherwise librdkafka's must be switched off.
    """
    if not is_true(conf.get(ENABLE_KEY, True)):
        return None
    from kclient_quota.cluster.security import parse_bootstrap_servers, parse_security  # noqa: PLC0415 - as above

    try:
        parse_bootstrap_servers(conf)
        parse_security(conf)
    except ConfigError as error:
        logger.debug("client telemetry is left to librdkafka: %s", error)
        return None
    return ClientTelemetry(kind, conf, throttle_times)


@atexit.register
def _say_good_bye() -> None:
    """Let clients that nobody has closed push a last time before the process ends, all of them at once.

    They are waited for as long as one ends within each second: where brokers are silent, many clients take as long as
    one. A forked child has those of its parent, too, without their threads: to close them would shut the parent's
    connections down.
    """
    left = [telemetry for telemetry in _running if telemetry.is_running]
    for telemetry in left:
        telemetry.abandon()
    while left := [telemetry for telemetry in left if telemetry.is_awaited]:
        left[0].close()
        if all(telemetry.is_awaited for telemetry in left):
            return
