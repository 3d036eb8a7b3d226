"""An open transaction and the time it may take: the broker aborts it, and fences its producer, when that is over."""

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

logger = logging.getLogger("kclient_quota")

TIMEOUT_MS: Final = 60_000
"""librdkafka's default of `transaction.timeout.ms`."""
MARGIN_MS: Final = 5_000
"""How long before its end a transaction counts as about to end: time for an abort to reach the coordinator."""
MESSAGE_TIMEOUT: Final = ("message.timeout.ms", "delivery.timeout.ms")
"""Librdkafka's key for how long a message may wait, in its queue and in flight, and its other name."""
_REMEDY: Final = "commit smaller transactions, raise transaction.timeout.ms, or have the quota raised"


class State(Enum):
    """Where a producer's transaction is."""

    NONE = "none"
    OPEN = "open"
    ENDED = "ended"
    """It was ended within a call that has told so; the application's own abort has nothing left to do."""


class Event(Enum):
    """What happens to it."""

    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    EXPIRE = "expire"
    """We abort it before its time is over."""
    MISS = "miss"
    """A call that waited in it finds that it is over, and none open."""


NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.NONE, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.BEGIN): State.OPEN,
    (State.ENDED, Event.BEGIN): State.OPEN,
    (State.NONE, Event.COMMIT): State.NONE,
    (State.OPEN, Event.COMMIT): State.NONE,
    (State.ENDED, Event.COMMIT): State.ENDED,
    (State.NONE, Event.ABORT): State.NONE,
    (State.OPEN, Event.ABORT): State.NONE,
    (State.ENDED, Event.ABORT): State.NONE,
    (State.NONE, Event.EXPIRE): State.NONE,
    (State.OPEN, Event.EXPIRE): State.ENDED,
    (State.ENDED, Event.EXPIRE): State.ENDED,
    (State.NONE, Event.MISS): State.ENDED,
    (State.OPEN, Event.MISS): State.OPEN,
    (State.ENDED, Event.MISS): State.ENDED,
}
"""Librdkafka has agreed before an event is told here: what it refuses changes nothing."""


def not_taken() -> KafkaException:
    """What confluent_kafka says of a message that comes when none is taken."""
    code = KafkaError._STATE  # noqa: SLF001 - its name
    return KafkaException(KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}"))


