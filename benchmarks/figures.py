"""Arithmetic on what was measured: utilisation, percentiles, gaps."""

import itertools
import math
from collections.abc import Iterable, Sequence

from benchmarks.scenes import WARM_UP_S
from kclient_quota.testing.apache import ByteSample


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of `values`, or None when there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def gaps_s(arrivals_ms: Sequence[int], begin_ms: int, end_ms: int) -> list[float]:
    """Times without a message in a stretch of time, its two ends counted as messages."""
    marks = [begin_ms, *(arrival for arrival in arrivals_ms if begin_ms <= arrival <= end_ms), end_ms]
    return [(later - earlier) / 1000 for earlier, later in itertools.pairwise(marks)]


def wait_s(gaps: Sequence[float], share: float) -> float:
    """How long, from a random moment on, the next message is waited for: this percentile of it."""
    ordered = sorted(gaps, reverse=True)
    allowed = (1 - share) * sum(ordered)
    # Longer than x is waited for in the first part, gap - x, of every gap that is longer than x.
    longer = 0.0
    for count, (gap, following) in enumerate(itertools.pairwise([*ordered, 0.0]), 1):
        longer += gap
        if longer - count * following >= allowed:
            return max(0.0, (longer - allowed) / count)
    return 0.0


def of_client(samples: Iterable[ByteSample], quota_type: str, client_id: str) -> list[tuple[int, float]]:
    """(start in epoch ms, bytes) of one client's samples that hold anything, in order."""
    return sorted(
        (sample.start_ms, sample.value)
        for sample in samples
        if sample.quota_type == quota_type and sample.client_id == client_id and sample.value > 0
    )


def producer_rate(samples: Sequence[tuple[int, float]], begin_ms: int) -> float | None:
    """Bytes a second as the broker records them in steady state, or None when the run was too short for that.

    From the first sample after the warm-up up to the start of the last one, whose bytes are left out: each lump is
    weighed with the wait that follows it, whatever their size.
    """
    steady = [(start, value) for start, value in samples if start >= begin_ms + WARM_UP_S * 1000]
    if len(steady) < 3:
        return None
    return sum(value for _, value in steady[:-1]) / (steady[-1][0] - steady[0][0]) * 1000


def consumer_rate(samples: Sequence[tuple[int, float]], begin_ms: int, end_ms: int) -> float | None:
    """Bytes a second as the broker records them from the end of the warm-up to the end of the run; None before that."""
    first_ms = begin_ms + WARM_UP_S * 1000
    if end_ms <= first_ms:
        return None
    return sum(value for start, value in samples if first_ms <= start < end_ms) / (end_ms - first_ms) * 1000


def course(samples: Sequence[tuple[int, float]], begin_ms: int) -> list[tuple[float, float]]:
    """(seconds after the start, bytes) of every sample, for whoever wants to draw the run."""
    return [((start - begin_ms) / 1000, value) for start, value in samples]
