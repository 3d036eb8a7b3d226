"""What each consumer may have of a quota that several of one process share: they need not be strangers to each other.

Who waits for the quota wants more than he gets, and has an equal part of what the others leave; who takes less than
such a part keeps what he takes. So the parts of all add up to the quota, nobody is throttled for another's fetches, and
what one does not need is the others' seconds later.
"""

from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

NEEDED_MS: Final = 3_000
"""For so long a need that was told goes on: applications work on what they got before they ask again."""
DEALT_MS: Final = 500
"""Parts are dealt again so often."""


class Need(NamedTuple):
    """What one consumer needs of one broker.

    Attributes:
        waits: whether it waits for the quota, or has only just come.
        byte_rate: bytes per second that it received in the broker's last window.
        at_ms: when that was.
    """

    waits: bool
    byte_rate: float
    at_ms: int


class Part(NamedTuple):
    """What a consumer may have.

    Attributes:
        byte_rate: bytes per second.
        sharers: so many, itself included, have such a part.
    """

    byte_rate: float
    sharers: int


class Neighbours:
    """All consumers that a broker counts together. Has no lock: its owner does."""

    def __init__(self) -> None:
        self._needs: WeakKeyDictionary[Any, dict[int | None, Need]] = WeakKeyDictionary()

    def part(self, who: Any, broker: int | None, need: Need, limit: float) -> Part:
        """Say what one needs, and be told what it may have.

        Args:
            who: one of the consumers.
            broker: its id; None as long as it knows none, and may need any.
            need: what it needs there, now.
            limit: bytes per second that all may have of the broker.
        """
        mine = self._needs.setdefault(who, {})
        if broker is not None:
            mine.pop(None, None)
        mine[broker] = need
        # a copy in one step: a destructor may run between any two, and close one of them
        alive = [other for each in self._needs.keyrefs() if (other := each()) is not None and other is not who]
        others = [needs.get(broker) or needs.get(None) for needs in (self._needs.get(other, {}) for other in alive)]
        now = [each for each in others if each is not None and abs(need.at_ms - each.at_ms) < NEEDED_MS]
        sharers = 1 + sum(each.waits for each in now)
        left = limit - sum(each.byte_rate for each in now if not each.waits)
        # whoever takes more than an equal part without waiting will wait as soon as it is none too many
        return Part(max(left / sharers, limit / (1 + len(now))), sharers)

    def leave(self, who: Any) -> None:
        """It needs nothing any more."""
        self._needs.pop(who, None)
