"""What is left of a Ctrl-C that came inside one of confluent_kafka's callbacks."""

from collections.abc import Callable
from typing import Any


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
