"""Which quota applies to a client: asked of the cluster, resolved through Kafka's eight levels.

Only the entries that can apply are asked for, one strict question per level, so that a cluster with a million quota
entries sends eight. Asking needs DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.configs import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS, ResourceType, window_of
from kclient_quota.cluster.configs import describe_request as describe_configs_request
from kclient_quota.cluster.quotas import DEFAULT_ENTITY, EXACT, Component, describe_request, read_description
from kclient_quota.errors import ClusterError, KclientQuotaError
from kclient_quota.quota.entity import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaEntity,
)
from kclient_quota.quota.resolution import Level, levels
from kclient_quota.wire.error_codes import RETRIABLE, ErrorCode
from kclient_quota.wire.messages import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kclient_quota.cluster.quotas import QuotaEntry

ANONYMOUS = "ANONYMOUS"
"""Kafka's user name for connections that do not log in; quotas of the default user apply to it."""
DEFAULT_SAMPLES = 11
DEFAULT_WINDOW_MS = 1_000


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """What applies to one client, per broker.

    Attributes:
        producer_byte_rate: bytes per second, None without a limit.
        consumer_byte_rate: bytes per second, None without a limit.
        request_percentage: percent of one request-handler thread, None without a limit.
        deciding: the entry that decided, by quota key; keys without a limit are missing.
        samples: `quota.window.num` of the brokers, Kafka's default where it may not be read.
        window_ms: `quota.window.size.seconds` of the brokers, in milliseconds; as above.
        denied: why nothing is known, or None; the limits are then None, too.
        is_away: whether nobody has answered, or not yet, so that it is worth asking again soon.
    """

    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    deciding: Mapping[str, ClientQuotaEntity] | None = None
    samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS
    denied: str | None = None
    is_away: bool = False

    @property
    def decided_by(self) -> str | None:
        """The deciding entries in words, or None without a limit."""
        by_key = self.deciding or {}
        if len(set(by_key.values())) == 1:
            return str(next(iter(by_key.values())))
        return ", ".join(f"{key} of {entity}" for key, entity in by_key.items()) or None


def discover_limit(
    conf: Mapping[str, Any], user: str | None, client_id: str, deadline_ms: int, clock: Clock = SYSTEM_CLOCK
) -> EffectiveLimits:
    """Ask the cluster of a client's own configuration which quota applies to it. Never raises.

    Args:
        conf: the client's librdkafka configuration.
        user: its principal's name, None for a client that does not log in.
        client_id: its client-id.
        deadline_ms: milliseconds that all of it may take.
        clock: measures them.

    Returns:
        the limits, or in `denied` the reason why they are not known.
    """
    try:
        with ClusterClient(conf, clock) as client:
            return ask_limit(client, user, client_id, deadline_ms, clock)
    except KclientQuotaError as error:
        return EffectiveLimits(denied=str(error))


def ask_limit(
    client: ClusterClient, user: str | None, client_id: str, deadline_ms: int, clock: Clock
) -> EffectiveLimits:
    """The same of a cluster that there may be a connection to. Never raises."""
    try:
        end_ms = clock.now_ms() + deadline_ms
        entries = _entries(client, user or ANONYMOUS, client_id, deadline_ms)
        samples, window_ms = _window(client, end_ms - clock.now_ms())
    except ClusterError as error:
        return EffectiveLimits(denied=str(error), is_away=error.error_code is None or error.error_code in RETRIABLE)
    except KclientQuotaError as error:
        return EffectiveLimits(denied=str(error))
    except Exception as error:  # noqa: BLE001 - an application's oauth_cb may raise anything, and the client must start
        return EffectiveLimits(denied=f"asking the cluster failed: {type(error).__name__}: {error}", is_away=True)
    return resolve(entries, user or ANONYMOUS, client_id, samples=samples, window_ms=window_ms)


def resolve(
    entries: Sequence[QuotaEntry],
    user: str,
    client_id: str,
    *,
    samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> EffectiveLimits:
    """What applies to a client, of these entries: for each kind of quota the first of the eight levels that has it."""
    by_level = {(entity.user, entity.client_id): (entity, values) for entity, values in entries}
    values: dict[str, float] = {}
    deciding: dict[str, ClientQuotaEntity] = {}
    for level in levels(user, client_id):
        entity, found = by_level.get(level, (None, {}))
        for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE):
            if entity is not None and key in found and key not in values:
                values[key] = found[key]
                deciding[key] = entity
    return EffectiveLimits(
        producer_byte_rate=values.get(PRODUCER_BYTE_RATE),
        consumer_byte_rate=values.get(CONSUMER_BYTE_RATE),
        request_percentage=values.get(REQUEST_PERCENTAGE),
        deciding=deciding,
        samples=samples,
        window_ms=window_ms,
    )


def _entries(client: ClusterClient, user: str, client_id: str, timeout_ms: int) -> list[QuotaEntry]:
    asked = [
        describe_request(_components(level), strict=True)
        for level in levels(user, client_id)
        if level[1] != ""  # no entry can be for the empty client-id
    ]
    answers = client.ask_many(asked, timeout_ms=timeout_ms)
    # Redpanda before 26.1 knows quotas of client-ids only, and says so to every question that names a user.
    told = [answer for answer in answers if answer.error_code != ErrorCode.UNSUPPORTED_VERSION] or answers
    return [entry for answer in told for entry in read_description(answer)]


def _components(level: Level) -> list[Component]:
    return [
        (kind, DEFAULT_ENTITY, None) if name is DEFAULT else (kind, EXACT, name)
        for kind, name in zip((USER, CLIENT_ID), level, strict=True)
        if name is not None
    ]


def _window(client: ClusterClient, timeout_ms: int) -> tuple[int, int]:
    """The quota window of the broker we are connected to, Kafka's default if it does not tell.

    A broker answers for itself only; not knowing which one this is, we name them all and take the one that answers.
    """
    try:
        metadata = client.ask(MetadataRequest(topics=[]), timeout_ms=timeout_ms)
        names = [str(broker.node_id) for broker in metadata.brokers]
        keys = [QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS]
        response = client.ask(describe_configs_request(ResourceType.BROKER, names, keys), timeout_ms=max(0, timeout_ms))
    except KclientQuotaError:  # a broker that keeps its window to itself still has told its quotas
        return DEFAULT_SAMPLES, DEFAULT_WINDOW_MS
    told = ({entry.name: entry.value for entry in result.configs} for result in response.results)
    windows = (window_of(entries) for entries in told)
    return next((window for window in windows if window), (DEFAULT_SAMPLES, DEFAULT_WINDOW_MS))
