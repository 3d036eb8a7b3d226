"""Who may sync with a classic group and commit in it."""

from kclient_quota.broker.groups.classic.group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState
from kclient_quota.broker.groups.classic.requests import Sync
from kclient_quota.wire.error_codes import ErrorCode


def validate_sync(group: ClassicGroup, request: Sync) -> ErrorCode:
    """Whether the request is of a member of the running generation."""
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in {None, group.protocol_type} or (
        group.protocol_name is not None and request.protocol_name not in {None, group.protocol_name}
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def validate_commit(
    group: ClassicGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    transactional: bool,
) -> ErrorCode:
    """Whether a member, or somebody without a group, may commit."""
    if generation_id < 0 and group.state is GroupState.EMPTY:
        # A consumer that assigns its partitions itself, or one without members at all.
        return ErrorCode.NONE
    if generation_id >= 0 or member_id != UNKNOWN_MEMBER_ID or group_instance_id is not None:
        error = group.validate_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
