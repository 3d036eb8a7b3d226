"""The client's side of SCRAM (RFC 5802), as librdkafka and Kafka's own client speak it.

Names and passwords are taken as they are. RFC 5802 wants them prepared first (SASLprep), which makes other passwords of
those with `µ`, `²` or an emoji; neither Kafka nor librdkafka does so, and a broker would not know them again.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_NO_CHANNEL_BINDING = "n,,"
_MOST_ITERATIONS = 1_000_000
"""Half a second's work; Kafka's are 16,384 at most."""
_HEADER = b64encode(_NO_CHANNEL_BINDING.encode()).decode()


def scram(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes]:
    """Our messages; is sent the broker's, and ends when the broker has proven that it knows the password.

    Args:
        mechanism: such as "SCRAM-SHA-256".
        username: who logs in.
        password: theirs.
        nonce: random printable ASCII without a comma, new for every attempt.

    Raises:
        ValueError: the broker cannot prove it, or what it says is no SCRAM.
    """
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = (yield f"{_NO_CHANNEL_BINDING}{first}".encode()).decode()
    fields = _fields(challenge)
    both, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
    if not both.startswith(nonce) or both == nonce:
        raise ValueError("its nonce does not go on where ours ends")
    if not (iterations.isascii() and iterations.isdecimal() and 0 < int(iterations) <= _MOST_ITERATIONS):
        raise ValueError(f"it wants {iterations!r} iterations")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, int(iterations))
    final = f"c={_HEADER},r={both}"
    said = f"{first},{challenge},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), said, algorithm)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    verdict = _fields((yield f"{final},p={b64encode(proof).decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), said, algorithm)
    if not hmac.compare_digest(_decoded(verdict.get("v", "")), expected):
        raise ValueError("its signature is another than that of who knows the password")


def _fields(message: str) -> dict[str, str]:
    """What a message of the broker's says, by letter."""
    fields = {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
    if "e" in fields:
        raise ValueError(f"it answers {fields['e']}")
    return fields


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not base64") from error
