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

LUMPS: Final = 8
"""So many pass through the window. With nine the room is 50 ms on either side, which a busy machine needs for itself;
with seven a part of the window is empty."""
SPARE_MS: Final = 150
"""Eight lumps last so much longer than a sample is kept, for the answers of a lump and for polls that come late; and
the window is never expected to become longer than what a sample is kept but for this."""
ROOM_MS: Final = 60
"""How much longer the window is than it must be: a broker may look `fetch_window.SLACK_MS` earlier or later."""
LARGE: Final = 0.04
"""Batches that stand for more than this part of the shortest window are taken in lumps; others fill it evenly."""
SAVED_BATCHES: Final = 2
"""What was not used is made up for by so many batches at most."""
OPEN_MS: Final = 850
"""So long what a lump may have is taken: later it could open a sample of its own, just before the next lump's."""
BEHIND: Final = 1
"""Who has saved so many batches could not take them in time and takes them when it can."""
LATE_MS: Final = 100
"""A lump that is late by no more does not move those that follow."""
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

    def wait_ms(self, byte_rate: float, batch: float, now_ms: int) -> int:
        """How long nothing may be taken, by the level alone.

        Args:
            byte_rate: bytes per second aimed at.
            batch: bytes of one.
            now_ms: now.
        """
        if self._due_ms is None or now_ms < self._at_ms - CLOCK_JUMP_MS:
            return 0
        if now_ms < self._due_ms:
            is_open = now_ms - self._at_ms < OPEN_MS
            return 0 if self._level >= (0.0 if is_open else BEHIND * batch) else self._due_ms - now_ms
        level = self._saved(byte_rate, batch, now_ms)
        return 0 if level >= 0.0 else ceil(-level * 1000.0 / byte_rate)

    def took(self, nbytes: float, byte_rate: float, batch: float, now_ms: int) -> None:
        """So much has come; it begins a lump where the former one is over."""
        due_ms = self._due_ms
        if due_ms is None or now_ms < self._at_ms - CLOCK_JUMP_MS:
            self._level = 0.0
            self._begin(now_ms, now_ms + self.every_ms(byte_rate, batch))
        elif now_ms >= due_ms:
            self._level = self._saved(byte_rate, batch, now_ms)
            # what is a little late must not make all that follow later, nor the next one early
            base_ms = due_ms if now_ms - due_ms <= LATE_MS else now_ms
            self._begin(now_ms, base_ms + self.every_ms(byte_rate, batch))
        self._level -= nbytes

    def _begin(self, now_ms: int, due_ms: int) -> None:
        self._at_ms = now_ms
        self._due_ms = due_ms

    def are_for(self, byte_rate: float, batch: float) -> bool:
        """Whether batches of so many bytes are to be taken so, and lumps are samples of their own."""
        least_ms = self._kept_ms - self._window_ms
        return self._kept_ms > LUMPS * self._window_ms and batch * 1000.0 >= LARGE * least_ms * byte_rate

    def every_ms(self, byte_rate: float, batch: float) -> int:
        """From one lump to the next: so long that the window takes as many batches as it ever does."""
        batch_ms = batch * 1000.0 / byte_rate
        most = (self._kept_ms - SPARE_MS) // max(1.0, batch_ms)
        needed_ms = most * batch_ms - self._window_ms + ROOM_MS
        return ceil(max((self._kept_ms + SPARE_MS) / LUMPS, needed_ms / (LUMPS - 1)))

    def _saved(self, byte_rate: float, batch: float, now_ms: int) -> float:
        """The level when a lump that begins now is looked at."""
        most = max(SAVED_BATCHES * batch, byte_rate * self.every_ms(byte_rate, batch) / 1000.0)
        return min(self._level + byte_rate * (now_ms - self._at_ms) / 1000.0, most)
