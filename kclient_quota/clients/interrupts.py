"""Callbacks that let Ctrl-C through.

Python handles a signal at the next line of Python that the main thread runs. Where that is a callback inside a long
poll(), confluent_kafka keeps the KeyboardInterrupt until the poll ends by itself, perhaps never, and may lose it. A
client with statistics runs a callback several times a second, so it would miss every third Ctrl-C or so.

The remedy: a callback that waits in a generator's `yield`, inside its `try`, so that even an interrupt at its very
first instruction is caught; the signal is then given again, when the main thread is back in the poll, which looks for
signals itself every 200 ms.
"""

import _thread
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

logger = logging.getLogger("kclient_quota")

AGAIN_S: Final = 0.01


def interruptible(handle: Callable[[Any], None]) -> Callable[[Any], None]:
    """`handle` as a callback for confluent_kafka; what it raises is logged, and goes no further.

    Args:
        handle: takes one event. Must not poll, as it cannot be called again before it has returned.
    """

    def serve() -> Generator[None, Any, None]:
        while True:
            try:
                handle((yield))
            except KeyboardInterrupt:
                threading.Timer(AGAIN_S, _thread.interrupt_main).start()
            except Exception:
                # An event that we fail to understand must not take a message from the application.
                logger.exception("An event of librdkafka's could not be handled")

    waiting = serve()
    next(waiting)
    return waiting.send
