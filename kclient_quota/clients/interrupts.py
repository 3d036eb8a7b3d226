"""Callbacks that let Ctrl-C through.

Python handles a signal at the next line of Python that the main thread runs. Where that is a callback inside a long
poll(), confluent_kafka keeps the KeyboardInterrupt until the poll ends by itself, perhaps never, and may lose it. A
client with statistics runs a callback several times a second, so it would miss every third Ctrl-C or so.

The remedy: a callback that waits in a generator's `yield`, inside its `try`, so that even an interrupt at its very
first instruction is caught. The signal is given again by C, when the callback's result is dropped: after its last line
of Python, before confluent_kafka looks for signals or goes back to the application. Given any later it might find the
main thread in a poll that the next event ends, and meet the next callback, and so on for ever. A generator serves one
event: it makes the next one ready first, so that another thread's poll, and an event after one that raised, find one
that waits.
"""

import _thread
import logging
import operator
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

logger = logging.getLogger("kclient_quota")


class _Result:
    """What a callback that was interrupted returns."""

    __slots__ = ("__weakref__",)


class _Signal(weakref.ref[_Result]):
    """A weak reference that can give the signal, without a line of Python."""

    __slots__ = ()
    give = staticmethod(_thread.interrupt_main)


_give: Final = operator.methodcaller("give")
_kept: Final[deque[_Signal]] = deque(maxlen=8)


def interruptible(
    ours: Callable[[Any], None] | None = None, theirs: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Both as one callback for confluent_kafka.

    Args:
        ours: called first; what it raises is logged, and goes no further.
        theirs: the application's, called after it; what it raises goes to the caller of poll(), but for an interrupt,
            which comes when the callback is over.
    """
    # A callable without a line of Python of its own, where an interrupt would be lost; what it calls is exchanged.
    door: Any = type("interruptible", (), {})

    def make_ready() -> None:
        waiting = serve()
        next(waiting)
        door.__call__ = waiting.send

    def serve() -> Generator[_Result | None, Any, None]:
        try:
            event = yield None
            make_ready()
            if ours is not None:
                _guarded(ours, event)
            if theirs is not None:
                theirs(event)
        except KeyboardInterrupt:
            make_ready()
            yield signal_again()
        yield None

    make_ready()
    return door()  # type: ignore[no-any-return] # of a class without a type


def signal_again() -> _Result:
    """A result of a callback's that gives the signal again when it is dropped."""
    result = _Result()
    _kept.append(_Signal(result, _give))
    return result


def _guarded(handle: Callable[[Any], None], event: Any) -> None:
    try:
        handle(event)
    except Exception:
        # An event that we fail to understand must not take a message from the application.
        logger.exception("An event of librdkafka's could not be handled")
