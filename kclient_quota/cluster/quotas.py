"""Client quotas of KIP-546 on the wire: DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import CLIENT_ID, ClientQuotaEntity
from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS
from kclient_quota.wire.error_codes import ErrorCode, error_name
from kclient_quota.wire.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kclient_quota.cluster.client import ClusterClient

EXACT, DEFAULT_ENTITY, ANY = 0, 1, 2
"""How a component matches: this name, the default entity, every entity that has the type."""

Component = tuple[str, int, str | None]
"""Entity type, how it matches, and the name (EXACT) or None."""
QuotaEntry = tuple[ClientQuotaEntity, dict[str, float]]


@dataclass(frozen=True, slots=True)
class AlterationResult:
    """What became of the alteration of one entity.

    Attributes:
        entity: whose quotas.
        error_code: Kafka's code, 0 when it was done.
        error_message: the broker's words, or None.
    """

    entity: ClientQuotaEntity
    error_code: int
    error_message: str | None


def describe_request(components: Sequence[Component], *, strict: bool = False) -> DescribeClientQuotasRequest:
    """The request for entries that meet all components, and with `strict` have no other entity types."""
    parts = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    return DescribeClientQuotasRequest(components=parts, strict=strict)


def read_description(response: Any) -> list[QuotaEntry]:
    """Entities and their quotas.

    Raises:
        ClusterError: the broker refused; its code and words.
    """
    if response.error_code:
        said = f"{error_name(response.error_code)} {response.error_message or ''}".strip()
        denied = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        remedy = "; DESCRIBE_CONFIGS on the cluster is needed" if denied else ""
        raise ClusterError(f"client quotas were not described: {said}{remedy}", error_code=response.error_code)
    return [
        (_entity(entry.entity), {value.key: value.value for value in entry.values}) for entry in response.entries or []
    ]


def describe_client_quotas(
    client: ClusterClient,
    components: Sequence[Component] = (),
    *,
    strict: bool = False,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> list[QuotaEntry]:
    """Entities with their quotas, in the broker's order.

    Args:
        client: whom to ask.
        components: conditions, at most one per entity type; none means every entity.
        strict: leave out entities that have further types.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the broker refused or did not answer.
    """
    return read_description(client.ask(describe_request(components, strict=strict), timeout_ms=timeout_ms))


def alter_client_quotas(
    client: ClusterClient,
    alterations: Sequence[tuple[ClientQuotaEntity, Mapping[str, float | None]]],
    *,
    validate_only: bool = False,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> list[AlterationResult]:
    """Set quotas, or remove those whose value is None; a result for every entity.

    Args:
        client: whom to ask.
        alterations: entities and their values by quota key.
        validate_only: only check.
        timeout_ms: for the whole.

    Raises:
        ClusterError: no broker answered. What is wrong with one entity is in its result.
    """
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=[
                AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.wire_entries()
            ],
            ops=[
                AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )
        for entity, values in alterations
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    response = client.ask_controller(request, timeout_ms=timeout_ms)
    return [
        AlterationResult(_entity(entry.entity), entry.error_code, entry.error_message) for entry in response.entries
    ]


def _entity(parts: Sequence[Any]) -> ClientQuotaEntity:
    user_first = sorted(parts, key=lambda part: part.entity_type == CLIENT_ID)  # brokers send them in hash order
    return ClientQuotaEntity({part.entity_type: part.entity_name for part in user_first})
