"""Which request is held to which quota on one broker (Kafka's `KafkaApis` and `RequestHandlerHelper`).

`QuotaManagers` does the arithmetic; here it meets requests: what is measured, what a fetch may take, who is told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType
from kclient_quota.quota.connections import ConnectionQuotas
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.managers import QuotaManagers, Throttle
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS
from kclient_quota.quota.throttle import ThrottleRule
from kclient_quota.quota.token_bucket import ControllerMutationQuota
from kclient_quota.wire.messages import FetchRequest, ShareFetchRequest

FETCH_MAX_BYTES = 55 * 1024 * 1024
"""Kafka's default of the broker configuration `fetch.max.bytes`."""

_STRICT_MUTATIONS_SINCE = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics and CreatePartitions: the first version that is refused rather than delayed."""


NOT_THROTTLED = Throttle(0, ClientQuotaType.REQUEST)
_NO_MUTATION_QUOTA = ControllerMutationQuota(None, strict=False)


class Session(NamedTuple):
    """Whom a request is charged to."""

    principal: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """How a broker measures.

    Attributes:
        samples: `quota.window.num`.
        window_ms: `quota.window.size.seconds` x 1000.
        rule: Kafka's, or the draft of KIP-124, where request delays come after byte delays.
        callback: decides limits in place of the eight levels.
        fetch_max_bytes: `fetch.max.bytes`.
    """

    samples: int = QUOTA_SAMPLES
    window_ms: int = QUOTA_WINDOW_MS
    rule: ThrottleRule = ThrottleRule.KAFKA
    callback: ClientQuotaCallback | None = None
    fetch_max_bytes: int = FETCH_MAX_BYTES


class Enforcement:
    """The quotas of one broker.

    Args:
        settings: how it measures.
        thread_ns: nanoseconds that the thread which handles requests has worked.

    Attributes:
        managers: what is measured, and the metrics of it.
        connections: the same of connections.
    """

    def __init__(self, settings: QuotaSettings, thread_ns: Callable[[], int]) -> None:
        self.settings = settings
        self.managers = QuotaManagers(
            settings.callback, samples=settings.samples, window_ms=settings.window_ms, rule=settings.rule
        )
        self.connections = ConnectionQuotas(samples=settings.samples, window_ms=settings.window_ms)
        self._thread_ns = thread_ns
        self._limits: set[tuple[ClientQuotaEntity, str]] = set()
        self._is_idle = settings.callback is None

    def update_quota(self, entity: ClientQuotaEntity, key: str, value: float | None) -> None:
        """Follow a quota that was set (None: removed) in the cluster."""
        if entity.ip is not None:
            self.connections.update_quota(entity.ip, key, value)
            return
        self.managers.update_quota(entity, key, value)
        if value is None:
            self._limits.discard((entity, key))
        else:
            self._limits.add((entity, key))
        # while nobody is limited nothing is measured, as in Kafka, and requests pass at less cost
        self._is_idle = self.settings.callback is None and not self._limits

    def thread_ns(self) -> int:
        """The thread's time, or 0 as long as nobody's time is limited: reading it costs more than a small request."""
        return 0 if self._is_idle or not self.managers.request.quotas_enabled else self._thread_ns()

    def mutations(self, session: Session, api_key: int, version: int, now_ms: int) -> ControllerMutationQuota:
        """What the request may create and delete (KIP-599)."""
        if self._is_idle:
            return _NO_MUTATION_QUOTA
        since = _STRICT_MUTATIONS_SINCE.get(api_key)
        is_strict = since is not None and version >= since
        return self.managers.controller_mutation.quota_for(*session, now_ms, strict=is_strict)

    def cap(self, session: Session, request: FetchRequest | ShareFetchRequest) -> None:
        """Let a fetch take no more than a whole window allows, nor wait for more than it may take."""
        limit = min(request.max_bytes, self.settings.fetch_max_bytes)
        if not self._is_idle:
            limit = int(min(limit, self.managers.fetch.max_value_in_quota_window(*session)))
        request.max_bytes = limit
        request.min_bytes = min(request.min_bytes, request.max_bytes)

    # -- after the handler

    def after_produce(self, session: Session, nbytes: int, busy_ns: int, now_ms: int, *, acks: int) -> Throttle:
        """`nbytes` of request, without the 4 bytes of its length, have been appended."""
        if self._is_idle:
            return NOT_THROTTLED
        return self.managers.on_produce(*session, nbytes, busy_ns, now_ms, acks=acks)

    def after_fetch(
        self, session: Session, nbytes: int, busy_ns: int, now_ms: int, *, most_sent_ms: float = 0
    ) -> Throttle:
        """`nbytes` of response are ready; throttled for longer than `most_sent_ms`, they are neither sent nor counted.

        Kafka sends none that are throttled.
        """
        if self._is_idle:
            return NOT_THROTTLED
        throttle = self.managers.on_fetch(*session, nbytes, busy_ns, now_ms)
        if 0 < throttle.time_ms <= most_sent_ms and self.managers.fetch.quotas_enabled:
            self.managers.fetch.record_no_throttle(*session, nbytes, now_ms)
        return throttle

    def ahead_of_fetch_ms(self, session: Session, now_ms: int) -> int:
        """For how long what was fetched so far throttles a fetch."""
        return 0 if self._is_idle else self.managers.fetch.projected_throttle_time_ms(*session, now_ms)

    def refused_produce_ms(self, session: Session, nbytes: int, most_ms: int, now_ms: int) -> int:
        """0, or for how long `nbytes` would be throttled when that is longer than `most_ms`; counts nothing."""
        manager = self.managers.produce
        if self._is_idle or not manager.quotas_enabled:
            return 0
        time_ms = manager.record_and_get_throttle_time_ms(*session, nbytes, now_ms)
        manager.unrecord(*session, nbytes, now_ms)
        return time_ms if time_ms > most_ms else 0

    def after_request(
        self, session: Session, mutations: ControllerMutationQuota, busy_ns: int, now_ms: int
    ) -> Throttle:
        """Any other request has been handled."""
        if self._is_idle:
            return NOT_THROTTLED
        return self.managers.on_controller_mutation(*session, mutations, busy_ns, now_ms)

    def throttle(self, session: Session, throttle: Throttle, now_ms: int, channel: object) -> None:
        """Account for a throttle; `channel` counts as queued until `unthrottle` has gone past its end."""
        self.managers.throttle(*session, throttle, now_ms, channel=channel)

    def unthrottle(self, now_ms: int) -> None:
        """Let go of every channel whose throttle is over."""
        for _ in self.managers.unthrottled(now_ms):
            pass

    def record_network_time(self, session: Session, nanos: int, now_ms: int) -> None:
        """Charge what receiving and sending took; it counts from the client's next request on."""
        self.managers.request.record_network_nanos(*session, nanos, now_ms)


def longer(throttle: Throttle, time_ms: int) -> Throttle:
    """`throttle`, but at least `time_ms`; what is added counts as a request throttle."""
    return throttle if throttle.time_ms >= time_ms else Throttle(time_ms, ClientQuotaType.REQUEST)
