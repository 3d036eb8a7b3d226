"""Kafka's `ClientQuotaManager` and its kin: record what a client used, learn how long to throttle it. Owns no clock."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.delay_queue import DelayQueue
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.rate import (
    QUOTA_SAMPLES,
    QUOTA_WINDOW_MS,
    STAT_SAMPLES,
    STAT_WINDOW_MS,
    SampledAvg,
    SampledRate,
)
from kclient_quota.quota.throttle import (
    UNLIMITED,
    UNLIMITED_WINDOW_BYTES,
    max_value_in_quota_window,
    throttle_time_ms,
)
from kclient_quota.quota.token_bucket import ControllerMutationQuota, TokenBucket, token_throttle_time_ms

SENSOR_EXPIRY_MS: Final = 3_600_000
NANOS_TO_PERCENTAGE_PER_SECOND: Final = 100.0 / 1e9
"""`request_percentage` counts a second of one thread as 100 %."""

_RATE_NAMES: Final = {
    ClientQuotaType.PRODUCE: "byte-rate",
    ClientQuotaType.FETCH: "byte-rate",
    ClientQuotaType.REQUEST: "request-time",
    ClientQuotaType.REQUEST_RATE: "request-rate",
    ClientQuotaType.CONTROLLER_MUTATION: "tokens",
}


class Metric(NamedTuple):
    """One figure under the name that Kafka gives it.

    Attributes:
        name: such as "byte-rate".
        group: such as "Produce".
        tags: `user` and `client-id`, or none.
        value: NaN when nothing has been measured yet.
    """

    name: str
    group: str
    tags: Mapping[str, str]
    value: float


class _Sensor:
    """What is measured for those who share metric tags, and the bound they are held to."""

    __slots__ = ("bound", "bound_version", "last_ms", "rate", "tags", "throttle_time")

    def __init__(self, tags: Mapping[str, str], rate: SampledRate, now_ms: int) -> None:
        self.tags = dict(tags)
        self.rate = rate
        self.bound = UNLIMITED
        self.bound_version = -1
        self.last_ms = now_ms
        self.throttle_time = SampledAvg()

    def record(self, value: float, now_ms: int) -> None:
        self.last_ms = now_ms
        self.rate.record(value, now_ms)


class ClientQuotaManager:
    """Measures one kind of usage for every client, and says how long each is to be throttled.

    Clients are named by their principal and client-id; no client-id is the same as an empty one. A quota that
    changes keeps what has been measured, as long as the same clients are measured together.

    Args:
        quota_type: what is measured.
        callback: who is measured together, and under which limit; one object may serve several managers.
        samples: `quota.window.num`.
        window_ms: `quota.window.size.seconds` x 1000.
    """

    def __init__(
        self,
        quota_type: ClientQuotaType,
        callback: ClientQuotaCallback | None = None,
        *,
        samples: int = QUOTA_SAMPLES,
        window_ms: int = QUOTA_WINDOW_MS,
    ) -> None:
        self.quota_type = quota_type
        self.samples = samples
        self.window_ms = window_ms
        self.delay_queue: DelayQueue[Any] = DelayQueue()
        self._callback = DefaultQuotaCallback() if callback is None else callback
        self._sensors: dict[tuple[str, ...], _Sensor] = {}
        self._bound_version = 0

    @property
    def quotas_enabled(self) -> bool:
        """Whether any quota is set; with a callback of the user's, always."""
        callback = self._callback
        return not isinstance(callback, DefaultQuotaCallback) or bool(callback.quota_types_enabled(self.quota_type))

    # Quotas

    def update_quota(self, entity: ClientQuotaEntity, limit: float | None) -> None:
        """Set the quota of an entity of users and client-ids, per second; None takes it away."""
        if limit is None:
            self._callback.remove_quota(self.quota_type, entity)
        else:
            self._callback.update_quota(self.quota_type, entity, limit)
        self._bound_version += 1

    def quota(self, principal: str, client_id: str | None) -> float:
        """The bound of a client, per second; `UNLIMITED` when it has none."""
        tags = self._callback.quota_metric_tags(self.quota_type, principal, client_id or "")
        return self._limit(tags)

    def max_value_in_quota_window(self, principal: str, client_id: str | None) -> float:
        """The most that can be recorded at once without being throttled for certain; what a fetch is capped to."""
        if not self.quotas_enabled:
            return UNLIMITED_WINDOW_BYTES
        return max_value_in_quota_window(self.quota(principal, client_id), self.samples, self.window_ms)

    # Usage

    def maybe_record_and_get_throttle_time_ms(
        self, principal: str, client_id: str | None, value: float, now_ms: int
    ) -> int:
        """`record_and_get_throttle_time_ms`, but nothing at all while no quota is set."""
        if not self.quotas_enabled:
            return 0
        return self.record_and_get_throttle_time_ms(principal, client_id, value, now_ms)

    def record_and_get_throttle_time_ms(self, principal: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Record `value` for a client and return for how many ms to throttle it, 0 when it is within its quota."""
        sensor = self._sensor(principal, client_id, now_ms)
        sensor.record(value, now_ms)
        return self._throttle_time_ms(sensor, now_ms)

    def record_no_throttle(self, principal: str, client_id: str | None, value: float, now_ms: int) -> None:
        """Record `value` now; it counts when the client's next request is checked."""
        self._sensor(principal, client_id, now_ms).record(value, now_ms)

    def unrecord(self, principal: str, client_id: str | None, value: float, recorded_at_ms: int) -> None:
        """Take back what was recorded at `recorded_at_ms`: a throttled fetch is answered empty.

        Only right as long as nothing was recorded for this client at a later time, as it lands in the newest sample.
        """
        self._sensor(principal, client_id, recorded_at_ms).record(-value, recorded_at_ms)

    def projected_throttle_time_ms(self, principal: str, client_id: str | None, at_ms: int) -> int:
        """How long the client would be throttled at `at_ms`, should nothing else come; changes nothing."""
        tags = self._callback.quota_metric_tags(self.quota_type, principal, client_id or "")
        sensor = self._sensors.get(tuple(tags.values()))
        if sensor is None:
            return 0
        total, window_ms = sensor.rate.project(at_ms)
        return self._bounded(throttle_time_ms(total / (window_ms / 1000.0), sensor.bound, window_ms))

    # Throttling

    def throttle(
        self, principal: str, client_id: str | None, throttle_time_ms: int, now_ms: int, *, channel: Any = None
    ) -> None:
        """Account for a client's being throttled, and keep `channel` until it is over; nothing for 0 ms and less."""
        if throttle_time_ms <= 0:
            return
        sensor = self._sensor(principal, client_id, now_ms)
        sensor.throttle_time.record(throttle_time_ms, now_ms)
        self.delay_queue.add(channel, throttle_time_ms, now_ms)

    def unthrottled(self, now_ms: int) -> Iterator[Any]:
        """Take out, one by one, the channels whose throttling is over."""
        queue = self.delay_queue
        end_ms = queue.next_end_ms()
        while end_ms is not None and end_ms <= now_ms:
            yield queue.poll(now_ms)
            end_ms = queue.next_end_ms()

    # Metrics

    def metrics(self, now_ms: int) -> Iterator[Metric]:
        """Every figure by Kafka's names, groups and tags."""
        self.expire(now_ms)
        group = self.quota_type.value
        for sensor in self._sensors.values():
            yield from self._sensor_metrics(sensor, now_ms)
            yield Metric("throttle-time", group, sensor.tags, sensor.throttle_time.measure(now_ms))
        yield Metric("queue-size", group, {}, float(len(self.delay_queue)))

    def expire(self, now_ms: int) -> None:
        """Forget whoever has not been heard of for an hour."""
        oldest_kept = now_ms - SENSOR_EXPIRY_MS
        for key in [key for key, sensor in self._sensors.items() if sensor.last_ms < oldest_kept]:
            del self._sensors[key]

    def _sensor_metrics(self, sensor: _Sensor, now_ms: int) -> Iterator[Metric]:
        yield Metric(_RATE_NAMES[self.quota_type], self.quota_type.value, sensor.tags, sensor.rate.measure(now_ms))

    # Within

    def _limit(self, tags: Mapping[str, str]) -> float:
        limit = self._callback.quota_limit(self.quota_type, tags)
        return UNLIMITED if limit is None else limit

    def _sensor(self, principal: str, client_id: str | None, now_ms: int) -> _Sensor:
        callback = self._callback
        tags = callback.quota_metric_tags(self.quota_type, principal, client_id or "")
        if callback.quota_reset_required(self.quota_type):
            self._bound_version += 1
        key = tuple(tags.values())
        sensor = self._sensors.get(key)
        if sensor is None or now_ms - sensor.last_ms > SENSOR_EXPIRY_MS:
            sensor = self._sensors[key] = self._new_sensor(tags, now_ms)
        if sensor.bound_version != self._bound_version:
            sensor.bound_version = self._bound_version
            sensor.bound = self._limit(sensor.tags)
        return sensor

    def _new_sensor(self, tags: Mapping[str, str], now_ms: int) -> _Sensor:
        return _Sensor(tags, SampledRate(self.samples, self.window_ms), now_ms)

    def _throttle_time_ms(self, sensor: _Sensor, now_ms: int) -> int:
        rate = sensor.rate
        value = rate.measure(now_ms)
        if value <= sensor.bound:
            return 0
        return self._bounded(throttle_time_ms(value, sensor.bound, rate.window_size_ms(now_ms)))

    def _bounded(self, throttle_ms: int) -> int:
        return throttle_ms


class BoundedQuotaManager(ClientQuotaManager):
    """A manager whose throttles are no longer than one window, so that no client is kept from its heartbeats."""

    def _bounded(self, throttle_ms: int) -> int:
        return min(throttle_ms, self.window_ms)


class ClientRequestQuotaManager(BoundedQuotaManager):
    """Kafka's request quota: percent of one thread's time.

    Args:
        callback: see `ClientQuotaManager`.
        samples: see `ClientQuotaManager`.
        window_ms: see `ClientQuotaManager`; also the longest throttle.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback | None = None,
        *,
        samples: int = QUOTA_SAMPLES,
        window_ms: int = QUOTA_WINDOW_MS,
    ) -> None:
        super().__init__(ClientQuotaType.REQUEST, callback, samples=samples, window_ms=window_ms)
        self._exempt: SampledRate | None = None

    def record_nanos_and_get_throttle_time_ms(
        self, principal: str, client_id: str | None, nanos: int, now_ms: int
    ) -> int:
        """Record a request's time on a handler thread; 0 while no quota is set."""
        return self.maybe_record_and_get_throttle_time_ms(
            principal, client_id, nanos * NANOS_TO_PERCENTAGE_PER_SECOND, now_ms
        )

    def record_network_nanos(self, principal: str, client_id: str | None, nanos: int, now_ms: int) -> None:
        """Record a request's time on a network thread, which is known only once the response has gone."""
        if self.quotas_enabled:
            self.record_no_throttle(principal, client_id, nanos * NANOS_TO_PERCENTAGE_PER_SECOND, now_ms)

    def record_exempt(self, nanos: int, now_ms: int) -> None:
        """Record time that no quota counts: replication and produce requests without acknowledgement."""
        if self._exempt is None:
            self._exempt = SampledRate(STAT_SAMPLES, STAT_WINDOW_MS)
        self._exempt.record(nanos * NANOS_TO_PERCENTAGE_PER_SECOND, now_ms)

    def metrics(self, now_ms: int) -> Iterator[Metric]:
        """As every manager's, and `exempt-request-time` once there was any."""
        yield from super().metrics(now_ms)
        if self._exempt is not None:
            yield Metric("exempt-request-time", self.quota_type.value, {}, self._exempt.measure(now_ms))


class _MutationSensor(_Sensor):
    """Tokens beside a rate. The rate is only looked at, the tokens are what is held to the quota."""

    __slots__ = ("bucket",)

    def __init__(self, tags: Mapping[str, str], bucket: TokenBucket, now_ms: int) -> None:
        super().__init__(tags, SampledRate(STAT_SAMPLES, STAT_WINDOW_MS), now_ms)
        self.bucket = bucket

    def record(self, value: float, now_ms: int) -> None:
        super().record(value, now_ms)
        self.bucket.record(value, self.bound, now_ms)

    def take(self, permits: float, now_ms: int) -> None:
        self.record(permits, now_ms)

    def tokens(self, now_ms: int) -> float:
        return self.bucket.measure(self.bound, now_ms)


class ControllerMutationQuotaManager(ClientQuotaManager):
    """KIP-599: partitions created and deleted per second, as a token bucket.

    Args:
        callback: see `ClientQuotaManager`.
        samples: `controller.quota.window.num`.
        window_ms: `controller.quota.window.size.seconds` x 1000.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback | None = None,
        *,
        samples: int = QUOTA_SAMPLES,
        window_ms: int = QUOTA_WINDOW_MS,
    ) -> None:
        super().__init__(ClientQuotaType.CONTROLLER_MUTATION, callback, samples=samples, window_ms=window_ms)

    def quota_for(self, principal: str, client_id: str | None, now_ms: int, *, strict: bool) -> ControllerMutationQuota:
        """What one request is held to; strict for CreateTopics >= 6, CreatePartitions >= 3, DeleteTopics >= 5."""
        if not self.quotas_enabled:
            return ControllerMutationQuota(None, strict=strict)
        return ControllerMutationQuota(self._mutation_sensor(principal, client_id, now_ms), strict=strict)

    def record_and_get_throttle_time_ms(self, principal: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Record `value` unless the bucket is overdrawn already; then return for how many ms to throttle."""
        sensor = self._mutation_sensor(principal, client_id, now_ms)
        throttle_ms = token_throttle_time_ms(sensor.tokens(now_ms), sensor.bound)
        if throttle_ms <= 0:
            sensor.record(value, now_ms)
        return throttle_ms

    def _mutation_sensor(self, principal: str, client_id: str | None, now_ms: int) -> _MutationSensor:
        sensor = self._sensor(principal, client_id, now_ms)
        assert isinstance(sensor, _MutationSensor)
        return sensor

    def _new_sensor(self, tags: Mapping[str, str], now_ms: int) -> _Sensor:
        return _MutationSensor(tags, TokenBucket(self.samples, self.window_ms), now_ms)

    def _sensor_metrics(self, sensor: _Sensor, now_ms: int) -> Iterator[Metric]:
        assert isinstance(sensor, _MutationSensor)
        group = self.quota_type.value
        yield Metric("tokens", group, sensor.tags, sensor.tokens(now_ms))
        yield Metric("mutation-rate", group, sensor.tags, sensor.rate.measure(now_ms))
