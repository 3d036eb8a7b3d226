"""Classic groups: FindCoordinator, JoinGroup, Heartbeat, LeaveGroup, SyncGroup and their administration."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Bytes, Int8, Int16, Int32, String


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: String = field("0-3")
    key_type: Int8 = field("1+")
    coordinator_keys: list[String] = field("4+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0-3")
    error_message: String | None = field("1-3", null="1-3", ignorable=True)
    node_id: Int32 = field("0-3")
    host: String = field("0-3")
    port: Int32 = field("0-3")
    coordinators: list[FindCoordinatorResponse.Coordinator] = field("4+")

    class Coordinator(Struct):
        key: String = field("4+")
        node_id: Int32 = field("4+")
        host: String = field("4+")
        port: Int32 = field("4+")
        error_code: Int16 = field("4+")
        error_message: String | None = field("4+", null="4+", ignorable=True)


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: String = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("0+")
    group_instance_id: String | None = field("5+", null="5+", default=None)
    protocol_type: String = field("0+")
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = field("0+")
    reason: String | None = field("8+", null="8+", default=None, ignorable=True)

    class JoinGroupRequestProtocol(Struct):
        name: String = field("0+")
        metadata: Bytes = field("0+")


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16 = field("0+")
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: String | None = field("7+", null="7+", default=None, ignorable=True)
    protocol_name: String | None = field("0+", null="7+")
    leader: String = field("0+")
    skip_assignment: Bool = field("9+")
    member_id: String = field("0+")
    members: list[JoinGroupResponse.JoinGroupResponseMember] = field("0+")

    class JoinGroupResponseMember(Struct):
        member_id: String = field("0+")
        group_instance_id: String | None = field("5+", null="5+", default=None, ignorable=True)
        metadata: Bytes = field("0+")


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: String = field("0+")
    generation_id: Int32 = field("0+")
    member_id: String = field("0+")
    group_instance_id: String | None = field("3+", null="3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: String = field("0+")
    member_id: String = field("0-2")
    members: list[LeaveGroupRequest.MemberIdentity] = field("3+")

    class MemberIdentity(Struct):
        member_id: String = field("3+")
        group_instance_id: String | None = field("3+", null="3+", default=None)
        reason: String | None = field("5+", null="5+", default=None, ignorable=True)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")
    members: list[LeaveGroupResponse.MemberResponse] = field("3+")

    class MemberResponse(Struct):
        member_id: String = field("3+")
        group_instance_id: String | None = field("3+", null="3+")
        error_code: Int16 = field("3+")


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: String = field("0+")
    generation_id: Int32 = field("0+")
    member_id: String = field("0+")
    group_instance_id: String | None = field("3+", null="3+", default=None)
    protocol_type: String | None = field("5+", null="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", null="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = field("0+")

    class SyncGroupRequestAssignment(Struct):
        member_id: String = field("0+")
        assignment: Bytes = field("0+")


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")
    protocol_type: String | None = field("5+", null="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", null="5+", default=None, ignorable=True)
    assignment: Bytes = field("0+")


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: list[String] = field("0+")
    include_authorized_operations: Bool = field("3+")


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribeGroupsResponse.DescribedGroup] = field("0+")

    class DescribedGroup(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("6+", null="6+", default=None)
        group_id: String = field("0+")
        group_state: String = field("0+")
        protocol_type: String = field("0+")
        protocol_data: String = field("0+")
        members: list[DescribeGroupsResponse.DescribedGroupMember] = field("0+")
        authorized_operations: Int32 = field("3+", default=-2147483648)

    class DescribedGroupMember(Struct):
        member_id: String = field("0+")
        group_instance_id: String | None = field("4+", null="4+", default=None, ignorable=True)
        client_id: String = field("0+")
        client_host: String = field("0+")
        member_metadata: Bytes = field("0+")
        member_assignment: Bytes = field("0+")


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = field("4+")
    types_filter: list[String] = field("5+")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")
    groups: list[ListGroupsResponse.ListedGroup] = field("0+")

    class ListedGroup(Struct):
        group_id: String = field("0+")
        protocol_type: String = field("0+")
        group_state: String = field("4+", ignorable=True)
        group_type: String = field("5+", ignorable=True)


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[String] = field("0+")


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[DeleteGroupsResponse.DeletableGroupResult] = field("0+")

    class DeletableGroupResult(Struct):
        group_id: String = field("0+")
        error_code: Int16 = field("0+")
