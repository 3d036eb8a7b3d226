"""Kafka's own Java message classes: both read the same bytes and mean the same, or both refuse."""

import struct
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from kclient_quota.errors import WireError
from kclient_quota.testing.apache.artefacts import class_path
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.messages import API
from tests.fuzz.targets import broken
from tests.unit.wire.random_message import random_struct

KNOWN = {
    "a tagged field's size": "ours refuses a tagged field that does not fill its stated size; Java ignores the size",
    "a varint beyond 32 bits": "ours refuses it; Java drops the bits that do not fit",
    "a tag of another version": "Java refuses a tag that only other versions have; ours keeps it as an unknown one",
}
"""Where both differ on purpose; no client writes such bytes."""
SOURCE = Path(__file__).with_name("FuzzOracle.java")
TOLD = 20
"""So many differences are printed."""


def against_java(frames: int, seed: int) -> dict[str, Any]:
    """Play `frames`, a tenth of them sound; what was seen."""
    random = Random(seed)
    played = [_frame(random) for _ in range(frames)]
    with tempfile.TemporaryDirectory() as folder:
        classes = class_path()
        subprocess.run(["javac", "-nowarn", "-proc:none", "-d", folder, "-cp", classes, str(SOURCE)], check=True)
        command = ["java", "-Xmx512m", "-cp", f"{folder}:{classes}", "FuzzOracle"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
            writer = threading.Thread(target=_write, args=(java, played))
            writer.start()
            theirs = [_read(java) for _ in played]
            writer.join()
    counts: Counter[str] = Counter()
    differ = []
    for (key, version, is_request, body), java_wrote in zip(played, theirs, strict=True):
        ours, why = _ours(key, version, is_request, body)
        kind = _kind(ours, java_wrote, why)
        counts[kind] += 1
        if kind in {"ours refuses", "Java refuses", "other values"} and len(differ) < TOLD:
            name = f"{API[key].name}{'Request' if is_request else 'Response'} v{version}"
            differ.append({"message": name, "kind": kind, "bytes": body.hex()})
    return {"frames": frames, **counts, "known": KNOWN, "differences": differ}


def _frame(random: Random) -> tuple[int, int, bool, bytes]:
    key = random.choice(list(API))
    is_request = random.random() < 0.5
    cls = API[key].request if is_request else API[key].response
    version = random.choice(list(cls.__schema__.valid_versions))
    body = encode(random_struct(random, cls, version), version)
    return key, version, is_request, body if random.random() < 0.1 else broken(random, body)


def _kind(ours: bytes | None, java: bytes | None, why: str) -> str:
    if ours == java:
        return "both refuse" if ours is None else "both read the same"
    if ours is None:
        known = {"tagged field": "a tagged field's size", "does not fit 32 bits": "a varint beyond 32 bits"}
        return next((kind for words, kind in known.items() if words in why), "ours refuses")
    if java is None:
        return "a tag of another version" if why == "unknown tags" else "Java refuses"
    return "other values"


def _ours(key: int, version: int, is_request: bool, body: bytes) -> tuple[bytes | None, str]:
    """What was read, written again, and why not, or that there are tags that the version does not know."""
    cls = API[key].request if is_request else API[key].response
    try:
        message = decode(cls, version, body)
        return bytes(encode(message, version)), "unknown tags" if "unknown_tags={" in repr(message) else ""
    except WireError as error:
        return None, str(error)


def _write(java: "subprocess.Popen[bytes]", played: list[tuple[int, int, bool, bytes]]) -> None:
    assert java.stdin is not None
    for key, version, is_request, body in played:
        java.stdin.write(struct.pack(">hhbi", key, version, is_request, len(body)) + body)
    java.stdin.close()


def _read(java: "subprocess.Popen[bytes]") -> bytes | None:
    assert java.stdout is not None
    (size,) = struct.unpack(">i", java.stdout.read(4))
    return None if size < 0 else java.stdout.read(size)
