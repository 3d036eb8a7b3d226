"""A broker's quota window as a share consumer can know it: between when it asked and when the answer had come.

Whoever asks too early has records acquired and refused, so that all that is not known is taken for the worst. A broker
records an answer at some time between the request and its arrival. That decides which sample of the window it falls
into and when it leaves. So the window is kept twice, as if every answer had been recorded at once and as if at the last
moment, and both must take what is asked for next, whenever the broker looks at it. Where the sample that is open may be
full or not, nothing is asked for: the broker's samples could be others than ours.

An answer of which only a long stretch of time is known may have been preceded by empty ones, which open samples too.
For as long as that matters the window is taken for as short, and its samples for as long-lived, as they can be.
"""

from collections import deque
from typing import Final

from kclient_quota.pacing.fetch_window import SLACK_MS, STEP_MS, FetchWindow
from kclient_quota.quota.rate import SampledRate

STALL_MS: Final = 150
"""A request may always be so late, even if none was before: a busy machine does not let a process go on at once."""
UNSURE_MS: Final = 2 * STALL_MS
"""Of an answer that came within so long no time is unknown that matters: librdkafka's brokers wait 500 ms for data."""


class ShareWindow(FetchWindow):
    """Bytes received from one broker by a share consumer, in Kafka's own sampled window."""

    def forget(self) -> None:
        """Be empty, as at first."""
        super().forget()
        self._early = SampledRate(self.samples, self.window_ms)
        self._answers: deque[tuple[int, int, float]] = deque()
        self._unsure_until_ms: int | None = None

    def answered(self, nbytes: float, asked_ms: int, now_ms: int) -> None:
        """`nbytes` have come, or were refused (0), in an answer that was given between `asked_ms` and `now_ms`."""
        if self._answers:
            last_asked_ms, last_ms, _ = self._answers[-1]
            asked_ms, now_ms = max(asked_ms, last_asked_ms), max(now_ms, last_ms)
        asked_ms = min(asked_ms, now_ms)
        self.received(nbytes, now_ms)
        self._early.record(nbytes, asked_ms)
        self._answers.append((asked_ms, now_ms, nbytes))
        if now_ms - asked_ms > UNSURE_MS:
            self._unsure_until_ms = now_ms + self.longest_ms
        oldest_ms = now_ms - self.longest_ms - self.window_ms
        while self._answers[0][1] < oldest_ms:
            self._answers.popleft()

    def fits_at_ms(self, nbytes: float, byte_rate: float, now_ms: int) -> int:
        """The earliest time at which `nbytes` more may be asked for without exceeding `byte_rate` bytes per second."""
        if self._unsure_until_ms is not None and now_ms < self._unsure_until_ms:
            return self._surely_fits_at_ms(nbytes, byte_rate, now_ms)
        delays_ms = (came_ms - asked_ms for asked_ms, came_ms, _ in self._answers)
        ahead_ms = max(STALL_MS, SLACK_MS + max((late for late in delays_ms if late <= UNSURE_MS), default=0))
        last_ms = now_ms + self.longest_ms
        sample: bool | None = None
        good_from_ms = now_ms
        # the broker may look at it that much earlier or later than we ask, by its clock and by ours
        for at_ms in range(now_ms - SLACK_MS, last_ms + ahead_ms, STEP_MS):
            before, sample = sample, self._sample_at(nbytes, byte_rate, at_ms)
            if sample is None or sample != before:
                good_from_ms = at_ms
            elif at_ms >= good_from_ms + SLACK_MS + ahead_ms:
                return good_from_ms + SLACK_MS
        return last_ms

    def _sample_at(self, nbytes: float, byte_rate: float, at_ms: int) -> bool | None:
        """Whether it opens a sample if the broker looks at `at_ms`; None where that is unknown, or it is refused."""
        late, early = self._mirror(), self._early
        late_ms, early_ms = late.opened_ms, early.opened_ms
        opens = late_ms is None or at_ms - late_ms >= self.window_ms
        if opens != (early_ms is None or at_ms - early_ms >= self.window_ms):
            return None
        for mirror in (late, early):
            total, window_ms = mirror.project(at_ms)
            if (total + nbytes) * 1000.0 > byte_rate * window_ms:
                return None
        return opens

    def _surely_fits_at_ms(self, nbytes: float, byte_rate: float, now_ms: int) -> int:
        """The same for the shortest window there is and all that may still be in it."""
        room = byte_rate * self.least_window_ms / 1000.0 - nbytes
        kept_ms = self.longest_ms + SLACK_MS
        held = sum(received for _, came_ms, received in self._answers if came_ms + kept_ms > now_ms)
        at_ms = now_ms
        for _, came_ms, received in self._answers:
            if held <= room:
                break
            if came_ms + kept_ms > now_ms:
                held -= received
                at_ms = came_ms + kept_ms
        return at_ms if held <= room else now_ms + self.longest_ms
