"""What the log says about a client's throttling: its beginning and its end, and what one setting would buy."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import call
from typing import Any, Final

from kclient_quota.clients.calls import encoded
from kclient_quota.clients.limits import Limit
from kclient_quota.config import Backoff

logger = logging.getLogger("kclient_quota")

WARN_EVERY_MS: Final = 60_000
QUIET_MS: Final = 5_000
"""Throttles that come closer than this are one stretch of throttling to the log."""
ASK_AGAIN_MS: Final = 30_000
"""How often throttles have the limit asked for again."""
WORTH_AFTER_MS: Final = 10_000
"""After how long of waiting for a quota a producer's messages are looked at."""
WORTH_AGAIN_MS: Final = 600_000
"""When they are looked at again, where nothing was worth a word."""
WAITS_MS: Final = 50
"""Messages that wait for less have quota enough, unless their callers wait, too."""
STILL_MS: Final = 1_000
"""Who has waited so lately still does: not each message of a client that its quota holds up waits for long."""
WORTH_BYTES: Final = 1_000_000
WORTH_MESSAGES: Final = 100
"""No more than so many bytes, or messages, are looked at: `worth.SAMPLE`, which is loaded when it is needed."""
MORE_DELAY: Final = 5
"""How many times as long messages might wait for fuller batches."""


class ThrottleLog:
    """One client's stretches of throttling. Each is told, but none within a minute of another.

    Args:
        client_id: for the log.
        effect: what the client does about a throttle, in words.
        backoff: whether it does.
    """

    def __init__(self, client_id: str, effect: str, backoff: Backoff = Backoff.BLOCK) -> None:
        self._client_id = client_id
        self._may_advise = backoff is not Backoff.OFF
        self._effect = "nothing is done about it, as quota.backoff is off" if backoff is Backoff.OFF else effect
        self._throttling = False
        self._ends_at_ms = 0  # of the latest throttle
        self._said = False
        self._warned_at_ms: int | None = None
        self._asked_at_ms: int | None = None

    def on_throttle(self, broker_name: str, throttle_ms: int, limit: Limit, now_ms: int) -> None:
        """A broker throttles for `throttle_ms`."""
        self._ends_at_ms = now_ms + throttle_ms
        if self._throttling:
            return
        self._throttling = True
        self._said = self._warned_at_ms is None or now_ms - self._warned_at_ms >= WARN_EVERY_MS
        if self._said:
            self._warned_at_ms = now_ms
            logger.warning(
                "Broker %s throttles client %r for %d ms: %s (quota: %s)",
                broker_name,
                self._client_id,
                throttle_ms,
                self._effect,
                "none when it was last asked for" if limit.unlimited else words(limit),
            )
        if self._may_advise and not limit.known:
            self._may_advise = False
            logger.warning(
                "Client %r has to learn its quota from throttles: beside clients that know it, it gets more or less "
                "than its share. Have it ask the cluster (grant its principal DESCRIBE_CONFIGS there and leave "
                "quota.limit.source at auto), or set producer_byte_rate or consumer_byte_rate",
                self._client_id,
            )

    def on_time(self, now_ms: int) -> None:
        """Time has passed; a stretch may have ended, which is told if its beginning was."""
        if self._throttling and now_ms - self._ends_at_ms >= QUIET_MS:
            self._throttling = False
            if self._said:
                logger.info("Throttling of client %r has ended", self._client_id)

    def asks(self, now_ms: int) -> bool:
        """Whether it is time to have the limit asked for again, supposing that it will be."""
        if self._asked_at_ms is not None and now_ms - self._asked_at_ms < ASK_AGAIN_MS:
            return False
        self._asked_at_ms = now_ms
        return True


