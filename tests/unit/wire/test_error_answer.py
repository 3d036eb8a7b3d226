"""One error about everything that was asked for: what clients look at is where they look for it."""

from random import Random
from uuid import UUID

import pytest

from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.error_answer import error_answer
from kclient_quota.wire.messages import (
    API,
    AddPartitionsToTxnRequest,
    AlterClientQuotasRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from kclient_quota.wire.schema import Struct, struct_class
from tests.unit.wire.random_message import PRIMITIVES, random_struct

STORAGE_ERROR = 56


def answer(request, version):
    response = error_answer(request, version, STORAGE_ERROR)
    return decode(type(response), version, encode(response, version))


def test_produce_and_fetch_name_every_partition():
    part = ProduceRequest.PartitionProduceData
    data = [ProduceRequest.TopicProduceData(name="t", partition_data=[part(index=0), part(index=3)])]
    (topic,) = answer(ProduceRequest(acks=1, topic_data=data), 9).responses
    assert (topic.name, [(p.index, p.error_code) for p in topic.partition_responses]) == ("t", [(0, 56), (3, 56)])
    assert error_answer(ProduceRequest(acks=0, topic_data=data), 9, STORAGE_ERROR) is None
    topics = [FetchRequest.FetchTopic(topic_id=UUID(int=4), partitions=[FetchRequest.FetchPartition(partition=2)])]
    fetched = answer(FetchRequest(topics=topics), 13)
    assert fetched.error_code == 56
    assert fetched.responses[0].topic_id == UUID(int=4)
    assert [(p.partition_index, p.error_code) for p in fetched.responses[0].partitions] == [(2, 56)]
    # Kafka: `MemoryRecords.EMPTY`; librdkafka takes null for an answer that is broken
    assert fetched.responses[0].partitions[0].records == b""


def test_an_offset_that_is_not_known_is_none():
    """Kafka: `INVALID_OFFSET` and `INVALID_HIGH_WATERMARK` beside an error, where the fields' defaults are 0."""
    data = [ProduceRequest.TopicProduceData(name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0)])]
    produced = answer(ProduceRequest(acks=-1, topic_data=data), 9).responses[0].partition_responses[0]
    assert (produced.base_offset, produced.log_append_time_ms, produced.log_start_offset) == (-1, -1, -1)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=2)])]
    fetched = answer(FetchRequest(topics=topics), 12).responses[0].partitions[0]
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (-1, -1, -1)
    asked = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1])]
    (topic,) = answer(OffsetFetchRequest(group_id="g", topics=asked), 7).topics
    assert [(part.partition_index, part.committed_offset) for part in topic.partitions] == [(1, -1)]


def test_offsets_name_every_partition():
    asked = [
        ListOffsetsRequest.ListOffsetsTopic(
            name="t", partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=5)]
        )
    ]
    (topic,) = answer(ListOffsetsRequest(topics=asked), 7).topics
    assert (topic.name, topic.partitions[0].partition_index, topic.partitions[0].error_code) == ("t", 5, 56)
    asked = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=1)]
        )
    ]
    (topic,) = answer(OffsetCommitRequest(topics=asked), 8).topics
    assert (topic.name, topic.partitions[0].partition_index, topic.partitions[0].error_code) == ("t", 1, 56)


def test_administration_names_every_resource():
    made = answer(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a")]), 7)
    assert [(topic.name, topic.error_code) for topic in made.topics] == [("a", 56)]
    gone = answer(DeleteTopicsRequest(topic_names=["a", "b"]), 5)
    assert [(topic.name, topic.error_code) for topic in gone.responses] == [("a", 56), ("b", 56)]
    gone = answer(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")]), 6)
    assert [(topic.name, topic.error_code) for topic in gone.responses] == [("a", 56)]
    asked = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")]
    (result,) = answer(DescribeConfigsRequest(resources=asked), 4).results
    assert (result.error_code, result.resource_type, result.resource_name) == (56, 2, "t")
    entity = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="alice")
    (entry,) = answer(
        AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=[entity])]), 1
    ).entries
    assert (entry.error_code, entry.entity[0].entity_type, entry.entity[0].entity_name) == (56, "user", "alice")
    (topic,) = answer(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9).topics
    assert (topic.name, topic.error_code) == ("t", 56)


def test_a_transaction_hears_of_every_partition():
    """Until version 3 there is no other place for it, and the field has a name of its own."""
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0, 3])]
    told = answer(AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics), 3)
    (topic,) = told.results_by_topic_v3_and_below
    assert topic.name == "t"
    assert [(p.partition_index, p.partition_error_code) for p in topic.results_by_partition] == [(0, 56), (3, 56)]
    assert answer(AddPartitionsToTxnRequest(), 4).error_code == 56


def test_what_has_one_place_for_an_error_is_not_told_it_twice():
    """`topic_config_error_code` of CreateTopics says why configurations are not told."""
    (made,) = answer(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a")]), 7).topics
    assert (made.error_code, made.topic_config_error_code) == (56, 0)


def test_groups_say_it_once_or_for_each():
    assert answer(JoinGroupRequest(), 9).error_code == 56
    assert answer(FindCoordinatorRequest(key="g"), 3).error_code == 56
    found = answer(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [("g", 56), ("h", 56)]


@pytest.mark.parametrize("api_key", sorted(REGISTRY))
def test_every_request_has_such_an_answer(api_key):
    entry = REGISTRY[api_key]
    for version in range(entry.min_version, entry.max_version + 1):
        for seed in range(5):
            request = random_struct(Random(seed), API[api_key].request, version)
            response = error_answer(request, version, STORAGE_ERROR)
            if response is not None:
                decode(type(response), version, encode(response, version))


def naming_one_of_each(cls, version, root=None):
    """A request with one item in each of its lists."""
    made = cls()
    for spec in (spec for spec in cls.__fields__ if version in spec.versions):
        if spec.is_struct:
            value = naming_one_of_each(struct_class(root or cls, spec.type), version, root or cls)
        else:
            value = "a" if spec.type == "String" else PRIMITIVES.get(spec.type, lambda _: 1)(Random(1))
        setattr(made, spec.name, [value] if spec.is_array else value)
    return made


def says(struct, code):
    """Whether an error code in it, however deep, is `code`."""
    values = [(spec.name, getattr(struct, spec.name)) for spec in struct.__fields__]
    lists = [value if isinstance(value, list) else [value] for _, value in values]
    return any(name.endswith("error_code") and value == code for name, value in values) or any(
        isinstance(item, Struct) and says(item, code) for items in lists for item in items
    )


@pytest.mark.parametrize("api_key", sorted(REGISTRY))
def test_no_error_goes_out_as_success(api_key):
    entry = REGISTRY[api_key]
    for version in range(entry.min_version, entry.max_version + 1):
        assert says(answer(naming_one_of_each(API[api_key].request, version), version), STORAGE_ERROR), version
