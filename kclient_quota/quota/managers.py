"""The managers of one broker together: what a request is held to, and which of its delays counts (KafkaApis)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kclient_quota.errors import ConfigError
from kclient_quota.quota.callback import QUOTA_TYPE_OF_KEY, ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.manager import (
    BoundedQuotaManager,
    ClientQuotaManager,
    ClientRequestQuotaManager,
    ControllerMutationQuotaManager,
    Metric,
)
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS
from kclient_quota.quota.throttle import ThrottleRule, combined_throttle_time_ms
from kclient_quota.quota.token_bucket import ControllerMutationQuota


class Throttle(NamedTuple):
    """What a response says, and who accounts for it.

    Attributes:
        time_ms: `throttle_time_ms` of the response; the connection is muted for as long.
        quota_type: the quota that asked for it.
    """

    time_ms: int
    quota_type: ClientQuotaType


class QuotaManagers:
    """Every client quota of one broker; Kafka's `QuotaFactory.QuotaManagers`.

    Args:
        callback: decides limits in place of the eight levels.
        samples: `quota.window.num`, for controller mutations as well.
        window_ms: `quota.window.size.seconds` x 1000, for controller mutations as well.
        rule: how a byte delay and a request delay are put together.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback | None = None,
        *,
        samples: int = QUOTA_SAMPLES,
        window_ms: int = QUOTA_WINDOW_MS,
        rule: ThrottleRule = ThrottleRule.KAFKA,
    ) -> None:
        callback = DefaultQuotaCallback() if callback is None else callback
        self.callback = callback
        self.rule = rule
        self.produce = ClientQuotaManager(ClientQuotaType.PRODUCE, callback, samples=samples, window_ms=window_ms)
        self.fetch = ClientQuotaManager(ClientQuotaType.FETCH, callback, samples=samples, window_ms=window_ms)
        self.request = ClientRequestQuotaManager(callback, samples=samples, window_ms=window_ms)
        self.request_rate = BoundedQuotaManager(
            ClientQuotaType.REQUEST_RATE, callback, samples=samples, window_ms=window_ms
        )
        self.controller_mutation = ControllerMutationQuotaManager(callback, samples=samples, window_ms=window_ms)
        self._managers: dict[ClientQuotaType, ClientQuotaManager] = {
            manager.quota_type: manager
            for manager in (self.produce, self.fetch, self.request, self.request_rate, self.controller_mutation)
        }

    def update_quota(self, entity: ClientQuotaEntity, key: str, value: float | None) -> None:
        """Set one quota of an entity of users and client-ids; None takes it away.

        Raises:
            ConfigError: `key` is no quota of clients.
        """
        quota_type = QUOTA_TYPE_OF_KEY.get(key)
        if quota_type is None:
            raise ConfigError(f"{key} is no quota of users and client-ids; these are: {', '.join(QUOTA_TYPE_OF_KEY)}")
        self._managers[quota_type].update_quota(entity, value)

    # What a request is held to

    def on_produce(
        self, principal: str, client_id: str | None, nbytes: int, nanos: int, now_ms: int, *, acks: int
    ) -> Throttle:
        """A produce request of `nbytes` (header and body) has been done in `nanos` of a handler thread."""
        manager = self.produce
        byte_ms = manager.maybe_record_and_get_throttle_time_ms(principal, client_id, nbytes, now_ms)
        if acks == 0:
            self.request.record_exempt(nanos, now_ms)
        request = self._on_request(principal, client_id, nanos, now_ms, timed=acks != 0)
        return self._together(principal, client_id, now_ms, Throttle(byte_ms, manager.quota_type), request)

    def on_fetch(self, principal: str, client_id: str | None, nbytes: int, nanos: int, now_ms: int) -> Throttle:
        """A fetch would be answered with `nbytes`; when throttled it must be answered empty, and is not counted."""
        request = self._on_request(principal, client_id, nanos, now_ms)
        manager = self.fetch
        byte_ms = manager.maybe_record_and_get_throttle_time_ms(principal, client_id, nbytes, now_ms)
        throttle = self._together(principal, client_id, now_ms, Throttle(byte_ms, manager.quota_type), request)
        if throttle.time_ms > 0 and manager.quotas_enabled:
            manager.unrecord(principal, client_id, nbytes, now_ms)
        return throttle

    def on_request(self, principal: str, client_id: str | None, nanos: int, now_ms: int) -> Throttle:
        """Any other request has been done in `nanos` of a handler thread."""
        return self._on_request(principal, client_id, nanos, now_ms)

    def on_controller_mutation(
        self, principal: str, client_id: str | None, quota: ControllerMutationQuota, nanos: int, now_ms: int
    ) -> Throttle:
        """A request that creates or deletes partitions has been done, its permits recorded in `quota`."""
        request = self._on_request(principal, client_id, nanos, now_ms)
        mutation_ms = quota.throttle_time_ms(now_ms)
        return Throttle(mutation_ms, ClientQuotaType.CONTROLLER_MUTATION) if mutation_ms > request.time_ms else request

    def _on_request(
        self, principal: str, client_id: str | None, nanos: int, now_ms: int, *, timed: bool = True
    ) -> Throttle:
        rate_ms = self.request_rate.maybe_record_and_get_throttle_time_ms(principal, client_id, 1, now_ms)
        time_ms = 0
        if timed:
            time_ms = self.request.record_nanos_and_get_throttle_time_ms(principal, client_id, nanos, now_ms)
        if rate_ms > time_ms:
            return Throttle(rate_ms, self.request_rate.quota_type)
        return Throttle(time_ms, self.request.quota_type)

    def _together(
        self, principal: str, client_id: str | None, now_ms: int, by_bytes: Throttle, by_request: Throttle
    ) -> Throttle:
        def request_ms_after(delay_ms: int) -> int:
            if not delay_ms:
                return by_request.time_ms
            managers = (self.request, self.request_rate)
            return max(m.projected_throttle_time_ms(principal, client_id, now_ms + delay_ms) for m in managers)

        time_ms = combined_throttle_time_ms(self.rule, by_bytes.time_ms, request_ms_after)
        longer = by_bytes if by_bytes.time_ms > by_request.time_ms else by_request
        return Throttle(time_ms, longer.quota_type)

    # Throttling

    def throttle(
        self, principal: str, client_id: str | None, throttle: Throttle, now_ms: int, *, channel: Any = None
    ) -> None:
        """Account for a throttle and keep `channel` until it is over."""
        self._managers[throttle.quota_type].throttle(principal, client_id, throttle.time_ms, now_ms, channel=channel)

    def unthrottled(self, now_ms: int) -> Iterator[Any]:
        """Take out the channels whose throttling is over."""
        for manager in self._managers.values():
            yield from manager.unthrottled(now_ms)

    def next_end_ms(self) -> int | None:
        """When the next throttling ends; None when nobody is throttled."""
        ends = (manager.delay_queue.next_end_ms() for manager in self._managers.values())
        return min((end_ms for end_ms in ends if end_ms is not None), default=None)

    def metrics(self, now_ms: int) -> Iterator[Metric]:
        """Every figure of every quota, by Kafka's names."""
        for manager in self._managers.values():
            yield from manager.metrics(now_ms)
