"""Admission: how many bytes may go to librdkafka now, and how long the next message must wait. No clock, no lock.

What librdkafka has accepted it will send, so a message is handed over only when its broker may take it. Messages are
admitted in grants of about a tenth of a second, which leave as one request: asking the pacer for each message would
cost more than producing it, and one request per message costs 12 % of a quota in framing.
"""

from math import inf
from typing import Final, Protocol

from kclient_quota.clients.quota_state import BrokerQuotaState

RECORD_BYTES: Final = 12
"""What a record of format 2 adds to its key and value, about."""
REQUEST_BYTES: Final = 150
"""What a produce request and its batch header add to its records, about."""
LEAST_MESSAGES: Final = 5
"""Messages in a grant, where waiting for so many takes less than LONGEST_GROUP_MS: framing then takes 3 %."""
LONGEST_GROUP_MS: Final = 400
NEVER_MS: Final = -(2**62)
AWAY_MS: Final = 2_000
"""After how long without a delivery a broker that throttles nobody counts as away."""
SOON_MS: Final = 10
"""When to look again for deliveries, where nothing better is known."""

_FORGET: Final = 0.9
_LEAST_RATIO, _MOST_RATIO = 0.01, 3.0


class Pace(Protocol):
    """What admission needs of `kclient_quota.pacing.pacer.Pacer`."""

    def admit_at_ms(self, nbytes: int, now_ms: int) -> int:
        """When `nbytes` may go."""
        ...

    def rate(self) -> float:
        """Bytes per second aimed at, infinite while unknown."""
        ...

    def on_sent(self, nbytes: int, now_ms: int) -> None:
        """`nbytes` go now."""
        ...

    def on_success(self, nbytes: int, now_ms: int) -> None:
        """`nbytes` have arrived, and any throttle that came with the answer has been told."""
        ...

    def on_throttle(self, throttle_time_ms: int, now_ms: int) -> None:
        """The broker throttles."""
        ...

    def set_limit(self, limit: float | None, now_ms: int) -> None:
        """Follow `limit`."""
        ...

    @property
    def throttled_until_ms(self) -> int:
        """Until when the broker throttles."""
        ...

    @property
    def request_bytes(self) -> int:
        """A good request's size."""
        ...

    @property
    def outstanding_bytes(self) -> float:
        """How many bytes may be on their way."""
        ...


