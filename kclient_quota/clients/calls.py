"""Calls of confluent_kafka's: which numbers they take, and what a Ctrl-C does that comes into one.

In one of its callbacks, or while it waits without limit.
"""

import operator
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, SupportsFloat, SupportsIndex


def seconds(timeout: Any) -> Any:
    """A time-out as a number, as C reads it, numpy's and Decimal's too; what is none stays so, to be refused there."""
    if isinstance(timeout, int | float) or not isinstance(timeout, SupportsFloat | SupportsIndex):
        return timeout
    return float(timeout)


def whole(count: Any) -> Any:
    """A count as an int; what is none stays what it is, for confluent_kafka to refuse."""
    if type(count) is int or not isinstance(count, SupportsIndex):
        return count
    return int(operator.index(count))


def lost_interrupt(error: SystemError) -> BaseException:
    """What to raise for an error of confluent_kafka's own.

    A Ctrl-C that arrives at the very beginning of a callback has no value yet, and confluent_kafka keeps values only:
    its call returns without a result and without an error.
    """
    return KeyboardInterrupt() if "without setting an exception" in str(error) else error


def interruptible(work: Callable[..., Any], *args: Any) -> Any:
    """Call what may serve callbacks."""
    try:
        return work(*args)
    except SystemError as error:
        raise lost_interrupt(error) from None


class CallApart:
    """A call that may not keep its own time, made in a thread of its own, so that whoever waits for it can leave.

    Args:
        name: of the thread.
        work: what to call.
        args: with what.
    """

    def __init__(self, name: str, work: Callable[..., Any], *args: Any) -> None:
        self._done = Event()
        self._work: Callable[[], Any] | None = lambda: work(*args)
        self._error: BaseException | None = None
        Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again where the application waits
            self._error = error
        del work  # with what it holds on to, before anybody goes on
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has returned, within so many seconds."""
        return self._done.wait(timeout_s)

    def raise_error(self) -> None:
        """Raise what it has raised, if anything."""
        if self._error is not None:
            raise self._error
