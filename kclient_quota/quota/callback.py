"""KIP-257's `ClientQuotaCallback`: who is measured together and under which limit; and Kafka's own, the default."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from kclient_quota.quota.entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
    ClientQuotaEntity,
    Name,
    sanitize,
)
from kclient_quota.quota.resolution import Level, QuotaLevels, QuotaTypesEnabled

USER_TAG: Final = "user"
CLIENT_ID_TAG: Final = "client-id"


class ClientQuotaType(Enum):
    """What a quota measures; the value is Kafka's name of the metric group."""

    PRODUCE = "Produce"
    FETCH = "Fetch"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"
    REQUEST_RATE = "RequestRate"
    """Requests per second, of the draft of KIP-124; Apache Kafka has no such quota."""


QUOTA_TYPE_OF_KEY: Final[Mapping[str, ClientQuotaType]] = {
    PRODUCER_BYTE_RATE: ClientQuotaType.PRODUCE,
    CONSUMER_BYTE_RATE: ClientQuotaType.FETCH,
    REQUEST_PERCENTAGE: ClientQuotaType.REQUEST,
    CONTROLLER_MUTATION_RATE: ClientQuotaType.CONTROLLER_MUTATION,
    REQUEST_RATE: ClientQuotaType.REQUEST_RATE,
}


class ClientQuotaCallback(ABC):
    """Decides quotas in place of the eight levels. One instance serves every quota type.

    Kafka's interface `org.apache.kafka.server.quota.ClientQuotaCallback`, its principal being the user's name.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027  most callbacks need none
        """Called once, with the configuration of whoever uses the callback."""

    @abstractmethod
    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        """Metric tags, in order; clients with the same tags share one quota.

        Args:
            quota_type: which quota.
            principal: the user's name as authenticated, not sanitized.
            client_id: as sent; empty when absent.
        """

    @abstractmethod
    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The limit per second of those with these tags; None when they have none."""

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: ClientQuotaEntity, new_value: float) -> None:  # noqa: B027  most callbacks need none
        """A quota was set by AlterClientQuotas."""

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: ClientQuotaEntity) -> None:  # noqa: B027  most callbacks need none
        """A quota was taken away by AlterClientQuotas."""

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:  # noqa: ARG002  an override uses it
        """Whether limits may have changed since the last call, so that they are asked for anew."""
        return False

    def update_cluster_metadata(self, cluster: Any) -> bool:  # noqa: ARG002  an override uses it
        """The cluster has changed; whether limits changed with it."""
        return False

    def close(self) -> None:  # noqa: B027  most callbacks need none
        """Called once at the end."""


class DefaultQuotaCallback(ClientQuotaCallback):
    """Kafka's eight levels of precedence.

    Args:
        sticky_types: as Kafka up to 4.1, see `QuotaLevels`.
        share_empty_client_id: as KIP-13, see `QuotaLevels`.
    """

    def __init__(self, *, sticky_types: bool = False, share_empty_client_id: bool = True) -> None:
        self._levels = {
            quota_type: QuotaLevels(sticky_types=sticky_types, share_empty_client_id=share_empty_client_id)
            for quota_type in ClientQuotaType
        }

    def levels(self, quota_type: ClientQuotaType) -> QuotaLevels:
        """The levels of one quota type, for whoever must know more than limits."""
        return self._levels[quota_type]

    def quota_types_enabled(self, quota_type: ClientQuotaType) -> QuotaTypesEnabled:
        """Which kinds of levels have a quota of this type."""
        return self._levels[quota_type].types_enabled

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        """Tags `user` (sanitized) and `client-id`, empty where that part does not decide."""
        user, client = self._levels[quota_type].tags(sanitize(principal), client_id)
        return {USER_TAG: user, CLIENT_ID_TAG: client}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The most specific limit that was set for these tags."""
        return self._levels[quota_type].limit((metric_tags.get(USER_TAG, ""), metric_tags.get(CLIENT_ID_TAG, "")))

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: ClientQuotaEntity, new_value: float) -> None:
        """Set the limit of a level."""
        self._levels[quota_type].set(level_of(quota_entity), new_value)

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: ClientQuotaEntity) -> None:
        """Take the limit of a level away."""
        self._levels[quota_type].remove(level_of(quota_entity))


def level_of(entity: ClientQuotaEntity) -> Level:
    """The level that an entity of users and client-ids is; users are sanitized."""
    return _sanitized(entity.user), entity.client_id


def _sanitized(user: Name | None) -> Name | None:
    return sanitize(user) if user is not None and user is not DEFAULT else user
