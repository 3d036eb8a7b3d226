"""Random messages of every API and version: byte for byte what kio and kafka-python write, and the values they read.

kio aborts the process on a malformed array length, so it is only ever given bytes that our own reader accepts.
"""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import fields
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.messages import API, ApiVersionsResponse
from kclient_quota.wire.schema import ZERO_UUID, Struct
from tests.unit.cases import case
from tests.unit.wire.oracles import KAFKA_PYTHON_MODULES
from tests.unit.wire.random_message import random_struct

EVERY_VERSION = {
    cls: list(cls.__schema__.valid_versions) for api in API.values() for cls in (api.request, api.response)
}
KAFKA_PYTHON = {
    name: found
    for module in KAFKA_PYTHON_MODULES
    for name, found in vars(module).items()
    if name.endswith(("Request", "Response"))
}
KAFKA_PYTHON_VERSIONS = {
    cls: known
    for cls, versions in EVERY_VERSION.items()
    if cls.__name__ in KAFKA_PYTHON
    if (known := [version for version in versions if version <= KAFKA_PYTHON[cls.__name__].max_version])
}
SEEDS = range(6)
SIGN_BIT = 31
NO_NUMBER = (-1, -(1 << 31))  # no time, no authorised operations


def as_int(value: Any) -> int:
    """kio's milliseconds and error codes, kafka-python's sets of bits, as the numbers on the wire."""
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return (value - dt.datetime.fromtimestamp(0, tz=dt.UTC)) // dt.timedelta(milliseconds=1)
    if isinstance(value, set):
        return sum(1 << bit for bit in value if bit < SIGN_BIT) - ((SIGN_BIT in value) << SIGN_BIT)
    return int(value)


def same(ours: Any, theirs: Any, version: int, read: Any) -> bool:
    """Whether two values are the same message, whatever their classes."""
    if isinstance(ours, Struct) and theirs is None:
        return ours == type(ours)()  # kafka-python's idea of a tagged struct that was not sent
    if isinstance(ours, Struct):
        specs = [spec for spec in ours.__fields__ if version in spec.versions]
        values = read(theirs)
        assert len(values) == len(specs)
        return all(
            same(getattr(ours, spec.name), value, version, read) for spec, value in zip(specs, values, strict=True)
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(
            same(one, other, version, read) for one, other in zip(ours, theirs, strict=True)
        )
    if isinstance(ours, int) and not isinstance(ours, bool):
        return ours in NO_NUMBER if theirs is None else ours == as_int(theirs)
    if isinstance(ours, memoryview):
        return ours.tobytes() == theirs
    return bool(ours == theirs) or (ours == ZERO_UUID and theirs is None)


def kio_values(entity: Any) -> list[Any]:
    return [getattr(entity, field.name) for field in fields(entity)]


@pytest.mark.parametrize("cls", EVERY_VERSION)
def test_kio(cls):
    schema = cls.__schema__
    load = load_request_schema if schema.is_request else load_response_schema
    for version in EVERY_VERSION[cls]:
        with case(f"version {version}"):
            entity = load(schema.api_key, version)
            read, write = entity_reader(entity), entity_writer(entity)
        for seed in SEEDS:
            with case(f"version {version}, seed {seed}"):
                message = random_struct(Random(seed), cls, version, tame=True)
                body = encode(message, version)
                decoded = decode(cls, version, body)
                assert decoded == message
                theirs, size = read(body, 0)
                assert size == len(body)
                assert same(decoded, theirs, version, kio_values)
                written = io.BytesIO()
                write(written, theirs)
                assert written.getvalue() == body


def values_of(version: int) -> Any:
    return lambda entity: [getattr(entity, spec.name) for spec in entity._struct._fields if spec.for_version_q(version)]


@pytest.mark.parametrize("cls", KAFKA_PYTHON_VERSIONS)
def test_kafka_python(cls):
    other = KAFKA_PYTHON[cls.__name__]
    for version in KAFKA_PYTHON_VERSIONS[cls]:
        for seed in SEEDS:
            with case(f"version {version}, seed {seed}"):
                message = random_struct(Random(seed), cls, version)
                if cls is ApiVersionsResponse:
                    message.error_code = 0  # any other makes kafka-python go back to version 0
                body = encode(message, version)
                theirs = other.decode(body, version=version)
                assert same(decode(cls, version, body), theirs, version, values_of(version))
                theirs._header = None  # its reader leaves the attribute out that its writer asks for
                assert bytes(theirs.encode(version=version)) == body


def test_oracles_cover_what_we_speak():
    covered = {cls.__schema__.api_key for cls in KAFKA_PYTHON_VERSIONS}
    assert covered >= set(API) - {68, 69, 71, 72, 76, 77, 78, 79, 90, 91, 92}
    assert sum(map(len, EVERY_VERSION.values())) == 506
