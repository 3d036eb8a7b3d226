"""How long to wait after something went wrong."""

from dataclasses import dataclass

FIRST_RETRY_MS = 1_000
REFUSED_RETRY_MS = 300_000
LONGEST_RETRY_MS = 3_600_000

_MOST_DOUBLINGS = 20


@dataclass(slots=True)
class Retry:
    """How often in a row requests failed (no answer) or were refused (an answer that repeating will not change)."""

    failures: int = 0
    refusals: int = 0

    def clear(self) -> None:
        """All is well again."""
        self.failures = self.refusals = 0

    def after_failure_ms(self, interval_ms: int, factor: float) -> int:
        """A second, doubled with every failure up to the push interval (or five minutes), times `factor`."""
        self.failures += 1
        longest_ms = min(interval_ms, REFUSED_RETRY_MS)
        return round(min(FIRST_RETRY_MS << min(self.failures - 1, _MOST_DOUBLINGS), longest_ms) * factor)

    def after_refusal_ms(self) -> int:
        """Five minutes, doubled with every refusal up to an hour."""
        self.refusals += 1
        return min(REFUSED_RETRY_MS << min(self.refusals - 1, _MOST_DOUBLINGS), LONGEST_RETRY_MS)
