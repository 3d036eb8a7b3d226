"""Callbacks that let Ctrl-C through.

Python handles a signal at the next line of Python that the main thread runs. Where that is a callback inside a long
poll(), confluent_kafka keeps the KeyboardInterrupt until the poll ends by itself, perhaps never, and may lose it. A
client with statistics runs a callback several times a second, so it would miss every third Ctrl-C or so.

The remedy: a callback that waits in a generator's `yield`, inside its `try`, so that even an interrupt at its very
first instruction is caught; the signal is then given again, when the main thread is back in the poll, which looks for
signals itself every 200 ms. A generator serves one event: it makes the next one ready first, so that another thread's
poll, and an event after one that raised, find one that waits.
"""

import _thread
import logging
import time
from collections.abc import Callable, Generator
from typing import Any, Final

logger = logging.getLogger("kclient_quota")

AGAIN_S: Final = 0.01


def interruptible(
    ours: Callable[[Any], None] | None = None, theirs: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Both as one callback for confluent_kafka.

    Args:
        ours: called first; what it raises is logged, and goes no further.
        theirs: the application's, called after it; what it raises goes to the caller of poll(), but for an interrupt,
            which comes a little later.
    """
    # A callable without a line of Python of its own, where an interrupt would be lost; what it calls is exchanged.
    door: Any = type("interruptible", (), {})

    def make_ready() -> None:
        waiting = serve()
        next(waiting)
        door.__call__ = waiting.send

    def serve() -> Generator[None, Any, None]:
        try:
            event = yield
            make_ready()
            if ours is not None:
                _guarded(ours, event)
            if theirs is not None:
                theirs(event)
        except KeyboardInterrupt:
            make_ready()
            # Not a threading.Thread, whose start() waits for the thread, and in which the signal might arrive.
            _thread.start_new_thread(again, ())
        yield

    make_ready()
    return door()  # type: ignore[no-any-return] # of a class without a type


def again() -> None:
    """Give the signal again, in a while."""
    time.sleep(AGAIN_S)
    _thread.interrupt_main()


def _guarded(handle: Callable[[Any], None], event: Any) -> None:
    try:
        handle(event)
    except Exception:
        # An event that we fail to understand must not take a message from the application.
        logger.exception("An event of librdkafka's could not be handled")
