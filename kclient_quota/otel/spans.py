"""Spans through the interceptor chain: a producer's ends at delivery, a consumer's links to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from kclient_quota.clients.interceptor import ConsumerInterceptor, ProducerInterceptor, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.trace import Span, Tracer

    from kclient_quota.clients.interceptor import RecordMetadata

MAX_OPEN = 1_000_000
"""Spans of messages under way; librdkafka's queue holds a tenth of it unless it is told otherwise."""

Headers = list[tuple[str, Any]]


class _HeaderSetter(Setter[Headers]):
    """Puts a propagator's fields among a record's headers, in the place of former ones."""

    def set(self, carrier: Headers, key: str, value: str) -> None:
        carrier[:] = [pair for pair in carrier if pair[0] != key]
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[Headers]):
    """Reads a propagator's fields."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key]
        return [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in found] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_SETTER, _GETTER = _HeaderSetter(), _HeaderGetter()


class ProducerSpans(ProducerInterceptor):
    """A span "send TOPIC" for every record, from `produce()` until its delivery report."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._client_id = ""
        self._open: dict[tuple[int, int], Span] = {}

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Note the client's id."""
        self._client_id = str(configs.get("client.id", ""))

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Begin the span and put its context into the headers."""
        attributes = _attributes("send", record.topic, self._client_id)
        if isinstance(record.key, str | int):
            attributes["messaging.kafka.message.key"] = str(record.key)
        elif isinstance(record.key, bytes):
            attributes["messaging.kafka.message.key"] = record.key.decode("utf-8", "backslashreplace")
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        headers = _pairs(record.headers)
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        propagate.inject(headers, trace.set_span_in_context(span), setter=_SETTER)
        if span.is_recording() and len(self._open) < MAX_OPEN:
            context = span.get_span_context()
            self._open[context.trace_id, context.span_id] = span
        return ProducerRecord(record.topic, record.value, record.key, record.partition, record.timestamp, headers)

    def on_acknowledgement(self, metadata: RecordMetadata, exception: BaseException | Any | None, headers: Any) -> None:
        """End the span that the headers name."""
        if not self._open:
            return
        context = trace.get_current_span(propagate.extract(_pairs(headers), getter=_GETTER)).get_span_context()
        span = self._open.pop((context.trace_id, context.span_id), None)
        if span is None:
            return
        if metadata.partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if exception is not None:
            name = getattr(exception, "name", None)
            span.set_attribute("error.type", str(name()) if callable(name) else type(exception).__name__)
            span.set_status(Status(StatusCode.ERROR, str(exception)))
        span.end()

    def close(self) -> None:
        """End what has no outcome."""
        while self._open:
            _, span = self._open.popitem()
            span.set_status(Status(StatusCode.ERROR, "the producer was closed before the message had an outcome"))
            span.end()


class ConsumerSpans(ConsumerInterceptor):
    """A span "poll TOPIC" for the records of a topic that one call gave, with a link to the span of each."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._client_id = ""
        self._group = ""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Note the client's id and group."""
        self._client_id = str(configs.get("client.id", ""))
        self._group = str(configs.get("group.id", ""))

    def on_consume(self, records: list[Any]) -> list[Any]:
        """A span for each topic."""
        now_ns = time.time_ns()
        by_topic: dict[str, list[Any]] = {}
        for record in records:
            if record.error() is None:
                by_topic.setdefault(record.topic(), []).append(record)
        for topic, those in by_topic.items():
            self._span(topic, those, now_ns)
        return records

    def _span(self, topic: str, records: list[Any], now_ns: int) -> None:
        attributes = _attributes("receive", topic, self._client_id, "poll")
        attributes["messaging.consumer.group.name"] = self._group
        attributes["messaging.batch.message_count"] = len(records)
        if len(records) == 1:
            attributes["messaging.destination.partition.id"] = str(records[0].partition())
            attributes["messaging.kafka.offset"] = records[0].offset()
        span = self._tracer.start_span(
            f"poll {topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=list(_links(records)),
            start_time=now_ns,
        )
        span.end(now_ns)


def _links(records: list[Any]) -> Iterable[Link]:
    for record in records:
        headers = record.headers()
        if headers:
            context = trace.get_current_span(propagate.extract(_pairs(headers), getter=_GETTER)).get_span_context()
            if context.is_valid and context.is_remote:
                yield Link(context)


def _attributes(operation: str, topic: str, client_id: str, name: str | None = None) -> dict[str, Any]:
    """OpenTelemetry's conventions for messaging spans."""
    found: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.operation.name": name or operation,
        "messaging.destination.name": topic,
    }
    if client_id:
        found["messaging.client.id"] = client_id
    return found


def _pairs(headers: Any) -> Headers:
    """Headers as a new list, whichever of confluent_kafka's two forms they have."""
    if not headers:
        return []
    return list(headers.items() if isinstance(headers, dict) else headers)
