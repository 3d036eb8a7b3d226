"""The asyncio pair takes whatever confluent_kafka.aio's takes: every public method, compared by its signature."""

import inspect
from pathlib import Path
from typing import Any

import confluent_kafka.aio
import pytest

from kclient_quota.clients.aio import (
    AIOConsumer,
    AIOProducer,
    AsyncDeserializingConsumer,
    AsyncSerializingProducer,
)
from kclient_quota.clients.telemetry.methods import TelemetryMethods

API = (Path(__file__).parents[2] / "typing" / "api_aio.py").read_text()
PAIRS = [(AIOProducer, confluent_kafka.aio.AIOProducer), (AIOConsumer, confluent_kafka.aio.AIOConsumer)]
DOORS = [
    pytest.param(ours, theirs, name, id=f"{ours.__name__}.{name}")
    for ours, theirs in PAIRS
    for name, door in inspect.getmembers(theirs, inspect.isfunction)
    if not name.startswith("_") or name in {"__init__", "__aenter__", "__aexit__", "__len__"}
]


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of a function's parameters, without those that ours adds by name."""
    parameters = inspect.signature(function).parameters.values()
    return [(item.name, item.kind, item.default) for item in parameters if item.name != "heartbeat"]


@pytest.mark.parametrize(("ours", "theirs", "name"), DOORS)
def test_signature(ours: type, theirs: type, name: str) -> None:
    mine, plain = getattr(ours, name), getattr(theirs, name)
    assert shape(mine) == shape(plain)
    assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(plain)


def test_what_is_added_is_by_name_only() -> None:
    added = inspect.signature(AIOProducer).parameters["heartbeat"]
    assert added.kind is inspect.Parameter.KEYWORD_ONLY
    assert added.default is None


@pytest.mark.parametrize(("ours", "theirs", "name"), [door for door in DOORS if "__" not in str(door.id)])
def test_listed_for_mypy(ours: type, theirs: type, name: str) -> None:
    assert f"{ours.__name__.removeprefix('AIO').lower()}.{name}(" in API


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AsyncSerializingProducer, confluent_kafka.aio.AsyncSerializingProducer),
        (AsyncDeserializingConsumer, confluent_kafka.aio.AsyncDeserializingConsumer),
    ],
)
def test_the_serializing_pair_has_their_doors_and_ours(ours: type, theirs: type) -> None:
    for name in ("__init__", *(door for door in vars(theirs) if not door.startswith("_"))):
        assert shape(getattr(ours, name)) == shape(getattr(theirs, name))
    base = AIOProducer if issubclass(ours, AIOProducer) else AIOConsumer
    # Their methods call super(), which must be ours before it is confluent_kafka's.
    order = ours.__mro__
    assert order.index(theirs) < order.index(base) < order.index(base.__mro__[-2])


@pytest.mark.parametrize("ours", [AIOProducer, AIOConsumer])
@pytest.mark.parametrize("name", [door for door in vars(TelemetryMethods) if not door.startswith("_")])
def test_telemetry_has_the_same_doors_as_without_asyncio(ours: type, name: str) -> None:
    assert shape(getattr(ours, name)) == shape(getattr(TelemetryMethods, name))
    # Waiting for a broker's answer is awaited; what only notes something down is not.
    assert inspect.iscoroutinefunction(getattr(ours, name)) == (name == "client_instance_id")
