"""Which sizes a consumer's fetches and its queue should have: by the limit, the distance, and how large batches are.

How large they are is seen while each fetch brings one of them, so that is how everybody begins; of larger fetches
nobody could tell how much of them is cut off.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from statistics import median_low
from typing import Any, Final

from kclient_quota.clients.limits import Limit
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import (
    HEADER_BYTES,
    LONGEST_LUMP_MS,
    ONE_BATCH,
    OPEN,
    ROUND_TRIP_MS,
    FetchSizes,
    framing_bytes,
    keeps_up,
    one_will_do,
    several_bytes,
    sizes_for,
    sizes_while_learning,
    sizes_while_nothing_is_learnt,
)
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics, end_of
from kclient_quota.pacing.known_share import CALM_MS
from kclient_quota.pacing.trend import TREND

CROWD_WINDOWS: Final = 2
"""Who learns is refused for so many samples of the window, again and again, by a crowd; by a batch that cannot come for
longer."""
STAY_MS: Final = 5_000
"""Sizes are not changed again before so much has been seen of them."""
LOOKS: Final = 2
"""Statistics that tell how large batches are; the first response that they know of may be another one."""
HELD_BACK: Final = 0.5
"""Who receives less than so much of what it may has nothing to gain by less framing, which costs another client."""
BUSY_PER_S: Final = 200
"""Nor has who gets fewer responses per second; whoever gets as many may get no more for the time that each takes."""
LEAST_ROUND_TRIP_MS: Final = 1.0
"""What a fetch takes both sides, however near they are: the shortest round trip says some microseconds."""
AMPLE: Final = 2.0
"""What is learnt may grow: fetches of one batch must do for so many times as much before sizes are changed to that."""
PATIENCE: Final = 8
"""Statistics in a row that must say so: two seconds, longer than what was prefetched at first takes to come."""
TELLING: Final = 20
"""Statistics that must tell of a way before it is taken to be so long: five seconds of them. Time would not do: who has
worked for six seconds between two polls has one that stands for all of it, with one round trip in it."""


class Distance:
    """How far one broker is: the usual round trip of the last seconds, and the shortest as long as that is not known.

    One batch in each round trip comes as often as those take on average, be there one among them that is short: where
    every way takes 0 to 100 ms the shortest of five seconds is 10 to 30.

    Attributes:
        ms: that; infinite as long as it is not known.
    """

    def __init__(self) -> None:
        self.ms = inf
        self._is_usual = False
        self._lately_ms: list[float] = []

    def see(self, shortest_ms: float, usual_ms: float, *, tells: bool, at_most: bool) -> None:
        """Learn from statistics.

        Args:
            shortest_ms: the shortest round trip since the last ones.
            usual_ms: how long they took on average.
            tells: whether the broker has answered at once. Where it has nothing, fetches wait for messages, and what
                they took says nothing of how far it is.
            at_most: whether it is no farther than that, but may be nearer.
        """
        if not self._is_usual:
            self.ms = min(self.ms, shortest_ms)
        if not tells:
            return
        self._lately_ms.append(usual_ms)
        if len(self._lately_ms) == TELLING:
            usual_ms = median_low(self._lately_ms)  # a mute that is over by now makes one of them longer
            self.ms = min(self.ms, usual_ms) if at_most else usual_ms
            self._is_usual = True
            self.begin_anew()

    def begin_anew(self) -> None:
        """Fetches are of other sizes from now on, and take another time."""
        self._lately_ms.clear()


class Sizing:
    """Of one consumer.

    Args:
        sizes: how it fetches at first.
        now_ms: when it is made.

    Attributes:
        sizes: how it fetches now.
    """

    def __init__(self, sizes: FetchSizes, now_ms: int) -> None:
        self.sizes = sizes
        self._stays_until_ms = now_ms
        self._round_trip_ms = float(ROUND_TRIP_MS)
        self._distances: defaultdict[int, Distance] = defaultdict(Distance)  # of each broker
        self._next: dict[tuple[str, str], int] = {}  # the offset to fetch next by partition, at the last statistics
        self._totals: dict[int, tuple[int, int]] = {}  # bytes and responses by broker, at the last statistics
        self._bytes = self._batches = 0.0  # received lately, one batch in each response
        self._looks = 0
        self._partitions = 1
        self._received_per_s = self._responses_per_s = 0.0
        self._elapsed_s = self._response_bytes = 0.0
        self._ahead_bytes = 0.0  # of the last response, what half of the limit takes longer than statistics for
        self._held_back = 0  # statistics in a row in which much of the limit came

    @property
    def batch_bytes(self) -> float:
        """Bytes of a batch on average; infinite as long as that is not known."""
        return self._bytes / self._batches if self._looks >= LOOKS else inf

    @property
    def lump_bytes(self) -> float:
        """Bytes that a fetch brings; infinite as long as that is not known."""
        return max(self.batch_bytes, self.sizes.fetch_bytes)

    @property
    def _framed(self) -> float:
        """Bytes on the wire for each byte of batches, as far as that is known."""
        return 1.0 + framing_bytes(self._partitions) / self.lump_bytes  # infinite as long as it is not known

    def look(self, statistics: Mapping[str, Any], seen: FetchStatistics, elapsed_ms: int) -> None:
        """Learn the round trip, and how large batches are, of an event, and of what it says about fetching."""
        fetched_from = Counter(seen.leaders.values())
        self._partitions = max(fetched_from.values(), default=1)
        self._measure(statistics)
        known = [self._distances[node].ms for node in fetched_from if node in self._distances]
        if known:
            self._round_trip_ms = max(known)
        before, self._totals = self._totals, dict(seen.received)
        received = responses = 0
        for node in fetched_from.keys() & seen.received.keys():
            total, answered = seen.received[node]
            # The first that is known of a client of librdkafka's has told about its cluster, too.
            total_before, answered_before = before.get(node, (total, answered))
            if total >= total_before:
                received = max(received, total - total_before)
                responses = max(responses, answered - answered_before)
                self._look_at(total - total_before, answered - answered_before)
        if responses:
            self._response_bytes = received / responses
        if elapsed_ms > 0:
            self._elapsed_s = elapsed_ms / 1000
            self._received_per_s = received * 1000.0 / elapsed_ms
            self._responses_per_s = responses * 1000.0 / elapsed_ms

    def _measure(self, statistics: Mapping[str, Any]) -> None:
        """Learn how far each broker is: one that has not answered since the last statistics is as far as before.

        Of a broker that has no messages the shortest is what was asked when it was connected to, so it counts before
        anything is fetched from it, too. Larger fetches take longer to come the larger they are, so only those of one
        batch tell that a broker is farther away than it was; and one that throttles does not read what it is asked.
        A coordinator's connection brings no messages, and has its members wait for each other.
        """
        at_once = self._answering(statistics)
        for broker in statistics.get("brokers", {}).values():
            round_trips = broker.get("rtt", {})
            shortest_us = round_trips.get("min", 0)
            if shortest_us > 0 and broker.get("source") != "logical":
                node, throttles = broker["nodeid"], broker.get("throttle", {}).get("max", 0)
                self._distances[node].see(
                    shortest_us / 1000,
                    round_trips.get("avg", shortest_us) / 1000,
                    tells=node in at_once and not throttles,
                    at_most=self.sizes.fetch_bytes != ONE_BATCH,
                )

    def _answering(self, statistics: Mapping[str, Any]) -> set[int]:
        """Brokers that have answered at once: of a partition that they have given of they have more.

        They may have of one that is paused, too, while what is fetched beside it waits for messages.
        """
        before, self._next, found = self._next, {}, set()
        for topic, told in statistics.get("topics", {}).items():
            for number, partition in told["partitions"].items():
                offset = self._next[topic, number] = partition.get("next_offset", -1)
                if 0 <= before.get((topic, number), -1) < offset < end_of(partition):
                    found.add(partition["broker"])
        return found

    def _look_at(self, nbytes: int, responses: int) -> None:
        """Learn how large batches are, of so many bytes in so many responses of one broker."""
        if responses <= 0:
            return
        each = nbytes / responses - framing_bytes(self._partitions)
        if each <= HEADER_BYTES:
            return  # nothing has come
        if self.sizes.fetch_bytes == ONE_BATCH:
            self._looks += 1
            # An average over some seconds, since sizes vary.
            self._bytes = self._bytes * (1.0 - TREND) + each * responses
            self._batches = self._batches * (1.0 - TREND) + responses
        elif each > 1.1 * self.sizes.fetch_bytes:
            # Larger than what was asked for: each response is one batch again.
            self._looks += 1
            self._bytes, self._batches = each, 1.0

    def other(self, limit: Limit, paces: Collection[BrokerPace], now_ms: int) -> FetchSizes | None:
        """The sizes to fetch in, if those that there are will not do; who fetches in them then tells `change`."""
        if self.sizes.by_hand or now_ms < self._stays_until_ms:
            return None
        # A broker that mutes us for longer than a crowd brings about would mute another client's first fetch as well.
        longest_ms = CROWD_WINDOWS * limit.window_ms
        if limit.byte_rate is None and any(pace.throttled_until_ms - now_ms > longest_ms for pace in paces):
            return None
        wanted = self._wanted(limit, paces, now_ms)
        if self.sizes.like(wanted):
            return None
        self._stays_until_ms = now_ms + STAY_MS
        return wanted

    def change(self, sizes: FetchSizes) -> float:
        """It fetches in these from now on; how many times as much as before a byte of messages takes of the quota."""
        before, self.sizes = self._framed, sizes
        self._totals.clear()
        for distance in self._distances.values():
            distance.begin_anew()
        return self._framed / before

    def _wanted(self, limit: Limit, paces: Collection[BrokerPace], now_ms: int) -> FetchSizes:
        byte_rate = limit.byte_rate
        if byte_rate is not None:
            share = min((pace.rate for pace in paces), default=byte_rate)
            self._held_back = self._held_back + 1 if self._is_busy(share) else 0
            batch_bytes = self.batch_bytes
            round_trip_ms = self._round_trip_ms
            is_long = batch_bytes * 1000.0 >= LONGEST_LUMP_MS * byte_rate
            # One broker may fill the queue alone: it is to hold no more than a window, and can hold fetches back then.
            most = share * CALM_MS / 1000
            ahead_bytes = 0.0 if is_long else min(most, sum(pace.ahead_bytes(now_ms) for pace in paces))
            if batch_bytes == inf:
                # Whatever the distance asks for.
                return sizes_for(byte_rate, min(round_trip_ms, ROUND_TRIP_MS))
            patient = self.sizes.fetch_bytes == ONE_BATCH and self._held_back < PATIENCE
            if patient and keeps_up(byte_rate, round_trip_ms, batch_bytes):
                return sizes_for(byte_rate, round_trip_ms, ahead_bytes=ahead_bytes)
            round_trip_ms = max(round_trip_ms, LEAST_ROUND_TRIP_MS)
            partitions = self._partitions
            return sizes_for(byte_rate, round_trip_ms, batch_bytes, partitions=partitions, ahead_bytes=ahead_bytes)
        learnt = min((pace.rate for pace in paces), default=inf)
        if learnt < inf:
            return self._while_learning(learnt)
        if limit.known or self.sizes == OPEN:
            return OPEN
        # Nothing has been learnt yet: what comes without being refused may be asked for in larger pieces.
        largest = sizes_while_nothing_is_learnt(self._received_per_s, self._round_trip_ms)
        return max(largest, self.sizes, key=lambda sizes: (sizes.fetch_bytes, sizes.queue_bytes))

    def _is_busy(self, share: float) -> bool:
        """Whether as much comes as is worth less framing.

        Of 500 partitions a response has 18 kB of framing, and under a small quota few of them come in a second: one
        stands for the statistics that follow it, too, until half of the limit has used it up.
        """
        came = self._ahead_bytes + self._received_per_s * self._elapsed_s
        used = HELD_BACK * share * self._elapsed_s
        self._ahead_bytes = min(max(0.0, came - used), self._response_bytes)
        return came >= used > 0.0 or self._responses_per_s >= BUSY_PER_S

    def _while_learning(self, learnt: float) -> FetchSizes:
        """For a limit that has been learnt: one batch at a time, as long as that does or is not known."""
        partitions, round_trip_ms, batch_bytes = self._partitions, self._round_trip_ms, self.batch_bytes
        sizes = sizes_while_learning(learnt, partitions, round_trip_ms)
        rate = learnt if self.sizes.fetch_bytes == ONE_BATCH else AMPLE * learnt
        many = {"partitions": partitions, "many_bytes": sizes.fetch_bytes}
        if batch_bytes == inf or one_will_do(rate, round_trip_ms, batch_bytes, **many):
            return replace(sizes, fetch_bytes=ONE_BATCH)
        if keeps_up(rate, round_trip_ms, batch_bytes):
            return sizes
        several = several_bytes(learnt, round_trip_ms, batch_bytes, partitions=partitions)
        return replace(sizes, fetch_bytes=max(sizes.fetch_bytes, several))