class Transaction:
    """Knows until when the open transaction may be waited for.

    Args:
        timeout_ms: `transaction.timeout.ms`.
        message_ms: `message.timeout.ms`, 0 for none.
        possible: whether the producer has transactions at all.
        aborts: whether the application has asked for one that is about to end to be aborted.

    Attributes:
        possible: as given, as are `aborts` and `timeout_ms`.
        state: where it is.
        ended: the error that told that it is ENDED; None in other states.
        lost: why a message of the open one failed; it cannot be committed then.
        era: grows whenever one begins or ends.
        ending: the threads that are ending one, by a commit or an abort.
        most_wait_ms: how much of its time may go by with waiting for a throttle when it begins.
    """

    def __init__(
        self,
        timeout_ms: int = TIMEOUT_MS,
        message_ms: int = TIMEOUT_MS // 3,
        *,
        possible: bool = False,
        aborts: bool = False,
    ) -> None:
        self.possible = possible
        self.aborts = aborts
        self.state = State.NONE
        self.ended: KafkaException | None = None
        self.lost: KafkaError | None = None
        self.era = 0
        self.ending: set[int] = set()
        self.timeout_ms = timeout_ms
        self._margin_ms = min(MARGIN_MS, timeout_ms // 2)
        self.most_wait_ms = (timeout_ms - self._margin_ms) // 2
        self._message_ms = message_ms or timeout_ms
        self._spare_ms = min(MARGIN_MS, timeout_ms // 4)
        self._ends_at_ms = 0
        self._told = False

    def with_message_timeout(self, conf: dict[str, Any]) -> dict[str, Any]:
        """`conf` for librdkafka, whose messages must not outlast what the abort of a transaction can wait for."""
        if not self.aborts or not self.possible or any(key in conf for key in MESSAGE_TIMEOUT):
            return conf
        return {**conf, MESSAGE_TIMEOUT[0]: self._message_ms}

    def on(self, event: Event, now_ms: int = 0) -> None:
        """Something happened to it, at `now_ms` where it begins."""
        before, self.state = self.state, NEXT[self.state, event]
        if event is Event.BEGIN:
            self._ends_at_ms = now_ms + self.timeout_ms
            self._told = False
        if self.state is not before or event is Event.BEGIN:
            self.era += 1
            self.lost = None
        if self.state is not State.ENDED:
            self.ended = None

    @property
    def is_open(self) -> bool:
        """Whether one has begun that has not ended."""
        return self.state is State.OPEN

    def is_late(self, now_ms: int) -> bool:
        """Whether what is sent now, if a throttle held it up, would only be given up when the time is over."""
        return self.aborts and self.is_open and now_ms >= self._ends_at_ms - self._spare_ms - self._message_ms

    def insist_on_taking(self, ident: int) -> None:
        """As librdkafka does: who commits, or aborts, has no other thread's message come meanwhile.

        One that was taken would have the commit wait for each that follows, or be handed over when it is too late.

        Raises:
            KafkaException: in confluent_kafka's words, this thread is such another one, or none is open.
        """
        if not self.is_open or (self.ending and ident not in self.ending):
            raise not_taken()

    @property
    def open_era(self) -> int | None:
        """What tells the open transaction from others; None when none is open."""
        return self.era if self.is_open else None

    def insist(self, era: int | None) -> None:
        """What waited in the transaction of this `open_era` goes into no other one, and not outside.

        Raises:
            KafkaException: that one is over.
        """
        if era is not None and era != self.open_era:
            raise self.miss()

    def miss(self) -> KafkaException:
        """What waited in a transaction finds that it is over; returns what to raise."""
        text = (
            "the transaction was committed or aborted by a callback, or another thread, while this call waited in it: "
            "nothing of the call became part of another one; abort, and begin anew"
        )
        error = KafkaException(KafkaError(KafkaError._STATE, text, txn_requires_abort=True))  # noqa: SLF001 - its name
        self._end_with(Event.MISS, error)
        return error

    def insist_on_all(self) -> None:
        """As librdkafka does of messages that it has; of a fatal error it has more to say itself.

        Raises:
            KafkaException: a message of the open transaction has failed before librdkafka had it.
        """
        if self.lost is not None and self.lost.code() != KafkaError._FATAL and self.is_open:  # noqa: SLF001 - its name
            text = f"a message of the transaction was not sent: {self.lost.str()}; abort it, and begin anew"
            raise KafkaException(KafkaError(self.lost.code(), text, txn_requires_abort=True))

    def expire(self) -> KafkaException:
        """It was aborted because its time would not do; returns what to raise."""
        error = self.refuse(aborted=True)
        self._end_with(Event.EXPIRE, error)
        return error

    def _end_with(self, event: Event, error: KafkaException) -> None:
        self.on(event)
        if self.state is State.ENDED:
            self.ended = error

    @property
    def last_ms(self) -> int | None:
        """Until when it may be waited for; None when none is open."""
        return self._ends_at_ms - self._margin_ms if self.is_open else None

    def left_ms(self, now_ms: int) -> int:
        """How much of its time is left."""
        return max(0, self._ends_at_ms - now_ms) if self.is_open else 0

    def outlived_by(self, until_ms: int) -> bool:
        """Whether waiting until `until_ms` brings it near its end."""
        return self.is_open and until_ms > self._ends_at_ms - self._margin_ms

    def report(self) -> None:
        """Say so, once."""
        if not self._told:
            self._told = True
            logger.warning(
                "The open transaction is about to outlive transaction.timeout.ms=%d while the quota, or a broker that "
                "does not answer, is waited for: %s",
                self.timeout_ms,
                _REMEDY,
            )

    def refuse(self, *, aborted: bool) -> KafkaException:
        """The error by which the application learns that it has to begin anew."""
        what = "it was aborted before the broker would have" if aborted else "abort it before the broker does"
        waits = "waiting for the quota, or for a broker that does not answer,"
        text = f"{waits} would have the transaction outlive transaction.timeout.ms={self.timeout_ms}: {what}"
        error = KafkaError(KafkaError.THROTTLING_QUOTA_EXCEEDED, f"{text}; {_REMEDY}", txn_requires_abort=True)
        return KafkaException(error)
