"""Requests that name very many things, for the tests of long answers and of long messages."""

from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)


def wanted(name):
    return MetadataRequest.MetadataRequestTopic(name=name)


def resource(kind, name):
    return DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)


def offsets_of(name, partitions):
    return ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)


def offset(index):
    return ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)


MANY = 2_500
NAMES = [f"n{number}" for number in range(MANY)]
INDEXES = range(MANY)


def partitions(cls, **more):
    """So many partitions of one topic, as a request's class has them."""
    keys = {spec.name for spec in cls.__fields__}
    key = next(name for name in ("index", "partition", "partition_index") if name in keys)
    return [cls(**{key: number}, **more) for number in INDEXES]


LONG = {
    "Metadata": MetadataRequest(topics=[wanted(name) for name in NAMES], allow_auto_topic_creation=False),
    "DescribeGroups": DescribeGroupsRequest(groups=NAMES),
    "DeleteGroups": DeleteGroupsRequest(groups_names=NAMES),
    "FindCoordinator": FindCoordinatorRequest(coordinator_keys=NAMES),
    "DescribeConfigs": DescribeConfigsRequest(resources=[resource(2, name) for name in NAMES]),
    "ListOffsets": ListOffsetsRequest(topics=[offsets_of("t", [offset(number) for number in INDEXES])]),
    "ListOffsets-topics": ListOffsetsRequest(topics=[offsets_of(name, [offset(0)]) for name in NAMES]),
    "Produce": ProduceRequest(
        acks=-1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t", partition_data=partitions(ProduceRequest.PartitionProduceData, records=b"x")
            )
        ],
    ),
    "Fetch": FetchRequest(
        topics=[FetchRequest.FetchTopic(topic="t", partitions=partitions(FetchRequest.FetchPartition))]
    ),
    "OffsetCommit": OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t", partitions=partitions(OffsetCommitRequest.OffsetCommitRequestPartition, committed_offset=1)
            )
        ],
    ),
    "OffsetFetch": OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(INDEXES))]
    ),
    "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic="t", partitions=partitions(OffsetForLeaderEpochRequest.OffsetForLeaderPartition)
            )
        ]
    ),
    "DeleteRecords": DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name="t", partitions=partitions(DeleteRecordsRequest.DeleteRecordsPartition, offset=0)
            )
        ]
    ),
    "CreateTopics": CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=9) for name in NAMES]
    ),
    "DeleteTopics": DeleteTopicsRequest(topic_names=NAMES),
}
LONG["AlterClientQuotas"] = AlterClientQuotasRequest(
    entries=[
        AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=name)],
            ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e6, remove=False)],
        )
        for name in NAMES
    ]
)
LONG["CreateAcls"] = CreateAclsRequest(
    creations=[
        CreateAclsRequest.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:u",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in NAMES
    ]
)
LONG["DeleteAcls"] = DeleteAclsRequest(
    filters=[
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter=name, pattern_type_filter=3, operation=1, permission_type=1
        )
        for name in NAMES
    ]
)
LONG["DescribeTopicPartitions"] = DescribeTopicPartitionsRequest(
    topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in NAMES]
)
VERSIONS = {
    "CreateAcls": 3,
    "DeleteAcls": 3,
    "DescribeTopicPartitions": 0,
    "AlterClientQuotas": 1,
    "DescribeGroups": 5,
    "DeleteGroups": 2,
    "OffsetFetch": 7,
    "DeleteRecords": 2,
    "Produce": 9,
    "Fetch": 11,
}


def rows_of(struct):
    for spec in type(struct).__fields__:
        if spec.is_array and spec.is_struct:
            yield from getattr(struct, spec.name) or ()
