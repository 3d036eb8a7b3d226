"""librdkafka's partitioners in Python, against the values of librdkafka's own unit tests."""

import pytest

from kclient_quota.clients.librdkafka.partitioner import Partitioner, fnv1a, murmur2

TEXT = b"PreAmbleWillBeRemoved,ThePrePartThatIs"
KEYS = [b"kafka", b"giberish123456789", b"1234", b"234", b"34", b"4", TEXT, TEXT[1:], TEXT[2:], TEXT[3:], b""]

# unittest_murmur2() of rdmurmur2.c: results of the Java client.
MURMUR2 = [
    *(0xD067CF64, 0x8F552B0C, 0x9FC97B14, 0xE7C009CA, 0x873930DA, 0x5A4B5CA1),
    *(0x78424F1C, 0x4A62B377, 0xE0E4E09E, 0x62B8B43F, 0x106E08D9),
]
# unittest_fnv1a() of rdfnv1a.c: results of Sarama.
FNV1A = [
    *(0x0D33C4E1, 0x77A58295, 0x023BDD03, 0x2DEA3CD2, 0x740FA83E, 0x310CA263),
    *(0x65CBD69C, 0x6E49C79A, 0x69EED356, 0x6ABCC023, 0x7EE3623B),
]


@pytest.mark.parametrize(("key", "expected"), list(zip(KEYS, MURMUR2, strict=True)))
def test_murmur2(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0x7FFF_FFFF


@pytest.mark.parametrize(("key", "expected"), list(zip(KEYS, FNV1A, strict=True)))
def test_fnv1a(key: bytes, expected: int) -> None:
    assert fnv1a(key) == expected


@pytest.mark.parametrize(
    ("name", "null_is_free", "empty_is_free"),
    [
        ("random", True, True),
        ("consistent", False, False),
        ("consistent_random", True, True),
        ("murmur2", False, False),
        ("murmur2_random", True, False),
        ("fnv1a", False, False),
        ("fnv1a_random", True, False),
    ],
)
def test_which_messages_may_go_anywhere(name: str, null_is_free: bool, empty_is_free: bool) -> None:
    partitioner = Partitioner(name)
    assert (partitioner.partition(None, 7) is None) is null_is_free
    assert (partitioner.partition(b"", 7) is None) is empty_is_free
    assert (partitioner.partition(b"key", 7) is None) is (name == "random")


def test_text_counts_as_utf8() -> None:
    partitioner = Partitioner("murmur2")
    assert partitioner.partition("schlüssel", 1000) == partitioner.partition("schlüssel".encode(), 1000)


def test_a_name_that_librdkafka_refuses_is_taken_for_its_default() -> None:
    assert Partitioner("nonsense").partition(b"k", 100) == Partitioner().partition(b"k", 100)
