"""SIGINT, SIGTERM and SIGHUP where a command ends by itself, in its own time."""

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
    stops = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else `nohup` has it ignored
        stops.append(signal.SIGHUP)  # the terminal is closed, or the connection to it is gone
    former = {each: signal.signal(each, lambda number, _: heard.append(number)) for each in stops}
    try:
        yield lambda: bool(heard)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
