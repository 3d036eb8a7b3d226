"""What all clients of a process say of themselves at one moment, as points for instruments."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from kclient_quota.otel import definitions as d

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

logger = logging.getLogger("kclient_quota")

Attributes = tuple[tuple[str, str | int], ...]
Points = dict[tuple[str, Attributes], float]
"""By the instrument's name and attributes."""

_NAMES = {(each.kafka_name, client): (each.otel_name(client), each.kind) for each in d.KAFKA for client in each.clients}
_COUNTERS = {name for name, kind in _NAMES.values() if kind == d.COUNTER} | {
    each.name for each in d.STATE if each.kind == d.COUNTER
}
_ADDED_UP = _COUNTERS | {d.OUTSTANDING.name, d.WAITING.name, d.QUEUE.name}


class Snapshots:
    """Takes one look at all clients for every collection, however many instruments ask.

    Counters of clients that are gone go on counting, since a sum that shrinks would look like a restart. What a client
    has counted when it closes is noted then: one that lives for a second may never be there when somebody looks.
    For the same reason what an open producer counts of a broker whose number it does not know yet is left out: it is
    that broker's as soon as it does. What is given back of what was let through shrinks nothing, either.

    Args:
        clients: gives the open ones, each by a number that no other ever has.
        now_ms: a clock that does not go back.
    """

    def __init__(self, clients: Callable[[], Mapping[int, Any]], now_ms: Callable[[], int]) -> None:
        self._clients = clients
        self._now_ms = now_ms
        self._taken_ms: int | None = None
        self._points: Points = {}
        self._last: dict[int, Points] = {}
        self._gone: Points = {}
        self._ended: set[int] = set()  # closed, and still somebody's
        # Appended to in the threads that close clients. They wait for no lock, as one may be a signal's handler. Who
        # never collects keeps those of the last thousand.
        self._closed: deque[tuple[int, Points]] = deque(maxlen=1000)

    def on_close(self, number: int, client: Any) -> None:
        """Note what this client has counted."""
        self._closed.append((number, self._points_of(number, client)))

    def of(self, name: str) -> Iterator[tuple[float, dict[str, str | int]]]:
        """The points of one instrument."""
        now_ms = self._now_ms()
        if self._taken_ms is None or self._closed or now_ms - self._taken_ms >= _FRESH_MS:
            self._taken_ms = now_ms
            self._points = self._take()
        for (each, attributes), value in self._points.items():
            if each == name:
                yield value, dict(attributes)

    def _take(self) -> Points:
        clients = self._clients()
        while self._closed:
            number, counted = self._closed.popleft()
            self._last[number] = self._no_less(number, counted)
            self._ended.add(number)
        for gone in self._last.keys() - clients.keys():
            _add(self._gone, self._counters_of(gone))
            del self._last[gone]
        self._ended &= clients.keys()
        points = dict(self._gone)
        for number, client in clients.items():
            self._last[number] = found = self._no_less(number, self._points_of(number, client))
            is_open = number not in self._ended
            _add(points, {key: value for key, value in found.items() if not (is_open and _may_move(key))})
        return points

    def _no_less(self, number: int, found: Points) -> Points:
        """`found` of a client whose counters have been there before."""
        for key, value in self._counters_of(number).items():
            if not _may_move(key):
                found[key] = max(value, found.get(key, 0.0))
        return found

    def _points_of(self, number: int, client: Any) -> Points:
        try:
            return points_of(client)
        except Exception as error:  # noqa: BLE001 - closed meanwhile, or a subclass's own: it closes nevertheless
            logger.debug("no metrics of %s: %s", type(client).__name__, error)
            return self._counters_of(number)

    def _counters_of(self, number: int) -> Points:
        """As far as they are known of one that can say nothing now."""
        return {key: value for key, value in self._last.get(number, {}).items() if key[0] in _COUNTERS}


_FRESH_MS = 500


def points_of(client: Any) -> Points:
    """All points of one client, out of its public methods."""
    points: Points = {}
    is_producer = hasattr(client, "produce")
    kind = d.PRODUCER if is_producer else d.CONSUMER
    client_id = ""
    for metric, value in client.metrics().items():
        tags = dict(metric.tags)
        client_id = client_id or tags.get("client-id", "")
        name = _NAMES.get((metric.name, kind))
        if name is not None and not math.isnan(value):
            points[name[0], tuple(sorted(tags.items()))] = value
    who: Attributes = (("messaging.client.id", client_id), ("messaging.system", "kafka"))
    for broker, state in client.quota_state().items():
        here: Attributes = tuple(
            sorted((*who, ("kafka.client.type", kind), ("kafka.broker.id", broker)), key=lambda pair: pair[0])
        )
        values = {
            d.LIMIT: state.limit,
            d.RATE: state.rate if math.isfinite(state.rate) else None,
            d.USED: state.admitted,
            d.OUTSTANDING: state.outstanding,
            d.WAITING: state.waiting,
            d.THROTTLED: state.throttled_until_ms,
        }
        points |= {(each.name, here): float(value) for each, value in values.items() if value is not None}
    if is_producer:
        points[d.QUEUE.name, who] = float(len(client))
    elif hasattr(client, "position"):  # of a share group's member there is none
        points |= _lags(client, client_id)
    return points


def _lags(consumer: Any, client_id: str) -> Points:
    """How far a consumer is behind, as far as it has heard of the ends of its partitions; asks no broker."""
    found: Points = {}
    for part in consumer.position(consumer.assignment()):
        ends = consumer.get_watermark_offsets(part, cached=True) if part.offset >= 0 else None
        if ends is not None and ends[1] >= part.offset:
            where = (("client-id", client_id), ("partition", str(part.partition)), ("topic", part.topic))
            found["kafka.consumer.records_lag", where] = float(ends[1] - part.offset)
    if found:
        found["kafka.consumer.records_lag_max", (("client-id", client_id),)] = max(found.values())
    return found


def _may_move(key: tuple[str, Attributes]) -> bool:
    return key[0] == d.USED.name and {("kafka.broker.id", -1), ("kafka.client.type", d.PRODUCER)} <= set(key[1])


def _add(points: Points, more: Points) -> None:
    """Of clients of one name the counters and queues are added up, of all else the larger counts."""
    for key, value in more.items():
        former = points.get(key)
        points[key] = value if former is None else former + value if key[0] in _ADDED_UP else max(former, value)
