"""`QuotaAdmin`: KIP-546 in Python, with futures as confluent_kafka's AdminClient has them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from kclient_quota.admin.effective import EffectiveQuota, EffectiveQuotas
from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaFilter, ClientQuotaMatchType
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.quotas import (
    ANY,
    AlterationResult,
    Component,
    alter_client_quotas,
    describe_client_quotas,
)
from kclient_quota.errors import ClusterError, ConfigError, KclientQuotaError
from kclient_quota.quota.entity import REQUEST_RATE, REQUEST_RATE_REFUSED, ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode, error_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Quotas = dict[ClientQuotaEntity, dict[str, float]]

REQUEST_TIMEOUT_S = 30.0
# Apache Kafka takes far more in one request; the controller writes each request as one batch of records.
BATCH = 1_000


class QuotaAdmin:
    """Describes, resolves and alters client quotas over a connection of its own. Shared by threads, which take turns.

    Args:
        conf: a confluent_kafka configuration; what does not concern connections is ignored.
        clock: for deadlines.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = ClusterClient(conf, clock)
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kclient-quota-admin")

    def describe_client_quotas(
        self,
        filter: ClientQuotaFilter | None = None,  # noqa: A002 - the name that confluent_kafka gives it
        *,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[Quotas]:
        """Configured quotas of the entities that a filter lets through (all of them without one).

        Args:
            filter: conditions.
            request_timeout: seconds for the whole.

        Returns:
            a future of entities with their values by key; ClusterError when the cluster refuses or does not answer.
        """
        wanted = filter or ClientQuotaFilter.all()
        return self._thread.submit(self._describe, wanted, _milliseconds(request_timeout))

    def describe_effective_client_quotas(
        self,
        entities: Iterable[ClientQuotaEntity],
        *,
        include_overrides: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[ClientQuotaEntity, Future[list[EffectiveQuota]]]:
        """What applies to clients, which entry decided and, if asked for, what that overrides (KIP-546's resolve).

        The configured entries are fetched once for all entities of a call.

        Args:
            entities: users, client-ids or pairs of both, by name.
            include_overrides: whether to list what is overridden.
            request_timeout: seconds for the whole.
        """
        configured = self.describe_client_quotas(request_timeout=request_timeout)
        index: Future[EffectiveQuotas] = self._thread.submit(lambda: EffectiveQuotas(configured.result().items()))

        def resolve(entity: ClientQuotaEntity) -> list[EffectiveQuota]:
            return index.result().describe(entity, include_overrides=include_overrides)

        return {entity: self._thread.submit(resolve, entity) for entity in entities}

    def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[ClientQuotaEntity, Future[None]]:
        """Set and remove quotas; entities succeed and fail one by one.

        Args:
            alterations: one per entity.
            validate_only: only check.
            request_timeout: seconds for the whole.

        Returns:
            a future per entity: None, or ClusterError with the broker's code and words.

        Raises:
            ConfigError: an entity stands in it twice.
        """
        results: dict[ClientQuotaEntity, Future[None]] = {}
        for alteration in alterations:
            if alteration.entity in results:
                raise ConfigError(f"alterations: {alteration.entity} stands in them twice")
            results[alteration.entity] = Future()
        self._thread.submit(self._alter, tuple(alterations), results, validate_only, _milliseconds(request_timeout))
        return results

    def close(self) -> None:
        """Wait for what is under way and close the connection."""
        self._thread.shutdown()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _describe(self, wanted: ClientQuotaFilter, timeout_ms: int) -> Quotas:
        components = [_on_the_wire(each.entity_type, each.match_type, each.match) for each in wanted.components]
        entries = describe_client_quotas(self._client, components, strict=wanted.strict, timeout_ms=timeout_ms)
        # The broker did all but the prefixes.
        return {entity: values for entity, values in entries if wanted.matches(entity)}

    def _alter(
        self,
        alterations: tuple[ClientQuotaAlteration, ...],
        results: dict[ClientQuotaEntity, Future[None]],
        validate_only: bool,
        timeout_ms: int,
    ) -> None:
        end_ms = self._clock.now_ms() + timeout_ms
        for batch in _batches(alterations, BATCH):
            values = [(alteration.entity, {op.key: op.value for op in alteration.ops}) for alteration in batch]
            left_ms = max(0, end_ms - self._clock.now_ms())
            try:
                told = self._alter_batch(values, validate_only, left_ms)
            except KclientQuotaError as error:
                for alteration in batch:
                    results[alteration.entity].set_exception(error)
                continue
            by_entity = {result.entity: result for result in told}
            for alteration in batch:
                _settle(results[alteration.entity], alteration, by_entity.get(alteration.entity))

    def _alter_batch(
        self, values: list[tuple[ClientQuotaEntity, dict[str, float | None]]], validate_only: bool, timeout_ms: int
    ) -> list[AlterationResult]:
        return alter_client_quotas(self._client, values, validate_only=validate_only, timeout_ms=timeout_ms)


def _settle(future: Future[None], alteration: ClientQuotaAlteration, result: AlterationResult | None) -> None:
    if result is None:
        future.set_exception(ClusterError(f"quotas of {alteration.entity}: the broker gave no result for them"))
    elif not result.error_code:
        future.set_result(None)
    else:
        words = result.error_message or error_name(result.error_code)
        if result.error_code == ErrorCode.INVALID_REQUEST and any(op.key == REQUEST_RATE for op in alteration.ops):
            words = REQUEST_RATE_REFUSED
        future.set_exception(
            ClusterError(
                f"quotas of {alteration.entity} were not altered: {error_name(result.error_code)}: {words}",
                error_code=result.error_code,
            )
        )


def _on_the_wire(kind: str, how: ClientQuotaMatchType, match: str | None) -> Component:
    if how is ClientQuotaMatchType.PREFIX:
        return kind, ANY, None
    return kind, how.value, match


def _batches(alterations: tuple[ClientQuotaAlteration, ...], size: int) -> Iterator[tuple[ClientQuotaAlteration, ...]]:
    rest = iter(alterations)
    while batch := tuple(islice(rest, size)):
        yield batch


def _milliseconds(seconds: float) -> int:
    if seconds <= 0:
        raise ConfigError(f"request_timeout={seconds!r}: give seconds, greater than 0")
    return round(seconds * 1000)
