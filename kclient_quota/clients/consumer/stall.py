"""A consumer that will never get anything: a batch larger than quota x window is answered empty for ever.

The broker says X for a batch of B bytes into an empty window of W: X = B / T - W. So B = T * (W + X), and any quota of
B / W or more would let it through.

Where others have V bytes in that window B is less by V, and V is T * W at most. So what comes to more than 2 * T * W
is a batch that can never come, whoever else there is. What comes to less may be others' bytes, so it is believed only
when nothing has come for about two windows, and for longer where others are known.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

OWN_PART: Final = 0.05
"""A window that holds no more than this part of what it may hold is as good as empty."""
ATTEMPTS: Final = 2
LEAST_MS: Final = 3_000
"""How long nothing must have come, however many attempts were refused."""
PATIENCE_MS: Final = 20_000
"""After how long without a message one refusal is enough, and what others' bytes might come to as well is believed."""
ENOUGH: Final = 1.05
"""So many times what was reckoned is named as the quota that lets a batch through: of two attempts it is a few parts in
a hundred off, and who follows too low a number stays where he is: of 120 kB in 10 s it was 11,973 B/s once."""
SHARED_MS: Final = 60_000
"""How long nothing must have come where consumers of this process share the quota: each has its turn by then."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing comes, and why.

    Attributes:
        batch_bytes: about how large the batch is that cannot come; None while the limit is not known.
        byte_rate: the quota that would let it through, bytes per second; None as above.
    """

    batch_bytes: int | None
    byte_rate: int | None

    def words(self, limit: float | None) -> str:
        """For logs and `quota_state()`."""
        if self.batch_bytes is None or limit is None:
            return "fetches are throttled though nothing was received: the next batch may be larger than quota x window"
        return (
            f"stalled: the next batch, of about {self.batch_bytes:,} bytes, can never be delivered under a quota of "
            f"{limit:,.0f} B/s; raise consumer_byte_rate to {self.byte_rate:,} B/s or more, or have producers make "
            "smaller batches (unless other clients share this quota and use it up)"
        )


class StallWatch:
    """Watches one broker's throttles for a stall."""

    def __init__(self) -> None:
        self.stall: Stall | None = None
        self._since_ms: int | None = None
        self._attempts = 0
        self._needed_ms = LEAST_MS
        self._sum = 0.0  # of what the batch came to at each attempt
        self._batch_bytes: int | None = None
        self._byte_rate: int | None = None

    def on_throttle(
        self,
        throttle_ms: int,
        *,
        limit: float | None,
        own_bytes: float,
        window_ms: int,
        least_window_ms: int,
        now_ms: int,
        is_shared: bool = False,
    ) -> None:
        """A fetch was throttled.

        Args:
            throttle_ms: for how long.
            limit: bytes per second, None while unknown.
            own_bytes: what we received inside the broker's window.
            window_ms: what that window stands for now.
            least_window_ms: the least that it ever stands for.
            now_ms: when.
            is_shared: whether other consumers of this process have a part of the limit.
        """
        if limit is not None and own_bytes * 1000.0 > OWN_PART * limit * window_ms:
            return
        if self._since_ms is None:
            self._since_ms, self._sum = now_ms, 0.0
        self._attempts += 1
        if limit is None:
            return
        # The broker's window may stand for a sample more or less than is known of it: on average it does not.
        self._sum += limit * (window_ms + throttle_ms) / 1000.0
        batch = self._sum / self._attempts
        self._batch_bytes = round(batch)
        self._byte_rate = ceil(ENOUGH * batch * 1000.0 / least_window_ms)
        self._needed_ms = LEAST_MS
        if batch * 1000.0 <= 2 * limit * window_ms:
            self._needed_ms = SHARED_MS if is_shared else PATIENCE_MS

    def on_messages(self) -> bool:
        """Messages came; whether that ended a stall."""
        ended = self.stall is not None
        self.stall = None
        self._since_ms = None
        self._attempts = 0
        return ended

    def check(self, now_ms: int) -> Stall | None:
        """The stall, when it has just become certain; None when there is none or it was told before."""
        if self._since_ms is None or self.stall is not None:
            return None
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms < self._needed_ms or (self._attempts < ATTEMPTS and elapsed_ms < PATIENCE_MS):
            return None
        self.stall = Stall(self._batch_bytes, self._byte_rate)
        return self.stall
