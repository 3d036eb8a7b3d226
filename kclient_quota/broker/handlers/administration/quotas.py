"""Reading and setting quotas.

DescribeClientQuotas (48) v0-1 · AlterClientQuotas (49) v0-1. KIP-546.

Behaviour: filters, validation and messages as in Kafka's `ClientQuotasImage.describe` and `ClientQuotaControlManager`.
Quotas take effect at once on every broker. Beside Kafka's keys this broker takes `request_rate`, requests per second,
of the draft of KIP-124.
Versions: 1 flexible, both.
Gaps: addresses are named by number only; over TLS a connection is refused after its handshake.
"""

from kclient_quota.broker.cluster_state import QuotaEntity
from kclient_quota.broker.manners import ThrottleManner
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, IP, USER, ClientQuotaEntity, entity_problem, quota_problem
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_KINDS = {USER, CLIENT_ID, IP}
_DENIED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_IP_ALONE = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)

Component = DescribeClientQuotasRequest.ComponentData
Altered = tuple[tuple[tuple[str, str | None], ...], ErrorCode, str | None]
"""Whose quotas, and what came of it."""


# -- DescribeClientQuotas


@handler(DescribeClientQuotasRequest, min_version=0, max_version=1)
async def describe_client_quotas(
    context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Every entity that the filter lets through, with all its quotas."""
    manner = context.cluster.manner
    if manner.denies_quotas:
        error, message = _DENIED
        return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
    problem = _filter_problem(request.components, _KINDS if manner.has_user_quotas else {CLIENT_ID})
    if problem is not None:
        error, message = problem
        return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
    found = []
    for entity, values in list(context.cluster.quotas.items()):
        await context.turn_after()
        if _matches(entity, request.components, strict=request.strict):
            found.append(_entry(entity, values))
    return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=found)


def _filter_problem(components: list[Component], kinds: set[str]) -> tuple[ErrorCode, str] | None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if kind in seen:
            return ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
        if kind not in kinds:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}"
        seen.add(kind)
        problem = _match_problem(component)
        if problem:
            return ErrorCode.INVALID_REQUEST, problem
    if IP in seen and len(seen) > 1:
        return ErrorCode.INVALID_REQUEST, _IP_ALONE
    return None


def _match_problem(component: Component) -> str | None:
    match = component.match
    if component.match_type == _EXACT:
        return "Request specified MATCH_TYPE_EXACT, but set match string to null." if match is None else None
    names = {_DEFAULT: "MATCH_TYPE_DEFAULT", _SPECIFIED: "MATCH_TYPE_SPECIFIED"}
    if component.match_type not in names:
        return f"Unknown match type {component.match_type}"
    if match is not None:
        return f"Request specified {names[component.match_type]}, but also specified a match string."
    return None


def _matches(entity: QuotaEntity, components: list[Component], *, strict: bool) -> bool:
    entries = entity.entries
    if strict and (not components or len(entries) != len(components)):
        return False
    for component in components:
        if component.entity_type not in entries:
            return False
        name = entries[component.entity_type]
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name is not DEFAULT:
            return False
    return True


def _entry(entity: QuotaEntity, values: dict[str, float]) -> DescribeClientQuotasResponse.EntryData:
    return DescribeClientQuotasResponse.EntryData(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.wire_entries()
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in values.items()],
    )


# -- AlterClientQuotas


@handler(AlterClientQuotasRequest, min_version=0, max_version=1)
async def alter_client_quotas(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Alter each entity on its own: the first error decides for it, the others are altered all the same."""
    results: dict[frozenset[tuple[str, str | None]], Altered] = {}
    for entry in request.entries:
        await context.turn_after(1 + len(entry.ops))
        named = tuple((data.entity_type, data.entity_name) for data in entry.entity)
        who = frozenset(named)  # an entity is the same in whatever order its types are named
        keys = [op.key for op in entry.ops]
        if who in results or len(set(keys)) < len(keys):
            results[who] = named, ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(named)}"
            continue
        error, message = _alteration_problem(context.cluster.manner, named, entry)
        results[who] = named, error, message
        if error is ErrorCode.NONE and not request.validate_only:
            _apply(context, ClientQuotaEntity(dict(named)), entry)
    return AlterClientQuotasResponse(entries=await context.in_turns(list(results.values()), _altered))


def _altered(result: Altered) -> AlterClientQuotasResponse.EntryData:
    named, error, message = result
    return AlterClientQuotasResponse.EntryData(
        error_code=error,
        error_message=message,
        entity=[AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in named],
    )


def _alteration_problem(
    manner: ThrottleManner, named: tuple[tuple[str, str | None], ...], entry: AlterClientQuotasRequest.EntryData
) -> tuple[ErrorCode, str | None]:
    if manner.denies_quotas:
        return _DENIED
    if not manner.has_user_quotas and {kind for kind, _ in named} != {CLIENT_ID}:
        return ErrorCode.UNSUPPORTED_VERSION, "Only quotas of client-ids are supported"
    problem = entity_problem(named) or _ops_problem(entry)
    return (ErrorCode.INVALID_REQUEST if problem else ErrorCode.NONE), problem


def _ops_problem(entry: AlterClientQuotasRequest.EntryData) -> str | None:
    kinds = [data.entity_type for data in entry.entity]
    for op in entry.ops:
        # Kafka looks at what is set alone: whatever key is removed, it is not there afterwards
        problem = None if op.remove else quota_problem(kinds, op.key, op.value)
        if problem:
            return problem
    return None


def _apply(context: Context, entity: QuotaEntity, entry: AlterClientQuotasRequest.EntryData) -> None:
    present = context.cluster.quotas.get(entity, {})
    for op in entry.ops:
        value = None if op.remove else op.value
        if value != present.get(op.key):
            context.cluster.set_quota(entity, op.key, value)


def _shown(named: tuple[tuple[str, str | None], ...]) -> str:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in named)
    return f"ClientQuotaEntity(entries={{{entries}}})"
