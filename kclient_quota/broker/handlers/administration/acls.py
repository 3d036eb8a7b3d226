"""Access control lists.

DescribeAcls (29) v1-3 · CreateAcls (30) v1-3 · DeleteAcls (31) v1-3. KIP-4, KIP-290.

Behaviour: as Kafka's brokers that have no authoriser (`authorizer.class.name` is empty, the default): everybody may do
everything, and whoever asks or says otherwise is told SECURITY_DISABLED.
Versions: 2 flexible; 3 resources of delegation tokens' users (KIP-373).
Gaps: there is no authoriser.
"""

from kclient_quota.broker.request.context import Context
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

_MESSAGE = "No Authorizer is configured on the broker"


@handler(DescribeAclsRequest, min_version=1, max_version=3)
async def describe_acls(_context: Context, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There are none, and none can be."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE, resources=[])


@handler(CreateAclsRequest, min_version=1, max_version=3)
async def create_acls(_context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """None can be made."""
    refused = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)
    return CreateAclsResponse(results=[refused for _ in request.creations])


@handler(DeleteAclsRequest, min_version=1, max_version=3)
async def delete_acls(_context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """There are none."""
    refused = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
