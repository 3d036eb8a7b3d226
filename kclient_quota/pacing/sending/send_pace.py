"""When the next batch may go to one broker, and how large batches should be: the quota, and what is on its way."""

from collections import deque
from math import inf
from typing import Final

from kclient_quota.pacing.pacer import IN_FLIGHT, SLOW_START_BYTES, Pacer
from kclient_quota.pacing.sending.batch_cost import FIRST_BYTES, BatchCost
from kclient_quota.pacing.sending.lump_size import MAX_DELAY_MS, LumpTerms, lump_bytes
from kclient_quota.pacing.sending.throttle_told import NEVER_MS, Common, ThrottleTold
from kclient_quota.pacing.sending.way import MOST_WAY_MS, QUEUEING, SOON_MS, Way
from kclient_quota.pacing.sending.wire_told import WireTold
from kclient_quota.pacing.trend import TREND

LATE_ROOM: Final = 1.1
"""So many times as much may wait where messages wait for several partitions: the application's thread is some
milliseconds late with what comes after a grant, and batches would be smaller by that (58 orders instead of 64)."""
UNEVEN: Final = 3.0
"""So many times its even share of a round may leave for one partition: keys never fall evenly, and what a popular one
has to leave behind takes a batch of its own. Of readings by 1,000 keys over 100 partitions, embedded, with lz4, a byte
carries 6 % more messages than with 1, 2 has 6 %, 4 has 7 %; over 12 partitions 6 %; with zstd the same."""
ANSWER_ROOM_BYTES: Final = 32_768.0
"""So much may come while the answer is awaited: with what has gone a second's worth of 51,200 B/s."""
PROBE_MS: Final = IN_FLIGHT * MOST_WAY_MS
"""How often it is found out anew how long a way is that seems to have become much longer: one batch goes when all that
were on their way have arrived, so that it waits behind none of ours. Without that, a broker or a machine that is slow
for a while has 19 % of 1 MiB/s used, 43 % of 51,200 B/s, once it takes 300 ms and a second for an answer instead of 5
ms; where it is our own queue that has grown, a probe every 5 s costs such a link a hundredth."""


