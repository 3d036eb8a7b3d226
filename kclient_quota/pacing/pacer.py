"""The client's pacing law: when may these bytes go to this broker, so that it need not throttle us.

A broker's quota is a sampled window of 10 to 12 s (`SampledRate`). Bytes leave evenly at our share of the limit T, in
lumps of L seconds' worth: whatever the phase of the broker's window, it holds at most one lump more than there are
intervals between lumps in it, which leaves T (1 - L / 11) for all of them. Whoever has sent less than that may make up
for some of it at once and pays it back over the life of the window, as `room` derives it.
"""

from math import ceil, inf
from typing import Final

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.known_share import REQUEST_MS, KnownShare
from kclient_quota.pacing.known_share import TARGET as SHARED_TARGET
from kclient_quota.pacing.learnt_share import LearntShare
from kclient_quota.pacing.room import sustainable_rate
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledRate
from kclient_quota.quota.throttle import UNLIMITED

TARGET: Final = 1.0 - (1.0 - SHARED_TARGET) / 4
"""Part of the limit that is aimed at by whoever has it alone: a quarter of what pays for jitter among others, as
much as a throttle that came of jitter takes."""
IN_FLIGHT: Final = 5
"""Batches that an idempotent producer has on their way to one broker: what a quota allows until the first of them is
answered has to go in so many, or less of it can be used the farther away the broker is.

Up to so many requests' worth is waited for when a caller wants to send it at once; more is paid back afterwards. So
much, usually half a second's worth, may be made up for at once by whoever has the quota alone."""
LATENESS: Final = 0.3
"""Part of a request's time that a caller who comes late may make up for, where others share the quota."""
SLACK: Final = 1 / 16
"""So much of a lump may exceed what the window has room for: the broker's samples begin a little beside ours, and who
waits for each of them to the byte leaves more of the quota than the throttle of some milliseconds that may follow."""
MOST_REQUEST_BYTES: Final = 1_000_000
LATE_SAMPLES: Final = 4
"""When for so many samples of the window nothing has arrived, as over a silent connection, what was sent meanwhile is
forgotten later by the broker, too: it moves to where that counts it. What always takes so long leaves as it came. At 2
an Apache Kafka that had just begun, and was slow to answer what it had counted, cost 0.03 of the quota (0.4 s)."""
CLOCK_JUMP_MS: Final = 1_000
SLOW_START_BYTES: Final = 16_384
MOST_SLOW_START_BYTES: Final = 32_000_000.0
"""More on its way fills no connection, and all of it would come upon the others when a first throttle ends."""
NEVER_REVIEWED: Final = -(2**62)
NOT_YET: Final = 2**62
OUTSTANDING_MS: Final = IN_FLIGHT * REQUEST_MS
"""So much of the pace may be on its way; so much of it unused counts as idle."""
LEAST_RATE: Final = 1.0
LONGEST_WAIT_MS: Final = 1_000
"""Whoever waits asks again before long: the rate may have grown."""


