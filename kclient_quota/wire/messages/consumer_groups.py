"""Consumer groups of KIP-848: ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, String, Uuid


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: String = field("0+")
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: String | None = field("0+", null="0+", default=None)
    rack_id: String | None = field("0+", null="0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    subscribed_topic_names: list[String] | None = field("0+", null="0+", default=None)
    subscribed_topic_regex: String | None = field("1+", null="1+", default=None)
    server_assignor: String | None = field("0+", null="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = field("0+", null="0+", default=None)

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    member_id: String | None = field("0+", null="0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = field("0+", null="0+", default=None)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field("0+")

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String] = field("0+")
    include_authorized_operations: Bool = field("0+")


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = field("0+")

    class DescribedGroup(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
        group_id: String = field("0+")
        group_state: String = field("0+")
        group_epoch: Int32 = field("0+")
        assignment_epoch: Int32 = field("0+")
        assignor_name: String = field("0+")
        members: list[ConsumerGroupDescribeResponse.Member] = field("0+")
        authorized_operations: Int32 = field("0+", default=-2147483648)

    class Member(Struct):
        member_id: String = field("0+")
        instance_id: String | None = field("0+", null="0+", default=None)
        rack_id: String | None = field("0+", null="0+", default=None)
        member_epoch: Int32 = field("0+")
        client_id: String = field("0+")
        client_host: String = field("0+")
        subscribed_topic_names: list[String] = field("0+")
        subscribed_topic_regex: String | None = field("0+", null="0+", default=None)
        assignment: ConsumerGroupDescribeResponse.Assignment = field("0+")
        target_assignment: ConsumerGroupDescribeResponse.Assignment = field("0+")
        member_type: Int8 = field("1+", default=-1, ignorable=True)

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        topic_name: String = field("0+")
        partitions: list[Int32] = field("0+")

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = field("0+")
