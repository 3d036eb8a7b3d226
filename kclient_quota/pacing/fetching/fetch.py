"""When a consumer may take the next messages out of librdkafka's queue: the pace of taking is the pace of fetching.

librdkafka fetches when its queue holds less than `queued.max.messages.kbytes`. With that bound and the fetches small,
what the application takes out is what comes in, so taking evenly at just below the limit makes it fetch evenly, and
nothing that was fetched is ever thrown away. Small overshoots cost a throttle of their own size and no quota. Batches
that fill a good part of the broker's window cannot be taken evenly: the message whose taking would let the next fetch
out is held back until the next batch fits. What has come of a batch that stands for long is taken at once, but for the
last few messages: the broker has counted it, and a rebalance would throw it away.

Nothing here reads a clock or calls librdkafka.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import SLACK, FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from kclient_quota.pacing.known_share import CALM_MS, REQUEST_MS
from kclient_quota.pacing.neighbours import DEALT_MS, Neighbours
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

RECORD_BYTES: Final = 10
"""What a record costs on the wire beside its key and value, about."""
LEARNING_MS: Final = 2 * CALM_MS
"""How much time the ratio of wire bytes to message bytes is learnt over: two windows."""
LEAST_RATIO: Final = 0.02
MOST_RATIO: Final = 50.0
LEAST_UNPOLLED_MS: Final = 1_000
UNPOLLED_MS: Final = 5_000
"""A consumer that waits for the quota is polled this often, as rebalances and callbacks must wait no longer."""
POLLED_PART: Final = 0.02
"""How much of what its quota allows those polls may take: each takes a message, whether that is owed for or not."""
ONLY: Final = -1
"""The account of a client that does not know yet which brokers there are."""


class FetchPacer:
    """Paces one consumer. Has no lock: its owner does.

    Args:
        limit: bytes per second and broker; None where nothing limits or nothing is known.
        sizes: how the client fetches.
        now_ms: when it begins.
        samples: `quota.window.num` of the brokers.
        window_ms: `quota.window.size.seconds` of the brokers, in milliseconds.
        neighbours: all consumers that share a known limit, this one among them; later those of another user, maybe.
        most_unpolled_ms: it is polled at least so often, whatever that takes.
    """

    def __init__(
        self,
        limit: float | None,
        sizes: FetchSizes,
        now_ms: int,
        *,
        samples: int = QUOTA_SAMPLES,
        window_ms: int = QUOTA_WINDOW_MS,
        neighbours: Neighbours | None = None,
        most_unpolled_ms: int = UNPOLLED_MS,
    ) -> None:
        self.neighbours = neighbours
        self._most_unpolled_ms = max(1, min(most_unpolled_ms, UNPOLLED_MS))
        self._limit = limit
        self._sizes = sizes
        self._window = (samples, window_ms)
        first = BrokerPace(limit, FetchWindow(*self._window), now_ms)
        first.received_bytes = 0
        self._paces: dict[int, BrokerPace] = {ONLY: first}
        self._ratio = 1.0
        self._taken = self._learnt_from = self._wire = 0.0
        self._wire_seen: dict[int, int] | None = None
        self._followed = False
        self._blind_at_ms: int | None = None
        self._queued = self._queued_before = 0.0
        self._is_torn = False  # something of it was thrown away since librdkafka has told of it
        self._is_guessed = False  # how much is queued: librdkafka has not said so since a batch came
        self._message = float(RECORD_BYTES)
        self._looked_at_ms = now_ms
        self._fetching = True
        self.leaders: Mapping[tuple[str, int], int] = {}
        self._most_sharers = 1
        self._deal(now_ms)  # so that others know of it before it fetches
        self._dealt_at_ms = now_ms - DEALT_MS

    # What the owner asks ------------------------------------------------------------------------------------------

    @property
    def paces(self) -> Mapping[int, BrokerPace]:
        """The pace of every broker that messages came from, by id; `ONLY` as long as none is known."""
        return self._paces

    def pace_of(self, node: int) -> BrokerPace | None:
        """That of a broker; of all as long as none is known. None: of one that nothing is fetched from."""
        return self._paces.get(node) or self._paces.get(ONLY)

    @property
    def queued_bytes(self) -> int:
        """Wire bytes that librdkafka's queue holds, about."""
        return max(0, int(self._queued))

    def is_low(self, taken: int, now_ms: int) -> bool:
        """Whether the next fetch goes out when so much more has been taken of the queue, and may fill it anew."""
        return self._queued - taken * self._ratio <= self._threshold and not self._uneven_ms(0.0, now_ms)

    @property
    def big_batches(self) -> bool:
        """Whether a grant holds for this moment only, because batches are spaced by the window."""
        return any(pace.big_batches for pace in self._paces.values())

    @property
    def message_bytes(self) -> float:
        """What one message takes of a grant, about."""
        return self._message / self._ratio

    @property
    def fits(self) -> bool:
        """Whether the client's sizes let spacing follow every broker's limit."""
        return all(self._fits(pace) for pace in self._paces.values())

    def _fits(self, pace: BrokerPace) -> bool:
        byte_rate = pace.rate if pace.share.limit is None else pace.share.limit
        return byte_rate == inf or self._sizes.hold_back(byte_rate)

    @property
    def unpolled_ms(self) -> int:
        """For how long whoever waits is not polled: rebalances wait behind a batch's last messages as well."""
        rate = min(pace.rate for pace in self._paces.values()) * POLLED_PART
        every_ms = inf if rate == inf else self._message * 1000.0 / rate
        return int(min(max(every_ms, LEAST_UNPOLLED_MS), self._most_unpolled_ms))

    @property
    def paced(self) -> bool:
        """Whether anything is to be paced at all."""
        return any(pace.rate != inf for pace in self._paces.values())

    def grant(self, now_ms: int, taken: Mapping[int, int]) -> tuple[float, int]:
        """Pay for what was taken since the last call and ask for more.

        Args:
            now_ms: now.
            taken: bytes of keys and values, plus RECORD_BYTES each, by the broker they came from.

        Returns:
            bytes of the same kind that may be taken now, more than 0 and perhaps infinite; or 0 and how many
            milliseconds to wait.
        """
        self._note_taken(sum(taken.values()), now_ms)
        if abs(now_ms - self._dealt_at_ms) >= DEALT_MS:
            self._deal(now_ms)
        level = min(pace.settle(taken.get(node, 0) * self._ratio, now_ms) for node, pace in self._paces.items())
        if level == inf:
            return inf, 0
        here = self._here(level, now_ms)
        if here > max(level, 0.0):
            return max(here / self._ratio, 1.0), 0
        if owed_ms := self._owed_ms(now_ms):
            return 0.0, owed_ms
        # A request's worth at once: evenly as a broker's one-second samples see it, and cheaply.
        most = min(max(level, 1.0), min(pace.rate for pace in self._paces.values()) * REQUEST_MS / 1000.0)
        wait_ms = self._uneven_ms(self._queued, now_ms)
        if all(pace.is_refused for pace in self._paces.values()):
            most, wait_ms = self._grant_refused(most, now_ms)
        elif self.big_batches:
            most, wait_ms = self._grant_big(most, now_ms)
        if wait_ms:
            for pace in self._paces.values():
                pace.on_wait(now_ms)
            return 0.0, wait_ms
        return max(most / self._ratio, 1.0), 0

    def leave(self) -> None:
        """Nothing is fetched any more: others have what was ours."""
        if self.neighbours is not None:
            self.neighbours.leave(self)

    # What the owner tells -----------------------------------------------------------------------------------------

    def on_statistics(self, seen: FetchStatistics, untold: int = 0) -> None:
        """A statistics event; `untold` bytes have been taken that the next grant is to be told of."""
        self.leaders = seen.leaders
        self._follow_brokers(set(seen.leaders.values()), seen.at_ms)
        if seen.queued_count:
            # What librdkafka has to tell is counted, too: the last message taken is the better witness if it is larger.
            self._message = max((seen.queued_bytes / seen.queued_count + RECORD_BYTES) * self._ratio, self._message)
        self._learn(seen, untold)
        self._queued = (seen.queued_bytes + RECORD_BYTES * seen.queued_count) * self._ratio
        self._is_guessed = False
        if self._is_torn:
            self._is_torn, self._blind_at_ms = False, seen.at_ms
        for node, (total, responses) in seen.received.items():
            if node in self._paces:
                self._paces[node].on_received(total, responses, seen.at_ms)
        for pace in self._paces.values() if self.fits else ():
            pace.pay_prefetch(self._sizes.queue_bytes / len(self._paces))
        if self._queued >= self._sizes.queue_bytes:
            self._fetching = False
        elif not self._fetching:
            self._expect(seen.at_ms)

    def on_messages(self, nbytes: int, count: int) -> None:
        """`count` messages of `nbytes` have been seen."""
        self._message = nbytes / count * self._ratio

    def on_throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """A response has said `throttle_ms`."""
        pace = self.pace_of(node_id)
        if pace is not None and throttle_ms > 0:
            most_bytes = self._sizes.most_bytes(list(self.leaders.values()).count(node_id))
            is_trusted = self._limit is None or self._knows_window(now_ms)
            untold = self._sizes.room_bytes(self._queued)
            pace.on_throttle(throttle_ms, now_ms, trusted=is_trusted, most_bytes=most_bytes, untold=untold)

    def _knows_window(self, now_ms: int) -> bool:
        """Whether the whole of the broker's window was received at our pace, so that no burst of ours is in it."""
        samples, window_ms = self._window
        blind_at_ms = now_ms if self._is_torn else self._blind_at_ms
        return self._followed and (blind_at_ms is None or now_ms - blind_at_ms >= samples * window_ms)

    def forget_queue(self) -> None:
        """What librdkafka has queued is thrown away, some of it at least; it fetches at once what it has room for."""
        self._is_torn = True

    def set_sizes(self, sizes: FetchSizes, cost_change: float) -> None:
        """Fetches are of these sizes now, into an empty queue; a byte of messages costs so many times as much."""
        self._ratio = min(max(self._ratio * cost_change, LEAST_RATIO), MOST_RATIO)
        self._wire = self._learnt_from = 0.0  # how much that is, is learnt anew
        self._sizes = sizes
        self._queued = self._queued_before = self._taken = 0.0
        self._wire_seen = None
        self._fetching = True
        for pace in self._paces.values():
            pace.forget_batches()

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on."""
        self._limit = limit
        for pace in self._paces.values():
            pace.set_limit(limit)

    def _deal(self, now_ms: int) -> None:
        """Take what is ours of a limit that several share."""
        self._dealt_at_ms = now_ms
        if self.neighbours is None or self._limit is None:
            return
        for node, pace in self._paces.items():
            part = self.neighbours.part(self, None if node == ONLY else node, pace.need(now_ms), self._limit)
            pace.take(part, self._limit)
            if part.sharers > self._most_sharers:
                # what those who have just come fetch at first may throttle us, which says nothing of strangers
                self._most_sharers, self._blind_at_ms = part.sharers, now_ms

    # How it is reckoned -------------------------------------------------------------------------------------------

    def _uneven_ms(self, queued: float, now_ms: int) -> int:
        """How long to wait until what was saved has room in every broker's window, with so much in the queue."""
        room = self._sizes.room_bytes(queued) / len(self._paces)
        return max(pace.uneven_ms(now_ms, room) for pace in self._paces.values())

    def _owed_ms(self, now_ms: int) -> int:
        """How long to wait until nothing is owed for any broker."""
        longest_ms = 0
        for pace in self._paces.values():
            if owed_ms := pace.wait_ms():
                # Of a broker that nothing is owed for, those who share its quota may have what is not taken meanwhile.
                pace.on_wait(now_ms)
                longest_ms = max(longest_ms, owed_ms)
        return longest_ms

    def _grant_refused(self, most: float, now_ms: int) -> tuple[float, int]:
        """Grant what lets no second fetch out behind the one that is refused.

        Otherwise whoever is refused for long empties his queue, and everybody who does fills it at once when the window
        is empty again: the whole quota of ten seconds is gone in one, and nobody gets anything for the other nine.
        """
        spare = self._queued - self._threshold
        if spare > 0.0:
            return min(most, spare), 0
        # Only what is taken brings the news that the fetch was answered after all.
        return 1.0, min(pace.refused_ms(now_ms) for pace in self._paces.values())

    def _here(self, level: float, now_ms: int) -> float:
        """Bytes that may be taken whatever is owed: the broker has counted them, and taking them lets no fetch out.

        What a rebalance takes away is fetched, and paid for, once more: so a long batch must not lie in librdkafka's
        queue for the seconds that it is worth. The next fetch goes out no sooner for that, as what is owed keeps back
        the last few messages. Short batches are taken evenly.
        """
        paces = self._paces.values()
        if self._sizes.by_hand or not any(pace.has_long_batches for pace in paces):
            return 0.0
        spare = 0.0 if self._is_torn else self._queued - self._threshold
        if self._is_guessed:
            # Until librdkafka has told, a batch is taken for half as long as those before it.
            spare -= max(pace.batch for pace in paces) / 2
        if spare > 0.0:
            owed_ms = (spare - level) * 1000.0 / min(pace.rate for pace in paces)
            wait_ms = max(owed_ms, float(max(pace.window.least_window_ms for pace in paces)))
            # Whoever waits is polled all the same, to stay in the group, which must let no fetch out either.
            spare -= self._message * (wait_ms // self.unpolled_ms)
        if spare >= self._message:
            return spare
        return self._look(now_ms) if level < 0.0 else 0.0

    def _look(self, now_ms: int) -> float:
        """One message, now and then, whatever is owed, when a batch may have come: only polls bring that news.

        After a rebalance librdkafka fetches as much as its queue has room for, whether that is owed for or not.
        """
        holds_back = max(pace.batch for pace in self._paces.values()) - self._message >= self._threshold
        is_out = self._fetching and not all(pace.is_refused for pace in self._paces.values())
        may_have_come = self._is_guessed or self._is_torn or is_out
        if not (holds_back and may_have_come) or abs(now_ms - self._looked_at_ms) < REQUEST_MS:
            return 0.0
        self._looked_at_ms = now_ms
        return 1.0

    @property
    def _threshold(self) -> float:
        """As long as the queue holds more than this, no fetch goes out."""
        return self._sizes.queue_bytes * SLACK + self._message

    def _grant_big(self, most: float, now_ms: int) -> tuple[float, int]:
        """Grant what lets no fetch out before its batch fits."""
        fits_ms = max(0, max(pace.fits_at_ms(now_ms) for pace in self._paces.values()) - now_ms)
        spare = self._queued - self._threshold
        if not self._fetching:
            # Until then it is polled all the same, which must let no fetch out either.
            spare -= self._message * (fits_ms // self.unpolled_ms)
        if spare > 0.0:
            return min(most, spare), 0
        if self._fetching and not self._empty:
            return min(most, self._queued), 0
        if self._fetching and max(pace.batch for pace in self._paces.values()) - self._message >= self._threshold:
            # The next message is the first of a batch that is still long enough to hold back the fetch after it.
            return 1.0, 0
        return 1.0, fits_ms

    @property
    def _empty(self) -> bool:
        """Whether librdkafka's queue holds no whole message, as far as its length is known."""
        return self._queued < 0.5 * self._message

    def _note_taken(self, nbytes: int, now_ms: int) -> None:
        """Follow the queue's length between two statistics events."""
        if not nbytes:
            return
        self._taken += nbytes
        was_empty = self._empty
        self._queued -= nbytes * self._ratio
        if was_empty and self._fetching:
            # Something came out of an empty queue: the batch that was fetched.
            self._queued = max(pace.batch for pace in self._paces.values()) - nbytes * self._ratio
            self._is_guessed = True
            self._fetching = False
        if self._queued < self._sizes.queue_bytes and not self._fetching:
            self._expect(now_ms)

    def _expect(self, now_ms: int) -> None:
        self._fetching = True
        for pace in self._paces.values():
            if pace.big_batches:
                pace.window.expect(pace.batch, now_ms)

    def _learn(self, seen: FetchStatistics, untold: int) -> None:
        """Learn how many bytes on the wire one byte of messages costs: compression, framing, cut batches."""
        # of each: a broker that leads something again has not sent all that it ever sent since the last look
        wire = {node: total for node, (total, _) in seen.received.items()}
        queued = seen.queued_bytes + RECORD_BYTES * seen.queued_count
        came = self._taken + untold + queued - self._queued_before
        self._queued_before = queued
        self._taken = -untold
        before, self._wire_seen = self._wire_seen, wire
        followed, self._followed = self._followed, self.paced and self.fits
        if not self._followed:
            self._blind_at_ms = seen.at_ms
        if before is None or not (followed and self._followed):
            # What is taken while nothing is paced is not told.
            return
        grown = [total - before.get(node, 0) for node, total in wire.items() if node in self._paces]
        if min(grown, default=0) < 0:
            return
        self._wire, self._learnt_from = self._wire + sum(grown), self._learnt_from + came
        if self._learnt_from > 0.0 and self._wire > 0.0:
            self._ratio = min(max(self._wire / self._learnt_from, LEAST_RATIO), MOST_RATIO)
        if self._wire > LEARNING_MS / 1000.0 * max(pace.share.rate for pace in self._paces.values()):
            self._wire /= 2
            self._learnt_from /= 2

    def _follow_brokers(self, nodes: set[int], now_ms: int) -> None:
        """One pace for every broker that leads an assigned partition."""
        for node in nodes - self._paces.keys():
            heir = self._paces.pop(ONLY, None)
            self._paces[node] = heir or BrokerPace(self._limit, FetchWindow(*self._window), now_ms)
            self._dealt_at_ms = now_ms - DEALT_MS
        if nodes:
            for node in self._paces.keys() - nodes - {ONLY}:
                del self._paces[node]
