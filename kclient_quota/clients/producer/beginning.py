"""The first message of an idempotent producer, which librdkafka lets wait for half a second.

It asks for its producer id when it hears who the brokers are. It hears that on the connection to a bootstrap server,
which it gives up at that moment where it is one of the brokers, and so has nobody to ask. It looks again half a second
later, or when it hears who the brokers are once more: by then another connection is there, mostly.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

FIRST_MS: Final = 10
"""How long a first report may take before it is asked: on a broker nearby an answer to a message takes less."""
ASK_MS: Final = 100
"""How long an answer may take; nothing else is heard meanwhile."""
MOST_ASKS: Final = 3
"""The first may still have been answered on the connection that is given up."""


class Beginning:
    """Whether somebody has to see to that, of one producer.

    Args:
        is_wanted: whether it needs an id, and no transaction brings it.

    Attributes:
        topic: of the first message.
        asks_left: how often it may still be asked.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self.topic: str | None = None
        self.asks_left = MOST_ASKS if is_wanted else 0

    @property
    def is_due(self) -> bool:
        """Whether there is a message, and nothing has been heard of any."""
        return self.asks_left > 0 and self.topic is not None

    @property
    def is_wanted(self) -> bool:
        """Whether the first message's topic is to be told."""
        return self.asks_left > 0 and self.topic is None

    def over(self) -> None:
        """A report has come; one of a message that librdkafka was never given says nothing."""
        if self.topic is not None:
            self.asks_left = 0

    def slice_ms(self, slice_ms: float) -> float:
        """For how long to wait at once."""
        return min(slice_ms, FIRST_MS) if self.is_due else slice_ms

    def ask(self, who_leads: Callable[[str, float], Any], within_ms: float) -> None:
        """Have librdkafka hear who the brokers are; what goes wrong with that it says itself."""
        if self.topic is not None and within_ms > 0:
            self.asks_left -= 1
            with suppress(Exception):  # closed just now by a signal's handler; or an agent's wrapper may raise anything
                who_leads(self.topic, min(within_ms, ASK_MS) / 1000)
