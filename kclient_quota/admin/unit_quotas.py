"""`UnitQuotas`: quotas in any unit, kept where source values live and written where brokers enforce them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient_quota.admin.effective import EffectiveQuota, EffectiveQuotas, candidates
from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaAlterationOp, ClientQuotaFilter
from kclient_quota.admin.quotas import REQUEST_TIMEOUT_S, QuotaAdmin
from kclient_quota.admin.results import PartialAlterationError
from kclient_quota.admin.sources import StoreDeniedError
from kclient_quota.admin.units import (
    BPS,
    Configured,
    QuotaUnit,
    Sources,
    Written,
    altered,
    changes,
    configured,
    sources_of,
    to_write,
)
from kclient_quota.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kclient_quota.admin.sources import SourceStore
    from kclient_quota.quota.entity import ClientQuotaEntity

Changes = dict["ClientQuotaEntity", dict[str, float | None]]


@dataclass(frozen=True, slots=True)
class Listed:
    """What is configured for one entity.

    Attributes:
        entity: whose quotas.
        asked: what somebody asked for, in any unit.
        written: what brokers enforce, by Kafka's key.
    """

    entity: ClientQuotaEntity
    asked: Mapping[QuotaUnit, float]
    written: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuotaState:
    """Everything that is configured, at one moment.

    Attributes:
        written: what brokers have.
        sources: what is kept beside them.
        denied: why what is kept beside them could not be seen, if so.
    """

    written: Written = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)
    denied: StoreDeniedError | None = None

    @property
    def asked(self) -> Configured:
        """Everything that was asked for, in any unit."""
        return configured(self.sources, self.written)


@dataclass(frozen=True, slots=True)
class Target:
    """What shall be, worked out.

    Attributes:
        written: what brokers shall have.
        sources: what shall be kept beside them.
        changes: what has to be altered on the brokers for it.
    """

    written: Written
    sources: Sources
    changes: Changes


class UnitQuotas:
    """List, describe, alter and re-balance quotas in `broker_bps`, `bps` and `shares`.

    Args:
        admin: writes and reads what brokers enforce.
        store: keeps what they cannot.
        request_timeout: seconds for each step.
        say: told once, in a sentence, when what the store keeps cannot be seen. KIP-546's rights are enough for all
            that concerns only what brokers enforce.
    """

    def __init__(
        self,
        admin: QuotaAdmin,
        store: SourceStore,
        *,
        request_timeout: float = REQUEST_TIMEOUT_S,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._admin = admin
        self._say = say
        self._store = store
        self._timeout = request_timeout

    def listed(self, wanted: ClientQuotaFilter) -> list[Listed]:
        """What is configured for the entities that a filter lets through, sorted, defaults last.

        Raises:
            ClusterError: the cluster refused or did not answer.
        """
        sources, _ = self._load()
        written = self._describe(wanted)
        of_these = Sources({entity: values for entity, values in sources.values.items() if wanted.matches(entity)})
        asked = configured(of_these, written)
        return [Listed(entity, asked[entity], written.get(entity, {})) for entity in sorted(asked, key=in_order)]

    def describe(self, entity: ClientQuotaEntity, *, include_overrides: bool = False) -> list[EffectiveQuota]:
        """What applies to a client; every `name:unit` is resolved by itself.

        Raises:
            ConfigError: an entity that no client can have.
            ClusterError: the cluster refused or did not answer.
        """
        sources, _ = self._load()
        futures = self._admin.describe_effective_client_quotas(
            [entity], include_overrides=True, request_timeout=self._timeout
        )
        written: Written = {}
        for quota in futures[entity].result():
            for entry in (quota.decided_by, *quota.overrides):
                written.setdefault(entry.entity, {})[quota.key] = entry.value
        levels = set(candidates(entity))
        of_these = Sources({each: values for each, values in sources.values.items() if each in levels})
        asked = configured(of_these, written)
        index = EffectiveQuotas(
            (each, {str(quota): value for quota, value in values.items()}) for each, values in asked.items()
        )
        return index.describe(entity, include_overrides=include_overrides)

    def alter(
        self,
        entity: ClientQuotaEntity,
        add: Mapping[QuotaUnit, float],
        delete: Collection[QuotaUnit] = (),
        *,
        capacity: Mapping[str, float] | None = None,
        validate_only: bool = False,
    ) -> Changes:
        """Alter what is asked for one entity, and whatever that changes for others.

        Args:
            entity: whose quotas.
            add: quotas to add or to change.
            delete: quotas to remove; those that are not there are none to remove.
            capacity: by quota, what one broker has to share out from now on.
            validate_only: only check.

        Returns:
            what was (or would be) altered on the brokers.

        Raises:
            ConfigError: shares without a capacity, or a store that cannot keep them.
            ClusterError: the cluster refused or did not answer.
        """
        sources, denied = self._load()
        if not sources and not capacity and all(quota.is_enforced for quota in (*add, *delete)):
            ops: dict[str, float | None] = {quota.key: None for quota in delete} | {
                quota.key: value for quota, value in add.items()
            }
            self.alter_brokers({entity: ops}, validate_only=validate_only)
            return {entity: ops}
        state = QuotaState(self._describe(ClientQuotaFilter.all()), sources, denied)
        after = altered(state.asked, entity, add, frozenset(delete))
        target = self.target(state, after, {**sources.capacity, **(capacity or {})})
        self.write(state, target, validate_only=validate_only)
        return target.changes

    def reconcile(self, *, validate_only: bool = False) -> Changes:
        """Work the sources out anew for the brokers and leaders of now, and write what differs.

        Raises:
            ClusterError: the cluster refused or did not answer.
        """
        state = self.state()
        target = self.target(state, state.asked, state.sources.capacity)
        self.write(state, target, validate_only=validate_only)
        return target.changes

    # -- for plans

    def state(self) -> QuotaState:
        """Everything that is configured now.

        Raises:
            ClusterError: the cluster refused or did not answer.
        """
        return QuotaState(self._describe(ClientQuotaFilter.all()), *self._load())

    def target(self, state: QuotaState, asked: Configured, capacity: Mapping[str, float]) -> Target:
        """What has to be written and kept when all of `asked` is asked for.

        Raises:
            ConfigError: shares without a capacity.
            ClusterError: the cluster refused or did not answer.
        """
        cluster_wide = any(quota.unit == BPS for values in asked.values() for quota in values)
        written = to_write(asked, capacity, self.leading_brokers() if cluster_wide else 1)
        return Target(written, sources_of(asked, written, capacity), changes(state.written, written))

    def write(self, state: QuotaState, target: Target, *, validate_only: bool = False) -> None:
        """Keep the sources, then alter the brokers; nothing is kept of what brokers would refuse.

        Raises:
            ClusterError: the cluster refused or did not answer; the message says what was done.
        """
        self.check_store(state, target)
        if validate_only:
            self.alter_brokers(target.changes, validate_only=True)
            return
        self.keep(state, target)
        try:
            self.alter_brokers(target.changes)
        except PartialAlterationError:
            raise
        except ClusterError as error:
            raise ClusterError(
                f"{error}; the source values are kept: `kafka-quotas reconcile` writes what is missing",
                error_code=error.error_code,
            ) from error

    def check_store(self, state: QuotaState, target: Target) -> None:
        """Refuse what would have to be kept where we may not look.

        Raises:
            StoreDeniedError: the target has units that brokers cannot keep.
        """
        if state.denied is not None and target.sources != state.sources:
            raise state.denied

    def keep(self, state: QuotaState, target: Target) -> None:
        """Keep the sources of a target, once the brokers have said that they would take its changes.

        Raises:
            ClusterError: the cluster refused or did not answer; nothing was kept.
        """
        if target.sources != state.sources:
            self.alter_brokers(target.changes, validate_only=True)
            self._store.save(state.sources, target.sources)

    def leading_brokers(self) -> int:
        """How many brokers lead partitions of anybody's topics: among so many a cluster-wide rate is divided.

        Raises:
            ClusterError: the cluster refused or did not answer.
        """
        metadata = self._admin.describe_cluster(None, request_timeout=self._timeout).result()
        leaders = {leader for (topic, _), leader in metadata.leaders.items() if leader >= 0 and topic[:1] != "_"}
        return len(leaders) or len(metadata.brokers)

    def _load(self) -> tuple[Sources, StoreDeniedError | None]:
        try:
            return self._store.load(), None
        except StoreDeniedError as error:
            if self._say is not None:
                self._say(f"quotas in bps and shares cannot be seen, only what brokers enforce: {error}")
                self._say = None
            return Sources(), error

    def _describe(self, wanted: ClientQuotaFilter) -> Written:
        return self._admin.describe_client_quotas(wanted, request_timeout=self._timeout).result()

    def alter_brokers(self, wanted: Changes, *, validate_only: bool = False) -> None:
        """Write what brokers enforce, and nothing else.

        Raises:
            ClusterError: the cluster refused or did not answer; the message says what was done.
        """
        alterations = [
            ClientQuotaAlteration(entity, tuple(ClientQuotaAlterationOp(key, value) for key, value in ops.items()))
            for entity, ops in wanted.items()
        ]
        if alterations:
            self._admin.alter_client_quotas(
                alterations, validate_only=validate_only, request_timeout=self._timeout
            ).all().result()


def in_order(entity: ClientQuotaEntity) -> tuple[tuple[str, int, str], ...]:
    """For sorting: by types, then names, each default behind the names."""
    return tuple(
        (kind, 0, name) if isinstance(name, str) else (kind, 1, "")
        for kind, name in sorted(entity.entries.items(), reverse=True)
    )
