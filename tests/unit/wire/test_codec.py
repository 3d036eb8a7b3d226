"""The codec against bytes written by Apache Kafka itself, and its behaviour at the edges."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kclient_quota.errors import WireError
from kclient_quota.wire.codec import Encoded, decode, encode, encode_names, encode_parts
from kclient_quota.wire.frame import RequestHeader, decode_request_header, encode_request
from kclient_quota.wire.messages import (
    API,
    AlterClientQuotasRequest,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    FetchResponse,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    InitProducerIdRequest,
    ListConfigResourcesRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
    SaslHandshakeRequest,
)
from tests.unit.cases import case
from tests.unit.wire.random_message import random_struct

INSTANCE = UUID("01234567-89ab-cdef-fedc-ba9876543210")
BOTH = [
    DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=0, match="u1"),
    DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=1, match=None),
]
ANY_USER = [DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=2, match=None)]
DEFAULT_USER = DescribeClientQuotasResponse.EntryData(
    entity=[DescribeClientQuotasResponse.EntityData(entity_type="user", entity_name=None)],
    values=[DescribeClientQuotasResponse.ValueData(key="producer_byte_rate", value=1024.0)],
)
ALTERATION = AlterClientQuotasRequest.EntryData(
    entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u1")],
    ops=[
        AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1024.0),
        AlterClientQuotasRequest.OpData(key="consumer_byte_rate", remove=True),
    ],
)
SUBSCRIPTION = GetTelemetrySubscriptionsResponse(
    client_instance_id=INSTANCE,
    subscription_id=1235845962,
    accepted_compression_types=[4, 3, 1, 2],
    push_interval_ms=5000,
    telemetry_max_bytes=1048576,
    delta_temporality=True,
    requested_metrics=["*"],
)
PUSH = PushTelemetryRequest(
    client_instance_id=INSTANCE, subscription_id=1235845962, terminating=True, metrics=b"\x01\x02\x03"
)

# Apache Kafka 4.1's own serialisation: requests with client id "cli" and correlation id 7, without the frame's length.
REQUESTS = [
    (GetTelemetrySubscriptionsRequest(), 0, "00470000000000070003636c69000000000000000000000000000000000000"),
    (
        PUSH,
        0,
        "00480000000000070003636c69000123456789abcdeffedcba987654321049a9834a01000401020300",
    ),
    (
        DescribeClientQuotasRequest(components=BOTH, strict=True),
        0,
        "00300000000000070003636c690000000200047573657200000275310009636c69656e742d696401ffff01",
    ),
    (
        DescribeClientQuotasRequest(components=BOTH, strict=True),
        1,
        "00300001000000070003636c690003057573657200037531000a636c69656e742d69640100000100",
    ),
    (DescribeClientQuotasRequest(components=ANY_USER), 1, "00300001000000070003636c69000205757365720200000000"),
    (
        AlterClientQuotasRequest(entries=[ALTERATION]),
        0,
        (
            "00310000000000070003636c6900000001000000010004757365720002753100000002001270726f64756365725f627974655f"
            "726174654090000000000000000012636f6e73756d65725f627974655f7261746500000000000000000100"
        ),
    ),
    (
        AlterClientQuotasRequest(entries=[ALTERATION]),
        1,
        (
            "00310001000000070003636c69000202057573657203753100031370726f64756365725f627974655f72617465409000000000"
            "0000000013636f6e73756d65725f627974655f7261746500000000000000000100000000"
        ),
    ),
    (ListConfigResourcesRequest(resource_types=[16]), 1, "004a0001000000070003636c6900021000"),
    (ListConfigResourcesRequest(), 0, "004a0000000000070003636c690000"),
]
RESPONSES = [
    (
        SUBSCRIPTION,
        0,
        "0000000000000123456789abcdeffedcba987654321049a9834a050403010200001388001000000102022a00",
    ),
    (PushTelemetryResponse(throttle_time_ms=100, error_code=89), 0, "00000064005900"),
    (
        DescribeClientQuotasResponse(error_message="", entries=[DEFAULT_USER]),
        0,
        (
            "00000000000000000000000100000001000475736572ffff00000001001270726f64756365725f627974655f72617465"
            "4090000000000000"
        ),
    ),
    (
        DescribeClientQuotasResponse(error_message="", entries=[DEFAULT_USER]),
        1,
        "00000000000001020205757365720000021370726f64756365725f627974655f726174654090000000000000000000",
    ),
]


@pytest.mark.parametrize(("message", "version", "golden"), REQUESTS)
def test_requests_are_kafkas_bytes(message, version, golden):
    header = RequestHeader(message.__schema__.api_key, version, 7, "cli")
    frame = b"".join(encode_request(message, header))
    assert frame[4:].hex() == golden
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read, start = decode_request_header(frame, 4)
    assert read == header
    assert decode(type(message), version, frame, start) == message


@pytest.mark.parametrize(("message", "version", "golden"), RESPONSES)
def test_responses_are_kafkas_bytes(message, version, golden):
    assert encode(message, version).hex() == golden
    assert decode(type(message), version, bytes.fromhex(golden)) == message


EVERY_MESSAGE = [cls for api in API.values() for cls in (api.request, api.response)]


@pytest.mark.parametrize("cls", EVERY_MESSAGE)
def test_every_message_round_trips(cls):
    for version in cls.__schema__.valid_versions:
        with case(f"version {version}"):
            assert decode(cls, version, encode(cls(), version)) == cls()
        for seed in range(3):
            with case(f"version {version}, seed {seed}"):
                message = random_struct(Random(seed), cls, version)
                body = encode(message, version)
                assert b"".join(encode_parts(message, version)) == body
                assert decode(cls, version, memoryview(b"..." + body + b"....."), 3, 3 + len(body)) == message


def test_registry_has_kafkas_versions():
    produce = API[0]
    assert (produce.name, produce.min_version, produce.max_version) == ("Produce", 3, 13)
    assert produce.flexible_since == 9
    assert API[22].max_version == 5  # v6 is unstable in 4.3.1
    assert API[17].flexible_since is None
    assert len(API) == 62


def test_defaults_are_kafkas():
    assert ProduceResponse.PartitionProduceResponse().log_append_time_ms == -1
    assert ProduceResponse.PartitionProduceResponse().current_leader.leader_id == -1
    assert MetadataRequest().allow_auto_topic_creation is True
    assert MetadataRequest().topics == []
    assert FetchResponse.PartitionData().aborted_transactions == []
    first, second = ProduceRequest(), ProduceRequest()
    first.topic_data.append(ProduceRequest.TopicProduceData())
    assert second.topic_data == []


def test_messages_are_values():
    assert ProduceRequest(acks=1) == ProduceRequest(acks=1) != ProduceRequest(acks=0)
    assert ProduceRequest() != ProduceResponse()
    assert "acks=-1" in repr(ProduceRequest(acks=-1))
    assert "<2000 bytes>" in repr(ProduceRequest.PartitionProduceData(records=bytes(2000)))
    with pytest.raises(TypeError, match="ackz"):
        ProduceRequest(ackz=1)
    with pytest.raises(AttributeError):
        ProduceRequest().ackz = 1


def test_records_are_neither_copied_in_nor_out():
    records = bytes(100_000)
    partition = ProduceRequest.PartitionProduceData(index=1, records=records)
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    parts = encode_parts(request, 9)
    assert any(part is records for part in parts)
    assert len(parts) == 3
    body = bytearray(b"".join(parts))
    taken = decode(ProduceRequest, 9, body).topic_data[0].partition_data[0].records
    assert isinstance(taken, memoryview)
    assert taken.obj is body
    taken.release()


def test_unknown_tags_are_kept():
    body = encode(SUBSCRIPTION, 0)
    tagged = body[:-1] + b"\x02\x07\x02hi\xe8\x07\x00"
    message = decode(GetTelemetrySubscriptionsResponse, 0, tagged)
    assert message.unknown_tags == {7: b"hi", 1000: b""}
    assert encode(message, 0) == tagged


def test_unknown_tags_stand_beside_known_ones():
    message = ApiVersionsResponse(finalized_features_epoch=5, unknown_tags={9: b"new"})
    body = encode(message, 3)
    assert decode(ApiVersionsResponse, 3, body) == message
    with pytest.raises(WireError, match="tag 1"):
        encode(ApiVersionsResponse(unknown_tags={1: b""}), 3)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("", "end too early"),
        ("0000000000000000000001", "1 bytes are left over"),
        ("0000000000007fffffff", "claims length 2147483647 with 0 bytes left"),
    ],
)
def test_malformed_bytes_are_one_clear_error(body, problem):
    with pytest.raises(WireError, match=problem):
        decode(API[16].response, 1, bytes.fromhex(body))


@pytest.mark.parametrize(
    ("cls", "version", "body", "problem"),
    [
        (SaslHandshakeRequest, 0, "ffff", "mechanism is null"),
        (SaslHandshakeRequest, 0, "000241", "1 bytes are missing"),
        (DescribeClientQuotasRequest, 1, "ffffffff0f0000", "components claims length 4294967294"),
        (DescribeClientQuotasRequest, 1, "ffffffffff0f00", "longer than five bytes"),
        (DescribeClientQuotasRequest, 1, "ffffffff7f0000", "does not fit 32 bits"),
        (DescribeClientQuotasRequest, 1, "0000", "components is null"),
        (DescribeClientQuotasRequest, 1, "010001050500", "claims length 5 with 1 bytes left"),
        (DescribeClientQuotasRequest, 1, "0100ffffffff0f", "tagged fields claims length"),
        (ApiVersionsResponse, 3, "0000010000000001010200", "zk_migration|finalized_features_epoch|early|left|fill"),
    ],
)
def test_each_kind_of_malformation_is_named(cls, version, body, problem):
    with pytest.raises(WireError, match=problem):
        decode(cls, version, bytes.fromhex(body))


def test_what_is_no_utf8_is_read_as_kafka_reads_it():
    """Java puts U+FFFD in its place; `make fuzz` compares both on 100,000 messages."""
    assert decode(SaslHandshakeRequest, 0, bytes.fromhex("000461fffe62")).mechanism == "a\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("message", "version", "problem"),
    [
        (ProduceRequest(acks=99_999), 9, "ProduceRequest v9 cannot be written: acks is 99999, which is no Int16"),
        (ProduceRequest(), 2, "use a version from 3 to 13"),
        (SaslHandshakeRequest(mechanism=None), 1, "mechanism is None"),
        (SaslHandshakeRequest(mechanism=b"PLAIN"), 1, "cannot be written: mechanism is b'PLAIN', which is no String"),
        (SaslHandshakeRequest(mechanism="x" * 40_000), 1, "SaslHandshakeRequest v1 cannot be written"),
        (MetadataRequest(topics=7), 9, "topics is 7, which is no list"),
        (
            MetadataRequest(topics=["orders"]),
            9,
            r"topics\[0\] is 'orders', which is no MetadataRequest",
        ),
        (
            ProduceResponse(
                responses=[
                    ProduceResponse.TopicProduceResponse(
                        name="t", partition_responses=[ProduceResponse.PartitionProduceResponse(base_offset="x" * 100)]
                    )
                ]
            ),
            9,
            r"responses\[0\]\.partition_responses\[0\]\.base_offset is 'xxx.*…, which is no Int64",
        ),
        (GetTelemetrySubscriptionsRequest(client_instance_id=b"x"), 0, "client_instance_id is b'x', which is no Uuid"),
        (DescribeConfigsRequest(include_documentation=True), 2, "include_documentation is set, which needs version 3"),
        (InitProducerIdRequest(producer_id=7), 1, "producer_id is set, which needs version 3"),
    ],
)
def test_unwritable_values_are_one_clear_error(message, version, problem):
    with pytest.raises(WireError, match=problem):
        encode(message, version)


def test_ignorable_values_are_dropped():
    response = ProduceResponse(throttle_time_ms=5)
    partition = ProduceResponse.PartitionProduceResponse(error_message="why")
    response.responses.append(ProduceResponse.TopicProduceResponse(partition_responses=[partition]))
    read = decode(ProduceResponse, 7, encode(response, 7))
    assert read.responses[0].partition_responses[0].error_message is None
    assert read.throttle_time_ms == 5


@pytest.mark.parametrize("version", [0, 5])
def test_names_may_be_encoded_before(version):
    names = ["", "g", "caf\u00e9", "x" * 126, "x" * 127, "x" * 20_000]
    plain = encode(DescribeGroupsRequest(groups=names), version)
    for size in (1, 2, len(names)):
        parts = [names[start : start + size] for start in range(0, len(names), size)]
        encoded = Encoded(len(names), [encode_names(DescribeGroupsRequest, version, part) for part in parts])
        assert encode(DescribeGroupsRequest(groups=encoded), version) == plain


@pytest.mark.parametrize("name", [5, None, "x" * 40_000, "\ud800"])
def test_names_that_cannot_be_written_are_one_clear_error(name):
    with pytest.raises(WireError, match="DescribeGroupsRequest v0 cannot be written: "):
        encode_names(DescribeGroupsRequest, 0, ["a", name])


def test_a_string_is_no_longer_than_kafka_reads_it():
    longest = InitProducerIdRequest(transactional_id="x" * 32_767, transaction_timeout_ms=1)
    body = encode(longest, 4)
    assert decode(InitProducerIdRequest, 4, body) == longest
    longer = b"\x81\x80\x02" + b"x" * 32_768 + body[3 + 32_767 :]
    with pytest.raises(WireError, match="transactional_id has 32768 bytes"):
        decode(InitProducerIdRequest, 4, longer)