class SendPace:
    """What one broker may take, in raw bytes: those of keys, values, headers and what a record adds to them.

    Args:
        pacer: paces bytes on the wire.
        cost: what batches take on the wire.
        limit: the quota in bytes per second; None while unknown.
        linger_ms: for how long librdkafka holds messages back to fill a batch.
        max_delay_ms: how long a message may wait for a fuller batch.
        in_flight: how many requests librdkafka has on their way to one broker at most.
        client_bytes: of the `client.id`, which every request carries; None where it is not known.
        longest_throttle_ms: so long a throttle counts at most: after that librdkafka has taken another connection.
        common: to all that share the limit; None: nobody else does.
        answer_ms: how long after the first delivery to wait for who is still being asked for the limit.

    Attributes:
        stands_back: whether no quota of bytes applies: librdkafka waits out the throttles of others itself.
        waits_for_deliveries: whether the last answer was to wait for what is on its way, not for the quota.
        granted: raw bytes granted so far.
    """

    def __init__(
        self,
        pacer: Pacer,
        cost: BatchCost | None = None,
        limit: float | None = None,
        *,
        linger_ms: int = 0,
        max_delay_ms: int = MAX_DELAY_MS,
        in_flight: int = IN_FLIGHT,
        client_bytes: int | None = None,
        longest_throttle_ms: float = inf,
        common: Common | None = None,
        answer_ms: int = 0,
    ) -> None:
        self._pacer, self._limit = pacer, limit
        self._cost = BatchCost() if cost is None else cost
        self._linger_ms, self._max_delay_ms = linger_ms, max_delay_ms
        self._in_flight, self._client_bytes = in_flight, client_bytes
        self._throttle = ThrottleTold(longest_throttle_ms)
        self._common, self._answer_ms, self._awaits_answer = common or Common(), answer_ms, False
        self._asks_from: int | None = None  # what was granted before the batch that a throttle of hours is to get
        self._progress_at_ms = self._probed_at_ms = NEVER_MS
        self._last_wire, self._message_raw = 0, 0.0  # the latter: raw bytes of a message, as of late; 0: not known
        self._told = WireTold(self._cost)
        self._settled = self._landed = self._stray = 0  # raw bytes: delivered, those in whole batches, without a leader
        # of each batch: all that was granted with it, when, and how much its way tells of the distance
        self._flying: deque[tuple[int, int, float]] = deque()
        self._way = Way()
        self._drains = False  # whether nothing goes before all has arrived
        self._owed = 0.0  # bytes on the wire beyond those that the pacer was told of
        self._kept_terms: tuple[float, ...] = ()  # those that the lump was last reckoned from
        self._kept_lump = self.granted = 0
        self.stands_back = self.waits_for_deliveries = False

    def wait_ms(self, raw_bytes: int, now_ms: int, places: int | None = None) -> int:
        """After how many milliseconds a batch of so much may go; 0: now. Grants nothing.

        Args:
            raw_bytes: of the batch.
            now_ms: now.
            places: for how many partitions messages wait. Then it goes when a full one might: what little has come
                since the last one would take the overhead of a batch for itself. None: it goes when there is quota for
                itself.
        """
        self.waits_for_deliveries = False
        pacer = self._pacer
        if self.stands_back:
            return 0
        if self._awaits_answer and self._is_answer_due(now_ms) and places is not None:
            return SOON_MS
        full_raw = 0 if places is None else self._lump_bytes(places)
        at_ms = pacer.admit_at_ms(self.wire_of(raw_bytes), now_ms, full_bytes=self._cost.wire(full_raw))
        throttled_ms = self.throttled_for_ms(now_ms)
        if throttled_ms and not self.blocked_for_ms(now_ms):
            return 0
        wait_ms = max(throttled_ms, at_ms - now_ms if self.granted else 0)
        if wait_ms > 0:
            return wait_ms
        outstanding = self.outstanding
        # Until the first delivery nothing is known of how long this broker takes; what piles up before it arrives at
        # once and would be throttled ten seconds later.
        most = 0.0 if self._drains else self._most_outstanding()
        if outstanding and (not self._settled or self._cost.wire(outstanding + raw_bytes) > most):
            return self._wait_for_deliveries(raw_bytes, now_ms)
        return 0

    def _is_answer_due(self, now_ms: int) -> bool:
        """Whether to wait for who is still being asked for the limit: a cluster that is slow to say takes messages.

        Of a small quota a slow start would send a quarter of a minute's worth within the second that the answer takes,
        and all of it would be throttled.
        """
        self._awaits_answer = self._common.left_ms(self._answer_ms, now_ms) > 0 and self._pacer.rate() == inf
        return self._awaits_answer and self.granted >= SLOW_START_BYTES

    def _most_outstanding(self) -> float:
        """Bytes on the wire that may be on their way; what lingers in librdkafka comes on top."""
        rate = self._pacer.rate()
        return self._pacer.outstanding_bytes + (0.0 if rate == inf else rate * (self._linger_ms + self._way.ms) / 1000)

    def _wait_for_deliveries(self, raw_bytes: int, now_ms: int) -> int:
        self.waits_for_deliveries = True
        rate = self._pacer.rate()
        if rate != inf and self._way.seems_far and now_ms - self._probed_at_ms >= PROBE_MS:
            self._probed_at_ms, self._drains = now_ms, True
        elif rate == inf or now_ms - self._progress_at_ms > QUEUEING * min(self._way.last_ms, MOST_WAY_MS):
            # What is on its way may include what cannot be delivered for minutes: others do not wait for that.
            self._drains = False
        way_ms = MOST_WAY_MS if rate == inf else min(max(self._way.last_ms, MOST_WAY_MS), PROBE_MS)
        if now_ms - max(self._progress_at_ms, self._throttle.ends_ms) >= QUEUEING * way_ms:
            # Nothing is throttled, and nothing arrives: the broker is away, or has no leader for what is on its way.
            # librdkafka's own queue is the place to wait, as without us: what is for other brokers does not wait then.
            return 0
        if rate == inf:
            return SOON_MS
        # Waiting for deliveries is not idleness, which would earn a burst.
        self._pacer.on_sent(0, now_ms)
        return max(1, min(SOON_MS, int(self._cost.wire(raw_bytes) * 1000 / rate)))

    def lump_bytes(self, places: int) -> int:
        """The raw bytes of the largest batch to send at once, while messages for so many partitions wait."""
        return self._lump_bytes(places / UNEVEN)

    def _lump_bytes(self, places: float) -> int:
        if self._pacer.rate() == inf:
            # Slow start: one message at first, then half of what may be on its way.
            is_begun = self._settled or self.stands_back
            return min(self._pacer.request_bytes, int(self._pacer.outstanding_bytes / 2)) if is_begun else 1
        terms = self._terms(places)
        if terms != self._kept_terms:  # asked for with every message, and changed by few
            self._kept_terms, self._kept_lump = terms, lump_bytes(LumpTerms._make(terms))
        return self._kept_lump

    def _terms(self, places: float) -> tuple[float, ...]:
        """Those of `LumpTerms` in their order, in a tuple that is made quickly."""
        pacer, cost = self._pacer, self._cost
        seldom_ms = self._max_delay_ms / max(places, 1.0) if self._throttle.saves_requests else 0.0
        return (
            pacer.rate(),
            pacer.request_bytes if pacer.limit is None else 0,
            max(pacer.every_ms, seldom_ms),
            self._way.ms,
            self._in_flight,
            cost.overhead,
            cost.part,
            cost.compresses,
            self._message_raw,
            self._max_delay_ms,
            places,
        )

    def room_bytes(self, places: int) -> float:
        """How many raw bytes may wait, so that batches are filled and nobody waits for longer than that takes."""
        if self._pacer.rate() == inf:
            return ANSWER_ROOM_BYTES if self._awaits_answer else inf
        late = LATE_ROOM if places > 1 else 1.0
        lump = self._lump_bytes(places)
        # What there is quota for already waits for nothing. Where every hand-over between the application's thread and
        # the sender's takes long, as on a busy machine, a lump in each would leave a tenth of a quota and more.
        behind = max(0.0, self._pacer.banked_bytes - self._cost.wire(lump)) / self._cost.part if self.granted else 0.0
        return late * (max(places, 1) + 1) / 2 * lump + behind / max(1, len(self._common.members))

    def time_of_ms(self, raw_bytes: float) -> int:
        """How long so many raw bytes take to leave, once the window has room for them."""
        rate = self._pacer.usual_rate()
        return 0 if rate == inf else int(raw_bytes * self._cost.part * 1000 / rate)

    def room_in_ms(self, raw_bytes: int, now_ms: int) -> int:
        """When so many raw bytes may come that there is no room for, at the earliest: what is owed leaves before."""
        waits_ms = self._common.left_ms(self._answer_ms, now_ms) if self._awaits_answer else 0
        return max(1, waits_ms, self._pacer.owed_ms(now_ms) + self.time_of_ms(raw_bytes), self.throttled_for_ms(now_ms))

    def raw_in(self, time_ms: float) -> float:
        """How many raw bytes leave within so long; few do while the answer is awaited."""
        return 0.0 if self._awaits_answer else self._pacer.rate() * time_ms / 1000 / self._cost.part

    def wire_of(self, raw_bytes: int) -> int:
        """What a batch of so many raw bytes takes on the wire."""
        return int(self._cost.wire(raw_bytes)) + 1

    def on_granted(self, raw_bytes: int, now_ms: int, messages: int = 1, topic: str | None = None) -> None:
        """A batch of so much goes now, in so many messages of a topic."""
        wire = self.wire_of(raw_bytes)
        if topic is not None and self._client_bytes is not None:
            names = self._client_bytes + len(topic.encode())
            self._cost.names_bytes += (names - self._cost.names_bytes) * (TREND if self._message_raw else 1.0)
        each = raw_bytes / messages
        self._message_raw += (each - self._message_raw) * (TREND if self._message_raw else 1.0)
        self._pacer.on_sent(wire, now_ms)
        self._last_wire, self._owed = wire, self._owed - wire
        tells = 0.0
        if not self.outstanding:
            self._progress_at_ms = now_ms
            tells = TREND
            if self._drains:
                tells, self._drains, self._probed_at_ms = 1.0, False, now_ms
        self.granted += raw_bytes
        self._told.on_granted(wire)
        self._flying.append((self.granted, now_ms, tells))

    def give_back(self, raw_bytes: int) -> None:
        """So much of what was granted was not taken by librdkafka; the pacer counts it all the same."""
        self.granted -= raw_bytes
        while self._flying and self._flying[-1][0] > self.granted:
            _, at_ms, tells = self._flying.pop()
            if not self._flying or self._flying[-1][0] < self.granted:
                self._flying.append((self.granted, at_ms, tells))

    def on_delivered(self, raw_bytes: int, now_ms: int, *, arrived: bool = True) -> None:
        """So much has been delivered or given up; then not all of it has `arrived`."""
        if raw_bytes > 0:
            if not self._settled:
                self._awaits_answer = self._answer_ms > 0
                self._common.begin(now_ms)
            self._settled += raw_bytes
            self._progress_at_ms = now_ms
            while self._flying and self._flying[0][0] <= self._settled:
                total, at_ms, tells = self._flying.popleft()
                self._pacer.on_answer(at_ms, now_ms)
                if arrived:
                    self._pacer.on_late_arrival(self.wire_of(total - self._landed), at_ms, now_ms)
                self._landed = total
                if at_ms > self._throttle.ends_ms:
                    self._way.note(now_ms - at_ms, tells)
            self._pacer.on_success(int(self._cost.part * raw_bytes), now_ms)
            if not arrived:
                self._told.on_given_up()

    def on_stray(self, raw_bytes: int) -> None:
        """So much stays behind in librdkafka, which has nobody to send it to: nothing waits for that to arrive."""
        self._stray += raw_bytes
        self._settled += raw_bytes
        while self._flying and self._flying[0][0] <= self._settled:
            self._landed = self._flying.popleft()[0]

    def on_stray_over(self, raw_bytes: int, handed_at_ms: int, now_ms: int, *, arrived: bool) -> None:
        """So much of that has arrived after all, or is given up."""
        self._stray -= raw_bytes
        if arrived:
            self._pacer.on_late_arrival(self.wire_of(raw_bytes), handed_at_ms, now_ms)

    @property
    def outstanding(self) -> int:
        """Raw bytes granted whose delivery is not known yet."""
        return max(0, self.granted - self._settled)

    def on_wire(self, wire_bytes: int, now_ms: int, *, learns: bool = True) -> bool:
        """Librdkafka has sent so many bytes to this broker since the last call: learn what batches take.

        Nothing is learnt where messages that were not granted here are among them.
        What took more than was foretold is charged for. What took less makes up for later errors, but no more than
        a batch's worth: beyond that, once all has been delivered, the window has room again for what was not sent.

        Returns:
            Whether what was granted for this broker has not gone there.
        """
        self._told.hear(wire_bytes, is_mixed=not learns or self._stray > 0)
        is_elsewhere = self._told.learn(
            self.granted, self.outstanding, len(self._flying), self._message_raw or FIRST_BYTES
        )
        if self._stray:
            # Librdkafka tries those again and again, at the expense of the quota: the others would have nothing left.
            # As without us, all of them share what the broker leaves them.
            self._owed = 0.0
            return False
        self._owed += wire_bytes
        if self._owed > 0:
            self._pacer.on_late_count(int(self._owed), now_ms)
            self._owed = 0.0
        saved = -self._cost.wire(self.outstanding, 0) - self._last_wire - self._owed
        if saved > 0:
            self._owed += saved
            if not self.outstanding:  # while some is on its way nobody knows what that will have taken
                self._pacer.on_less(saved, now_ms)
        return is_elsewhere

    def on_throttle(self, throttle_ms: int, now_ms: int, *, for_bytes: bool = True) -> None:
        """The broker has answered with this throttle time; if it is hours, one batch goes at once.

        Librdkafka takes another connection, from which the broker reads, when a request is not answered in time: that
        batch is to be the request. One that is not `for_bytes` is librdkafka's to wait for: what piles up there makes
        larger batches, which is all that helps against a quota of requests. Beside one of bytes what waits here does.
        """
        counts_ms = self._throttle.hear(throttle_ms, now_ms)
        if counts_ms < throttle_ms:
            self._asks_from = self.granted
        if not for_bytes:
            if self._limit is not None:
                self._throttle.hold(counts_ms, now_ms)
                self._throttle.saves_requests = True
            return
        self.stands_back = False
        if self._limit is None or counts_ms * self._limit > self._last_wire * 1000:
            self._pacer.on_throttle(counts_ms, now_ms)
        else:  # less than a request's worth is the grain of the broker's window, no sign of strangers: wait, no more
            self._throttle.hold(counts_ms, now_ms)

    def set_limit(self, limit: float | None, now_ms: int) -> None:
        """Follow another limit, in bytes per second."""
        self._limit, self.stands_back, self._throttle.saves_requests = limit, False, False
        self.wait_no_longer()
        if limit is None or limit != self._pacer.limit:  # one that shares the pacer may have heard of it before
            self._pacer.set_limit(limit, now_ms)

    def move_to(self, pacer: Pacer, common: Common) -> None:
        """The bytes are another user's from now on."""
        self._pacer, self._common, self._owed = pacer, common, 0.0

    def wait_no_longer(self) -> None:
        """What is still being asked for comes too late for somebody."""
        self._awaits_answer, self._answer_ms = False, 0

    def let_go(self) -> None:
        """It is known that no quota of bytes applies: no slow start, in which requests are many and small."""
        self.stands_back = True
        self._pacer.on_let_go()

    def rate(self) -> float:
        """Bytes per second on the wire that are aimed at; infinite while nothing is known to limit them."""
        return self._pacer.rate()

    def requests_per_s(self, now_ms: int) -> float:
        """How many are sent, in the broker's window and of the size that they have lately had on average."""
        return self._pacer.measured_rate(now_ms) / self._told.usual_bytes if self._told.usual_bytes else 0.0

    def throttled_for_ms(self, now_ms: int) -> int:
        """How much of the broker's last throttle is left."""
        return max(0, self._throttle.held_ms(now_ms), self._pacer.throttled_until_ms - now_ms)

    def told_for_ms(self, now_ms: int) -> int:
        """The same as the broker has said it, be it hours: for who would rather give up than wait for so long."""
        return self._throttle.told_ms(self.throttled_for_ms(now_ms), now_ms)

    def blocked_for_ms(self, now_ms: int) -> int:
        """For how long nothing goes because of it: not the batch for which librdkafka will take another connection."""
        left_ms = self.throttled_for_ms(now_ms)
        return 0 if self.stands_back or (self._asks_from == self.granted and not self.outstanding) else left_ms
