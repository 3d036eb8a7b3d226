"""The asyncio pair takes whatever confluent_kafka.aio's takes: every public method, compared by its signature."""

import inspect
from pathlib import Path
from typing import Any

import confluent_kafka.aio
import pytest

from kclient_quota.clients.aio import AIOConsumer, AIOProducer

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
