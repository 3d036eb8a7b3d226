"""Transactions request by request: the same error codes and values on both brokers."""

import time

from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kclient_quota.wire.records import Record, build_batch
from tests.contract.group_talk import fetch_offsets, stable


class Producer:
    """A transactional producer made of single requests."""

    def __init__(self, talk, transactional_id, **initialize):
        self.talk, self.transactional_id = talk, transactional_id
        talk.ready(transactional_id, 1)
        answer = talk.until(
            lambda: InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000, **initialize
            ),
            lambda answer: answer.error_code,
            4,
        )
        self.error, self.id, self.epoch = answer.error_code, answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def add(self, topic, *partitions):
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        answer = self.talk.until(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            3,
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [p.partition_error_code for p in sorted(results, key=lambda p: p.partition_index)]

    def write(self, topic, partition=0, version=11):
        batch = build_batch(
            [Record(key=None, value=b"v", timestamp_ms=1_000)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=5000, topic_data=[named])
        answer = self.talk.until(
            lambda: request, lambda answer: answer.responses[0].partition_responses[0].error_code, version
        )
        error = answer.responses[0].partition_responses[0].error_code
        self.sequence += error == 0
        return error

    def end(self, *, commit):
        return self.talk.until(
            lambda: EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            lambda answer: answer.error_code,
            3,
        ).error_code

    def add_group(self, group):
        return self.talk.until(
            lambda: AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, group_id=group
            ),
            lambda answer: answer.error_code,
            3,
        ).error_code

    def commit_offset(self, group, topic, offset=5, *, version=3, **member):
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])
        return (
            self.talk.until(
                lambda: TxnOffsetCommitRequest(
                    transactional_id=self.transactional_id,
                    group_id=group,
                    producer_id=self.id,
                    producer_epoch=self.epoch,
                    topics=[named],
                    **member,
                ),
                lambda answer: answer.topics[0].partitions[0].error_code,
                version,
            )
            .topics[0]
            .partitions[0]
            .error_code
        )


def read_log(talk, topic, *, committed, offset=0):
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    data = talk.ask(request, 11).responses[0].partitions[0]
    aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or []]
    return data.high_watermark, data.last_stable_offset, len(bytes(data.records or b"")), aborted


def end_of_log(talk, topic, *, committed):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[named])
    return talk.ask(request, 5).topics[0].partitions[0].offset


def eventually(function, expected):
    """Markers are written in Apache Kafka after EndTxn has been answered."""
    deadline = time.monotonic() + 60
    while (found := function()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_transaction_in_the_log(talk, unique):
    topic = unique("t")
    talk.create(topic)
    producer = Producer(talk, unique("x"))
    assert (producer.error, producer.epoch) == (0, 0)
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic) == 0
    size = read_log(talk, topic, committed=False)[2]
    assert read_log(talk, topic, committed=True) == (1, 0, 0, [])
    assert (end_of_log(talk, topic, committed=True), end_of_log(talk, topic, committed=False)) == (0, 1)
    assert producer.end(commit=False) == 0
    eventually(lambda: read_log(talk, topic, committed=True)[1], 2)
    high, stable_offset, bytes_there, aborted = read_log(talk, topic, committed=True)
    assert (high, stable_offset, aborted) == (2, 2, [(producer.id, 0)])
    assert bytes_there >= size
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic) == 0
    assert producer.end(commit=True) == 0
    eventually(lambda: end_of_log(talk, topic, committed=True), 4)
    assert producer.end(commit=True) == 0
    assert producer.end(commit=False) == 48


def test_transactional_requests_that_are_refused(talk, unique):
    topic = unique("t")
    talk.create(topic)
    producer = Producer(talk, unique("x"))
    assert producer.end(commit=True) == 48
    assert producer.add(topic, 0, 9) == [55, 3]
    assert producer.add(topic, 0) == [0]
    right, producer.epoch = producer.epoch, 7
    assert (producer.add(topic, 0), producer.end(commit=True), producer.add_group("g")) == ([90], 90, 90)
    producer.epoch = right
    right, producer.id = producer.id, producer.id + 1000
    assert (producer.add(topic, 0), producer.end(commit=True), producer.add_group("g")) == ([49], 49, 49)
    producer.id = right
    assert producer.end(commit=True) == 0
    answer = talk.ask(InitProducerIdRequest(transactional_id=unique("y"), transaction_timeout_ms=2**31 - 1), 4)
    assert answer.error_code == 50
    answer = talk.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
    assert answer.error_code == 42


def test_a_new_producer_fences_the_former(talk, unique):
    topic, transactional_id = unique("t"), unique("x")
    talk.create(topic)
    former = Producer(talk, transactional_id)
    former.add(topic, 0)
    assert former.write(topic) == 0
    latter = Producer(talk, transactional_id)
    assert (latter.id, latter.epoch) == (former.id, 2), "one epoch for the fence, one for the new producer"
    eventually(lambda: read_log(talk, topic, committed=True)[3], [(former.id, 0)])
    assert former.end(commit=True) == 90
    assert former.write(topic) == 47
    again = Producer(talk, transactional_id, producer_id=latter.id, producer_epoch=latter.epoch)
    assert (again.error, again.epoch) == (0, 3)
    assert Producer(talk, transactional_id, producer_id=former.id, producer_epoch=former.epoch).error == 90


def test_writing_outside_the_transaction(talk, unique):
    topic, group = unique("t"), unique("g")
    talk.create(topic)
    talk.ready(group)
    producer = Producer(talk, unique("x"))
    assert producer.write(topic, version=10) == 48
    assert producer.write(topic, version=11) == 120
    assert producer.commit_offset(group, topic, version=3) == 48
    assert producer.commit_offset(group, topic, version=4) == 120
    assert read_log(talk, topic, committed=False)[0] == 0


def test_offsets_in_a_transaction(talk, unique):
    topic, group = unique("t"), unique("g")
    talk.create(topic)
    talk.ready(group)
    producer = Producer(talk, unique("x"))
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic) == 0
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    assert producer.end(commit=True) == 0
    eventually(lambda: fetch_offsets(talk, group, topic), (0, [(0, 5, "", 0)]))
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic, 9) == 0
    assert producer.end(commit=False) == 0
    assert fetch_offsets(talk, group, topic) == (0, [(0, 5, "", 0)])
    assert producer.add_group(group) == 0
    assert producer.commit_offset(group, topic, member_id="m", generation_id=3) == 25
    joined = stable(talk, group)
    assert producer.commit_offset(group, topic, 7, member_id=joined.member_id, generation_id=1) == 0
    assert producer.commit_offset(group, topic, 7, member_id=joined.member_id, generation_id=2) == 22
    assert producer.commit_offset(group, topic, 7) == 0, "a producer that names no member is let through"
