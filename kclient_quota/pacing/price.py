"""What throttles cost on average: the price at which clients that know no limit share one.

The throttle time is one and the same function of the shared rate, whoever asks. So it is a price, and everybody may aim
at the rate that it stands for: whoever has more falls, whoever has less rises, and shares meet.
"""

from math import exp, inf, log
from typing import Final

DRIFT_PER_S: Final = 0.3
"""By so much of what the going throttle time is off a rate changes per second, both on a logarithmic scale: a tenth of
the way, as a rate stands for the third root of a throttle time."""
PRICE_MS: Final = 2_000
"""Over how long throttle times are averaged, zeros too."""


class Price:
    """The going throttle time.

    Attributes:
        throttle_ms: on average.
        paid_at_ms: when somebody was last told a throttle time, zero or more.
    """

    __slots__ = ("paid_at_ms", "throttle_ms")

    def __init__(self) -> None:
        self.throttle_ms = 0.0
        self.paid_at_ms = 0

    def begin(self, throttle_ms: float, now_ms: int) -> None:
        """Nothing was known before."""
        self.throttle_ms = throttle_ms
        self.paid_at_ms = now_ms

    def pay(self, throttle_ms: float, now_ms: int) -> None:
        """A response said so much; zero if it said nothing."""
        elapsed_ms = max(now_ms - self.paid_at_ms, 0)
        self.paid_at_ms = now_ms
        self.throttle_ms += (throttle_ms - self.throttle_ms) * (1.0 - exp(-elapsed_ms / PRICE_MS))

    def off(self, expected_ms: float) -> float:
        """How far the going throttle time is from what a rate stands for, on a logarithmic scale."""
        return log(expected_ms / max(self.throttle_ms, 1e-9))

    def drift(self, expected_ms: float, most: float = inf) -> float:
        """By how much a rate that stands for `expected_ms` should change per second, on a logarithmic scale.

        What the price is off counts for no more than `most`, either way.
        """
        return DRIFT_PER_S * min(max(self.off(expected_ms), -most), most)

    def rebase(self, shift_ms: int) -> None:
        """Move what is remembered by `shift_ms`: the clock has jumped."""
        self.paid_at_ms += shift_ms
