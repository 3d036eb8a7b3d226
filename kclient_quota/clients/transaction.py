"""An open transaction and the time it may take: the broker aborts it, and fences its producer, when that is over."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.config import TransactionTimeout, whole_number

logger = logging.getLogger("kclient_quota")

TIMEOUT_MS: Final = 60_000
"""librdkafka's default of `transaction.timeout.ms`."""
MARGIN_MS: Final = 5_000
"""How long before its end a transaction counts as about to end: time for an abort to reach the coordinator."""
MESSAGE_TIMEOUT: Final = ("message.timeout.ms", "delivery.timeout.ms")
"""Librdkafka's key for how long a message may wait, in its queue and in flight, and its other name."""
_REMEDY: Final = "commit smaller transactions, raise transaction.timeout.ms, or have the quota raised"


class Transaction:
    """Knows until when the open transaction may be waited for.

    Args:
        conf: the producer's configuration.
        policy: what is done about one that is about to end.

    Attributes:
        possible: whether the producer has transactions at all.
        aborts: whether the application has asked for it to be aborted.
        overdue: why it has to be aborted; None while it has not.
        ended: the error that told the application that it was ended within its call; None once it has acted on that.
        era: grows whenever one begins or ends.
        most_wait_ms: how much of its time may go by with waiting for a throttle when it begins.
    """

    def __init__(self, conf: Mapping[str, Any], policy: TransactionTimeout = TransactionTimeout.REPORT) -> None:
        self.possible = "transactional.id" in conf
        self.aborts = policy is TransactionTimeout.ABORT
        self.overdue: KafkaException | None = None
        self.ended: KafkaException | None = None
        self.era = 0
        self._timeout_ms = whole_number(conf, ["transaction.timeout.ms"], TIMEOUT_MS)
        self._margin_ms = min(MARGIN_MS, self._timeout_ms // 2)
        self.most_wait_ms = (self._timeout_ms - self._margin_ms) // 2
        self._message_ms = whole_number(conf, MESSAGE_TIMEOUT, self._timeout_ms // 3) or self._timeout_ms
        self._spare_ms = min(MARGIN_MS, self._timeout_ms // 4)
        self._ends_at_ms: int | None = None
        self._told = False

    def with_message_timeout(self, conf: dict[str, Any]) -> dict[str, Any]:
        """`conf` for librdkafka, whose messages must not outlast what the abort of a transaction can wait for."""
        if not self.aborts or not self.possible or any(key in conf for key in MESSAGE_TIMEOUT):
            return conf
        return {**conf, MESSAGE_TIMEOUT[0]: self._message_ms}

    def is_late(self, now_ms: int) -> bool:
        """Whether what is sent now, if a throttle held it up, would only be given up when the time is over."""
        return (
            self.aborts
            and self._ends_at_ms is not None
            and (now_ms >= self._ends_at_ms - self._spare_ms - self._message_ms)
        )

    def begin(self, now_ms: int) -> None:
        """It begins."""
        self._forget()
        self._ends_at_ms = now_ms + self._timeout_ms

    def leave(self) -> None:
        """It is being ended: what waits in it does so in vain."""
        self.era += 1

    def end(self) -> None:
        """It was committed or aborted."""
        self._forget()

    def end_overdue(self) -> KafkaException:
        """It was aborted because it was overdue; returns what to raise."""
        self._forget()
        self.ended = self.refuse(aborted=True)
        return self.ended

    def acknowledge(self) -> bool:
        """The application aborts it; whether that has been done already."""
        done, self.ended = self.ended is not None, None
        return done

    @property
    def open_era(self) -> int | None:
        """What tells the open transaction from others; None when none is open."""
        return None if self._ends_at_ms is None else self.era

    def insist(self, era: int | None) -> None:
        """What waited in the transaction of this `open_era` goes into no other one, and not outside.

        Raises:
            KafkaException: that one is over.
        """
        if era is None or era == self.era:
            return
        text = (
            "the transaction was committed or aborted by a callback, or another thread, while this call waited in it: "
            "nothing of the call became part of another one; abort, and begin anew"
        )
        error = KafkaException(KafkaError(KafkaError._STATE, text, txn_requires_abort=True))  # noqa: SLF001 - its name
        if self._ends_at_ms is None:
            self.ended = error
        raise error

    @property
    def last_ms(self) -> int | None:
        """Until when it may be waited for; None when none is open."""
        return None if self._ends_at_ms is None else self._ends_at_ms - self._margin_ms

    def left_ms(self, now_ms: int) -> int:
        """How much of its time is left."""
        return 0 if self._ends_at_ms is None else max(0, self._ends_at_ms - now_ms)

    def outlived_by(self, until_ms: int) -> bool:
        """Whether waiting until `until_ms` brings it near its end."""
        return self._ends_at_ms is not None and until_ms > self._ends_at_ms - self._margin_ms

    def report(self) -> None:
        """Say so, once."""
        if not self._told:
            self._told = True
            logger.warning(
                "The open transaction is about to outlive transaction.timeout.ms=%d while the quota is waited for: %s",
                self._timeout_ms,
                _REMEDY,
            )

    def refuse(self, *, aborted: bool) -> KafkaException:
        """The error by which the application learns that it has to begin anew."""
        what = "it was aborted before the broker would have" if aborted else "abort it before the broker does"
        text = f"the quota would have the transaction outlive transaction.timeout.ms={self._timeout_ms}: {what}"
        error = KafkaError(KafkaError.THROTTLING_QUOTA_EXCEEDED, f"{text}; {_REMEDY}", txn_requires_abort=True)
        return KafkaException(error)

    def _forget(self) -> None:
        self._ends_at_ms = None
        self._told = False
        self.overdue = None
        self.ended = None
        self.era += 1
