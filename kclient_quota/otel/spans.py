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
_MOST_KNOWN = 1_000  # topics
_TRACEPARENT = "traceparent"  # whose one value is one span's alone; other propagators need several headers for it


class _HeaderSetter(Setter[Headers]):
    """Puts a propagator's fields among a record's headers, in the place of former ones."""

    def set(self, carrier: Headers, key: str, value: str) -> None:
        if carrier:
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
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._naming = propagate.get_global_textmap().fields - {"tracestate", "baggage"}
        self._open: dict[Any, Span] = {}

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Note the client's id."""
        self._client_id = str(configs.get("client.id", ""))

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Begin the span and put its context into the headers."""
        topic, key = record.topic, record.key
        name, attributes = self._known.get(topic) or self._know(topic)
        if key is not None or record.value is None:
            attributes = {**attributes, **_of_record(key, record.value)}
        headers = _pairs(record.headers)
        span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        propagate.inject(headers, trace.set_span_in_context(span), setter=_SETTER)
        if span.is_recording() and len(self._open) < MAX_OPEN:
            self._open[self._name_of(headers)] = span
        return ProducerRecord(topic, record.value, key, record.partition, record.timestamp, headers)

    def on_acknowledgement(self, metadata: RecordMetadata, exception: BaseException | Any | None, headers: Any) -> None:
        """End the span that the headers name."""
        span = self._open.pop(self._name_of(headers), None) if self._open and headers else None
        if span is None:
            return
        found: dict[str, Any] = {}
        if metadata.partition >= 0:
            found["messaging.destination.partition.id"] = str(metadata.partition)
        if metadata.offset >= 0:
            found["messaging.kafka.offset"] = metadata.offset
        if exception is not None:
            error_name = getattr(exception, "name", None)
            found["error.type"] = str(error_name()) if callable(error_name) else type(exception).__name__
            span.set_status(Status(StatusCode.ERROR, str(exception)))
        span.set_attributes(found)
        span.end()

    def _know(self, topic: str) -> tuple[str, dict[str, Any]]:
        """The name and the attributes that all records of a topic share."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[topic] = known = (f"send {topic}", _attributes("send", topic, self._client_id))
        return known

    def _name_of(self, headers: Any) -> Any:
        """What tells a record's span from others: the headers in which the propagator wrote its ids."""
        pairs = headers.items() if isinstance(headers, dict) else headers
        for pair in pairs:
            if pair[0] == _TRACEPARENT:
                return pair[1]
        return tuple(pair[1] for pair in pairs if pair[0] in self._naming)

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


def _of_record(key: Any, value: Any) -> dict[str, Any]:
    """Attributes of one record."""
    found: dict[str, Any] = {}
    if isinstance(key, str | int):
        found["messaging.kafka.message.key"] = str(key)
    elif isinstance(key, bytes):
        found["messaging.kafka.message.key"] = key.decode("utf-8", "backslashreplace")
    if value is None:
        found["messaging.kafka.message.tombstone"] = True
    return found


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
