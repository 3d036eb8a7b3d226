"""What a sender tells its callers: whether their messages are taken, and what has become of those that were.

Answers release a `produce()` that waits; reports go into the outbox, for the application's next `poll()` or `flush()`.
"""

import logging
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from kclient_quota.clients.calls import cause_of, encoded
from kclient_quota.clients.producer.core import Lost
from kclient_quota.clients.producer.outbox import Callback, Handed, Outbox
from kclient_quota.clients.producer.sender.queue_metrics import LOST, QueueMetrics
from kclient_quota.clients.producer.transaction import Transaction
from kclient_quota.clients.throttle_log import WorthLog
from kclient_quota.clock import Clock
from kclient_quota.pacing.sending.turns import Waiting

logger = logging.getLogger("kclient_quota")

MESSAGE_LOST: Final = -1001
"""librdkafka's offset of what was never stored."""
NO_TOPIC: Final = {
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - confluent_kafka's name
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
"""What librdkafka says at once to who produces to a topic that it has found missing, or not allowed."""
NO_TOPIC_MS: Final = 1_000
"""For how long it is asked, which does not ask the cluster; after that one message waits for the sender, who does."""


class Answers:
    """Of one sender.

    Args:
        outbox: where its callers are.
        transaction: hears of messages that fail before librdkafka has them.
        clock: monotonic milliseconds.
        metrics: told of what leaves the queue unsent.
        worth: told of what finds it full.
    """

    def __init__(
        self, outbox: Outbox, transaction: Transaction, clock: Clock, metrics: QueueMetrics, worth: WorthLog
    ) -> None:
        self._outbox = outbox
        self._transaction = transaction
        self._clock = clock
        self._metrics = metrics
        self._worth = worth

    # Whether it is taken ------------------------------------------------------------------------------------------

    def claim(self, message: Waiting) -> bool:
        """Decide that a message is taken, unless its caller has decided that it is not."""
        outbox, handed = self._outbox, message.payload
        if handed.decide():
            outbox.given_up.discard(handed)  # of a caller who was interrupted while giving up
            return True
        # Its caller has given it up: that is not counted twice, and once it is seen not at all.
        outbox.given_up.discard(handed)
        outbox.finished += 1
        return False

    def answer(self, handed: Handed) -> None:
        """Its caller goes on, and sees what was decided."""
        if handed.answered is not None:
            handed.answered.release()

    def say_no(self, handed: Handed) -> None:
        """It is not taken, and its caller hears so."""
        self._outbox.finished += 1
        handed.is_refused = True
        self._worth.on_full(self._clock.now_ms())
        self.answer(handed)

    def refuse(self, handed: Handed) -> bool:
        """Say no to a caller who waits; whether there was one."""
        if not (handed.waits and handed.decide()):
            return False
        self.say_no(handed)
        return True

    # What has become of it ----------------------------------------------------------------------------------------

    def fail(self, message: Waiting, code: int, text: str | None = None) -> None:
        """Report a message that librdkafka does not have, as plain confluent_kafka would."""
        handed: Handed = message.payload
        error = KafkaError(code, text) if text else KafkaError(code)
        reported = unsent(message, error, self._clock.now_ms())
        self._transaction.lost = error
        put_report(self._outbox, handed.callback, error, reported)
        self._outbox.finished += 1

    def refuse_for_good(self, message: Waiting, error: BaseException) -> None:
        """The same of what it has not taken: where that is for the topic, calls for it hear so at once."""
        code = code_of(error)
        if code in NO_TOPIC:
            self._outbox.no_topics[message.topic] = self._clock.now_ms() + NO_TOPIC_MS
        self.fail(message, code, None if isinstance(error, KafkaException) else str(error))

    def lose(self, message: Waiting, why: Lost) -> None:
        """Report a message that has left the queue without being sent, or never got into it."""
        self._metrics.on_lost(message.lane, why)
        if why is Lost.DROPPED:
            self._worth.on_full(self._clock.now_ms())
        lost = self._transaction.lost
        told = KafkaError(LOST[why]).str()  # as librdkafka says it, and why
        self.fail(message, LOST[why], f"{told} (not sent while the quota was waited for: {why.value})")
        if why is Lost.REPLACED:
            self._transaction.lost = lost  # the newer one is in the same transaction


def put_report(outbox: Outbox, callback: Callback | None, error: KafkaError | None, message: Message) -> None:
    """What has become of a message, for the application's next `poll()` or `flush()`."""
    outbox.silent.append(None) if callback is None else outbox.reports.append((callback, error, message))


def unsent(message: Waiting, error: KafkaError, now_ms: int) -> Message:
    """What librdkafka would report of a message that it does not have: as of all that fail, not its time."""
    handed: Handed = message.payload
    return Message(
        topic=message.topic,
        partition=max(message.partition, handed.partition),
        offset=MESSAGE_LOST,
        key=encoded(handed.key),
        value=encoded(handed.value),
        error=error,
        timestamp=(TIMESTAMP_NOT_AVAILABLE, -1),
        latency=max(0, now_ms - message.queued_at_ms) / 1000,
    )


def code_of(error: BaseException) -> int:
    """Librdkafka's code for what handing over has raised."""
    cause = cause_of(error)
    return KafkaError._FAIL if cause is None else cause.code()  # noqa: SLF001 - its name


def give_back(message: Any) -> None:
    """It was not taken after all. A caller who looked just now believes it was: and so it will be."""
    message.payload.claim.append(True)


def tell_fatal(outbox: Outbox, error: BaseException) -> None:
    """Raise, in the application's call, what has ended its producer; one that closes it has it logged instead."""
    if not outbox.closing:
        raise error
    logger.error("Producer closes after a fatal error: %s", error)