class Gate:
    """What one broker may take. Bytes are those of keys, values and headers plus RECORD_BYTES per message.

    Args:
        pace: the pacer.
        limit: the quota in bytes per second; None while unknown.
        linger_ms: for how long librdkafka holds messages back to fill a batch.

    Attributes:
        left: bytes granted and not yet used; `produce()` subtracts from it.
        waiting: calls of `produce()` that wait here now.
        stands_back: whether librdkafka waits out throttles itself, and only what is on its way is bounded here.
        waits_for_deliveries: whether the last answer was to wait for what is on its way, not for the quota.
    """

    __slots__ = (
        "_grant",
        "_granted",
        "_granted_at_ms",
        "_held_at_ms",
        "_held_ms",
        "_limit",
        "_linger_ms",
        "_pace",
        "_progress_at_ms",
        "_raw",
        "_request",
        "_seen",
        "_settled",
        "_started",
        "_wire",
        "left",
        "stands_back",
        "waiting",
        "waits_for_deliveries",
    )

    def __init__(self, pace: Pace, limit: float | None = None, linger_ms: int = 0) -> None:
        self._pace = pace
        self._linger_ms = linger_ms
        self._progress_at_ms = NEVER_MS
        self._limit = limit
        self._held_ms = 0
        self._held_at_ms = 0
        self._request = 0
        self._grant = 0
        self._granted_at_ms = NEVER_MS
        self.left = 0
        self.stands_back = False
        self.waiting = 0
        self.waits_for_deliveries = False
        self._granted = 0
        self._settled = 0
        self._started = False
        self._seen = 0
        self._raw = 0.0
        self._wire = 0.0

    def admit(self, cost: int, now_ms: int) -> int:
        """Make room for a message.

        Args:
            cost: its bytes.
            now_ms: now.

        Returns:
            0 when `left` covers it now, else after how many milliseconds it is expected to.
        """
        wait_ms = self.wait_ms(cost, now_ms)
        if not wait_ms and self.left < cost:
            self._take(now_ms)
        return wait_ms

    def wait_ms(self, cost: int, now_ms: int) -> int:
        """What `admit` would return, without granting anything."""
        if self.left >= cost:
            return 0
        self.waits_for_deliveries = False
        pace = self._pace
        ratio = self._ratio(cost)
        wait_ms = self._held_for_ms(now_ms)
        if not self._granted:
            # A client's very first message waits for nothing but a throttle that is known of.
            self._grant = cost
            return 0 if self.stands_back else self.throttled_for_ms(now_ms)
        self._grant = self._group(cost, ratio)
        wait_ms = max(wait_ms, pace.admit_at_ms(int(self._grant * ratio) + 1, now_ms) - now_ms)
        if 0 < wait_ms <= LONGEST_GROUP_MS < now_ms - self._granted_at_ms:
            # Who was idle does not wait for a group.
            self._grant = cost
            wait_ms = max(self._held_for_ms(now_ms), pace.admit_at_ms(int(cost * ratio) + 1, now_ms) - now_ms)
        if wait_ms > 0 and not self.stands_back:
            return wait_ms
        outstanding = self.outstanding
        # Until the first delivery nothing is known of how long this broker takes; what piles up before it arrives at
        # once and would be throttled ten seconds later.
        if outstanding > 0 and (not self._settled or (outstanding + self._grant) * ratio > self._most_outstanding()):
            return self._wait_for_deliveries(now_ms, ratio)
        return 0

    def _most_outstanding(self) -> float:
        """Bytes on the wire that may be on their way; what lingers in librdkafka comes on top."""
        pace = self._pace
        rate = pace.rate()
        return pace.outstanding_bytes + (0.0 if rate == inf else rate * self._linger_ms / 1000)

    def _wait_for_deliveries(self, now_ms: int, ratio: float) -> int:
        self.waits_for_deliveries = True
        rate = self._pace.rate()
        if rate == inf:
            # No limit is known and nothing is throttled: when nothing arrives either, the broker is away, and
            # librdkafka's own queue is the place to wait.
            return 0 if now_ms - self._progress_at_ms >= AWAY_MS else SOON_MS
        # Waiting for deliveries is not idleness, which would earn a burst.
        self._pace.on_sent(0, now_ms)
        return max(1, min(SOON_MS, int(self._grant * ratio * 1000 / rate)))

    def _take(self, now_ms: int) -> None:
        """Grant what `wait_ms` has found to be free."""
        pace = self._pace
        before, wire = self._request, int(self._grant * self._ratio(self._grant)) + 1
        self._request = wire
        if self._granted and not self._started:
            # The broker counts from the first request that arrives, the pacer from the first that is admitted; what it
            # has saved up since, and that ten seconds see one request more than intervals, is paid for here, once.
            self._started = True
            usual = min(wire, max(before, pace.request_bytes))
            wire += pace.request_bytes // 2 + 2 * usual if pace.rate() < inf else 0
        pace.on_sent(wire, now_ms)
        if not self.outstanding:
            self._progress_at_ms = now_ms
        self._granted += self._grant
        self._granted_at_ms = now_ms
        self.left += self._grant

    def grant_no_more(self) -> None:
        """Take back what is left of a grant; the pacer counts it all the same."""
        self._granted -= self.left
        self.left = 0

    @property
    def next_grant(self) -> int:
        """Bytes that will be granted at once, as `wait_ms` has reckoned last."""
        return self._grant

    @property
    def handed(self) -> int:
        """Bytes handed to librdkafka so far."""
        return self._granted - self.left

    @property
    def outstanding(self) -> int:
        """Bytes handed over whose delivery is not known yet."""
        return max(0, self.handed - self._settled)

    def settle(self, handed: int, now_ms: int) -> None:
        """Everything up to `handed` bytes has been delivered or given up."""
        delivered = handed - self._settled
        if delivered > 0:
            self._settled = handed
            self._progress_at_ms = now_ms
            self._pace.on_success(int(delivered * self._ratio(delivered)), now_ms)

    def on_wire(self, nbytes: int) -> None:
        """Librdkafka has sent `nbytes` to this broker since the last call: learn framing and compression."""
        handed = self.handed
        raw, self._seen = handed - self._seen, handed
        if raw > 0:
            self._raw = self._raw * _FORGET + raw
            self._wire = self._wire * _FORGET + nbytes

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """The broker has answered with this throttle time."""
        if self._limit is not None and throttle_ms * self._limit <= self._request * 1000:
            # Less than a request's worth is the grain of the broker's window, no sign of strangers: wait, no more.
            self._held_ms = max(throttle_ms, self._held_for_ms(now_ms))
            self._held_at_ms = now_ms
        else:
            self._pace.on_throttle(throttle_ms, now_ms)

    def set_limit(self, limit: float | None, now_ms: int) -> None:
        """Follow another limit, in bytes per second."""
        self._limit = limit
        self._pace.set_limit(limit, now_ms)

    def throttled_for_ms(self, now_ms: int) -> int:
        """How much of the broker's last throttle is left."""
        return max(0, self._held_for_ms(now_ms), self._pace.throttled_until_ms - now_ms)

    def _held_for_ms(self, now_ms: int) -> int:
        """How much of a short throttle is left; all of it, at most, whatever the clock does."""
        return min(self._held_ms, self._held_ms - (now_ms - self._held_at_ms))

    def state(self, limit: float | None, source: str, now_ms: int) -> BrokerQuotaState:
        """What is known, for `quota_state()`."""
        return BrokerQuotaState(
            limit=limit,
            source=source,
            rate=self._pace.rate(),
            throttled_until_ms=self.throttled_for_ms(now_ms),
            admitted=self._granted,
            outstanding=self.outstanding,
            waiting=self.waiting,
        )

    def _ratio(self, cost: int) -> float:
        """Bytes on the wire for each of ours."""
        if not self._raw:
            # Weighs a few grants, so that what is measured soon prevails.
            group = max(LEAST_MESSAGES * cost, min(self._pace.request_bytes, 10_000))
            self._raw, self._wire = 4.0 * group, 4.0 * (group + REQUEST_BYTES)
        return min(max(self._wire / self._raw, _LEAST_RATIO), _MOST_RATIO)

    def _group(self, cost: int, ratio: float) -> int:
        """How many bytes to grant at once, at least a message of `cost`."""
        pace = self._pace
        group = LEAST_MESSAGES
        if pace.rate() < cost * ratio * group * 1000 / LONGEST_GROUP_MS:
            group = int(pace.rate() * LONGEST_GROUP_MS / 1000 / (cost * ratio))
        wanted = max(pace.request_bytes / ratio, group * cost)
        return max(cost, int(min(wanted, pace.outstanding_bytes / 2 / ratio)))
