"""`instrument()`: one call, and this process's providers have what its clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient_telemetry.errors import MissingExtraError

from kclient_quota.clients import interceptor, live
from kclient_quota.clock import monotonic_ns
from kclient_quota.otel import definitions as d
from kclient_quota.otel.snapshot import Snapshots

try:
    from opentelemetry import metrics, trace
except ImportError as error:  # its namespace is there, with the core's opentelemetry-proto
    raise MissingExtraError("instrument() needs OpenTelemetry: pip install 'kclient-quota[otel]'") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

SCOPE = "kclient_quota"


def instrument(
    meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
) -> Callable[[], None]:
    """Put metrics and spans of all clients of this process, present and to come, on OpenTelemetry's providers.

    Metrics are observed when they are collected and cost nothing per message. Spans go through the interceptor chain of
    clients that are made afterwards; a producer's ends when its message is delivered or has failed.

    Args:
        meter_provider: where metrics go; by default the process's own.
        tracer_provider: where spans go; by default the process's own if it has been set, else there are no spans.

    Returns:
        a function that takes spans back from clients to come and silences the metrics.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
    """
    snapshots = Snapshots(live.clients, lambda: monotonic_ns() // 1_000_000)
    metrics_here = _Metrics(metrics.get_meter(SCOPE, meter_provider=meter_provider), snapshots)
    if tracer_provider is None and not _is_set(trace.get_tracer_provider()):
        return metrics_here.silence
    from kclient_quota.otel.spans import ConsumerSpans, ProducerSpans  # noqa: PLC0415 - who wants none loads none

    tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
    made = (lambda: ProducerSpans(tracer), lambda: ConsumerSpans(tracer))
    interceptor.everywhere.extend(made)

    def undo() -> None:
        metrics_here.silence()
        for each in made:
            if each in interceptor.everywhere:
                interceptor.everywhere.remove(each)

    return undo


def _is_set(provider: Any) -> bool:
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


class _Metrics:
    """The instruments."""

    def __init__(self, meter: Meter, snapshots: Snapshots) -> None:
        self._snapshots: Snapshots | None = snapshots
        live.closing.append(snapshots.on_close)
        for each in d.KAFKA:
            for client in each.clients:
                self._create(meter, each.otel_name(client), each.kind, each.unit, each.description)
        for state in d.STATE:
            self._create(meter, state.name, state.kind, state.unit, state.description)

    def silence(self) -> None:
        """Observe nothing any more; OpenTelemetry cannot take instruments back."""
        if self._snapshots is not None:
            live.closing.remove(self._snapshots.on_close)
        self._snapshots = None

    def _create(self, meter: Meter, name: str, kind: str, unit: str, description: str) -> None:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            if self._snapshots is not None:
                for value, attributes in self._snapshots.of(name):
                    yield metrics.Observation(value, attributes)

        create = meter.create_observable_counter if kind == d.COUNTER else meter.create_observable_gauge
        create(name, [observe], unit, description)
