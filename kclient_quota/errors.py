"""Every exception of ours that a user can meet, each with one clear message that names the field and the remedy."""

import sys
from typing import Any, Final, TypeGuard

QUEUE_FULL: Final = "Local: Queue full"
"""What librdkafka says of its queue, as a `BufferError`; we say the same of ours."""
_LOOKING_UP: Final = "Module not found when looking up confluent_kafka."
MISTAKEN: Final = (SystemError, ImportError)
"""What confluent_kafka makes of a Ctrl-C: see `lost_interrupt`."""


class KclientQuotaError(Exception):
    """Root of the errors that kclient-quota raises itself; confluent_kafka's own errors pass through unchanged."""


class ConfigError(KclientQuotaError, ValueError):
    """A configuration key or value that cannot be used; the message names the key and the remedy."""


class WireError(KclientQuotaError, ValueError):
    """Bytes that are not a Kafka message of the stated API and version."""


class ClusterError(KclientQuotaError):
    """A cluster could not be asked: unreachable, refused, or without the API.

    Attributes:
        error_code: Kafka's numeric error code, or None when no answer arrived at all.
    """

    def __init__(self, message: str, *, error_code: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code

    def __reduce__(self) -> tuple[Any, ...]:
        return _unreachable, (str(self), self.error_code)


def _unreachable(message: str, error_code: int | None) -> ClusterError:
    """Made anew from a pickle."""
    return ClusterError(message, error_code=error_code)


class QuotaThrottledError(KclientQuotaError, BufferError):
    """A message was not admitted because its broker may not take it yet.

    A `BufferError`, because that is what confluent_kafka's `produce` raises when it cannot take a message now.

    Attributes:
        retry_after_ms: after how many milliseconds the same message is expected to be admitted.
        broker_id: the broker whose quota is used up, or None when it is not known.
    """

    def __init__(self, message: str, *, retry_after_ms: int, broker_id: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        self.broker_id = broker_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _throttled, (str(self), self.retry_after_ms, self.broker_id)


def _throttled(message: str, retry_after_ms: int, broker_id: int | None) -> QuotaThrottledError:
    """Made anew from a pickle: another process's pool hands errors on so."""
    return QuotaThrottledError(message, retry_after_ms=retry_after_ms, broker_id=broker_id)


def quota_used_up(wait_ms: int, broker_id: int | None = None) -> QuotaThrottledError:
    """What a message is refused with that has waited for its quota as long as it may.

    Args:
        wait_ms: after how many milliseconds to come again.
        broker_id: whose quota it is, where that is known.
    """
    wait_ms = max(1, wait_ms)
    return QuotaThrottledError(
        f"the broker's quota is used up; try again in {wait_ms} ms, raise max.block.ms, or have the quota raised",
        retry_after_ms=wait_ms,
        broker_id=broker_id,
    )


def is_full(error: BaseException) -> TypeGuard[BufferError]:
    """Whether a message may be offered once more: no room for it, and no `BufferError` of the application's functions.

    Args:
        error: what `produce()` has raised.
    """
    return isinstance(error, QuotaThrottledError) or (isinstance(error, BufferError) and str(error) == QUEUE_FULL)


def misread(error: Exception) -> str:
    """What is wrong with a document that was read, in words for its reader: Python's own are about its code."""
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing in it"
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, RecursionError):
        return "it is nested thousands of levels deep"
    return "a part of it is of another kind than it should be"


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
