"""Configuration of resources: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, String


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = field("0+")
    include_synonyms: Bool = field("1+")
    include_documentation: Bool = field("3+")

    class DescribeConfigsResource(Struct):
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        configuration_keys: list[String] | None = field("0+", null="0+")


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = field("0+")

    class DescribeConfigsResult(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field("0+")

    class DescribeConfigsResourceResult(Struct):
        name: String = field("0+")
        value: String | None = field("0+", null="0+")
        read_only: Bool = field("0+")
        config_source: Int8 = field("1+", default=-1, ignorable=True)
        is_sensitive: Bool = field("0+")
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field("1+", ignorable=True)
        config_type: Int8 = field("3+", ignorable=True)
        documentation: String | None = field("3+", null="0+", ignorable=True)

    class DescribeConfigsSynonym(Struct):
        name: String = field("1+")
        value: String | None = field("1+", null="0+")
        source: Int8 = field("1+")


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsRequest.AlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")

    class AlterConfigsResource(Struct):
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        configs: list[AlterConfigsRequest.AlterableConfig] = field("0+")

    class AlterableConfig(Struct):
        name: String = field("0+")
        value: String | None = field("0+", null="0+")


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = field("0+")

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = field("0+")
    validate_only: Bool = field("0+")

    class AlterConfigsResource(Struct):
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = field("0+")

    class AlterableConfig(Struct):
        name: String = field("0+")
        config_operation: Int8 = field("0+")
        value: String | None = field("0+", null="0+")


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = field("0+")

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        resource_type: Int8 = field("0+")
        resource_name: String = field("0+")


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field("1+")


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = field("0+")

    class ConfigResource(Struct):
        resource_name: String = field("0+")
        resource_type: Int8 = field("1+", default=16, ignorable=True)
