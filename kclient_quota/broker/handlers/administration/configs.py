"""What topics and brokers are set to.

DescribeConfigs (32) v1-4 · AlterConfigs (33) v0-2 · IncrementalAlterConfigs (44) v0-1 · ListConfigResources (74) v0-1.
KIP-226, KIP-339, KIP-714, KIP-1000, KIP-1142.

Behaviour: resources are topics, brokers (name "" is the cluster-wide default), their loggers (KIP-412; `root` is the
embedded broker's own), groups (KIP-848: session time-out and heartbeat interval hold from the next heartbeat on) and
client-metrics subscriptions (KIP-714). Messages as Kafka's. Every key of Apache Kafka 4.3.1 is known; those that mean
something here are obeyed at once, the others are kept and described.
Versions: DescribeConfigs 1 synonyms; 2 KIP-219; 3 types and documentation; 4 flexible. AlterConfigs 1 KIP-219;
2 flexible. IncrementalAlterConfigs 1 flexible. ListConfigResources 0 client metrics alone; 1 types (KIP-1142).
Gaps: documentation says in a sentence what a key means here, not what Kafka's says of it.
"""

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.cluster_state import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kclient_quota.broker.configs.documentation import documentation
from kclient_quota.broker.configs.resource_configs import (
    DELETE,
    SET,
    DescribedConfig,
    ResourceError,
    alter,
    describe,
    resource_names,
)
from kclient_quota.broker.request.authorization import DENIED
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
_TYPES_NAMED_SINCE = 1
_WINDOW_KEYS = "quota"
_KEYS = 40
"""About as many as a topic has."""


# -- DescribeConfigs


@handler(DescribeConfigsRequest, min_version=1, max_version=4)
async def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource on its own."""
    response = DescribeConfigsResponse()
    for asked in request.resources:
        await context.turn_after(len(asked.configuration_keys or ()) or _KEYS)
        response.results.append(_describe(context, asked, request))
    return response


def _describe(
    context: Context, asked: DescribeConfigsRequest.DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    denied = _denied(context, AclOperation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name)
    if denied:
        result.error_code = denied
        return result
    manner = context.cluster.manner
    if manner.denies_quotas and asked.resource_type == BROKER:
        result.error_code, result.error_message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
        return result
    try:
        found = describe(context.cluster, asked.resource_type, asked.resource_name)
    except ResourceError as error:
        result.error_code, result.error_message = error.error_code, str(error)
        return result
    if asked.resource_type == BROKER and not manner.tells_window:
        found = [entry for entry in found if _WINDOW_KEYS not in entry.name]
    keys = asked.configuration_keys
    result.configs = [_config(entry, request) for entry in found if not keys or entry.name in keys]
    if request.include_documentation:
        for row in result.configs:
            row.documentation = documentation(asked.resource_type, row.name)
    return result


def _denied(context: Context, operation: AclOperation, resource_type: int, name: str) -> ErrorCode:
    kind = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}.get(resource_type, ResourceType.CLUSTER)
    may = context.may(operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name)
    return ErrorCode.NONE if may else DENIED[kind]


def _config(
    entry: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.type,
        documentation=None,
    )


# -- altering


@handler(IncrementalAlterConfigsRequest, min_version=0, max_version=1)
async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter the keys that are named, resource by resource."""
    responses = []
    for resource in request.resources:
        await context.turn_after(1 + len(resource.configs))
        operations = [(config.name, config.config_operation, config.value) for config in resource.configs]
        error, message = _alter(
            context, resource.resource_type, resource.resource_name, operations, request.validate_only
        )
        responses.append(
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


@handler(AlterConfigsRequest, min_version=0, max_version=2)
async def alter_configs(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set the keys that are named and take back all others, resource by resource."""
    responses = []
    for resource in request.resources:
        await context.turn_after(1 + len(resource.configs))
        wanted: list[tuple[str, int, str | None]] = [(config.name, SET, config.value) for config in resource.configs]
        named = {config.name for config in resource.configs}
        present = context.cluster.configs.get((resource.resource_type, resource.resource_name), {})
        dropped: list[tuple[str, int, str | None]] = [(key, DELETE, None) for key in present if key not in named]
        error, message = _alter(
            context, resource.resource_type, resource.resource_name, wanted + dropped, request.validate_only
        )
        responses.append(
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


def _alter(
    context: Context, resource_type: int, name: str, operations: list[tuple[str, int, str | None]], validate_only: bool
) -> tuple[int, str | None]:
    denied = _denied(context, AclOperation.ALTER_CONFIGS, resource_type, name)
    if denied:
        return denied, None
    if context.cluster.manner.denies_quotas and resource_type == BROKER:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    try:
        alter(context.cluster, resource_type, name, operations, validate_only=validate_only)
    except ResourceError as error:
        return error.error_code, str(error)
    return ErrorCode.NONE, None


# -- ListConfigResources


@handler(ListConfigResourcesRequest, min_version=0, max_version=1)
async def list_config_resources(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Names of resources that can be described; before version 1 of client metrics only."""
    wanted = list(request.resource_types) or list(_LISTED_TYPES)
    if context.api_version < _TYPES_NAMED_SINCE:
        wanted = [CLIENT_METRICS]
    if not set(wanted) <= set(_LISTED_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in wanted
            for name in resource_names(context.cluster, resource_type)
        ],
    )
