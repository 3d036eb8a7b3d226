"""Client quotas of KIP-546: DescribeClientQuotas, AlterClientQuotas."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Float64, Int8, Int16, Int32, String


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    components: list[DescribeClientQuotasRequest.ComponentData] = field("0+")
    strict: Bool = field("0+")

    class ComponentData(Struct):
        entity_type: String = field("0+")
        match_type: Int8 = field("0+")
        match: String | None = field("0+", null="0+")


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    entries: list[DescribeClientQuotasResponse.EntryData] | None = field("0+", null="0+")

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = field("0+")
        values: list[DescribeClientQuotasResponse.ValueData] = field("0+")

    class EntityData(Struct):
        entity_type: String = field("0+")
        entity_name: String | None = field("0+", null="0+")

    class ValueData(Struct):
        key: String = field("0+")
        value: Float64 = field("0+")


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequest.EntryData] = field("0+")
    validate_only: Bool = field("0+")

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = field("0+")
        ops: list[AlterClientQuotasRequest.OpData] = field("0+")

    class EntityData(Struct):
        entity_type: String = field("0+")
        entity_name: String | None = field("0+", null="0+")

    class OpData(Struct):
        key: String = field("0+")
        value: Float64 = field("0+")
        remove: Bool = field("0+")


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    entries: list[AlterClientQuotasResponse.EntryData] = field("0+")

    class EntryData(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        entity: list[AlterClientQuotasResponse.EntityData] = field("0+")

    class EntityData(Struct):
        entity_type: String = field("0+")
        entity_name: String | None = field("0+", null="0+")
