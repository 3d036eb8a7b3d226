"""What a Ctrl-C, or what else a signal's handler raises, comes to within confluent_kafka."""

import sys
from collections.abc import Callable
from typing import Any, Final

_LOOKING_UP: Final = "Module not found when looking up confluent_kafka."
MISTAKEN: Final = (SystemError, ImportError)
"""What confluent_kafka makes of a Ctrl-C: see `lost_interrupt`."""


def lost_interrupt(error: Exception) -> BaseException:
    """What to raise for an error of confluent_kafka's own.

    A Ctrl-C that arrives at the very beginning of a callback has no value yet, and confluent_kafka keeps values only:
    its call returns without a result and without an error, which Python has two wordings for. One that arrives while it
    looks up the class of what it tells (a throttle) it takes for a module that is not there, or goes on with it.
    """
    said = str(error)
    if isinstance(error, ImportError):
        return KeyboardInterrupt() if said.startswith(_LOOKING_UP) and not sys.is_finalizing() else error
    if said.endswith("with an exception set"):
        return error.__cause__ or error
    return KeyboardInterrupt() if "without" in said else error


def interruptible(work: Callable[..., Any], *args: Any) -> Any:
    """Call what may serve callbacks."""
    try:
        return work(*args)
    except MISTAKEN as error:
        raise lost_interrupt(error) from None
