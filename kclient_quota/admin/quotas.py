"""`QuotaAdmin`: KIP-546 in Python, with futures as confluent_kafka's AdminClient has them."""

from __future__ import annotations

import os
from collections.abc import Mapping  # noqa: TC003 - frameworks that inject resolve the annotations of `__init__`
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kclient_quota.admin import client_metrics
from kclient_quota.admin.alteration import Alterer
from kclient_quota.admin.effective import EffectiveQuota, EffectiveQuotas, candidates
from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaFilter, ClientQuotaMatchType
from kclient_quota.admin.results import AlterClientQuotasResult
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.cluster.brokers import describe_cluster
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.quotas import (
    ANY,
    DEFAULT_ENTITY,
    EXACT,
    Component,
    describe_client_quotas,
    describe_request,
    read_description,
)
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, IP, USER, ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode, error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kclient_quota.admin.client_metrics import ClientMetricsSubscription
    from kclient_quota.cluster.brokers import ClusterMetadata

Quotas = dict[ClientQuotaEntity, dict[str, float]]
T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
# Up to here eight small questions per entity are cheaper than every configured entry, of which there may be a million.
_ASK_ONE_BY_ONE = 16
_KNOWN_TYPES = {USER, CLIENT_ID, IP}


class QuotaAdmin:
    """Describes, resolves and alters client quotas over a connection of its own. Shared by threads, which take turns.

    A process that is forked from its own has a connection and a thread anew, when it first asks for something.

    Args:
        conf: a confluent_kafka configuration; what does not concern connections is ignored.
        clock: for deadlines.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._conf = dict(conf)
        self._clock = clock
        self._begin()

    # -- quotas

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
        return self._submit(self._describe, wanted, _milliseconds(request_timeout))

    def describe_effective_client_quotas(
        self,
        entities: Iterable[ClientQuotaEntity],
        *,
        include_overrides: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[ClientQuotaEntity, Future[list[EffectiveQuota]]]:
        """What applies to clients, which entry decided and, if asked for, what that overrides (KIP-546's resolve).

        For a few entities only the entries that can apply are asked for, for many all entries, once per call.

        Args:
            entities: users, client-ids or pairs of both, by name.
            include_overrides: whether to list what is overridden.
            request_timeout: seconds for the whole.

        Returns:
            a future per entity; ConfigError for an entity that no client can have.
        """
        results = {entity: _promise() for entity in entities}
        timeout_ms = _milliseconds(request_timeout)
        self._submit(self._resolve, results, include_overrides, timeout_ms)
        return results

    def index_client_quotas(self, *, request_timeout: float = REQUEST_TIMEOUT_S) -> Future[EffectiveQuotas]:
        """Every configured entry, fetched once, to resolve any number of clients from at ten microseconds each.

        Returns:
            a future of the index, as things are now; ClusterError when the cluster refuses or does not answer.
        """
        configured = self.describe_client_quotas(request_timeout=request_timeout)
        return self._submit(lambda: EffectiveQuotas(configured.result().items()))

    def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> AlterClientQuotasResult:
        """Set and remove quotas, in batches; entities succeed and fail one by one.

        What the cluster asks to have repeated (a controller mutation quota, a controller that has moved) is repeated
        after the time it gives, within `request_timeout`.

        Args:
            alterations: one per entity.
            validate_only: only check.
            request_timeout: seconds for the whole.

        Returns:
            a future per entity, and `all()`: None, or ClusterError with the broker's code and words.

        Raises:
            ConfigError: an entity stands in it twice.
        """
        results = AlterClientQuotasResult()
        results.validate_only = validate_only
        for alteration in alterations:
            if alteration.entity in results:
                raise ConfigError(f"alterations: {alteration.entity} stands in them twice")
            results[alteration.entity] = _promise()
        timeout_ms = _milliseconds(request_timeout)
        self._submit(self._alter, tuple(alterations), results, validate_only, timeout_ms)
        return results

    # -- what units other than Kafka's own need

    @property
    def client(self) -> ClusterClient:
        """The connection, for questions of `kclient_quota.cluster`."""
        self._begin_in_child()
        return self._client

    def describe_cluster(
        self, topics: Iterable[str] | None = (), *, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> Future[ClusterMetadata]:
        """Brokers, and who leads the partitions of some topics (None means all); a future."""
        timeout_ms = _milliseconds(request_timeout)
        return self._submit(lambda: describe_cluster(self._client, topics, timeout_ms=timeout_ms))

    # -- client-metrics subscriptions

    def list_client_metrics_subscriptions(self, *, request_timeout: float = REQUEST_TIMEOUT_S) -> Future[list[str]]:
        """Names of the subscriptions that brokers have; a future, ClusterError when they do not tell."""
        return self._with_client(client_metrics.list_subscriptions, request_timeout)

    def describe_client_metrics_subscription(
        self, name: str, *, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> Future[ClientMetricsSubscription | None]:
        """One subscription; a future, None when there is none of this name."""
        return self._with_client(client_metrics.describe_subscription, request_timeout, name)

    def alter_client_metrics_subscription(
        self,
        name: str,
        values: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[None]:
        """Create a subscription or change some of its keys.

        Args:
            name: the subscription's.
            values: some of "interval.ms", "match" and "metrics" as the protocol has them; None resets a key.
            validate_only: only check.
            request_timeout: seconds for the whole.

        Returns:
            a future; ClusterError when the broker refuses a value.
        """

        def alter(client: ClusterClient, *, timeout_ms: int) -> None:
            client_metrics.alter_subscription(client, name, values, validate_only=validate_only, timeout_ms=timeout_ms)

        return self._with_client(alter, request_timeout)

    def delete_client_metrics_subscription(
        self, name: str, *, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> Future[None]:
        """Delete a subscription; a future. One that is not there is no error."""
        return self._with_client(client_metrics.delete_subscription, request_timeout, name)

    # -- life

    def close(self) -> None:
        """Wait for what is under way and close the connection; a forked process leaves its parent's alone."""
        if os.getpid() != self._owner:
            return
        self._thread.shutdown()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: nobody waits for an answer any more
            self._thread.shutdown(wait=False, cancel_futures=True)
        else:
            self.close()

    def _begin(self) -> None:
        self._client = ClusterClient(self._conf, self._clock)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kclient-quota-admin")
        self._owner = os.getpid()

    def _begin_in_child(self) -> None:
        if os.getpid() != self._owner:  # threads do not survive a fork, and on one connection two would talk at once
            self._begin()

    def _submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        self._begin_in_child()
        return self._thread.submit(work, *args)

    # -- on the thread

    def _with_client(self, function: Callable[..., T], request_timeout: float, *args: Any) -> Future[T]:
        timeout_ms = _milliseconds(request_timeout)
        return self._submit(lambda: function(self._client, *args, timeout_ms=timeout_ms))

    def _describe(self, wanted: ClientQuotaFilter, timeout_ms: int) -> Quotas:
        components = [_on_the_wire(each.entity_type, each.match_type, each.match) for each in wanted.components]
        try:
            entries = describe_client_quotas(self._client, components, strict=wanted.strict, timeout_ms=timeout_ms)
        except ClusterError as error:
            raise _unknown_type(error, wanted) or error from None
        # The broker did all but the prefixes.
        return {entity: values for entity, values in entries if wanted.matches(entity)}

    def _resolve(
        self, results: dict[ClientQuotaEntity, Future[list[EffectiveQuota]]], include_overrides: bool, timeout_ms: int
    ) -> None:
        try:
            index = EffectiveQuotas(self._configured(list(results), timeout_ms).items())
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait for these futures
            for future in results.values():
                future.set_exception(error)
            return
        for entity, future in results.items():
            try:
                future.set_result(index.describe(entity, include_overrides=include_overrides))
            except ConfigError as error:
                future.set_exception(error)

    def _configured(self, entities: list[ClientQuotaEntity], timeout_ms: int) -> Quotas:
        """The entries that can apply to some entities, or all entries where the entities are many."""
        if len(entities) > _ASK_ONE_BY_ONE:
            return self._describe(ClientQuotaFilter.all(), timeout_ms)
        wanted = {entry for entity in entities for entry in candidates(entity)}
        asked = [describe_request(_exactly(entry), strict=True) for entry in wanted]
        answers = self._client.ask_many(asked, timeout_ms=timeout_ms) if asked else []
        return {entity: values for answer in answers for entity, values in read_description(answer)}

    def _alter(
        self,
        alterations: tuple[ClientQuotaAlteration, ...],
        results: AlterClientQuotasResult,
        validate_only: bool,
        timeout_ms: int,
    ) -> None:
        def settle(entity: ClientQuotaEntity, error: ClusterError | None) -> None:
            if error is None:
                results[entity].set_result(None)
            else:
                results[entity].set_exception(error)

        try:
            Alterer(self._client, self._clock, settle, validate_only=validate_only, timeout_ms=timeout_ms).alter(
                alterations
            )
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait for these futures
            for future in results.values():
                if not future.done():
                    future.set_exception(error)


def _promise() -> Future[Any]:
    """A future that cannot be cancelled: what was sent cannot be called back."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _exactly(entity: ClientQuotaEntity) -> list[Component]:
    return [
        (kind, DEFAULT_ENTITY, None) if name is DEFAULT else (kind, EXACT, name)
        for kind, name in entity.entries.items()
    ]


def _unknown_type(error: ClusterError, wanted: ClientQuotaFilter) -> ClusterError | None:
    """A broker without a callback of its own knows three types of entities, and says so as UNSUPPORTED_VERSION."""
    strange = [each.entity_type for each in wanted.components if each.entity_type not in _KNOWN_TYPES]
    if error.error_code != ErrorCode.UNSUPPORTED_VERSION or not strange:
        return None
    return ClusterError(
        f"client quotas were not described: {error_name(error.error_code)}: the broker has no entity type "
        f"{', '.join(strange)}; Apache Kafka's own are {', '.join(sorted(_KNOWN_TYPES))}",
        error_code=error.error_code,
    )


def _on_the_wire(kind: str, how: ClientQuotaMatchType, match: str | None) -> Component:
    if how is ClientQuotaMatchType.PREFIX:
        return kind, ANY, None
    return kind, how.value, match


def _milliseconds(seconds: float) -> int:
    if not seconds > 0:
        raise ConfigError(f"request_timeout={seconds!r}: give seconds, greater than 0")
    return round(seconds * 1000)
