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

from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_share import TARGET
from kclient_quota.pacing.fetching.fetch_sizes import HEADER_BYTES
from kclient_quota.pacing.fetching.lumps import Lumps
from kclient_quota.pacing.fetching.share_window import UNSURE_MS, ShareWindow
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

ANSWER_BYTES: Final = 120
"""What an answer of one partition costs beside its batches."""
RECORD_BYTES: Final = 12
"""What a record costs beside its key and value, at most where it has no headers."""
LOOK_MS: Final = 1_000
"""How often is looked when the next batch fits."""
ANY_BROKER: Final = -1
"""Has the account of what came from nobody knows where."""
_UNEVEN: Final = 4
"""The batch for which an answer had no room may be so many times as large as those in it."""
_EQUAL: Final = 1e-6
_FADE: Final = 0.95
"""How fast the expected size shrinks when smaller batches come: one of them may be what was left of a larger one."""


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

    def __init__(self, limit: float | None, samples: int, window_ms: int, now_ms: int) -> None:
        self.window = ShareWindow(samples, window_ms)
        self.pace = BrokerPace(limit, self.window, now_ms)
        self.lumps = Lumps(samples, window_ms)
        self.paid = 0.0
        self.looked_until_ms = now_ms
        self.too_large = 0
        self.received_bytes = 0

    def wait_ms(self, asking: int, now_ms: int, *, alone: bool) -> int:
        """How long this broker must not be asked, with so many requests under way; whether it is the only one."""
        pace = self.pace
        paid, self.paid = self.paid, 0.0
        if pace.settle(paid, now_ms) == inf:
            return 0
        if alone and self.in_lumps:
            level_ms = self.lumps.wait_ms(self.byte_rate, pace.batch, now_ms)
        else:
            level_ms = 0 if pace.big_batches else pace.wait_ms()
        wait_ms = max(pace.throttled_until_ms - now_ms, level_ms)
        if wait_ms <= 0 and now_ms >= self.looked_until_ms:
            wait_ms = max(0, self._fits_at_ms(asking, now_ms) - now_ms)
            # looking costs more than waiting: once a second will do as long as nothing comes
            self.looked_until_ms = now_ms + min(wait_ms, LOOK_MS)
        # no longer than it was ever put off, if time has gone back
        return max(wait_ms, min(self.looked_until_ms - now_ms, LOOK_MS))

    @property
    def byte_rate(self) -> float:
        """What the window may hold, in bytes per second: all of the limit where nobody else is known to have a part."""
        share = self.pace.share
        is_whole = share.limit is not None and share.rate >= (TARGET - _EQUAL) * share.limit
        return share.ceiling if is_whole else min(share.rate, share.ceiling)

    @property
    def rate(self) -> float:
        """Bytes per second aimed at."""
        return self.byte_rate if self.in_lumps else self.pace.rate

    @property
    def in_lumps(self) -> bool:
        """Whether batches are so large that they are not taken evenly."""
        pace = self.pace
        return pace.share.limit is not None and self.lumps.are_for(self.byte_rate, pace.batch)

    def _fits_at_ms(self, asking: int, now_ms: int) -> int:
        """When all that may be under way and one batch more fit into the window."""
        pace = self.pace
        byte_rate = self.byte_rate
        if byte_rate == inf:
            return now_ms
        window = self.window
        most = byte_rate * window.least_window_ms / 1000.0
        return window.fits_at_ms(min(pace.batch, most) * (1 + asking), byte_rate, now_ms)

    def received(self, nbytes: int, asked_ms: int, now_ms: int, *, again: bool = False) -> int:
        """A batch has come, in an answer that was given at `asked_ms` at the earliest; what it is taken for.

        Records that come again may be few of their batch, all of which is sent with them.
        """
        pace = self.pace
        self.received_bytes += nbytes
        whole = max(nbytes, int(pace.batch)) if again else nbytes
        if nbytes > 0:
            pace.batch = max(float(nbytes), pace.batch * _FADE)
        self.window.answered(whole, asked_ms, now_ms)
        self.lumps.took(whole, self.byte_rate, pace.batch, now_ms)
        pace.share.on_free(now_ms)
        return whole

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """An answer was refused."""
        pace = self.pace
        limit = pace.share.limit
        window = self.window
        if limit is not None:
            # What others have of the quota is within it, so the rest of the throttle is the answer's own size.
            refused = limit * throttle_ms / 1000.0
            if throttle_ms > window.least_window_ms:
                self.too_large = int(refused)
            pace.batch = max(pace.batch, min(refused, limit * window.least_window_ms / 1000.0))
        pace.on_throttle(throttle_ms, now_ms)
        window.answered(0, now_ms - 2 * UNSURE_MS, now_ms)  # nobody tells when


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
            return {ANY_BROKER: ShareState(inf if self._limit is None else self._limit, 0, 0, 0)}
        return {
            broker: ShareState(
                account.rate,
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
        accounts = self._accounts.values()
        alone = len(accounts) == 1
        return max((account.wait_ms(self._asking, now_ms, alone=alone) for account in accounts), default=0)

    def asks(self) -> None:
        """A request is under way whose answer may bring a batch."""
        self._asking += 1

    def answered(self, nbytes: Mapping[int, int], asked_ms: int, now_ms: int, *, again: bool = False) -> None:
        """What `asks` told of has brought so much of each broker, nothing when it was given up.

        Args:
            nbytes: by broker.
            asked_ms: nothing had come yet.
            now_ms: now it has.
            again: whether some of its records were delivered before.
        """
        self._asking -= 1
        for account in self._accounts.values():
            account.looked_until_ms = now_ms
        taken = sum(
            self._account(broker, now_ms).received(received, asked_ms, now_ms, again=again)
            for broker, received in nbytes.items()
        )
        busy = [account for account in self._accounts.values() if account.pace.window.total(now_ms) > 0]
        for account in busy:
            account.paid += taken / len(busy)

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
            found = self._accounts[broker] = _Account(self._limit, *self._window, now_ms)
        return found


def wire_bytes(records: int, payload: int, fetch_bytes: int) -> int:
    """What records of `payload` bytes of keys, values and headers are on the wire, about; they came uncompressed.

    Nobody tells how many batches they were. But a broker adds batches to an answer until the next one would exceed
    `fetch.max.bytes`. So they are taken for as many as may have filled it, and where none can have, as at the log's
    end, for as many as there can be.

    Args:
        records: how many.
        payload: their bytes.
        fetch_bytes: `fetch.max.bytes`; a first batch that is larger comes whole.
    """
    if not records:
        return 0
    bare = payload + records * RECORD_BYTES
    most = max(1, min(records, (fetch_bytes - bare) // HEADER_BYTES))
    batches = 0
    if not _fills(bare, most, fetch_bytes):
        while batches < most and _fills(bare, batches + 1, fetch_bytes):
            batches += 1
    return bare + (batches or most) * HEADER_BYTES + ANSWER_BYTES


def _fills(bare: int, batches: int, fetch_bytes: int) -> bool:
    """Whether after so many batches there may have been no room for the next one."""
    return (bare + batches * HEADER_BYTES) * (batches + _UNEVEN) > fetch_bytes * batches
