"""Builds the payload of a push: within the broker's bound, in the broker's favourite compression that works."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kclient_telemetry import logger_of
from kclient_telemetry.client.subscription import ClientSubscription, Selection
from kclient_telemetry.compression import CompressionType, compress, preferred
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import PushTelemetryRequest
from kclient_telemetry.metric import Attributes, PointKey, PushPoint

if TYPE_CHECKING:
    from kclient_telemetry.otlp import EncodedPush

log = logger_of(__name__)

# A bound learnt from a refusal is never less, and grows by a quarter with every accepted push that it cut short.
_LEAST_MAX_BYTES = 1_024
_REGROWTH = 4
_TELL_EVERY_MS = 60_000

Compressor = Callable[[bytes, CompressionType], bytes]


class PointSource(Protocol):
    """Where the reporter gets its points: see `kclient_telemetry.client.collector.Collector`."""

    @property
    def resource(self) -> Attributes:
        """Attributes of every push."""
        ...

    def collect(self, selection: Selection, *, delta: bool, unix_ms: int) -> Sequence[PushPoint]:
        """The current points of the selected metrics."""
        ...

    def acknowledge(self, points: Iterable[PushPoint]) -> None:
        """Record that a broker has taken `points`."""
        ...

    def reset(self) -> None:
        """Begin all deltas anew."""
        ...


@dataclass(slots=True)
class PayloadCounters:
    """Points left for a later push, points that no push can hold, and codecs that failed."""

    deferred_points: int = 0
    dropped_points: int = 0
    compression_failures: int = 0


@dataclass(frozen=True, slots=True)
class Payload:
    """What a push carries, and the points in it."""

    compression_type: CompressionType
    metrics: bytes
    points: tuple[PushPoint, ...]


class PayloadBuilder:
    """Turns the points of `source` into payloads, and remembers what brokers refused.

    Points that do not fit wait, and those that waited longest go first in the next push: a broker takes one push an
    interval, so that the rest cannot follow at once. Growing values lose nothing by it: their deltas reach back to the
    last push that had them.

    Args:
        source: where points come from.
        compressor: turns bytes into Kafka's framing of a compression type; may raise, which rules that type out.
    """

    def __init__(self, source: PointSource, compressor: Compressor = compress) -> None:
        self.counters = PayloadCounters()
        self._source = source
        self._compressor = compressor
        self._failed_types: set[CompressionType] = set()
        self._pushes = 0
        self._last_pushed: dict[PointKey, int] = {}
        self._cut_short = False
        self._told = 0, 0  # the bound, and when
        self._complained: set[PointKey] = set()
        self._learnt_max_bytes = 0
        self._broker_max_bytes = 0

    def build(self, subscription: ClientSubscription, unix_ms: int) -> Payload | None:
        """The next payload; None when it cannot be built, which is logged."""
        limit = self._limit(subscription.telemetry_max_bytes)
        try:
            encoded = self._encode(subscription, unix_ms, limit)
        except Exception:
            # Names and values come from the application; whatever is wrong with them must not end telemetry.
            log.exception("telemetry could not be encoded; trying again after the push interval")
            return None
        self._account(encoded, limit, unix_ms)
        kind, metrics = self._compress(encoded.payload, subscription.accepted_compression_types, limit)
        return Payload(kind, metrics, encoded.sent)

    def acknowledge(self, points: Iterable[PushPoint]) -> None:
        """A broker has taken `points`."""
        self._source.acknowledge(points)
        if self._cut_short:
            self._learnt_max_bytes += self._learnt_max_bytes // _REGROWTH

    def reset(self) -> None:
        """The temporality changed: deltas begin anew."""
        self._source.reset()

    def learn(self, code: int, push: PushTelemetryRequest) -> None:
        """Remember why a broker refused `push`."""
        if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and push.compression_type != CompressionType.NONE:
            self._failed_types.add(CompressionType(push.compression_type))
        if code == ErrorCode.TELEMETRY_TOO_LARGE and push.metrics:
            self._learnt_max_bytes = max(len(push.metrics) // 2, _LEAST_MAX_BYTES)
            log.warning("the broker found %d bytes of telemetry too large; sending at most half", len(push.metrics))

    def _limit(self, broker_max_bytes: int) -> int:
        """Bound of a payload, 0 for none; what was learnt holds until the subscription's own bound changes."""
        if broker_max_bytes != self._broker_max_bytes:
            self._broker_max_bytes, self._learnt_max_bytes = broker_max_bytes, 0
        return min((bound for bound in (broker_max_bytes, self._learnt_max_bytes) if bound > 0), default=0)

    def _encode(self, subscription: ClientSubscription, unix_ms: int, limit: int) -> "EncodedPush":
        from kclient_telemetry.otlp import encode  # noqa: PLC0415 - loads protobuf, with the first push

        points = self._source.collect(subscription.selection, delta=subscription.delta_temporality, unix_ms=unix_ms)
        if self._last_pushed:
            points = sorted(points, key=lambda point: self._last_pushed.get(point.point.key, 0))
        try:
            return encode(points, self._source.resource, limit)
        except Exception:
            sound = [point for point in points if self._is_sound(point)]
            if not sound:
                raise
            return encode(sound, self._source.resource, limit)

    def _is_sound(self, point: PushPoint) -> bool:
        """Whether a push can hold a point; each one of which it cannot is told of once."""
        from kclient_telemetry.otlp import encode  # noqa: PLC0415 - as above

        try:
            encode((point,), self._source.resource, 0)
        except Exception as error:  # noqa: BLE001 - as in `build`
            self.counters.dropped_points += 1
            if point.point.key not in self._complained:
                self._complained.add(point.point.key)
                log.warning("metric %r cannot be encoded and is left out of pushes: %s", point.point.key.name, error)
            return False
        return True

    def _account(self, encoded: "EncodedPush", limit: int, unix_ms: int) -> None:
        self._take_turns(encoded)
        self._cut_short = bool(encoded.deferred or encoded.dropped)
        self.counters.deferred_points += len(encoded.deferred)
        self.counters.dropped_points += len(encoded.dropped)
        told_limit, told_unix_ms = self._told
        # a line a minute for each bound: brokers may ask for ten pushes a second
        if self._cut_short and (limit != told_limit or abs(unix_ms - told_unix_ms) >= _TELL_EVERY_MS):
            self._told = limit, unix_ms
            log.warning(
                "a push may have %d bytes: %d points wait for the next push, %d are larger than that and are dropped",
                limit,
                len(encoded.deferred),
                len(encoded.dropped),
            )

    def _take_turns(self, encoded: "EncodedPush") -> None:
        self._pushes += 1
        if encoded.deferred:
            self._last_pushed.update((point.point.key, self._pushes) for point in encoded.sent)
        else:
            self._last_pushed.clear()

    def _compress(self, payload: bytes, accepted: Sequence[int], limit: int) -> tuple[CompressionType, bytes]:
        """`payload` in the first accepted type that works; as it is when none does or it would grow too large."""
        while payload:
            kind = preferred(accepted, frozenset(self._failed_types))
            if kind is CompressionType.NONE:
                break
            try:
                compressed = self._compressor(payload, kind)
            except Exception:  # noqa: BLE001 # as Kafka: whatever a codec raises, another one is taken
                log.info("telemetry cannot be compressed with %s; it will not be tried again", kind.name)
                self._failed_types.add(kind)
                self.counters.compression_failures += 1
                continue
            if limit and len(compressed) > limit:
                break
            return kind, compressed
        return CompressionType.NONE, payload
