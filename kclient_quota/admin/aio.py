"""`AIOQuotaAdmin`: `QuotaAdmin` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping  # noqa: TC003 - frameworks that inject resolve the annotations of `__init__`
from typing import TYPE_CHECKING, Any, Self

from kclient_quota.admin.quotas import REQUEST_TIMEOUT_S, QuotaAdmin, Quotas
from kclient_quota.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kclient_quota.admin.client_metrics import ClientMetricsSubscription
    from kclient_quota.admin.effective import EffectiveQuota
    from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaFilter
    from kclient_quota.quota.entity import ClientQuotaEntity


class AIOQuotaAdmin:
    """The same methods, awaited; a thread of its own talks to the cluster.

    Args:
        conf: as of `QuotaAdmin`.
        clock: as of `QuotaAdmin`.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._admin = QuotaAdmin(conf, clock=clock)

    async def describe_client_quotas(
        self,
        filter: ClientQuotaFilter | None = None,  # noqa: A002 - the name that confluent_kafka gives it
        *,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Quotas:
        """Configured quotas by entity and key.

        Raises:
            ClusterError: the cluster refused or did not answer.
        """
        return await asyncio.wrap_future(self._admin.describe_client_quotas(filter, request_timeout=request_timeout))

    async def describe_effective_client_quotas(
        self,
        entities: Iterable[ClientQuotaEntity],
        *,
        include_overrides: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[ClientQuotaEntity, list[EffectiveQuota]]:
        """What applies to clients, by entity.

        Raises:
            ConfigError: an entity that no client can have.
            ClusterError: the cluster refused or did not answer.
        """
        futures = self._admin.describe_effective_client_quotas(
            entities, include_overrides=include_overrides, request_timeout=request_timeout
        )
        found = await asyncio.gather(*map(asyncio.wrap_future, futures.values()))
        return dict(zip(futures, found, strict=True))

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[ClientQuotaEntity, BaseException | None]:
        """Set and remove quotas.

        Returns:
            by entity None where it was altered, else the error; nothing is raised for a single entity.

        Raises:
            ConfigError: an entity stands in it twice.
        """
        futures = self._admin.alter_client_quotas(
            alterations, validate_only=validate_only, request_timeout=request_timeout
        )
        errors = await asyncio.gather(*map(asyncio.wrap_future, futures.values()), return_exceptions=True)
        return dict(zip(futures, errors, strict=True))

    async def list_client_metrics_subscriptions(self, *, request_timeout: float = REQUEST_TIMEOUT_S) -> list[str]:
        """Names of the subscriptions that brokers have."""
        return await asyncio.wrap_future(self._admin.list_client_metrics_subscriptions(request_timeout=request_timeout))

    async def describe_client_metrics_subscription(
        self, name: str, *, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> ClientMetricsSubscription | None:
        """One subscription, or None when there is none of this name."""
        return await asyncio.wrap_future(
            self._admin.describe_client_metrics_subscription(name, request_timeout=request_timeout)
        )

    async def alter_client_metrics_subscription(
        self,
        name: str,
        values: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Create a subscription or change some of its keys; None resets a key."""
        await asyncio.wrap_future(
            self._admin.alter_client_metrics_subscription(
                name, values, validate_only=validate_only, request_timeout=request_timeout
            )
        )

    async def delete_client_metrics_subscription(
        self, name: str, *, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Delete a subscription; one that is not there is no error."""
        await asyncio.wrap_future(self._admin.delete_client_metrics_subscription(name, request_timeout=request_timeout))

    async def close(self) -> None:
        """Wait for what is under way and close the connection."""
        await asyncio.to_thread(self._admin.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
