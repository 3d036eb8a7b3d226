"""Access control lists: DescribeAcls, CreateAcls, DeleteAcls."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Int8, Int16, Int32, String


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: String | None = field("0+", null="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field("0+", null="0+")
    host_filter: String | None = field("0+", null="0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    resources: list[DescribeAclsResponse.DescribeAclsResource] = field("0+")

    class DescribeAclsResource(Struct):
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        pattern_type: Int8 = field("1+", default=3)
        acls: list[DescribeAclsResponse.AclDescription] = field("0+")

    class AclDescription(Struct):
        principal: String = field("0+")
        host: String = field("0+")
        operation: Int8 = field("0+")
        permission_type: Int8 = field("0+")


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    creations: list[CreateAclsRequest.AclCreation] = field("0+")

    class AclCreation(Struct):
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        resource_pattern_type: Int8 = field("1+", default=3)
        principal: String = field("0+")
        host: String = field("0+")
        operation: Int8 = field("0+")
        permission_type: Int8 = field("0+")


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[CreateAclsResponse.AclCreationResult] = field("0+")

    class AclCreationResult(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsRequest.DeleteAclsFilter] = field("0+")

    class DeleteAclsFilter(Struct):
        resource_type_filter: Int8 = field("0+")
        resource_name_filter: String | None = field("0+", null="0+")
        pattern_type_filter: Int8 = field("1+", default=3)
        principal_filter: String | None = field("0+", null="0+")
        host_filter: String | None = field("0+", null="0+")
        operation: Int8 = field("0+")
        permission_type: Int8 = field("0+")


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = field("0+")

    class DeleteAclsFilterResult(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = field("0+")

    class DeleteAclsMatchingAcl(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        pattern_type: Int8 = field("1+", default=3)
        principal: String = field("0+")
        host: String = field("0+")
        operation: Int8 = field("0+")
        permission_type: Int8 = field("0+")