class WorthLog:
    """Says once that one setting would buy much, as a sample of what waits for the quota shows.

    Args:
        client_id: for the log.
        compression: the producer's `compression.type`.
        max_delay_ms: its `quota.max.delay.ms`.
        apart: makes a call in a thread of its own. To load compressors and try them takes a tenth of a second, more
            than a second where the processor or the interpreter is busy, and whoever tells of messages sends them.
    """

    def __init__(
        self, client_id: str, compression: str, max_delay_ms: int, apart: Callable[..., object] = call
    ) -> None:
        self._apart = apart
        self._client_id = client_id
        self._compression = compression
        self._max_delay_ms = max_delay_ms
        self._from_ms: int | None = None
        self._waited_at_ms: int | None = None
        self._topic = ""
        self._sample: list[Any] = []
        self._bytes = self._batches = 0
        self._fill = 0.0
        self.is_done = False

    def on_full(self, now_ms: int) -> None:
        """There was no room for a message: its caller has waited, or was told no, or it was dropped."""
        self._waited_at_ms = now_ms

    def on_sent(self, topic: str, messages: Sequence[Any], fill: float, waited_ms: int, now_ms: int) -> None:
        """Messages of a topic have left together, the first of which has waited for the quota for so long.

        They `fill` such a part of the largest batch that would be worth waiting for.
        """
        if waited_ms >= WAITS_MS:
            self._waited_at_ms = now_ms
        waits = self._waited_at_ms is not None and now_ms - self._waited_at_ms < STILL_MS
        if self._from_ms is None or not waits:
            self._from_ms = max(self._from_ms or 0, now_ms + WORTH_AFTER_MS)
        if now_ms < self._from_ms:
            return
        self._topic = self._topic or topic
        if topic != self._topic:
            return
        self._batches += 1
        self._fill += fill
        self._sample += messages[: WORTH_MESSAGES - len(self._sample)]
        self._bytes += sum(len(each.value or b"") for each in messages)
        if len(self._sample) >= WORTH_MESSAGES or self._bytes >= WORTH_BYTES:
            self._from_ms = now_ms + WORTH_AGAIN_MS
            with suppress(RuntimeError):  # there may be no thread: then not now
                self._apart(self._look, self._topic, self._sample, self._batches, self._fill)
            self._topic, self._sample = "", []
            self._bytes = self._batches = 0
            self._fill = 0.0

    def _look(self, topic: str, messages: Sequence[Any], batches: int, fill: float) -> None:
        from kclient_quota.pacing.sending.worth import worth  # noqa: PLC0415 - what few ever need
        from kclient_quota.wire.records import Record  # noqa: PLC0415 - as above

        sample = [Record(value=encoded(each.value), key=encoded(each.key)) for each in messages]
        together = len(sample) / batches
        found = worth(
            sample,
            compression=self._compression,
            together=together,
            most_together=round(MORE_DELAY * together) if fill / batches < 1 / 2 else None,
            more_by=f"quota.max.delay.ms={MORE_DELAY * self._max_delay_ms}",
        )
        if found is None:
            return
        self.is_done = True
        extra = {
            "client_id": self._client_id,
            "topic": topic,
            "setting": found.setting,
            "times": round(found.times, 2),
            "compression_ratio": round(found.ratio, 2),
            "messages_per_batch": found.together,
            "sample": found.sample,
        }
        logger.warning(
            "Client %r waits for its quota, which could carry more: %s",
            self._client_id,
            found.sentence(topic),
            extra=extra,
        )


def words(limit: Limit) -> str:
    """A limit in words."""
    if limit.byte_rate is not None:
        by = f", {limit.decided_by}" if limit.decided_by else ""
        requests = "" if limit.request_percentage is None else f" and request_percentage={limit.request_percentage:g}"
        return f"{limit.byte_rate:,.0f} B/s{requests} per broker, from {limit.source}{by}"
    if limit.request_percentage is not None:
        return request_words(limit)
    return "none" if limit.unlimited else "not known, being learnt"


def request_words(limit: Limit) -> str:
    """A request quota in words."""
    if limit.request_percentage is None:
        return "request_percentage, its value is not known"
    by = f", {limit.decided_by}" if limit.decided_by else ""
    return f"request_percentage={limit.request_percentage:g} per broker, from {limit.source}{by}"
