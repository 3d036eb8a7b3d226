"""What a broker keeps of a user for SCRAM instead of a password (RFC 5802, KIP-554)."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By Kafka's `ScramMechanism` ids."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384


class ScramCredential(NamedTuple):
    """Enough to check a password, not enough to know it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential(mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """What follows from a salted password."""
    algorithm = algorithm_of(MECHANISMS[mechanism])
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", algorithm), iterations)


def algorithm_of(mechanism: str) -> str:
    """The hash of a mechanism, in Python's words."""
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()
