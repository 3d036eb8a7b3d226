"""Client-metrics resources against Kafka 4.1's and 4.3.1's outputs (cases 105, 106)."""

from uuid import UUID

import pytest
from kclient_telemetry.errors import ErrorCode, TelemetryError
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext
from kclient_telemetry.receiver.subscription import (
    Demand,
    client_attributes,
    demand_on,
    java_hash_set_order,
    metrics_subscription,
    subscription_id,
    uuid_hash_code,
)

HASH_0 = UUID(int=0x0123456789ABCDEFFEDCBA9876543210)
HASH_1256457682 = UUID("123e4567-e89b-42d3-a456-426614174000")
HASH_3 = UUID(int=(1 << 64) | 2)
PRODUCER, CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer."

# Captured from Kafka 4.1.0: configuration, metrics as listed, interval, id by client instance.
CASE_106 = [
    ({}, (), 300_000, (-725132322, -1641849332, -725132323)),
    ({"metrics": "*"}, ("*",), 300_000, (1012207395, 1991314161, 1012207392)),
    ({"metrics": "*", "interval.ms": "5000"}, ("*",), 5_000, (1235845962, 55412376, 1235845961)),
    ({"metrics": PRODUCER, "interval.ms": "60000"}, (PRODUCER,), 60_000, (-1007962656, -1995460558, -1007962653)),
    ({"metrics": f"{CONSUMER},{PRODUCER}"}, (PRODUCER, CONSUMER), 300_000, (122723580, 1303681326, 122723583)),
    ({"metrics": f"{PRODUCER},{CONSUMER}"}, (PRODUCER, CONSUMER), 300_000, (122723580, 1303681326, 122723583)),
    ({"metrics": "a,b,c", "interval.ms": "100"}, ("a", "b", "c"), 100, (-1577319324, -350748234, -1577319321)),
    ({"interval.ms": "1000"}, (), 1_000, (1788331976, 544457242, 1788331979)),
]
CLIENT = {"client_id": "orders", "client_software_name": "librdkafka", "client_source_port": "4711"}


@pytest.mark.parametrize(("config", "metrics", "interval", "ids"), CASE_106)
def test_case_106_subscription_ids_are_kafkas(config, metrics, interval, ids):
    subscriptions = [metrics_subscription("s", config)] if config else []
    for client, expected in zip((HASH_0, HASH_1256457682, HASH_3), ids, strict=True):
        assert demand_on(client, {}, subscriptions) == Demand(metrics, interval, expected)


def test_uuid_hash_codes_are_javas():
    assert [uuid_hash_code(client) for client in (HASH_0, HASH_1256457682, HASH_3)] == [0, 1256457682, 3]


def test_a_hash_set_grows_and_keeps_insertion_order_within_a_bucket():
    assert java_hash_set_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert java_hash_set_order(["BB", "Aa"]) == ["BB", "Aa"]
    # Letters hash to 97…: in 16 buckets `p` (112) is first, in 32 buckets `a` (97 = 1 mod 32) is.
    assert java_hash_set_order("ap") == ["p", "a"]
    assert java_hash_set_order("abcdefghijklp")[0] == "a"
    # A character outside the BMP counts as two UTF-16 units: hash 1772899, bucket 0 of 16 after spreading.
    assert java_hash_set_order(["\U0001f600", "a"]) == sorted(
        ["\U0001f600", "a"], key=lambda text: {"a": 1}.get(text, (1772899 ^ (1772899 >> 16)) & 15)
    )


def test_matching_subscriptions_are_united():
    subscriptions = [
        metrics_subscription("one", {"metrics": "a,b", "interval.ms": 5_000, "match": ["client_id=ord.*"]}),
        metrics_subscription("two", {"metrics": ["b", "c"], "interval.ms": 3_600_000}),
        metrics_subscription("other", {"metrics": "d", "interval.ms": 100, "match": "client_id=payments"}),
    ]
    demand = demand_on(HASH_0, CLIENT, subscriptions)
    assert (demand.metrics, demand.push_interval_ms) == (("a", "b", "c"), 5_000)
    assert demand.subscription_id == subscription_id(("a", "b", "c"), 5_000, HASH_0)
    assert demand_on(HASH_0, CLIENT, subscriptions[1:2]).push_interval_ms == 300_000
    everything = metrics_subscription("all", {"metrics": "x,*"})
    assert demand_on(HASH_0, CLIENT, [*subscriptions, everything]).metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=orders", True),
        ("client_id=order", False),
        ("client_id=orders,client_software_name=lib.*", True),
        ("client_id=orders,client_software_name=apache.*", False),
        ("client_software_version=.*", False),
        ("client_source_port=47[0-9]{2}", True),
        ("client_id=.*,client_id=x", False),
        ("client_id=orders=", True),
    ],
)
def test_a_client_must_match_every_pattern_wholly(match, matches):
    assert metrics_subscription("s", {"match": match}).matches(CLIENT) is matches


def test_what_is_known_about_a_client():
    context = AuthorizableRequestContext(
        client_id="c",
        client_address="10.0.0.1",
        client_port=9,
        client_software_name="apache-kafka-java",
        client_software_version="4.3.1",
    )
    assert client_attributes(HASH_0, context) == {
        "client_instance_id": "ASNFZ4mrze_-3LqYdlQyEA",
        "client_id": "c",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.3.1",
        "client_source_address": "10.0.0.1",
        "client_source_port": "9",
    }
    assert client_attributes(HASH_0, AuthorizableRequestContext())["client_source_port"] is None


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (
            {"interval.ms": "99"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be",
        ),
        ({"interval.ms": 3_600_001}, ErrorCode.INVALID_REQUEST, r"between 100 and 3600000 \(1 hour\)"),
        ({"interval.ms": "abc"}, ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ({"interval.ms": ["5"]}, ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id=a=b"),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id="),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ({"match": "=a"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: =a"),
        ({"match": "foo=bar"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: foo=bar"),
        ({"match": "client_id=[a"}, ErrorCode.INVALID_CONFIG, r"Illegal client matching pattern: client_id=\[a"),
        ({"match": 7}, ErrorCode.INVALID_CONFIG, "Expected a comma separated list"),
        ({"bogus": "1"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
        ({"metrics": "a,,b"}, ErrorCode.INVALID_CONFIG, "'metrics' values must not be empty"),
    ],
)
def test_case_105_what_kafka_refuses(config, code, message):
    with pytest.raises(TelemetryError, match=message) as refused:
        metrics_subscription("s", config)
    assert refused.value.error_code == code


def test_case_105_a_subscription_needs_a_name():
    with pytest.raises(TelemetryError, match="Subscription name can't be empty"):
        metrics_subscription("", {})


@pytest.mark.parametrize("interval", ["100", 3_600_000, " 3600000 "])
def test_case_105_what_kafka_takes(interval):
    assert metrics_subscription("s", {"interval.ms": interval}).interval_ms == int(interval)
    spaced = metrics_subscription("s", {"match": " client_id = p.* ", "metrics": ""})
    assert {key: pattern.pattern for key, pattern in spaced.match.items()} == {"client_id": "p.*"}
    assert spaced.metrics == ()
    assert metrics_subscription("s", {"metrics": "a,a"}).metrics == ("a",)
    twice = metrics_subscription("s", {"match": "client_id=.*,client_id=x"})
    assert twice.match["client_id"].pattern == "x"
