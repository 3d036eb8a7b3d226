"""Error codes and edge answers of the log and of groups, of the embedded broker and of Apache Kafka."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from kclient_quota.wire.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from kclient_quota.wire.records import Record, build_batch
from tests.contract.wire_client import Wire, connected, create_topic

Unique = Callable[[str], str]
NONE, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, MESSAGE_TOO_LARGE = 0, 1, 2, 3, 10
UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, INVALID_GROUP_ID = 25, 26, 24
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, MEMBER_ID_REQUIRED = 45, 47, 79
LOADING = {14, 15, 16}
EARLIEST, LATEST = -2, -1
A = TypeVar("A")


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    name = unique("t")
    create_topic(cluster, name)
    return name


def _batch(*values: bytes, **sequence: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(build_batch([Record(value=value, timestamp_ms=now_ms) for value in values], **sequence))


def _produce(wire: Wire, topic: str, records: bytes, *, partition: int = 0) -> ProduceResponse.PartitionProduceResponse:
    data = ProduceRequest.TopicProduceData(
        name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=records)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    return wire.ask(request, ProduceResponse, 9).responses[0].partition_responses[0]


def _fetch_request(topic: str, offset: int, **options: Any) -> FetchRequest:
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    partition_max_bytes = limits.pop("partition_max_bytes", 1 << 20)
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])], **limits)


def _fetch(wire: Wire, topic: str, offset: int, **options: Any) -> FetchResponse.PartitionData:
    response = wire.ask(_fetch_request(topic, offset, **options), FetchResponse, 11)
    return response.responses[0].partitions[0]


def _when_loaded(ask: Callable[[], A]) -> A:
    """The first use of a coordinator may find its topic, or a block of ids, still being made."""
    deadline = time.monotonic() + 60
    while (answer := ask()).error_code in LOADING and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def _offset_at(wire: Wire, topic: str, timestamp: int) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    answer = wire.ask(request, ListOffsetsResponse, 7).topics[0].partitions[0]
    assert answer.error_code == NONE
    return answer.offset


def test_offsets_are_given_in_order(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire:
        assert [_produce(wire, topic, _batch(b"a", b"b")).base_offset for _ in range(3)] == [0, 2, 4]
        assert (_offset_at(wire, topic, EARLIEST), _offset_at(wire, topic, LATEST)) == (0, 6)


def test_a_broken_checksum_is_a_corrupt_message(cluster: Any, topic: str) -> None:
    broken = bytearray(_batch(b"a"))
    broken[-1] ^= 1
    with connected(cluster) as wire:
        assert _produce(wire, topic, bytes(broken)).error_code == CORRUPT_MESSAGE
        assert _offset_at(wire, topic, LATEST) == 0


def test_a_batch_over_max_message_bytes_is_refused(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire:
        assert _produce(wire, topic, _batch(b"x" * 1_048_588)).error_code == MESSAGE_TOO_LARGE


def test_a_partition_that_is_not_there_is_unknown(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire:
        assert _produce(wire, topic, _batch(b"a"), partition=7).error_code == UNKNOWN_TOPIC
        assert _fetch(wire, "no-such-topic", 0).error_code == UNKNOWN_TOPIC


def test_fetching_beyond_the_end_is_out_of_range_and_at_the_end_is_empty(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire:
        _produce(wire, topic, _batch(b"a"))
        assert _fetch(wire, topic, 2).error_code == OFFSET_OUT_OF_RANGE
        at_end = _fetch(wire, topic, 1)
        assert (at_end.error_code, at_end.high_watermark, bytes(at_end.records or b"")) == (NONE, 1, b"")


def test_the_first_batch_comes_whole_and_a_later_one_is_cut(cluster: Any, topic: str) -> None:
    batch = _batch(b"x" * 1000)
    with connected(cluster) as wire:
        for _ in range(3):
            _produce(wire, topic, batch)
        assert len(_fetch(wire, topic, 0, max_bytes=10).records) == len(batch)
        assert len(_fetch(wire, topic, 0, max_bytes=1500).records) == 1500
        assert len(_fetch(wire, topic, 1, partition_max_bytes=1500).records) == 1500
        assert len(_fetch(wire, topic, 0).records) == 3 * len(batch)


def test_a_fetch_waits_for_min_bytes_no_longer_than_max_wait(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire, connected(cluster) as producer:
        begin = time.monotonic()
        assert bytes(_fetch(wire, topic, 0, max_wait_ms=300).records or b"") == b""
        assert time.monotonic() - begin >= 0.29
        wire.send(_fetch_request(topic, 0, max_wait_ms=30_000), 11)
        _produce(producer, topic, _batch(b"a"))
        found = wire.receive(FetchResponse, 11).responses[0].partitions[0]
        assert len(found.records) == len(_batch(b"a"))
        assert time.monotonic() - begin < 20


def test_an_idempotent_producer_is_held_to_its_sequence(cluster: Any, topic: str) -> None:
    with connected(cluster) as wire:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        given = _when_loaded(lambda: wire.ask(request, InitProducerIdResponse, 4))
        assert (given.error_code, given.producer_epoch) == (NONE, 0)
        mine = {"producer_id": given.producer_id, "producer_epoch": 0}
        first = _batch(b"a", b"b", **mine, base_sequence=0)
        assert _produce(wire, topic, first).base_offset == 0
        again = _produce(wire, topic, first)
        assert (again.error_code, again.base_offset) == (NONE, 0)
        gap = _batch(b"c", **mine, base_sequence=5)
        assert _produce(wire, topic, gap).error_code == OUT_OF_ORDER_SEQUENCE
        assert _produce(wire, topic, _batch(b"c", **mine, base_sequence=2)).base_offset == 2
        newer = {"producer_id": given.producer_id, "producer_epoch": 1}
        assert _produce(wire, topic, _batch(b"d", **newer, base_sequence=0)).base_offset == 3
        assert _produce(wire, topic, _batch(b"e", **mine, base_sequence=3)).error_code == INVALID_PRODUCER_EPOCH
        assert _offset_at(wire, topic, LATEST) == 4


def _join(group: str, **options: Any) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    fields: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "", **options}
    return JoinGroupRequest(group_id=group, protocol_type="consumer", protocols=[protocol], **fields)


def _await_coordinator(wire: Wire, group: str) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[group])
    _when_loaded(lambda: wire.ask(request, FindCoordinatorResponse, 4).coordinators[0])
    _when_loaded(lambda: wire.ask(_join(group, member_id="stranger"), JoinGroupResponse, 7))


def test_a_new_member_is_given_its_id_before_it_joins(cluster: Any, unique: Unique) -> None:
    group = unique("group")
    with connected(cluster) as wire:
        _await_coordinator(wire, group)
        refused = wire.ask(_join(group), JoinGroupResponse, 7)
        assert refused.error_code == MEMBER_ID_REQUIRED
        assert refused.member_id
        joined = wire.ask(_join(group, member_id=refused.member_id), JoinGroupResponse, 7)
        assert (joined.error_code, joined.generation_id) == (NONE, 1)
        assert joined.leader == joined.member_id == refused.member_id
        assert joined.protocol_name == "range"
        assert [member.member_id for member in joined.members] == [refused.member_id]
        unknown = HeartbeatRequest(group_id=group, generation_id=1, member_id="stranger")
        assert wire.ask(unknown, HeartbeatResponse, 4).error_code == UNKNOWN_MEMBER_ID


def test_senseless_joins_are_refused(cluster: Any, unique: Unique) -> None:
    group = unique("group")
    with connected(cluster) as wire:
        _await_coordinator(wire, group)
        assert wire.ask(_join(""), JoinGroupResponse, 7).error_code == INVALID_GROUP_ID
        short = _join(group, session_timeout_ms=1)
        assert wire.ask(short, JoinGroupResponse, 7).error_code == INVALID_SESSION_TIMEOUT
        stranger = _join(group, member_id="stranger")
        assert wire.ask(stranger, JoinGroupResponse, 7).error_code == UNKNOWN_MEMBER_ID
