"""Quotas over the wire, KIP-546: what Kafka takes, refuses and finds."""

import pytest

from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from tests.unit.broker.core_cluster import Cluster


@pytest.fixture
def cluster():
    return Cluster()


def alter(cluster, entity, *, validate_only=False, version=1, **ops):
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=v) for k, v in entity],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in ops.items()
        ],
    )
    (result,) = cluster.send(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only), version).entries
    return result.error_code, result.error_message


def describe(cluster, *components, strict=False, version=1):
    wanted = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    return cluster.send(DescribeClientQuotasRequest(components=wanted, strict=strict), version)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(cluster, version):
    who = [("user", "u"), ("client-id", None)]
    assert alter(cluster, who, producer_byte_rate=10_000.0, request_rate=5.0, version=version) == (0, None)
    assert alter(cluster, who, producer_byte_rate=None, request_percentage=None, version=version) == (0, None)
    assert alter(cluster, who, consumer_byte_rate=1.0, validate_only=True, version=version) == (0, None)
    (entry,) = describe(cluster, version=version).entries
    assert {(e.entity_type, e.entity_name) for e in entry.entity} == set(who)
    assert {value.key: value.value for value in entry.values} == {"request_rate": 5.0}
    alter(cluster, who, request_rate=None, version=version)
    assert describe(cluster, version=version).entries == []


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ([], {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ([("user", "")], {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ([("", "x")], {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: "),
        ([("user", "u")], {"bad": 1.0}, "Invalid configuration key bad"),
        ([("user", "u")], {"producer_byte_rate": 10000.5}, "producer_byte_rate cannot be a fractional value."),
        ([("user", "u")], {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ([("ip", "1.2.3.4")], {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
    ],
)
def test_quotas_that_kafka_refuses_are_refused_in_its_words(cluster, entity, ops, message):
    assert alter(cluster, entity, **ops) == (ErrorCode.INVALID_REQUEST, message)
    assert cluster.state.quotas == {}


def test_an_entity_named_twice_is_refused_and_others_are_altered_all_the_same(cluster):
    def entry(name, *keys):
        return AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=name)],
            ops=[AlterClientQuotasRequest.OpData(key=key, value=1.0, remove=False) for key in keys],
        )

    key = "producer_byte_rate"
    response = cluster.send(AlterClientQuotasRequest(entries=[entry("a", key, key), entry("b", key)]))
    assert [(e.error_code, e.error_message) for e in response.entries] == [
        (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"),
        (0, None),
    ]
    assert list(cluster.state.quotas) == [ClientQuotaEntity({"user": "b"})]


def test_the_same_entity_in_another_order_is_named_twice_too(cluster):
    both = [("user", "u"), ("client-id", "c")]
    response = cluster.send(
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=n) for k, n in named],
                    ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=value, remove=False)],
                )
                for named, value in ((both, 1.0), (both[::-1], 2.0))
            ]
        )
    )
    (entry,) = response.entries
    said = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=u})"
    assert (entry.error_code, entry.error_message) == (ErrorCode.INVALID_REQUEST, said)
    assert cluster.state.quotas == {ClientQuotaEntity(dict(both)): {"producer_byte_rate": 1.0}}


def test_whatever_key_is_removed_is_not_there_afterwards(cluster):
    assert alter(cluster, [("user", "u")], bad=None) == (0, None)
    assert cluster.state.quotas == {}


# Kafka's ClientQuotasRequestTest.testDescribeClientQuotasMatch*: who is set, and how many a filter finds
SET = [
    ("user-1", "client-id-1"),
    ("user-2", "client-id-1"),
    ("user-3", "client-id-2"),
    (None, "client-id-1"),
    ("user-1", None),
    ("user-3", None),
    ("user-1",),
    ("user-2",),
    ("user-3",),
    (None,),
    ("", "client-id-2"),
]


EXACT, DEFAULT, ANY = 0, 1, 2


MATCHES = [
    ([("user", EXACT, "user-1")], False, 3),
    ([("user", EXACT, "unknown")], False, 0),
    ([("client-id", EXACT, "client-id-2")], False, 2),
    ([("user", DEFAULT, None)], False, 2),
    ([("user", EXACT, "user-2")], True, 1),
    ([("client-id", EXACT, "client-id-1")], True, 0),
    ([("user", ANY, None)], True, 4),
    ([("user", ANY, None)], False, 10),
    ([("client-id", ANY, None)], True, 1),
    ([("client-id", ANY, None)], False, 7),
    ([("ip", ANY, None)], False, 2),
    ([], False, 13),
    ([], True, 0),
    ([("user", EXACT, "user-1"), ("client-id", EXACT, "client-id-2")], True, 0),
    ([("user", EXACT, "user-2"), ("client-id", DEFAULT, None)], True, 0),
]


@pytest.mark.parametrize(("components", "strict", "count"), MATCHES)
def test_filters_find_as_many_as_kafkas_own_test_says(cluster, components, strict, count):
    for number, names in enumerate(SET):
        entity = list(zip(("user", "client-id"), names, strict=False))
        entity = [pair for pair in entity if pair[1] != ""]
        assert alter(cluster, entity, request_percentage=50.0 + number) == (0, None)
    for address in ("1.2.3.4", "2.3.4.5"):
        assert alter(cluster, [("ip", address)], connection_creation_rate=10.0) == (0, None)
    assert len(describe(cluster, *components, strict=strict).entries) == count


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("other", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "x"), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense_are_refused(cluster, components, error):
    response = describe(cluster, *components)
    assert (response.error_code, response.entries) == (error, None)
    assert response.error_message
