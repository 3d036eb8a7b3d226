"""Which API needs which permission: the checks of Kafka's `KafkaApis`, as tables.

An API either needs something as a whole (a group's members must be allowed to READ it), or for each thing that it lists
(every topic of a Produce WRITE); then what is not allowed is taken out of the request, and its error put into the
answer. What fits neither (Metadata, CreateTopics, ...) asks `Context.may` in its handler.
"""

import copy
from collections.abc import Mapping
from functools import partial
from itertools import compress
from typing import Any, Final, NamedTuple

from kclient_quota.broker.authorizer import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import Handler
from kclient_quota.wire.error_answer import error_answer
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.schema import Request, Response

_Op, _Type = AclOperation, ResourceType
DENIED: Final[Mapping[int, ErrorCode]] = {
    _Type.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _Type.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _Type.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _Type.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What those are told who may not."""


class Needs(NamedTuple):
    """A permission for the request as a whole; `field` names the resource, None on the cluster. No name, no need."""

    resource_type: ResourceType
    operation: AclOperation
    field: str | None = None


class Each(NamedTuple):
    """Permissions for each thing in the list `field`."""

    field: str
    resource_type: ResourceType
    operations: tuple[AclOperation, ...]


_READ_GROUP: Final = Needs(_Type.GROUP, _Op.READ, "group_id")
_WRITE_TRANSACTION: Final = Needs(_Type.TRANSACTIONAL_ID, _Op.WRITE, "transactional_id")

_WHOLE: Final[Mapping[int, tuple[Needs, ...]]] = {
    0: (_WRITE_TRANSACTION,),
    8: (_READ_GROUP,),
    9: (Needs(_Type.GROUP, _Op.DESCRIBE, "group_id"),),
    11: (_READ_GROUP,),
    12: (_READ_GROUP,),
    13: (_READ_GROUP,),
    14: (_READ_GROUP,),
    24: (Needs(_Type.TRANSACTIONAL_ID, _Op.WRITE, "v3_and_below_transactional_id"),),
    25: (_WRITE_TRANSACTION, _READ_GROUP),
    26: (_WRITE_TRANSACTION,),
    28: (_WRITE_TRANSACTION, _READ_GROUP),
    29: (Needs(_Type.CLUSTER, _Op.DESCRIBE),),
    30: (Needs(_Type.CLUSTER, _Op.ALTER),),
    31: (Needs(_Type.CLUSTER, _Op.ALTER),),
    34: (Needs(_Type.CLUSTER, _Op.ALTER),),
    35: (Needs(_Type.CLUSTER, _Op.DESCRIBE),),
    43: (Needs(_Type.CLUSTER, _Op.ALTER),),
    45: (Needs(_Type.CLUSTER, _Op.ALTER),),
    46: (Needs(_Type.CLUSTER, _Op.DESCRIBE),),
    47: (Needs(_Type.GROUP, _Op.DELETE, "group_id"),),
    48: (Needs(_Type.CLUSTER, _Op.DESCRIBE_CONFIGS),),
    49: (Needs(_Type.CLUSTER, _Op.ALTER_CONFIGS),),
    50: (Needs(_Type.CLUSTER, _Op.DESCRIBE),),
    51: (Needs(_Type.CLUSTER, _Op.ALTER),),
    55: (Needs(_Type.CLUSTER, _Op.DESCRIBE),),
    57: (Needs(_Type.CLUSTER, _Op.ALTER),),
    68: (_READ_GROUP,),
    74: (Needs(_Type.CLUSTER, _Op.DESCRIBE_CONFIGS),),
    76: (_READ_GROUP,),
    78: (_READ_GROUP,),
    79: (_READ_GROUP,),
    91: (_READ_GROUP,),
    92: (Needs(_Type.GROUP, _Op.DELETE, "group_id"),),
}
"""By API key; the first that is lacking decides."""

_EACH: Final[Mapping[int, Each]] = {
    0: Each("topic_data", _Type.TOPIC, (_Op.WRITE,)),
    1: Each("topics", _Type.TOPIC, (_Op.READ,)),
    2: Each("topics", _Type.TOPIC, (_Op.DESCRIBE,)),
    8: Each("topics", _Type.TOPIC, (_Op.READ,)),
    9: Each("groups", _Type.GROUP, (_Op.DESCRIBE,)),
    15: Each("groups", _Type.GROUP, (_Op.DESCRIBE,)),
    21: Each("topics", _Type.TOPIC, (_Op.DELETE,)),
    23: Each("topics", _Type.TOPIC, (_Op.DESCRIBE,)),
    28: Each("topics", _Type.TOPIC, (_Op.READ,)),
    37: Each("topics", _Type.TOPIC, (_Op.ALTER,)),
    42: Each("groups_names", _Type.GROUP, (_Op.DELETE,)),
    47: Each("topics", _Type.TOPIC, (_Op.READ,)),
    61: Each("topics", _Type.TOPIC, (_Op.READ,)),
    65: Each("transactional_ids", _Type.TRANSACTIONAL_ID, (_Op.DESCRIBE,)),
    69: Each("group_ids", _Type.GROUP, (_Op.DESCRIBE,)),
    75: Each("topics", _Type.TOPIC, (_Op.DESCRIBE,)),
    77: Each("group_ids", _Type.GROUP, (_Op.DESCRIBE,)),
    78: Each("topics", _Type.TOPIC, (_Op.READ,)),
    79: Each("topics", _Type.TOPIC, (_Op.READ,)),
    90: Each("groups", _Type.GROUP, (_Op.DESCRIBE,)),
}
"""By API key."""


async def authorized(call: Handler, context: Context, request: Request) -> Response | None:
    """Call a handler with as much of the request as the client may ask."""
    lacking = next((needs for needs in _WHOLE.get(context.api_key, ()) if not _has(context, request, needs)), None)
    if lacking is not None:
        return _refused(context, request, DENIED[lacking.resource_type])
    each = _EACH.get(context.api_key)
    items = getattr(request, each.field) if each is not None else None
    if each is None or not items:
        return await call(context, request)
    may = await context.in_turns(items, partial(_may_each, context, each))
    if all(may):
        return await call(context, request)
    allowed = list(compress(items, may))
    denied = [item for item, is_allowed in zip(items, may, strict=True) if not is_allowed]
    refusal = _refused(context, _with(request, each.field, denied), DENIED[each.resource_type])
    if not allowed:
        return refusal
    return merged(await call(context, _with(request, each.field, allowed)), refusal)


def _has(context: Context, request: Request, needs: Needs) -> bool:
    if needs.field is None:
        return context.may(needs.operation, needs.resource_type, CLUSTER_NAME)
    name = getattr(request, needs.field)
    return not name or context.may(needs.operation, needs.resource_type, name)


def _may_each(context: Context, each: Each, item: Any) -> bool:
    name = item if isinstance(item, str) else _name(context, item)
    return name is None or all(context.may(operation, each.resource_type, name) for operation in each.operations)


def _name(context: Context, item: Any) -> str | None:
    """The resource that one entry of a list is about; None for an id that no topic has."""
    for field in ("name", "topic", "topic_name", "group_id"):
        if name := getattr(item, field, None):
            return str(name)
    topic = context.cluster.topics_by_id.get(getattr(item, "topic_id", None))  # type: ignore[arg-type]  # None is no id
    return None if topic is None else topic.name


def _refused(context: Context, request: Request, error: ErrorCode) -> Response | None:
    return error_answer(request, context.api_version, error)


def _with(request: Request, field: str, items: list[Any]) -> Request:
    changed = copy.copy(request)
    setattr(changed, field, items)
    return changed


def merged(answer: Response | None, refusal: Response | None) -> Response | None:
    """An answer about what was allowed, and with it what was refused."""
    if answer is None or refusal is None:
        return answer
    for spec in answer.__fields__:
        if spec.is_array and spec.is_struct and (more := getattr(refusal, spec.name)):
            setattr(answer, spec.name, [*(getattr(answer, spec.name) or ()), *more])
    return answer


def operations(context: Context, resource_type: ResourceType, name: str) -> int:
    """The operations that the client may do to a resource, as Kafka's bits (KIP-430)."""
    return sum(1 << operation for operation in SUPPORTED[resource_type] if context.may(operation, resource_type, name))
