"""When a share consumer (KIP-932) may ask for records.

A broker acquires records for a share consumer, which raises their delivery count, before it finds that the answer is
over the quota and sends it empty. Records that are refused so five times are archived: nobody ever sees them. So a
share consumer must not ask before the broker's window takes the answer. What the answer will be is known about from
the ones before: with a small `fetch.max.bytes` each brings one batch of the producers', whole.

Quotas are each broker's own, so each has an account with a window of its own. Which of them will be asked next is not
told beforehand: librdkafka takes the leaders in turn, and the next one by itself when one had nothing. So the windows
of all must take the next batch, while the pace, which keeps batches even, is that of all brokers together.

Nothing here reads a clock or calls librdkafka.
"""

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from kclient_quota.pacing.fetch_broker import BrokerPace
from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

BATCH_BYTES: Final = 80
"""What a batch and its answer cost beside the records: 61 bytes of header, and some of the response's own."""
RECORD_BYTES: Final = 12
"""What a record costs beside its key and value, at most where it has no headers."""
LOOK_MS: Final = 1_000
"""How often is looked when the next batch fits."""
ANY_BROKER: Final = -1
"""Has the account of what came from nobody knows where."""
_LIKE: Final = 0.5
"""A batch of less than this part of the expected one is a rest, not the size of the next."""
_FADE: Final = 0.95
"""How fast the expected size shrinks when smaller batches come."""


class ShareState(NamedTuple):
    """What is known of one broker.

    Attributes:
        rate: bytes per second aimed at now; infinite where nothing is known to limit them.
        throttled_ms: how long its latest throttle lasts yet.
        received_bytes: wire bytes that have come of it, about.
        too_large: bytes of a batch that its window never takes; 0 while none is known.
    """

    rate: float
    throttled_ms: int
    received_bytes: int
    too_large: int


class _Account:
    """One broker's pace, and what was received from it."""

    def __init__(self, pace: BrokerPace, now_ms: int) -> None:
        self.pace = pace
        self.paid = 0.0
        self.looked_until_ms = now_ms
        self.too_large = 0
        self.received_bytes = 0

    def wait_ms(self, asking: int, now_ms: int) -> int:
        """How long this broker must not be asked, with `asking` requests under way."""
        pace = self.pace
        paid, self.paid = self.paid, 0.0
        if pace.settle(paid, now_ms) == inf:
            return 0
        wait_ms = max(pace.throttled_until_ms - now_ms, 0 if pace.big_batches else pace.wait_ms())
        if wait_ms <= 0 and now_ms >= self.looked_until_ms:
            wait_ms = max(0, self._fits_at_ms(asking, now_ms) - now_ms)
            # looking costs more than waiting: once a second will do as long as nothing comes
            self.looked_until_ms = now_ms + min(wait_ms, LOOK_MS)
        return max(wait_ms, self.looked_until_ms - now_ms)

    def _fits_at_ms(self, asking: int, now_ms: int) -> int:
        """When all that may be under way and one batch more fit into the window."""
        pace = self.pace
        byte_rate = min(pace.share.rate, pace.share.ceiling)
        if byte_rate == inf:
            return now_ms
        window = pace.window
        most = byte_rate * window.least_window_ms / 1000.0
        return window.fits_at_ms(min(pace.batch, most) * (1 + asking), byte_rate, now_ms)

    def received(self, nbytes: int, now_ms: int) -> None:
        """A batch has come."""
        pace = self.pace
        self.received_bytes += nbytes
        if nbytes >= _LIKE * pace.batch:
            pace.batch = max(float(nbytes), pace.batch * _FADE)
        pace.window.received(nbytes, now_ms)
        pace.share.on_free(now_ms)

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """An answer was refused."""
        pace = self.pace
        limit = pace.share.limit
        window = pace.window
        if limit is not None:
            # What others have of the quota is within it, so the rest of the throttle is the answer's own size.
            refused = limit * throttle_ms / 1000.0
            if throttle_ms > window.least_window_ms:
                self.too_large = int(refused)
            pace.batch = max(pace.batch, min(refused, limit * window.least_window_ms / 1000.0))
        pace.on_throttle(throttle_ms, now_ms)


class SharePacer:
    """Paces all share consumers of a process that a broker counts together. Has no lock: its owner does.

    Args:
        limit: bytes per second and broker; None where it is not known.
        samples: `quota.window.num` of the brokers.
        window_ms: `quota.window.size.seconds` of the brokers, in milliseconds.
    """

    def __init__(self, limit: float | None, *, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS) -> None:
        self._limit = limit
        self._window = samples, window_ms
        self._accounts: dict[int, _Account] = {}
        self._asking = 0

    @property
    def too_large(self) -> int:
        """Bytes of a batch that no window takes; 0 while none is known."""
        return max((account.too_large for account in self._accounts.values()), default=0)

    def states(self, now_ms: int) -> dict[int, ShareState]:
        """What is known of each broker that anything was heard of; of ANY_BROKER before that."""
        if not self._accounts:
            return {ANY_BROKER: ShareState(BrokerPace(self._limit, FetchWindow(*self._window), now_ms).rate, 0, 0, 0)}
        return {
            broker: ShareState(
                account.pace.rate,
                max(0, account.pace.throttled_until_ms - now_ms),
                account.received_bytes,
                account.too_large,
            )
            for broker, account in self._accounts.items()
        }

    def wait_ms(self, now_ms: int) -> int | None:
        """How long not to ask; 0 to ask now, None until the limit changes: the next batch fits no window."""
        if self.too_large:
            return None
        return max((account.wait_ms(self._asking, now_ms) for account in self._accounts.values()), default=0)

    def asks(self) -> None:
        """A request is under way whose answer may bring a batch."""
        self._asking += 1

    def answered(self, nbytes: Mapping[int, int], now_ms: int) -> None:
        """What `asks` told of has brought so much of each broker, nothing when it was given up."""
        self._asking -= 1
        for account in self._accounts.values():
            account.looked_until_ms = now_ms
        for broker, received in nbytes.items():
            self._account(broker, now_ms).received(received, now_ms)
        busy = [account for account in self._accounts.values() if account.pace.window.total(now_ms) > 0]
        for account in busy:
            account.paid += sum(nbytes.values()) / len(busy)

    def on_throttle(self, broker: int, throttle_ms: int, now_ms: int) -> None:
        """An answer was refused for `throttle_ms`."""
        if throttle_ms > 0:
            known = broker if broker in self._accounts or ANY_BROKER not in self._accounts else ANY_BROKER
            self._account(known, now_ms).on_throttle(throttle_ms, now_ms)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on."""
        self._limit = limit
        for account in self._accounts.values():
            account.pace.share.set_limit(limit)
            account.looked_until_ms = account.too_large = 0

    def _account(self, broker: int, now_ms: int) -> _Account:
        found = self._accounts.get(broker)
        if found is None:
            pace = BrokerPace(self._limit, FetchWindow(*self._window), now_ms)
            found = self._accounts[broker] = _Account(pace, now_ms)
        return found


def wire_bytes(records: int, payload: int) -> int:
    """What records of `payload` bytes of keys and values are on the wire, about; they came uncompressed."""
    return payload + records * RECORD_BYTES + BATCH_BYTES if records else 0
