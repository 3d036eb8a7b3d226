"""Hands every push to several takers at once; one that fails stops neither the others nor the client."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kclient_telemetry import logger_of
from kclient_telemetry.otlp import parse, with_resource_attributes
from kclient_telemetry.receiver.plugin import (
    ENRICHMENT,
    ClientTelemetryContext,
    ClientTelemetryExporter,
    ClientTelemetryPayload,
    enrichment_attributes,
)

log = logger_of(__name__)

_TELL_EVERY = 1_000
_HELD_BYTES = 2_000  # of a push without its payload


@dataclass(frozen=True, slots=True)
class ReceivedPush:
    """A push that has been found valid.

    Attributes:
        context: who sent it.
        payload: as the broker got it, decompressed.
        attributes: what the receiver knows about the client.
        enriched: the payload with `attributes` on every resource; an ExportMetricsServiceRequest.
        received_unix_ms: when it came.
    """

    context: ClientTelemetryContext
    payload: ClientTelemetryPayload
    attributes: Mapping[str, str]
    enriched: bytes
    received_unix_ms: int

    @property
    def request(self) -> ExportMetricsServiceRequest:
        """The payload as sent, parsed at every call: a parsed one takes up to thirty times the memory of its bytes."""
        return parse(self.payload.data)

    @property
    def held_bytes(self) -> int:
        """About how much memory a push takes that waits to be dealt with."""
        return len(self.payload.data) + len(self.enriched) + _HELD_BYTES


@runtime_checkable
class TelemetrySink(Protocol):
    """Takes valid, enriched pushes."""

    def accept(self, push: ReceivedPush) -> None:
        """Take `push`; quickly, because the client waits for its answer meanwhile."""
        ...

    def close(self, timeout_ms: int) -> None:
        """Deliver what is still here, within `timeout_ms`, and end."""
        ...


def _system_unix_ms() -> int:
    return time.time_ns() // 1_000_000


class FanOut:
    """A `ClientTelemetryExporter` that checks a push once, enriches it once, and hands it to all sinks.

    Only a payload that is no OTLP is refused. What a sink raises is counted and logged, never answered to the client:
    Kafka's own client would stop pushing for ever.

    Args:
        sinks: exporters of this package, or plug-ins in KIP-1217's form, which get the payload as it came.
        attributes: names out of `kclient_telemetry.receiver.plugin.ENRICHMENT` to add.
        unix_ms: the wall clock.

    Attributes:
        received: valid pushes.
        failures: what each sink, in order, has raised so far.
    """

    def __init__(
        self,
        sinks: Sequence[TelemetrySink | ClientTelemetryExporter],
        *,
        attributes: tuple[str, ...] = ENRICHMENT,
        unix_ms: Callable[[], int] = _system_unix_ms,
    ) -> None:
        self._sinks = tuple(sinks)
        self._takers = [_taker(sink) for sink in self._sinks]
        self._attributes = attributes
        self._unix_ms = unix_ms
        self.received = 0
        self.failures = [0] * len(self._sinks)

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Hand a push to every sink.

        Raises:
            InvalidPayloadError: it is no OTLP metrics message.
        """
        request = parse(payload.data)
        attributes = enrichment_attributes(context, payload, self._attributes)
        enriched = with_resource_attributes(payload.data, attributes, request)
        push = ReceivedPush(context, payload, attributes, enriched, self._unix_ms())
        self.received += 1
        for index, take in enumerate(self._takers):
            try:
                take(push)
            except Exception as error:  # noqa: BLE001 # whatever one sink raises, the others get the push
                self._failed(index, error)

    def close(self, timeout_ms: int) -> None:
        """Close the sinks one after another, all of them within `timeout_ms`; plug-ins are left to their owner."""
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        for index, sink in enumerate(self._sinks):
            if isinstance(sink, TelemetrySink):
                left_ms = max((deadline_ns - time.monotonic_ns()) // 1_000_000, 0)
                try:
                    sink.close(left_ms)
                except Exception as error:  # noqa: BLE001 # one that cannot close must not keep the others open
                    self._failed(index, error)

    def _failed(self, index: int, error: Exception) -> None:
        """Count, and tell of the first and then of every thousandth: a broken sink fails at every push."""
        failures = self.failures[index]
        if failures % _TELL_EVERY == 0:
            name = type(self._sinks[index]).__name__
            log.error("%s failed with client telemetry (%d times before)", name, failures, exc_info=error)
        self.failures[index] += 1


def _taker(sink: TelemetrySink | ClientTelemetryExporter) -> Callable[[ReceivedPush], None]:
    if isinstance(sink, TelemetrySink):
        return sink.accept
    return lambda push: sink.export_metrics(push.context, push.payload)
