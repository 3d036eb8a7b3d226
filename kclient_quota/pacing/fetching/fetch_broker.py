"""One broker's pace of fetches: a level of bytes that may be taken, its window, and the size of its batches."""

from math import ceil, inf
from typing import Final

from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.pacing.fetching.fetch_share import FetchShare
from kclient_quota.pacing.fetching.fetch_sizes import LONGEST_LUMP_MS
from kclient_quota.pacing.neighbours import NEEDED_MS, Need, Part
from kclient_quota.pacing.trend import TREND

SAVED_MS: Final = 300
"""Unused pace, in time, that a late application may make up for. One that has a known limit for itself makes up for as
much as the window has room for: who worked for two seconds with what he had read in 0.3 had 0.25 of it."""
CLOCK_JUMP_MS: Final = 1_000
"""Time that goes back further than this is another time."""
EMPTY_BYTES: Final = 1_000
"""Throttled answers that bring no messages are shorter, even some of them together."""
TOLD_MS: Final = 250
"""Statistics come so often; what is heard between two of them has happened between them."""
LATE_DATA: Final = 2
"""How often a throttled answer must have brought messages for the broker to be one that answers late."""


class BrokerPace:
    """One broker's pace: a level of bytes that may be taken, its window, and the size of its batches.

    Args:
        limit: bytes per second; None while unknown.
        window: the broker's window, empty.
        now_ms: when it begins.
    """

    def __init__(self, limit: float | None, window: FetchWindow, now_ms: int) -> None:
        self.share = FetchShare(limit)
        self.window = window
        self.batch = 0.0
        self.throttled_until_ms = now_ms
        self.received_bytes: int | None = None
        self._responses = 0
        self._late_data = 0
        self._level = 0.0
        self._prefetched: float | None = None
        self._at_ms = now_ms
        self._asked_at_ms = now_ms
        self._seen_at_ms = now_ms
        self._refused = False
        self._hold_until_ms = now_ms
        self._waited_at_ms = now_ms
        self._begun = False
        self._part = 1.0
        self._untold = 0.0  # paid since the window has been told of
        self._uneven_until_ms = now_ms  # some of it may have come of more than was to be saved
        self._late_ms = self._works_ms = 0  # how long the application was away last, and is again and again
        self._works_until_ms = now_ms  # as far as is known

    @property
    def is_refused(self) -> bool:
        """Whether a limit that nobody told refuses the fetch that is on its way."""
        return self._refused and self.share.limit is None and self.rate != inf

    def refused_ms(self, now_ms: int) -> int:
        """How long to hold back for the fetch that is refused, at most the time of a window."""
        return max(0, self._hold_until_ms - now_ms)

    @property
    def big_batches(self) -> bool:
        """Whether batches fill so much of the window that they must be spaced by it."""
        return self.batch * 1000.0 * self._part >= LONGEST_LUMP_MS * self.share.ceiling

    @property
    def has_long_batches(self) -> bool:
        """Whether a batch stands for so long, at our own pace, that what has come of it must not wait for that."""
        return self.batch * 1000.0 >= LONGEST_LUMP_MS * self.rate

    @property
    def is_shared(self) -> bool:
        """Whether others of this process have a part of the limit."""
        return self._part < 1.0

    @property
    def rate(self) -> float:
        """Bytes per second to take now: less than our share by as much as whole batches are uneven.

        A window of W that begins with a fetch holds one batch more than its time is worth, so that batches which come
        every P must not bring more than W / (W + P) of the limit.
        """
        share = self.share
        limit = share.limit
        if limit is None and self._late_data >= LATE_DATA:
            # It does not answer empty, as Kafka does (Event Hubs, Redpanda): it slows fetches down by itself, and what
            # its throttles mean is not known.
            return inf
        if limit is None or self.big_batches:
            return share.rate
        window_s = self.window.least_window_ms / 1000.0
        # Batches of several that share a limit are as uneven as one's: where they come together one is refused, comes
        # later, and from then on they do not.
        part = window_s / (window_s + self.batch * self._part / limit)
        return min(share.rate, part * limit)

    def settle(self, paid: float, now_ms: int) -> float:
        """Pay `paid` bytes for what was taken and bank the time that passed; the level, infinite without a pace."""
        rate = self.rate
        if rate == inf:
            return inf
        if now_ms < self._asked_at_ms - CLOCK_JUMP_MS:
            self._forget_times(now_ms)
        self._asked_at_ms = now_ms
        elapsed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(now_ms, self._at_ms)
        most = rate * SAVED_MS / 1000.0
        self.share.grow(now_ms, busy=self._level < most)
        level = self._level + rate * elapsed_ms / 1000.0
        if not self._begun:  # no application is late for messages that were not there yet
            level = min(level, 0.0)
            self._begun = paid > 0.0
        if self._prefetched:
            self._prefetched = min(self._prefetched, max(0.0, -level))
        self._untold += paid
        has_saved = self._level > most
        # Whoever only waits for messages has used little of his pace before, and saves no more than that.
        waits = most / 2 <= self._level <= most and not self.ahead_bytes(now_ms)
        was_late = elapsed_ms > SAVED_MS and not waits
        if level > most and was_late and self._is_alone(now_ms):
            self._note_work(elapsed_ms, now_ms)
        if level > most and (has_saved or was_late) and self.batch > 0.0 and self._is_alone(now_ms):
            room = rate * self.window.least_window_ms / 1000.0  # of a larger limit before it may be more
            most = max(most, room if was_late else min(self._level, room))
            self._uneven_until_ms = now_ms + self.window.longest_ms
        self._level = min(level - paid, most)
        return self._level

    def _note_work(self, late_ms: int, now_ms: int) -> None:
        """The application was away for so long. Twice in a row says that it will be again."""
        if now_ms >= self._works_until_ms:
            self._late_ms = self._works_ms = 0
        self._works_ms = max(self._works_ms, min(self._late_ms, late_ms, self.window.least_window_ms // 2))
        self._late_ms, self._works_until_ms = late_ms, now_ms + self.window.longest_ms

    def ahead_bytes(self, now_ms: int) -> float:
        """What is to be fetched while the application works: half a window's at most, so that two fit into it."""
        return self.rate * self._works_ms / 1000.0 if now_ms < self._works_until_ms else 0.0

    def _is_alone(self, now_ms: int) -> bool:
        """Whether nobody else could have had what was not used, as far as is known."""
        return self._part == 1.0 and self.share.is_alone(now_ms)

    def _saves(self, now_ms: int) -> bool:
        """The same, and statistics tell of batches."""
        return self.batch > 0.0 and not self.big_batches and self._is_alone(now_ms)

    def uneven_ms(self, now_ms: int, room: float = 0.0) -> int:
        """How long what was saved must wait for its place in the window; 0 for whoever takes evenly.

        What librdkafka's queue has `room` for is on its way.
        """
        if now_ms >= self._uneven_until_ms or not self._saves(now_ms):
            return 0
        coming = self.batch + max(self._untold, room)
        return max(0, self.window.fits_at_ms(coming, self.share.ceiling, now_ms) - now_ms)

    def _forget_times(self, now_ms: int) -> None:
        """The clock has jumped back: what was remembered lies in the future now."""
        self.window.forget()
        self.share.rebase(now_ms - self._asked_at_ms)
        self.throttled_until_ms = self._hold_until_ms = self._at_ms = self._seen_at_ms = now_ms
        self._uneven_until_ms = self._works_until_ms = now_ms

    def need(self, now_ms: int) -> Need:
        """What it needs, for those who share the quota with it."""
        # Who has asked and is refused wants more, too.
        is_muted = self._refused and now_ms < self.throttled_until_ms
        waits = is_muted or abs(now_ms - self._waited_at_ms) < NEEDED_MS
        size_ms = max(self.window.size_ms(now_ms), self.window.least_window_ms)
        return Need(waits, self.window.received_total(now_ms) * 1000.0 / size_ms, now_ms)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit, of which it has as large a part as it had of the last one."""
        self.share.set_limit(None if limit is None else limit * self._part)

    def take(self, part: Part, limit: float) -> None:
        """Have this part of the limit from now on."""
        self._part = part.byte_rate / limit
        self.share.scale(part.byte_rate)

    def on_wait(self, now_ms: int) -> None:
        """Somebody waits for its quota."""
        self._waited_at_ms = now_ms

    def pay_prefetch(self, queue_bytes: float) -> None:
        """Pay once for what the queue is kept filled with: nobody takes it, but the broker has counted it.

        It throttles us for the same bytes: that time, which is not made up for, is not waited for twice. What comes
        ahead is taken whenever the application is back.
        """
        if self.batch and self._prefetched is None:
            is_followed = self.share.limit is not None and not self.big_batches
            waits = self.rate * max(0, self._at_ms - self._seen_at_ms) / 1000.0 if is_followed else inf
            self._prefetched = max(0.0, queue_bytes + self.batch - waits - self.ahead_bytes(self._at_ms))
            self._level -= self._prefetched

    def forget_batches(self) -> None:
        """Fetches are of another size from now on, of another client of librdkafka's, whose counts begin anew."""
        self.batch = 0.0
        self._level = 0.0
        self.received_bytes = 0
        self._responses = 0
        self._prefetched = None

    def wait_ms(self) -> int:
        """How long until something may be taken, by the level alone."""
        return 0 if self._level >= 0.0 else ceil(-self._level * 1000.0 / self.rate)

    def fits_at_ms(self, now_ms: int) -> int:
        """When the next batch fits into the window."""
        ceiling = self.share.ceiling
        if ceiling == inf:
            return now_ms
        # A broker cuts a fetch to what a window may hold.
        most = ceiling * self.window.least_window_ms / 1000.0
        return self.window.fits_at_ms(min(self.batch + self._unseen(now_ms), most), ceiling, now_ms)

    def _unseen(self, now_ms: int) -> float:
        """What has come in a row, as it was saved for, since the window was told of any: it expects the last batch."""
        if now_ms >= self._uneven_until_ms or self.received_bytes is None:  # a share consumer's window is told at once
            return 0.0
        return max(0.0, self._untold - (self.window.expected or (0, 0.0))[1])

    def on_received(self, total: int, responses: int, at_ms: int) -> None:
        """`total` bytes have been received so far, in `responses` that were not throttled."""
        before, self.received_bytes = self.received_bytes, total
        responses_before, self._responses = self._responses, responses
        since_ms, self._seen_at_ms = self._seen_at_ms, at_ms
        answered = responses - responses_before
        if answered > 0:
            self._refused = False
            self.share.on_free(at_ms)
        self._untold = 0.0
        nbytes = 0 if before is None else total - before
        if nbytes <= 0:
            return
        self._begun = True
        came_at_ms = at_ms
        batch = nbytes / max(1, answered)
        is_like, is_more = batch >= 0.5 * self.batch, nbytes > EMPTY_BYTES
        # Answers without messages are told from batches by two of three: producers may write smaller ones from now on.
        if (is_like or is_more) if answered > 0 else (is_like and is_more):
            self._late_data += answered <= 0 and self.batch > 0.0
            self.batch = max(batch, self.batch * (1.0 - TREND))  # smaller ones are believed in slowly
            expected_at_ms = self.window.arrived()
            if expected_at_ms is not None:
                came_at_ms = min(max(expected_at_ms, since_ms), at_ms)
        self.window.received(nbytes, came_at_ms)
        self.share.on_late_count(self.window.total(at_ms), at_ms)

    def on_throttle(
        self, throttle_ms: int, now_ms: int, *, trusted: bool = True, most_bytes: float = 0.0, untold: float = 0.0
    ) -> None:
        """The broker mutes us for `throttle_ms`; yields when strangers must have caused it.

        That can be told where the window is `trusted`: it knows all that has been received. A fetch may bring
        `most_bytes`; as much as is `untold` may have come ahead since the last statistics, all of it from this one.
        """
        if not self.ahead_bytes(now_ms):
            untold = 0.0
        else:  # this has waited for the application
            now_ms = min(now_ms, self._seen_at_ms + TOLD_MS)
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_ms)
        self._refused = True
        self._hold_until_ms = now_ms + min(throttle_ms, self.window.least_window_ms)
        if self.share.limit is not None:
            # Time that the broker takes is not made up for: that would bring about the next throttle.
            prefetched_ms = int((self._prefetched or 0.0) * 1000.0 / self.rate)
            self._at_ms = max(self._at_ms, now_ms + throttle_ms - prefetched_ms)
        expected = self.window.expected
        # The event may have waited to be served; the fetch that it is about went out when it was expected to.
        asked_at_ms = now_ms if expected is None else min(expected[0], now_ms)
        own_bytes = self.window.total(now_ms) + (0.0 if expected else self.batch) + max(untold, self._unseen(now_ms))
        # What came in a row fills a sample at once, and the broker's may begin when ours is nearly over.
        is_uneven = now_ms < self._uneven_until_ms
        window_ms = self.window.least_window_ms if is_uneven else self.window.size_ms(now_ms)
        if trusted:
            self.share.on_throttle(
                own_bytes, window_ms, throttle_ms, now_ms, refused=self.batch, most_refused=most_bytes
            )
        if expected is None:
            self.window.received(0, now_ms)
        self.window.postpone(asked_at_ms + throttle_ms)
