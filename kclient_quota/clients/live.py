"""The clients that this process has open: for those who watch them (OpenTelemetry), and for a child that it forks."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

# By numbers of their own: a subclass that says what equals it, a dataclass for one, has no hash, and an id is given
# again to whichever client is made where one that is gone has been.
_open: WeakValueDictionary[int, Any] = WeakValueDictionary()
_numbers = count()

closing: list[Callable[[int, Any], None]] = []
"""Who hears, in the closing thread, of a client's number and the client while that can still be asked."""


def opened(client: Any) -> None:
    """Called by a client at the end of its construction; it is forgotten when it is gone."""
    _open[next(_numbers)] = client


def closes(client: Any) -> None:
    """Called by a client while it closes."""
    if closing:
        for number in [number for number, each in clients().items() if each is client]:
            for hear in tuple(closing):
                hear(number, client)


def clients() -> dict[int, Any]:
    """Producers and consumers by their numbers; some may be closed."""
    # Not by `items()`, which fails where another thread makes a client meanwhile, and `close()` with it.
    return {ref.key: client for ref in _open.valuerefs() if (client := ref()) is not None}


def _before_fork() -> None:
    if _open:  # here, as in the child another thread of the parent's may seem to import it for ever
        with suppress(ImportError):
            import ctypes  # noqa: F401, PLC0415 - nobody else needs it


def _after_fork() -> None:
    """Keep the parent's clients until this child ends.

    To free one, librdkafka waits for threads that only the parent has, and then takes down what these had on their
    stacks, where the child's own threads may be by now: a segmentation fault, or it never ends.
    """
    with suppress(ImportError):
        from ctypes import py_object, pythonapi  # noqa: PLC0415 - see above

        for client in clients().values():
            pythonapi.Py_IncRef(py_object(client))


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
