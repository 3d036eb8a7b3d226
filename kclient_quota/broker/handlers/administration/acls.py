"""Access control lists.

DescribeAcls (29) v1-3 · CreateAcls (30) v1-3 · DeleteAcls (31) v1-3. KIP-4, KIP-290, KIP-373.

Behaviour: with `authorizer.class.name` Kafka's `StandardAuthorizer` (`broker.authorizer`); its lists are kept in
`data_dir` and hold on every broker at once. Without, as in Kafka, everybody may do everything, and whoever asks or says
otherwise is told SECURITY_DISABLED. Who needs what for which API stands in `request.authorization`.
Versions: 1 prefixed names (KIP-290); 2 flexible; 3 resources of delegation tokens' users (KIP-373).
Gaps: none known.
"""

from functools import partial
from itertools import groupby
from typing import Protocol

from kclient_quota.broker.authorizer import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.groups.in_steps import ordered
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_DISABLED = "No Authorizer is configured on the broker"


class _Filter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@handler(DescribeAclsRequest, min_version=1, max_version=3)
async def describe_acls(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The entries that a filter means, by resource."""
    authorizer = context.cluster.authorizer
    if not authorizer.is_enabled:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED, resources=[])
    wanted = _filter(request)
    if wanted is None:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=_unknown(request), resources=[])
    found = await context.by_and_by(ordered(await _matching(context, wanted), tuple))
    resources = [
        DescribeAclsResponse.DescribeAclsResource(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                DescribeAclsResponse.AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
                for acl in acls
            ],
        )
        for (resource_type, name, pattern_type), acls in groupby(found, key=lambda acl: acl[:3])
    ]
    return DescribeAclsResponse(error_code=0, error_message=None, resources=resources)


async def _matching(context: Context, wanted: AclFilter) -> list[Acl]:
    """Every entry that is meant; there may be very many, of which few are."""
    authorizer = context.cluster.authorizer
    candidates = authorizer.candidates(wanted)
    found = []
    for start in range(0, len(candidates), AT_ONCE):
        part = candidates[start : start + AT_ONCE]
        await context.turn_after(len(part))
        found += [acl for acl in part if wanted.matches(acl) and acl in authorizer]
    return found


def _filter(given: _Filter) -> AclFilter | None:
    """What is meant; None where a number has no meaning."""
    try:
        ResourceType(given.resource_type_filter)
        PatternType(given.pattern_type_filter)
        AclOperation(given.operation)
        AclPermission(given.permission_type)
    except ValueError:
        return None
    return AclFilter(
        given.resource_type_filter,
        given.resource_name_filter,
        given.pattern_type_filter,
        given.principal_filter,
        given.host_filter,
        given.operation,
        given.permission_type,
    )


def _unknown(given: _Filter) -> str:
    return (
        f"The filter holds an unknown resource type ({given.resource_type_filter}), pattern type "
        f"({given.pattern_type_filter}), operation ({given.operation}) or permission type ({given.permission_type})."
    )


@handler(CreateAclsRequest, min_version=1, max_version=3)
async def create_acls(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add each entry on its own."""
    return CreateAclsResponse(results=await context.in_turns(request.creations, partial(_create, context.cluster)))


def _create(cluster: ClusterState, wanted: CreateAclsRequest.AclCreation) -> CreateAclsResponse.AclCreationResult:
    error: ErrorCode = ErrorCode.SECURITY_DISABLED
    message = _DISABLED
    if cluster.authorizer.is_enabled:
        error, message = _creation_problem(wanted)
    if not error:
        _set(cluster, _acl(wanted), is_there=True)
    return CreateAclsResponse.AclCreationResult(error_code=error, error_message=message or None)


def _acl(wanted: CreateAclsRequest.AclCreation) -> Acl:
    return Acl(
        wanted.resource_type,
        wanted.resource_name,
        wanted.resource_pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )


def _creation_problem(wanted: CreateAclsRequest.AclCreation) -> tuple[ErrorCode, str]:
    """Kafka's `AclApis.handleCreateAcls` and `AclControlManager.validateNewAcl`, in its words.

    What cannot even be an entry (ANY in it) is an unknown server error there.
    """
    kind, name, principal = wanted.resource_type, wanted.resource_name, wanted.principal
    unparsed = (
        f"Could not parse principal from `{principal}` (no colon is present separating the principal type from the "
        "principal name)"
    )
    bad, odd = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR
    problems = (
        (
            kind == ResourceType.CLUSTER and name != CLUSTER_NAME,
            bad,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        ),
        (not name, bad, "Invalid empty resource name"),
        (kind not in set(ResourceType) - {ResourceType.ANY}, odd, f"Invalid resourceType {kind}"),
        (
            wanted.resource_pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED},
            odd,
            f"Invalid patternType {wanted.resource_pattern_type}",
        ),
        (wanted.operation not in set(AclOperation) - {AclOperation.ANY}, odd, f"Invalid operation {wanted.operation}"),
        (
            wanted.permission_type not in {AclPermission.ALLOW, AclPermission.DENY},
            odd,
            f"Invalid permissionType {wanted.permission_type}",
        ),
        (":" not in principal, bad, unparsed),
    )
    return next(((error, words) for is_so, error, words in problems if is_so), (ErrorCode.NONE, ""))


@handler(DeleteAclsRequest, min_version=1, max_version=3)
async def delete_acls(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Take away the entries that each filter means, and say which they were."""
    return DeleteAclsResponse(filter_results=[await _delete(context, wanted) for wanted in request.filters])


async def _delete(
    context: Context, given: DeleteAclsRequest.DeleteAclsFilter
) -> DeleteAclsResponse.DeleteAclsFilterResult:
    await context.turn_after()
    cluster = context.cluster
    if not cluster.authorizer.is_enabled:
        return DeleteAclsResponse.DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED, matching_acls=[]
        )
    wanted = _filter(given)
    if wanted is None:
        return DeleteAclsResponse.DeleteAclsFilterResult(
            error_code=ErrorCode.INVALID_REQUEST, error_message=_unknown(given), matching_acls=[]
        )
    found = []
    for acl in await _matching(context, wanted):
        await context.turn_after()
        if acl in cluster.authorizer:
            _set(cluster, acl, is_there=False)
            found.append(acl)
    return DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=0,
        error_message=None,
        matching_acls=[
            DeleteAclsResponse.DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ],
    )


def _set(cluster: ClusterState, acl: Acl, *, is_there: bool) -> None:
    (cluster.authorizer.add if is_there else cluster.authorizer.remove)(acl)
    cluster.changed("acl", *acl)
