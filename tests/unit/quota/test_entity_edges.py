"""Which values, keys and parts of entities are taken, at the bounds of Java's numbers."""

import pytest

from kclient_quota.quota.entity import (
    DEFAULT,
    QUOTA_KEYS,
    ClientQuotaEntity,
    Name,
    entity_problem,
    name_problem,
    quota_problem,
)


@pytest.mark.parametrize(
    ("key", "kind", "most", "word"),
    [
        ("producer_byte_rate", "user", 2**63, "a LONG"),
        ("consumer_byte_rate", "client-id", 2**63, "a LONG"),
        ("connection_creation_rate", "ip", 2**31 - 1, "an INT"),
    ],
)
def test_whole_numbers_up_to_javas_largest(key: str, kind: str, most: int, word: str) -> None:
    for value in (1, 2, 3, 1_023, 1_025, most - 1, most):  # as a double Java's largest long is 2**63
        assert quota_problem([kind], key, value) is None
    for value in (most + 1, most + 2):
        assert quota_problem([kind], key, value) == f"Proposed value for {key} is too large for {word}."
    for value in (1.5, 2.25, 0.5, 0.000_002, 3.999_998):
        assert quota_problem([kind], key, value) == f"{key} cannot be a fractional value."
    assert quota_problem([kind], key, 1e-6) is None  # a millionth is taken for none
    for value in (0, -1, -0.5):
        assert quota_problem([kind], key, value) == f"Quota {key} must be greater than 0"


@pytest.mark.parametrize("key", ["request_percentage", "controller_mutation_rate", "request_rate"])
def test_any_number_above_zero(key: str) -> None:
    for value in (1e-300, 0.5, 1, 1.5, 1e19, 1e300):
        assert quota_problem(["user"], key, value) is None
    for value in (0.0, -1e-300, -1):
        assert quota_problem(["user"], key, value) == f"Quota {key} must be greater than 0"


def test_the_keys_and_what_they_count() -> None:
    assert {key.name: (key.unit, key.number.name, key.number.value, key.ours) for key in QUOTA_KEYS.values()} == {
        "producer_byte_rate": ("bytes per second", "LONG", 2**63, False),
        "consumer_byte_rate": ("bytes per second", "LONG", 2**63, False),
        "request_percentage": ("percent of one thread", "DOUBLE", None, False),
        "controller_mutation_rate": ("partitions per second", "DOUBLE", None, False),
        "request_rate": ("requests per second", "DOUBLE", None, True),
        "connection_creation_rate": ("connections per second", "INT", 2**31 - 1, False),
    }
    for key in QUOTA_KEYS.values():
        kinds = ["ip"] if key.name == "connection_creation_rate" else ["user"]
        assert (quota_problem(kinds, key.name, 1), quota_problem(kinds, key.name, 1, ours=True)) == (None, None)
        refused = f"Invalid configuration key {key.name}" if key.ours else None
        assert quota_problem(kinds, key.name, 1, ours=False) == refused


def test_an_ip_entity_stands_alone_and_names_an_address() -> None:
    combined = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    for others in (["user"], ["client-id"], ["user", "client-id"]):
        entries: list[tuple[str, str | None]] = [(kind, None) for kind in others]
        assert entity_problem([*entries, ("ip", None)]) == combined
        assert entity_problem([("ip", "1.2.3.4"), *entries]) == combined
    assert entity_problem([("ip", "")]) == "Empty ip not supported"
    assert entity_problem([("ip", "h")]) == entity_problem([("ip", "h")], lambda host: host == "") is not None
    assert entity_problem([("ip", None)], lambda _: False) is None


def names(entity: ClientQuotaEntity) -> tuple[Name | None, Name | None, Name | None]:
    return entity.user, entity.client_id, entity.ip


def test_the_parts_of_an_entity() -> None:
    assert names(ClientQuotaEntity({"user": None, "client-id": "c", "topic": "t"})) == (DEFAULT, "c", None)
    assert names(ClientQuotaEntity.of(ip=DEFAULT)) == (None, None, DEFAULT)
    assert names(ClientQuotaEntity.of()) == (None, None, None)
    mixed = ClientQuotaEntity.of(user="u", client_id=DEFAULT)
    assert str(mixed) == "{user=u, client-id=<default>}"
    assert mixed.wire_entries() == [("user", "u"), ("client-id", None)]
    assert hash(mixed) == hash(ClientQuotaEntity({"client-id": None, "user": "u"}))
    assert mixed != ClientQuotaEntity.of(user="u")
    assert (ClientQuotaEntity.USER, ClientQuotaEntity.CLIENT_ID, ClientQuotaEntity.IP) == ("user", "client-id", "ip")


@pytest.mark.parametrize("name", ["a" * 8_192, "a" * 32_767, "ä" * 16_383, "\U0001f600" * 8_191, DEFAULT, None])
def test_names_as_long_as_the_protocol_s_strings_are_fine(name):
    assert name_problem("user", name) is None


@pytest.mark.parametrize("name", ["a" * 32_768, "ä" * 16_384, "\U0001f600" * 8_192])
def test_longer_ones_are_told_with_their_size(name):
    assert name_problem("user", name) == (
        f"user {name[:20]}...: the name has 32768 bytes, and Kafka's protocol takes 32767 at most; shorten it"
    )
