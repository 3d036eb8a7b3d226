"""When a share consumer takes what its level lets it have, where batches are large beside the quota.

A sample of Kafka's window begins with the first record after the former one was full, is kept until 11 s after its last
one, and the window is as long as its oldest sample is old: 10.0 to 11.0 s while that is less than 10, beginning again
at 10.0 with each whole second. Batches of three quarters of a second's worth, taken evenly, open a sample every second
batch; the window is then just longer than 10 s when the next ones come, and holds 13 of the 14 it could.

In lumps, each a sample of its own, of which eight pass through the window, the oldest is seven lumps old when the next
one comes: 9.8 to 9.9 s, so that the window is 10.8 to 10.9 s long. Eight of them last a little longer than a sample is
kept, and seven of them less than ten seconds, with room on both sides for a poll that comes late.

Nothing here reads a clock.
"""

from math import ceil
from typing import Final

from kclient_quota.pacing.fetch_window import SLACK_MS
from kclient_quota.pacing.fetching.share_window import STALL_MS

LUMPS: Final = 8
"""So many pass through the window. With nine the room is 50 ms on either side, which a busy machine needs for itself;
with seven a part of the window is empty. They last STALL_MS longer than a sample is kept, for polls that come late, and
an application that asks less often than that is slow: it cannot take lumps when they are due."""
SAVED_BATCHES: Final = 2
"""What was not used is made up for by so many batches at most."""
CLOCK_JUMP_MS: Final = 1_000
"""Time that goes back further than this is another time."""


class Lumps:
    """A level of bytes that is looked at once a lump.

    Args:
        samples: `quota.window.num` of the broker.
        window_ms: `quota.window.size.seconds` of the broker, in milliseconds.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._kept_ms = samples * window_ms
        self._window_ms = window_ms
        self._level = 0.0
        self._at_ms = 0
        self._due_ms: int | None = None
        self._heard_ms = 0
        self._slow_until_ms = 0

    def wait_ms(self, byte_rate: float, batch: float, now_ms: int) -> int:
        """How long nothing may be taken, by the level alone."""
        if self._due_ms is None or now_ms < self._at_ms - CLOCK_JUMP_MS:
            return 0
        self._heard(now_ms)
        if now_ms < self._due_ms:
            return 0 if self._is_more(batch, now_ms) else self._due_ms - now_ms
        level = self._saved(byte_rate, batch, now_ms)
        return 0 if level >= 0.0 else ceil(-level * 1000.0 / byte_rate)

    def took(self, nbytes: float, byte_rate: float, batch: float, now_ms: int) -> None:
        """So much has come; it begins a lump where the former one is over."""
        due_ms = self._due_ms
        if due_ms is None or now_ms < self._at_ms - CLOCK_JUMP_MS:
            self._level = SAVED_BATCHES * batch  # the window is empty
            self._begin(now_ms, now_ms + self.every_ms(byte_rate, batch))
        elif now_ms >= due_ms:
            self._level = self._saved(byte_rate, batch, now_ms)
            # what is a little late must not make all that follow later, nor the next one early
            base_ms = due_ms if now_ms - due_ms <= STALL_MS else now_ms
            self._begin(now_ms, base_ms + self.every_ms(byte_rate, batch))
        self._level -= nbytes
        self._heard_ms = now_ms

    def _heard(self, now_ms: int) -> None:
        if now_ms - self._heard_ms > STALL_MS:
            self._slow_until_ms = now_ms + self._kept_ms
        self._heard_ms = now_ms

    def _is_more(self, batch: float, now_ms: int) -> bool:
        """Whether more may be taken before the next lump is due.

        What a lump may have is taken while the sample that it began is open for sure. What comes later would stay in
        the window beyond the next lumps, and eight of them would not fill it for good. One that is slow may take at any
        time what it has saved a batch for.
        """
        if now_ms - self._at_ms < self._window_ms - STALL_MS:
            return self._level >= 0.0
        return now_ms < self._slow_until_ms and self._level >= batch

    def _begin(self, now_ms: int, due_ms: int) -> None:
        self._at_ms = now_ms
        self._due_ms = due_ms

    def are_for(self, byte_rate: float, batch: float) -> bool:
        """Whether lumps are samples of their own and fill the window better than batches of so many bytes, evenly.

        Where a lump holds more batches than the window holds lumps, batches fill it as well that come evenly.
        """
        batch_ms = batch * 1000.0 / byte_rate
        least_ms = self._kept_ms - self._window_ms
        most = self._most(batch_ms)
        if self._kept_ms <= LUMPS * self._window_ms or most > LUMPS * LUMPS:
            return False
        in_lumps_ms = most * batch_ms
        return in_lumps_ms / (self._kept_ms + STALL_MS) >= least_ms / (least_ms + batch_ms)

    def every_ms(self, byte_rate: float, batch: float) -> int:
        """From one lump to the next: so long that the window takes as many batches as it ever does."""
        batch_ms = batch * 1000.0 / byte_rate
        # longer than the window must be: a broker may look that much earlier or later
        needed_ms = self._most(batch_ms) * batch_ms - self._window_ms + 2 * SLACK_MS
        return ceil(max((self._kept_ms + STALL_MS) / LUMPS, needed_ms / (LUMPS - 1)))

    def _most(self, batch_ms: float) -> float:
        """Batches that the window takes when it is longest, with room on both sides."""
        return (self._kept_ms - STALL_MS - 2 * SLACK_MS) // max(1.0, batch_ms)

    def _saved(self, byte_rate: float, batch: float, now_ms: int) -> float:
        """The level when a lump that begins now is looked at."""
        most = max(SAVED_BATCHES * batch, byte_rate * self.every_ms(byte_rate, batch) / 1000.0)
        return min(self._level + byte_rate * (now_ms - self._at_ms) / 1000.0, most)
