"""Processes beside the one that measures: brokers in it would take Python's lock while its clients are measured."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from kclient_quota import broker

P = ParamSpec("P")
T = TypeVar("T")

_here: list[Any] = []
"""The embedded broker that the process of a `Hosted` has; whoever only collects tests loads none."""


def in_another_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function of a module returns there."""
    with _process() as process:
        return process.submit(function, *args, **kwargs).result()


class Hosted:
    """An embedded broker there, with the methods that measured scenes call.

    Args:
        brokers: how many it has.
    """

    def __init__(self, brokers: int) -> None:
        self._process = _process()
        self.bootstrap_servers: str = self._process.submit(_begin, brokers).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.submit(_end).result()
        self._process.shutdown()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """As `EmbeddedBroker`'s."""
        self._call("create_topic", name, partitions)

    def set_quota(self, **quota: Any) -> None:
        """As `EmbeddedBroker`'s."""
        self._call("set_quota", **quota)

    def metrics(self) -> Any:
        """As `EmbeddedBroker`'s."""
        return self._call("metrics")

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._process.submit(_call, name, args, kwargs).result()


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))  # a fork would take librdkafka's threads for its own


def _begin(brokers: int) -> str:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _here.append(broker.EmbeddedBroker(brokers=brokers).__enter__())
    return _here[0].bootstrap_servers


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(_here[0], name)(*args, **kwargs)


def _end_with_parent() -> None:
    """One that is killed shuts no pool down, and its brokers would listen for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end() -> None:
    _here.pop().__exit__(None, None, None)
