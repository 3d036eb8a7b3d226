"""When a share consumer (KIP-932) may ask for records.

A broker acquires records for a share consumer, which raises their delivery count, before it finds that the answer is
over the quota and sends it empty. Records that are refused so five times are archived: nobody ever sees them. So a
share consumer must not ask before the broker's window takes the answer. What the answer will be is known about from
the ones before: with a small `fetch.max.bytes` each brings one batch of the producers', whole.

One account for all brokers: which of them an answer came from is not told, and the window of the one that is asked next
must take it whichever it is.

Nothing here reads a clock or calls librdkafka.
"""

from math import inf
from typing import Final

from kclient_quota.pacing.fetch_broker import BrokerPace
from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

BATCH_BYTES: Final = 80
"""What a batch and its answer cost beside the records: 61 bytes of header, and some of the response's own."""
RECORD_BYTES: Final = 12
"""What a record costs beside its key and value, at most where it has no headers."""
LOOK_MS: Final = 1_000
"""How often is looked when the next batch fits."""
_LIKE: Final = 0.5
"""A batch of less than this part of the expected one is a rest, not the size of the next."""
_FADE: Final = 0.95
"""How fast the expected size shrinks when smaller batches come."""


class SharePacer:
    """Paces all share consumers of a process that a broker counts together. Has no lock: its owner does.

    Args:
        limit: bytes per second and broker; None where it is not known.
        now_ms: when it begins.
        samples: `quota.window.num` of the brokers.
        window_ms: `quota.window.size.seconds` of the brokers, in milliseconds.

    Attributes:
        too_large: bytes of a batch that no window takes; 0 while none is known.
        received_bytes: wire bytes that have come, about.
    """

    def __init__(
        self, limit: float | None, now_ms: int, *, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS
    ) -> None:
        self._pace = BrokerPace(limit, FetchWindow(samples, window_ms), now_ms)
        self._paid = 0.0
        self._asking = 0
        self._looked_until_ms = now_ms
        self.too_large = 0
        self.received_bytes = 0

    @property
    def rate(self) -> float:
        """Bytes per second aimed at now; infinite where nothing is known to limit them."""
        return self._pace.rate

    @property
    def throttled_until_ms(self) -> int:
        """When the latest throttle ends."""
        return self._pace.throttled_until_ms

    def wait_ms(self, now_ms: int) -> int | None:
        """How long not to ask; 0 to ask now, None until the limit changes: the next batch fits no window."""
        if self.too_large:
            return None
        pace = self._pace
        paid, self._paid = self._paid, 0.0
        if pace.settle(paid, now_ms) == inf:
            return 0
        wait_ms = max(pace.throttled_until_ms - now_ms, 0 if pace.big_batches else pace.wait_ms())
        if wait_ms <= 0 and now_ms >= self._looked_until_ms:
            wait_ms = max(0, self._fits_at_ms(now_ms) - now_ms)
            # looking costs more than waiting: once a second will do as long as nothing comes
            self._looked_until_ms = now_ms + min(wait_ms, LOOK_MS)
        return max(wait_ms, self._looked_until_ms - now_ms)

    def _fits_at_ms(self, now_ms: int) -> int:
        """When all that may be under way and one batch more fit into the window."""
        pace = self._pace
        byte_rate = min(pace.share.rate, pace.share.ceiling)
        if byte_rate == inf:
            return now_ms
        window = pace.window
        most = byte_rate * window.least_window_ms / 1000.0
        return window.fits_at_ms(min(pace.batch, most) * (1 + self._asking), byte_rate, now_ms)

    def asks(self) -> None:
        """A request is under way whose answer may bring a batch."""
        self._asking += 1

    def answered(self, nbytes: int, now_ms: int) -> None:
        """What `asks` told of has brought `nbytes`, 0 when it was given up."""
        self._asking -= 1
        self._looked_until_ms = now_ms
        if nbytes <= 0:
            return
        pace = self._pace
        self.received_bytes += nbytes
        self._paid += nbytes
        if nbytes >= _LIKE * pace.batch:
            pace.batch = max(float(nbytes), pace.batch * _FADE)
        pace.window.received(nbytes, now_ms)
        pace.share.on_free(now_ms)

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """An answer was refused for `throttle_ms`."""
        if throttle_ms <= 0:
            return
        pace = self._pace
        limit = pace.share.limit
        window = pace.window
        if limit is not None:
            # What others have of the quota is within it, so the rest of the throttle is the answer's own size.
            refused = limit * throttle_ms / 1000.0
            if throttle_ms > window.least_window_ms:
                self.too_large = int(refused)
            pace.batch = max(pace.batch, min(refused, limit * window.least_window_ms / 1000.0))
        pace.on_throttle(throttle_ms, now_ms)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on."""
        self._pace.share.set_limit(limit)
        self._looked_until_ms = 0
        self.too_large = 0


def wire_bytes(records: int, payload: int) -> int:
    """What records of `payload` bytes of keys and values are on the wire, about; they came uncompressed."""
    return payload + records * RECORD_BYTES + BATCH_BYTES if records else 0
