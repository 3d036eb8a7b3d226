"""librdkafka's partitioners in Python, so that a message's broker is known before librdkafka has the message.

Sources: rd_kafka_msg_partitioner_* in rdkafka_msg.c, rdmurmur2.c and rdfnv1a.c of librdkafka 2.x.
"""

import zlib
from collections.abc import Callable
from typing import Final

DEFAULT: Final = "consistent_random"

_MASK = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_MURMUR_SEED = 0x9747_B28C
_MURMUR_M = 0x5BD1_E995


def murmur2(key: bytes) -> int:
    """`rd_murmur2` with the sign bit cleared, as Java's `Utils.toPositive(Utils.murmur2(key))`."""
    length = len(key)
    h = (_MURMUR_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _MURMUR_M & _MASK
        k = (k ^ (k >> 24)) * _MURMUR_M & _MASK
        h = (h * _MURMUR_M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MURMUR_M & _MASK
    h = (h ^ (h >> 13)) * _MURMUR_M & _MASK
    return (h ^ (h >> 15)) & ~_SIGN


def fnv1a(key: bytes) -> int:
    """`rd_fnv1a`: FNV-1a 32, the absolute value of the signed result, as Sarama's NewHashPartitioner."""
    h = 0x811C_9DC5
    for byte in key:
        h = (h ^ byte) * 0x0100_0193 & _MASK
    return (-h if h & _SIGN else h) & _MASK


# Name -> (hash, whether a message without a key goes anywhere, whether one with an empty key does).
_PARTITIONERS: Final[dict[str, tuple[Callable[[bytes], int] | None, bool, bool]]] = {
    "random": (None, True, True),
    "consistent": (zlib.crc32, False, False),
    "consistent_random": (zlib.crc32, True, True),
    "murmur2": (murmur2, False, False),
    "murmur2_random": (murmur2, True, False),
    "fnv1a": (fnv1a, False, False),
    "fnv1a_random": (fnv1a, True, False),
}


class Partitioner:
    """One of librdkafka's partitioners.

    Args:
        name: the value of librdkafka's `partitioner`; a name it would refuse is taken for its default, as librdkafka
            itself refuses it a moment later.
    """

    def __init__(self, name: str = DEFAULT) -> None:
        self._hash, self._null_is_free, self._empty_is_free = _PARTITIONERS.get(name, _PARTITIONERS[DEFAULT])

    def partition(self, key: str | bytes | None, partitions: int) -> int | None:
        """Where a message goes.

        Args:
            key: as handed to `produce()`; text counts as UTF-8.
            partitions: how many the topic has, at least 1.

        Returns:
            the partition, or None when librdkafka would pick any, so that it may be steered.
        """
        hashed = self._hash
        if hashed is None:
            return None
        if not key:
            if self._null_is_free if key is None else self._empty_is_free:
                return None
            key = b""
        return hashed(key.encode() if isinstance(key, str) else key) % partitions
