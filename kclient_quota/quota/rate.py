"""Kafka's windowed statistics: `SampledStat`, `Rate`, `Avg`, `Max`, `CumulativeSum` of Kafka 3.8 and later.

Windows start when something is recorded, not on a grid; the ring holds one sample more than the window counts; a sample
that began before the window but saw an event inside it is kept whole. Brokers and clients use the same code, so that a
client can know what its broker will say.
"""

from math import inf, nan
from typing import Final

QUOTA_SAMPLES: Final = 11
QUOTA_WINDOW_MS: Final = 1000
STAT_SAMPLES: Final = 2
STAT_WINDOW_MS: Final = 30_000


class _SampledStat:
    """A ring of `samples + 1` samples as three parallel lists, so that recording allocates nothing."""

    __slots__ = ("_current", "_expiry_ms", "_initial", "_lasts", "_starts", "_values", "samples", "window_ms")

    def __init__(self, samples: int, window_ms: int, initial: float) -> None:
        if samples < 1 or window_ms < 1:
            raise ValueError(f"samples and window_ms must be at least 1, not {samples} and {window_ms}")
        self.samples = samples
        self.window_ms = window_ms
        self._expiry_ms = samples * window_ms
        self._initial = initial
        self._current = 0
        self._values: list[float] = []
        self._starts: list[int] = []
        self._lasts: list[int] = []

    def _advance(self, now_ms: int) -> int:
        """Begin the next sample at `now_ms` (the first, if there is none) and return its index."""
        starts = self._starts
        index = (self._current + 1) % (self.samples + 1) if starts else 0
        self._current = index
        if index < len(starts):
            self._reset(index, now_ms)
        else:
            self._append(now_ms)
        return index

    def _append(self, now_ms: int) -> None:
        self._values.append(self._initial)
        self._starts.append(now_ms)
        self._lasts.append(now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._values[index] = self._initial
        self._starts[index] = now_ms
        self._lasts[index] = now_ms

    def _purge(self, now_ms: int) -> None:
        newest_kept = now_ms - self._expiry_ms
        for index, last_ms in enumerate(self._lasts):
            if last_ms <= newest_kept:
                self._reset(index, now_ms)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`, for an owner whose clock has jumped."""
        self._starts = [start_ms + shift_ms for start_ms in self._starts]
        self._lasts = [last_ms + shift_ms for last_ms in self._lasts]


class SampledRate(_SampledStat):
    """Kafka's `Rate` over a `WindowedSum`: what a byte-rate quota is measured with.

    Args:
        samples: windows kept; Kafka's `quota.window.num`.
        window_ms: length of one window; Kafka's `quota.window.size.seconds` x 1000.
    """

    __slots__ = ()

    def __init__(self, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS) -> None:
        super().__init__(samples, window_ms, 0.0)

    @property
    def opened_ms(self) -> int | None:
        """When the newest sample began; None while there is none."""
        return self._starts[self._current] if self._starts else None

    def record(self, value: float, now_ms: int) -> None:
        """Add `value` (also zero or negative: it is an event all the same) at `now_ms`."""
        starts = self._starts
        index = self._current
        if not starts or now_ms - starts[index] >= self.window_ms:
            index = self._advance(now_ms)
        self._values[index] += value
        self._lasts[index] = now_ms

    def take_back(self, value: float, until_ms: float = inf) -> None:
        """So much of what was recorded last, until then, had not been: it leaves its samples, the newest first."""
        for index in sorted(range(len(self._starts)), key=self._starts.__getitem__, reverse=True):
            if self._starts[index] <= until_ms:
                taken = min(max(value, 0.0), self._values[index])
                self._values[index] -= taken
                value -= taken

    def reopen(self, at_ms: int) -> int:
        """The newest sample begins only now, with all that it holds; returns when it had begun before."""
        before_ms = self._starts[self._current]
        self._starts[self._current] = self._lasts[self._current] = at_ms
        return before_ms

    def begin_at(self, at_ms: int) -> None:
        """What the window holds at `at_ms` came no earlier, and it begins with that."""
        newest_gone = at_ms - self._expiry_ms
        for index, last_ms in enumerate(self._lasts):
            if last_ms > newest_gone:
                self._starts[index] = max(self._starts[index], at_ms)
                self._lasts[index] = max(last_ms, at_ms)

    def total(self, now_ms: int) -> float:
        """Sum of what the window holds at `now_ms`."""
        self._purge(now_ms)
        total = 0.0
        for value in self._values:  # not sum(): from Python 3.12 it compensates, Java does not
            total += value
        return total

    def window_size_ms(self, now_ms: int) -> int:
        """How much time the window stands for at `now_ms`, in ms: 10.000 to just under 12 s for 11 x 1 s."""
        self._purge(now_ms)
        if not self._starts:
            self._append(now_ms)
        return self._stretched(now_ms - min(self._starts))

    def measure(self, now_ms: int) -> float:
        """Rate per second at `now_ms`."""
        total = self.total(now_ms)
        return total / (self.window_size_ms(now_ms) / 1000.0)

    def project(self, at_ms: int) -> tuple[float, int]:
        """What `total` and `window_size_ms` would be at `at_ms`, without purging anything.

        Returns:
            The sum and the window in ms.
        """
        newest_gone = at_ms - self._expiry_ms
        total = 0.0
        oldest_ms = at_ms
        for value, start_ms, last_ms in zip(self._values, self._starts, self._lasts, strict=True):
            if last_ms > newest_gone:
                total += value
                oldest_ms = min(oldest_ms, start_ms)
        return total, self._stretched(at_ms - oldest_ms)

    def forgetting(self, now_ms: int) -> list[tuple[int, float, int]]:
        """What will be remembered if nothing is recorded any more, at the moments when the window is short.

        Those are now, whenever a sample leaves, and whenever the oldest is as old as all but one window.

        Returns:
            When, the sum, and the window in ms.
        """
        newest_gone = now_ms - self._expiry_ms
        rows = zip(self._starts, self._lasts, self._values, strict=True)
        samples = sorted(row for row in rows if row[1] > newest_gone)
        total = sum(value for _, _, value in samples)
        at_ms = now_ms
        found = []
        for start_ms, last_ms, value in samples:
            found.append((at_ms, total, self._stretched(at_ms - start_ms)))
            short_ms = start_ms + self._expiry_ms - self.window_ms
            if short_ms > at_ms:
                found.append((short_ms, total, self._stretched(short_ms - start_ms)))
            total -= value
            at_ms = last_ms + self._expiry_ms
        return found

    def history(self, now_ms: int) -> list[tuple[int, float]]:
        """Samples inside the window as (start in ms, sum), newest first, not purging anything."""
        newest_gone = now_ms - self._expiry_ms
        rows = zip(self._starts, self._values, self._lasts, strict=True)
        return sorted(((start_ms, value) for start_ms, value, last_ms in rows if last_ms > newest_gone), reverse=True)

    def _stretched(self, elapsed_ms: int) -> int:
        """`Rate.windowSize`: as if all but one window had passed, keeping the part of a window that really has."""
        window_ms = self.window_ms
        full = elapsed_ms // window_ms if elapsed_ms >= 0 else -(-elapsed_ms // window_ms)
        missing = self.samples - 1 - full
        if missing > 0:
            elapsed_ms += missing * window_ms
        return max(elapsed_ms, 1)


class _CountedStat(_SampledStat):
    """A sampled stat that must know whether a sample saw any event at all."""

    __slots__ = ("_counts",)

    def __init__(self, samples: int, window_ms: int, initial: float) -> None:
        super().__init__(samples, window_ms, initial)
        self._counts: list[int] = []

    def _append(self, now_ms: int) -> None:
        super()._append(now_ms)
        self._counts.append(0)

    def _reset(self, index: int, now_ms: int) -> None:
        super()._reset(index, now_ms)
        self._counts[index] = 0

    def _touch(self, now_ms: int) -> int:
        starts = self._starts
        index = self._current
        if not starts or now_ms - starts[index] >= self.window_ms:
            index = self._advance(now_ms)
        self._counts[index] += 1
        self._lasts[index] = now_ms
        return index


class SampledAvg(_CountedStat):
    """Kafka's `Avg`: mean of what was recorded in the window.

    Args:
        samples: windows kept; Kafka's `metrics.num.samples`.
        window_ms: length of one window; Kafka's `metrics.sample.window.ms`.
    """

    __slots__ = ()

    def __init__(self, samples: int = STAT_SAMPLES, window_ms: int = STAT_WINDOW_MS) -> None:
        super().__init__(samples, window_ms, 0.0)

    def record(self, value: float, now_ms: int) -> None:
        """Add one event of `value` at `now_ms`."""
        index = self._touch(now_ms)
        self._values[index] += value

    def measure(self, now_ms: int) -> float:
        """The mean at `now_ms`; NaN without events."""
        self._purge(now_ms)
        count = sum(self._counts)
        total = 0.0
        for value in self._values:
            total += value
        return total / count if count else nan


class SampledMax(_CountedStat):
    """Kafka's `Max`: largest value recorded in the window.

    Args:
        samples: windows kept; Kafka's `metrics.num.samples`.
        window_ms: length of one window; Kafka's `metrics.sample.window.ms`.
    """

    __slots__ = ()

    def __init__(self, samples: int = STAT_SAMPLES, window_ms: int = STAT_WINDOW_MS) -> None:
        super().__init__(samples, window_ms, -inf)

    def record(self, value: float, now_ms: int) -> None:
        """Add one event of `value` at `now_ms`."""
        index = self._touch(now_ms)
        self._values[index] = max(self._values[index], value)

    def measure(self, now_ms: int) -> float:
        """The largest value at `now_ms`; NaN without events."""
        self._purge(now_ms)
        return max(self._values) if any(self._counts) else nan


class CumulativeSum:
    """Kafka's `CumulativeSum`: never forgets, has no window."""

    __slots__ = ("_total",)

    def __init__(self) -> None:
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:  # noqa: ARG002  one signature for every stat
        """Add `value`."""
        self._total += value

    def measure(self, now_ms: int) -> float:  # noqa: ARG002  one signature for every stat
        """The sum of everything."""
        return self._total