class Pacer:
    """Paces what one client sends to one broker. Has no lock: its owner does.

    Every `now_ms` comes from one clock, which may jump either way.

    Args:
        limit: the quota in bytes per second; None while unknown.
        samples: the broker's `quota.window.num`.
        window_ms: the broker's `quota.window.size.seconds` x 1000.
    """

    def __init__(
        self, limit: float | None = None, *, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS
    ) -> None:
        self._mirror = SampledRate(samples, window_ms)
        self._least_window_ms = max(samples - 1, 1) * window_ms
        self._most_window_ms = (samples + 1) * window_ms
        self._request_ms = self._least_window_ms / 100
        self._share: KnownShare | LearntShare = LearntShare()
        self._slow_start_bytes = float(SLOW_START_BYTES)
        self._pace = inf  # bytes per ms
        self._usual_pace = inf  # the same, as long as the window has room
        self._quantum = 0.0  # bytes of a request
        self._lump = 0.0  # bytes that callers have lately wanted to send at once
        self._ceiling = 0.0  # bytes that the bank may hold
        self._bank = 0.0  # bytes that may go now; below zero after a message bigger than what there was
        self._waits = False  # whether a caller has asked, and nothing has gone since
        self._at_ms = 0  # what the bank is reckoned to
        self._idle_since_ms: float | None = None  # since when the bank has been full
        self._begun_at_ms: int | None = None  # when the window began, until it is known when the broker's did
        self._first_until_ms: int | None = None  # when the first of it was answered
        self._arrived_at_ms = NOT_YET
        self._late_before_ms = NEVER_REVIEWED  # what was sent before has been kept from arriving by a silence
        self._review_at_ms = NEVER_REVIEWED
        self._throttled_until_ms = 0
        self._wait_until_ms = 0
        if limit is not None:
            self._follow(limit, 0)
            self._apply_rate(0)

    # What the owner asks

    def admit_at_ms(self, nbytes: int, now_ms: int, *, full_bytes: float = 0.0) -> int:
        """The earliest time at which `nbytes` may go; `now_ms` or less means now. Commits nothing.

        A message bigger than any burst is admitted once a burst's worth is there, and paid back afterwards.

        Args:
            nbytes: of what is to go.
            now_ms: now.
            full_bytes: how much the caller would send at once if there was more of it: so much must be there, too.
        """
        if not self._at_ms <= now_ms < self._review_at_ms:
            self._review(now_ms)
        if self._pace == inf:
            return self._wait_until_ms
        bank = self._settle(now_ms)
        if nbytes > self._lump:
            self._want_lump(nbytes)
        self._waits = True
        missing = min(max(nbytes, full_bytes), self._lump) - bank
        if missing <= 0.0:
            return self._wait_until_ms
        wait_ms = ceil(missing / self._pace)
        if self._share.limit is None:
            # Ask again before long: a learnt rate may have grown.
            wait_ms = min(wait_ms, LONGEST_WAIT_MS)
        elif wait_ms > REQUEST_MS:
            # What the window has room for may be more by then.
            wait_ms = max(REQUEST_MS, ceil(missing / self._usual_pace))
        return max(self._wait_until_ms, now_ms + wait_ms)

    def rate(self) -> float:
        """Bytes per second that are aimed at now; infinite as long as nothing is known to limit them."""
        return self._pace * 1000.0

    def usual_rate(self) -> float:
        """The same, had the window room: what there will be again when it has forgotten what it holds too much of."""
        return self._usual_pace * 1000.0

    def measured_rate(self, now_ms: int) -> float:
        """Bytes per second sent, over the window that a broker would measure."""
        total, window_ms = self._mirror.project(now_ms)
        return total * 1000.0 / window_ms

    @property
    def limit(self) -> float | None:
        """The limit as last set, bytes per second."""
        return self._share.limit

    @property
    def every_ms(self) -> float:
        """From one request to the next, where strangers never give way; 0: all share the quota."""
        return self._share.every_ms

    @property
    def throttled_until_ms(self) -> int:
        """Until when the broker has muted us; a time past when it has not."""
        return self._throttled_until_ms

    @property
    def banked_bytes(self) -> float:
        """How many bytes might have gone at once when it was last reckoned; below zero: so many are owed."""
        return self._bank

    @property
    def request_bytes(self) -> int:
        """A good size for one request: a tenth of a second, 1 MB at most."""
        return MOST_REQUEST_BYTES if self._pace == inf else max(1, int(self._quantum))

    @property
    def outstanding_bytes(self) -> float:
        """How many bytes to have on their way at most: half a second's worth, or slow start's window."""
        if self._pace == inf:
            return self._slow_start_bytes
        return max(self._pace * OUTSTANDING_MS, 2.0 * self._quantum)

    # What the owner tells

    def on_sent(self, nbytes: int, now_ms: int) -> None:
        """`nbytes` have been admitted."""
        opened_ms = self._mirror.opened_ms
        is_new_sample = opened_ms is None or now_ms - opened_ms >= self._mirror.window_ms
        if is_new_sample and not self._mirror.project(now_ms)[0]:
            self._begun_at_ms, self._first_until_ms = now_ms, None
        self._mirror.record(nbytes, now_ms)
        if self._pace == inf:
            return
        self._bank = self._settle(now_ms) - nbytes
        self._idle_since_ms = None
        self._waits = False

    def on_late_count(self, nbytes: int, now_ms: int) -> None:
        """`nbytes` more than was told have been sent, some of them before the last throttle, maybe."""
        self._share.on_late_count(nbytes, now_ms)
        self.on_sent(nbytes, now_ms)

    def on_late_arrival(self, nbytes: int, sent_at_ms: int, now_ms: int) -> None:
        """`nbytes` that were sent at `sent_at_ms` have arrived now; from now on the broker counts them, too."""
        silent_ms, self._arrived_at_ms = now_ms - self._arrived_at_ms, now_ms
        is_first = min(silent_ms, now_ms - sent_at_ms) >= LATE_SAMPLES * self._mirror.window_ms
        if now_ms - sent_at_ms >= self._most_window_ms:
            self.on_late_count(nbytes, now_ms)
        elif is_first or sent_at_ms < self._late_before_ms:
            self._mirror.take_back(nbytes, sent_at_ms)
            self._mirror.record(nbytes, now_ms)
        if is_first:  # the broker's sample begins with it
            self._late_before_ms = self._mirror.reopen(now_ms)

    def on_less(self, nbytes: float, now_ms: int) -> None:
        """`nbytes` of what was told of lately have not been sent: the window has room for them."""
        self._mirror.take_back(nbytes)
        if self._pace < inf:
            self._bank = max(self._bank, min(self._settle(now_ms) + nbytes, self._ceiling))

    def owed_ms(self, now_ms: int) -> int:
        """After how long all that was sent ahead of its time is paid back."""
        bank = 0.0 if self._pace == inf else self._settle(now_ms)
        return 0 if bank >= 0.0 else ceil(-bank / self._usual_pace)

    def on_success(self, nbytes: int, now_ms: int) -> None:
        """`nbytes` have been acknowledged: slow start may have as many more on their way.

        Tell a throttle that came with the same response first: no other can come before that throttle has passed.
        """
        self._slow_start_bytes = min(self._slow_start_bytes + nbytes, MOST_SLOW_START_BYTES)
        if now_ms >= self._throttled_until_ms:
            self._share.on_free(now_ms)

    def on_let_go(self) -> None:
        """Nothing limits: a slow start would find nothing."""
        self._slow_start_bytes = MOST_SLOW_START_BYTES

    def on_answer(self, sent_at_ms: int, now_ms: int) -> None:
        """A request is answered that was sent at `sent_at_ms`.

        The broker's window begins when the first request arrives. A handshake, or a topic that is being made, may
        make that a second later than usual; the window would seem to be older than it is, and to forget too early.
        """
        if self._begun_at_ms is None or sent_at_ms < self._begun_at_ms:
            return
        if now_ms < sent_at_ms:  # the clock has jumped: how long that took is not known
            self._begun_at_ms = None
        elif self._first_until_ms is None:
            self._first_until_ms = now_ms
        elif sent_at_ms >= self._first_until_ms:  # it had to wait for nothing: its way is the usual one
            came_at_ms = self._first_until_ms - (now_ms - sent_at_ms)
            if came_at_ms - self._begun_at_ms >= REQUEST_MS:  # less is paid for by what is aimed at
                self._mirror.begin_at(came_at_ms)
            self._begun_at_ms = None

    def on_throttle(self, throttle_time_ms: int, now_ms: int) -> None:
        """A response has said `throttle_time_ms`; zero and less say nothing."""
        if throttle_time_ms <= 0:
            return
        if not self._at_ms <= now_ms < self._review_at_ms:
            self._review(now_ms)
        own_bytes, window_ms = self._mirror.project(now_ms)
        self._share.on_throttle(own_bytes, window_ms, throttle_time_ms, now_ms)
        self._throttled_until_ms = max(self._throttled_until_ms, now_ms + throttle_time_ms)
        self._wait_until_ms = max(self._wait_until_ms, self._throttled_until_ms)
        self._slow_start_bytes = float(SLOW_START_BYTES)
        self._idle_since_ms = None
        self._apply_rate(now_ms)

    def set_limit(self, limit: float | None, now_ms: int) -> None:
        """Follow `limit` bytes per second from now on; None when it is not known any more.

        Raises:
            ConfigError: the limit is not above zero.
        """
        self._follow(limit, now_ms)
        self._review(now_ms)

    # How it is reckoned

    def _follow(self, limit: float | None, now_ms: int) -> None:
        if limit is not None and not limit > 0:
            raise ConfigError(f"a byte rate must be above 0, not {limit}; give None when there is no limit")
        if limit is None or limit >= UNLIMITED:
            self._share = LearntShare()
        elif isinstance(self._share, KnownShare):
            self._share.change(limit, now_ms)
        else:
            self._share = KnownShare(limit)

    def _settle(self, now_ms: int) -> float:
        """Bank what the time since the last call has brought."""
        settled_ms = self._at_ms
        if now_ms <= settled_ms:
            return self._bank
        self._at_ms = now_ms
        before = self._bank
        bank = before + (now_ms - settled_ms) * self._pace
        late = bank - self._ceiling
        if self._waits and 0.0 < late < self._quantum and self._wait_until_ms <= settled_ms:
            self._want_lump(max(self._lump, min(self._lump + late, self._quantum * (1.0 + LATENESS))))
        if bank >= self._ceiling:
            if self._idle_since_ms is None:
                self._idle_since_ms = now_ms - (bank - self._ceiling) / self._pace
            bank = max(self._ceiling, before)
        self._bank = bank
        return bank

    def _review(self, now_ms: int) -> None:
        """What need not be done for every message: rates, bursts, and what the mirror says."""
        if self._review_at_ms == NEVER_REVIEWED:
            self._at_ms = now_ms
            self._bank = self._quantum
        behind_ms = self._at_ms - now_ms
        if behind_ms > 0:
            if behind_ms < CLOCK_JUMP_MS:
                return
            self._rebase(-behind_ms)
        self._review_at_ms = now_ms + REQUEST_MS
        if self._pace == inf:
            self._at_ms = now_ms
        else:
            # What the broker's window has forgotten need not be paid back.
            self._bank = max(self._settle(now_ms), -self._mirror.project(now_ms)[0])
        self._share.grow(now_ms, busy=self._idle_ms(now_ms) < OUTSTANDING_MS)
        self._apply_rate(now_ms)

    def _apply_rate(self, now_ms: int) -> None:
        before, rate = self._pace, self._share.rate
        limit = self._share.limit
        if rate == inf:
            self._pace = self._usual_pace = rate
            self._waits = False
            return
        if limit is not None:
            if rate >= limit * SHARED_TARGET:
                rate = limit * TARGET
            # what the window has room for; lumps are accounted for already
            sustainable = sustainable_rate(self._mirror, limit * TARGET, self._bank - self._lump * SLACK, now_ms)
            if sustainable <= 0.0:  # the limit has fallen: the window must forget some first
                self._wait_until_ms = max(self._throttled_until_ms, now_ms + REQUEST_MS)
            rate = min(rate, self._even_rate(limit))
            self._pace = max(min(rate, sustainable), LEAST_RATE) / 1000.0
        else:
            self._pace = rate / 1000.0
        usual_before, self._usual_pace = self._usual_pace, rate / 1000.0
        request_ms = self._share.request_ms
        # A hundredth of a short window, but no less than how long strangers make us wait.
        self._request_ms = min(request_ms, self._least_window_ms / (100 if request_ms <= REQUEST_MS else 10))
        self._quantum = min(self._usual_pace * self._request_ms, MOST_REQUEST_BYTES)
        # A lump counts for as long as the window remembers it; who has given up some of a known limit must not go on
        # with lumps of the size they had.
        fades = 1 - REQUEST_MS / self._least_window_ms
        fades = fades if limit is None else min(fades, self._usual_pace / usual_before)
        self._lump = max(self._quantum, self._lump * fades)
        self._ceiling = self._most_banked(now_ms)
        if before == inf:
            self._bank = 0.0
            self._at_ms = max(self._at_ms, now_ms)
        self._bank = min(self._bank, self._ceiling)

    def _even_rate(self, limit: float) -> float:
        """What may be aimed at although both ends of a window may hold a lump."""
        # lumps of a limit that has fallen come no more
        lump = min(self._lump, limit / 1000.0 * self._request_ms * IN_FLIGHT)
        return limit * TARGET - lump * 1000.0 / (self._least_window_ms + self._mirror.window_ms)

    def _most_banked(self, now_ms: int) -> float:
        """What may be made up for at once: little among others, who do the same."""
        burst_ms = 0.0
        if self._share.is_whole and now_ms >= self._throttled_until_ms + self._most_window_ms:
            burst_ms = self._request_ms * IN_FLIGHT
        return max(self._lump + self._quantum * LATENESS, self._pace * max(burst_ms, self._share.every_ms))

    def _want_lump(self, nbytes: float) -> None:
        """Bank more: a caller wants to send so much at once, or one who was told to wait comes late for it."""
        self._lump = max(self._quantum, min(nbytes, self._quantum * IN_FLIGHT))
        self._ceiling = max(self._ceiling, self._lump + self._quantum * LATENESS)

    def _idle_ms(self, now_ms: int) -> float:
        """How long nothing was to be sent that might have been: who waits for the end of a throttle is not idle."""
        if self._idle_since_ms is None:
            return 0.0
        return now_ms - max(self._idle_since_ms, self._throttled_until_ms)

    def _rebase(self, shift_ms: int) -> None:
        """The clock has jumped back: move everything remembered with it."""
        self._mirror.rebase(shift_ms)
        self._share.rebase(shift_ms)
        self._begun_at_ms = None
        self._arrived_at_ms += shift_ms
        self._late_before_ms += shift_ms
        self._at_ms += shift_ms
        self._throttled_until_ms += shift_ms
        self._wait_until_ms += shift_ms
        if self._idle_since_ms is not None:
            self._idle_since_ms += shift_ms
