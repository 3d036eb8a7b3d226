"""Laws of others, put in place of the one by which a producer learns its limit; as adapted here, in bytes per second.

`Cubic` is what botocore's adaptive retry mode does: after a throttle 0.7 of the rate, then a cubic curve back to where
it was and beyond. `Gradient2` is what Netflix's concurrency-limits does: a limit of requests on their way that shrinks
with the ratio of the usual latency to this one; a throttle is latency, as the connection is muted for so long.
"""

from math import cbrt, inf, sqrt
from typing import Final

from kclient_quota.pacing.known_share import REQUEST_MS

LEAST_RATE: Final = 512.0
ENDLESS: Final = 1e12


class _Rival:
    """What `kclient_quota.pacing.pacer.Pacer` asks of a share."""

    limit: Final = None
    is_whole: Final = False
    every_ms: Final = 0.0
    request_ms: Final = REQUEST_MS

    def __init__(self) -> None:
        self.learnt: float | None = None
        self.rate = inf

    def _begin(self, own_bytes: float, window_ms: int, throttle_ms: int) -> bool:
        """Whether this is the first throttle; the rate is then what was sent."""
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        first = self.learnt is None
        if measured > 0:
            self.learnt = measured
        if first:
            self.rate = max(measured, LEAST_RATE)
        return first

    def rebase(self, shift_ms: int) -> None:
        """The clock does not jump here."""


class Cubic(_Rival):
    """0.7 of the rate after a throttle, then C (t - K)³ + the rate before it, in messages of 1 kB."""

    BETA: Final = 0.7
    C: Final = 0.4
    UNIT: Final = 1_000.0

    def __init__(self) -> None:
        super().__init__()
        self._most = 0.0
        self._since_ms = 0

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """A response has said `throttle_ms`."""
        if not self._begin(own_bytes, window_ms, throttle_ms) and now_ms < self._since_ms:
            return
        self._most = self.rate / self.UNIT
        self._since_ms = now_ms + throttle_ms
        self.rate = max(self.rate * self.BETA, LEAST_RATE)

    def on_free(self, now_ms: int) -> None:
        """An answer without a throttle."""

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Time has passed."""
        if self.learnt is None or not busy or now_ms <= self._since_ms:
            return
        elapsed_s = (now_ms - self._since_ms) / 1000.0
        turn_s = cbrt(self._most * (1 - self.BETA) / self.C)
        self.rate = min(max((self.C * (elapsed_s - turn_s) ** 3 + self._most) * self.UNIT, LEAST_RATE), ENDLESS)


class Gradient2(_Rival):
    """A limit of requests of 16 kB on their way; the rate is what they make at the usual round trip."""

    REQUEST_BYTES: Final = 16_384.0
    ROUND_TRIP_MS: Final = 14.0
    TOLERANCE: Final = 1.5
    SMOOTHING: Final = 0.2
    WINDOW: Final = 600

    def __init__(self) -> None:
        super().__init__()
        self._requests = 20.0
        self._long_ms = self.ROUND_TRIP_MS

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, _now_ms: int) -> None:
        """A response that took its round trip and the throttle."""
        if self._begin(own_bytes, window_ms, throttle_ms):
            self._requests = max(1.0, self.rate * self.ROUND_TRIP_MS / 1000 / self.REQUEST_BYTES)
        self._sample(self.ROUND_TRIP_MS + throttle_ms)

    def on_free(self, _now_ms: int) -> None:
        """A response that took its round trip."""
        if self.learnt is not None:
            self._sample(self.ROUND_TRIP_MS)

    def _sample(self, took_ms: float) -> None:
        self._long_ms += (took_ms - self._long_ms) * 2 / (self.WINDOW + 1)
        if self._long_ms / took_ms > 2:
            self._long_ms *= 0.95
        gradient = max(0.5, min(1.0, self.TOLERANCE * self._long_ms / took_ms))
        wanted = self._requests * gradient + sqrt(self._requests)
        self._requests = max(0.05, self._requests * (1 - self.SMOOTHING) + wanted * self.SMOOTHING)
        self.rate = max(self._requests * self.REQUEST_BYTES * 1000 / self.ROUND_TRIP_MS, LEAST_RATE)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Only answers count."""


RIVALS: Final = {"cubic": Cubic, "gradient2": Gradient2}
