"""SIGINT and SIGTERM where a command ends by itself, in its own time."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stops_heard() -> Iterator[Callable[[], bool]]:
    """Whether one of them has come since; afterwards they are handled as before.

    No Event: its `set()` would wait for its lock, for ever, which whoever is interrupted in `wait`, or in `set` by a
    second signal, has.
    """
    heard: list[int] = []
    stops = signal.SIGINT, signal.SIGTERM
    former = {each: signal.signal(each, lambda number, _: heard.append(number)) for each in stops}
    try:
        yield lambda: bool(heard)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
