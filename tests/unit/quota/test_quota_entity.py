"""Entities, their names, and which quotas may be set on them."""

import math

import pytest

from kclient_quota.quota.entity import (
    DEFAULT,
    QUOTA_KEYS,
    ClientQuotaEntity,
    entity_problem,
    quota_problem,
    sanitize,
)


@pytest.mark.parametrize(
    ("name", "sanitized"),
    [
        ("CN=x,O=y", "CN%3Dx%2CO%3Dy"),
        ("ü", "%C3%BC"),
        ("User A", "User%20A"),
        ("a~*+b", "a%7E%2A%2Bb"),
        ("a.b-c_d", "a.b-c_d"),
    ],
)
def test_sanitized_as_apache_kafka_does(name, sanitized):
    assert sanitize(name) == sanitized


def test_default_is_not_a_name():
    named, default = ClientQuotaEntity({"user": "<default>"}), ClientQuotaEntity({"user": DEFAULT})
    assert named != default
    assert default == ClientQuotaEntity({"user": None}) == ClientQuotaEntity.of(user=DEFAULT)
    assert default.wire_entries() == [("user", None)]
    assert named.wire_entries() == [("user", "<default>")]
    assert str(default) == "{user=<default>}"
    assert repr(default) == "ClientQuotaEntity({'user': DEFAULT})"


def test_entities_are_values():
    one = ClientQuotaEntity({"user": "u", "client-id": "c"})
    other = ClientQuotaEntity.of(client_id="c", user="u")
    assert one == other
    assert {one: 1}[other] == 1
    assert (one.user, one.client_id, one.ip) == ("u", "c", None)
    assert one != {"user": "u", "client-id": "c"}
    with pytest.raises(TypeError):
        one.entries["user"] = "v"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("topic", "t")], "Unhandled client quota entity type: topic"),
        ([("", "t")], "Unhandled client quota entity type: "),
        ([("user", "")], "Empty user not supported"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("user", "u"), ("user", "v")], "Invalid client quota entity, duplicate entity entry user"),
        (
            [("user", "u"), ("ip", "1.2.3.4")],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ([("ip", "no such host")], "no such host is not a valid IP or resolvable host."),
        ([("ip", "1.2.3.4")], None),
        ([("ip", "::1")], None),
        ([("ip", None)], None),
        ([("user", "u"), ("client-id", None)], None),
        ([("user", None)], None),
    ],
)
def test_case_109_entities(entries, message):
    assert entity_problem(entries) == message


def test_hosts_are_asked_for():
    assert entity_problem([("ip", "broker.example")], resolves=lambda host: host == "broker.example") is None


@pytest.mark.parametrize(
    ("kinds", "key", "value", "message"),
    [
        (["user"], "bad", 1, "Invalid configuration key bad"),
        (["user"], "producer_byte_rate", 10_000.5, "producer_byte_rate cannot be a fractional value."),
        (["user"], "producer_byte_rate", 0, "Quota producer_byte_rate must be greater than 0"),
        (["user"], "producer_byte_rate", -1, "Quota producer_byte_rate must be greater than 0"),
        (["user"], "producer_byte_rate", math.nan, "Quota producer_byte_rate must be greater than 0"),
        (["user"], "consumer_byte_rate", 1e19, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (["user"], "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        (["ip"], "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        (
            ["ip"],
            "connection_creation_rate",
            2**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (["ip"], "connection_creation_rate", 100, None),
        (["user", "client-id"], "request_percentage", 12.3, None),
        (["client-id"], "controller_mutation_rate", 0.5, None),
        (["client-id"], "producer_byte_rate", 1024.0000001, None),
        (["user"], "request_rate", 0.5, None),
    ],
)
def test_case_109_values(kinds, key, value, message):
    assert quota_problem(kinds, key, value) == message


def test_requests_per_second_are_ours_alone():
    assert quota_problem(["user"], "request_rate", 5, ours=False) == "Invalid configuration key request_rate"
    assert [key.name for key in QUOTA_KEYS.values() if key.ours] == ["request_rate"]
