"""Kafka's telemetry methods, as every client has them; the reporter is loaded with the first client that is made."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from kclient_telemetry.kind import MetricKind

from kclient_quota.clients.calls import ENDLESS_S, has_started
from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kclient_quota.clients.telemetry.reporter import ClientTelemetry, MetricReader
    from kclient_quota.metrics import MetricName

DISABLED: Final = "Telemetry is not enabled. Set config `enable.metrics.push` to `true`."


class TelemetryMethods:
    """Kafka's telemetry methods, for a client that has started its telemetry or left it off."""

    __slots__ = ()

    if TYPE_CHECKING:  # nothing that `typing.get_type_hints()` of a subclass could not resolve
        _kq_telemetry: ClientTelemetry | None
        _kq_closes: Callable[[TelemetryMethods], None] | None
    _kq_telemetry = None
    _kq_closes = None

    def _kq_start_telemetry(self) -> None:
        from kclient_quota.clients import live  # noqa: PLC0415 - loaded with the first client

        # Kept, as a destructor may close a client when nothing can be imported any more.
        self._kq_closes = live.closes  # type: ignore[misc] # a client has room for more than its slots
        live.opened(self)
        if self._kq_telemetry is not None and has_started(self._kq_telemetry.start, "push a client's telemetry"):
            # for a client that is forgotten rather than closed
            weakref.finalize(self, self._kq_telemetry.abandon).atexit = False

    def _kq_stop_telemetry(self) -> None:
        if self._kq_closes is not None:
            self._kq_closes(self)
        if self._kq_telemetry is not None:
            self._kq_telemetry.close()

    def _kq_renew_telemetry(self, username: str, password: str) -> None:
        if self._kq_telemetry is not None:
            self._kq_telemetry.set_sasl_credentials(username, password)

    def metrics(self) -> dict[MetricName, float]:
        """All of them, by Kafka's names."""
        raise NotImplementedError

    def metric(self, name: str) -> float:
        """One of this client's own metrics by its name, such as "quota-wait-time-avg".

        Raises:
            KeyError: there is none of that name.
        """
        for found, value in self.metrics().items():
            if found.name == name and all(key == "client-id" for key, _ in found.tags):
                return value
        raise KeyError(name)

    def client_instance_id(self, timeout: float) -> UUID | None:
        """The id under which this client pushes its metrics (KIP-714).

        Args:
            timeout: seconds to wait for a broker's answer, infinite ones as well; the consumer need not poll meanwhile.

        Returns:
            the id, constant for the client's lifetime; None when there is none within `timeout`.

        Raises:
            ConfigError: telemetry is off.
            ValueError: the timeout is negative.
        """
        if self._kq_telemetry is None:
            raise ConfigError(DISABLED)
        return self._kq_telemetry.client_instance_id(round(min(timeout, ENDLESS_S) * 1000))

    def register_metric_for_subscription(
        self, metric: MetricName, measure: Callable[[], Any], kind: MetricKind = MetricKind.GAUGE
    ) -> None:
        """Push a metric of the application's with the client's own (KIP-1076); does nothing while telemetry is off.

        Args:
            metric: its name, in the push `org.apache.kafka.` + group + `.` + name.
            measure: gives the current value, a number, when it is pushed; a plain function, called in another thread.
            kind: `MetricKind.SUM` for what only grows.
        """
        if self._kq_telemetry is not None:
            self._kq_telemetry.register(metric, measure, kind)

    def unregister_metric_from_subscription(self, metric: MetricName) -> None:
        """Push it no longer (KIP-1076); nothing if it was never registered."""
        if self._kq_telemetry is not None:
            self._kq_telemetry.unregister(metric)

    def register_metric_reader_for_subscription(self, reader: MetricReader) -> None:
        """Push what a MeterProvider collects through `kclient_telemetry.client.otel.KafkaMetricReader`."""
        if self._kq_telemetry is not None:
            self._kq_telemetry.add_reader(reader)


class AIOTelemetryMethods:
    """The same for the asyncio pair. What only notes something down is no coroutine; waiting for a broker is."""

    def _inner(self) -> TelemetryMethods:
        """The client inside."""
        raise NotImplementedError

    def metric(self, name: str) -> float:  # noqa: D102 - below, as are those that follow
        return self._inner().metric(name)

    def register_metric_for_subscription(  # noqa: D102
        self, metric: MetricName, measure: Callable[[], Any], kind: MetricKind = MetricKind.GAUGE
    ) -> None:
        self._inner().register_metric_for_subscription(metric, measure, kind)

    def unregister_metric_from_subscription(self, metric: MetricName) -> None:  # noqa: D102
        self._inner().unregister_metric_from_subscription(metric)

    def register_metric_reader_for_subscription(self, reader: MetricReader) -> None:  # noqa: D102
        self._inner().register_metric_reader_for_subscription(reader)


for _name, _method in vars(AIOTelemetryMethods).items():
    if not _name.startswith("_"):
        _method.__doc__ = getattr(TelemetryMethods, _name).__doc__
