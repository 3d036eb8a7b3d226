"""The first message of an idempotent producer, which librdkafka lets wait for half a second.

It asks for its producer id when it hears who the brokers are. It hears that on the connection to a bootstrap server,
which it gives up at that moment where it is one of the brokers, and so has nobody to ask. It looks again half a second
later, or when it hears who the brokers are once more: by then another connection is there, mostly.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException

from kclient_quota.clock import Clock

FIRST_MS: Final = 10
"""How long a first report may take before it is asked: on a broker nearby an answer to a message takes less.

Each time after that twice as long: the first may still be answered on the connection that is given up, and how long the
next connection takes to be there, nobody knows: a busy broker's, or one with a log-in, takes longer than one way.
"""
ASK_MS: Final = 100
"""How long an answer may take; nothing else is heard meanwhile."""
MOST_ASKS: Final = 7
"""The last one after a little more than a second, in which librdkafka has looked twice itself."""


class Beginning:
    """Whether somebody has to see to that, of one producer.

    Args:
        clock: the producer's.
        is_wanted: whether it needs an id, and no transaction brings it.

    Attributes:
        topic: of the first message.
        asks_left: how often it may still be asked.
    """

    def __init__(self, clock: Clock, *, is_wanted: bool) -> None:
        self._clock = clock
        self._wait_ms, self._ask_at_ms = FIRST_MS, 0
        self.topic: str | None = None
        self.asks_left = MOST_ASKS if is_wanted else 0

    @property
    def is_under_way(self) -> bool:
        """Whether there is a message, and nothing has been heard of any."""
        return self.asks_left > 0 and self.topic is not None

    @property
    def is_due(self) -> bool:
        """Whether somebody is to ask now."""
        return self.is_under_way and self._clock.now_ms() >= self._ask_at_ms

    @property
    def is_wanted(self) -> bool:
        """Whether the first message's topic is to be told."""
        return self.asks_left > 0 and self.topic is None

    def begin(self, topic: str) -> None:
        """The first message has been handed over."""
        self._ask_at_ms = self._clock.now_ms() + self._wait_ms
        self.topic = topic

    def over(self) -> None:
        """A report has come; one of a message that librdkafka was never given says nothing."""
        if self.topic is not None:
            self.asks_left = 0

    def slice_ms(self, slice_ms: float) -> float:
        """For how long to wait at once."""
        if not self.is_under_way:
            return slice_ms
        return min(slice_ms, max(1, self._ask_at_ms - self._clock.now_ms()))

    def ask(self, who_leads: Callable[[str, float], Any], within_ms: float) -> None:
        """Have librdkafka hear who the brokers are; what goes wrong with that it says itself.

        Raises:
            Exception: what a signal's handler has raised meanwhile.
        """
        if self.topic is not None and within_ms > 0:
            self.asks_left -= 1
            # Closed just now by a handler, whose own errors count; or, as the interpreter ends, confluent_kafka has no
            # class any more for an answer that librdkafka has heard all the same.
            with suppress(KafkaException, RuntimeError, ImportError):
                who_leads(self.topic, min(within_ms, ASK_MS) / 1000)
            self._wait_ms *= 2
            self._ask_at_ms = self._clock.now_ms() + self._wait_ms
