"""What the worlds of producers and of consumers have in common: virtual time, and what they keep of what happened."""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation.model import Kind, Network
from kclient_quota.simulation.parts import Part

BIN_MS: Final = 1_000
"""What bytes are counted by, in time."""
RECORD_WIRE_BYTES: Final = 10
"""What a record of format 2 adds to a value of some kB."""
REQUEST_WIRE_BYTES: Final = 125
"""What the header of a produce request and of its batch take."""
PRINCIPAL: Final = "ANONYMOUS"
CLIENT_ID: Final = "simulated"
START_MS: Final = 1_000_000
"""Where virtual time begins."""


class Randomness(Protocol):
    """What is needed of `random.Random`; give a seeded one, and the same comes out every time."""

    def random(self) -> float:
        """Evenly from 0 to below 1."""
        ...


@dataclass(slots=True)
class Throttles:
    """Throttle times of responses after the warm-up, in ms, and how many had them; zeros too.

    Attributes:
        counts: as above.
        first_ms: the longest before the end of the warm-up; 0 when there were none.
    """

    counts: Counter[int] = field(default_factory=Counter)
    first_ms: int = 0

    def note(self, throttle_ms: int, *, warm: bool) -> None:
        """A response said `throttle_ms`; `warm`: after the warm-up."""
        if warm:
            self.counts[throttle_ms] += 1
        elif throttle_ms > self.first_ms:
            self.first_ms = throttle_ms


@dataclass(slots=True)
class Delivery:
    """What became of plain producers' messages.

    Attributes:
        bytes_by_bin: of values that were acknowledged in each BIN_MS.
        timeouts: connections that were given up because a request had no answer in time.
        duplicates: messages that brokers recorded though the producer had given up the connection: it sends them again.
        expired: messages that were given up, too old.
    """

    bytes_by_bin: MutableSequence[int]
    timeouts: int = 0
    duplicates: int = 0
    expired: int = 0

    def note(self, now_ms: int, nbytes: int) -> None:
        """Values of so many bytes were acknowledged."""
        self.bytes_by_bin[(now_ms - START_MS) // BIN_MS] += nbytes


@dataclass(slots=True)
class Outcome:
    """What happened in one part.

    Attributes:
        part: which brokers and clients.
        bytes_by_bin: for each client of the part, bytes that brokers recorded in each BIN_MS.
        longest_gap_ms: for each client of the part, the longest time after the warm-up without a message: none
            recorded by a broker for producers, none handed to the application for consumers.
        throttles: of each kind of clients.
        requests: how many, in all.
        delivery: of plain producers; None of consumers.
    """

    part: Part
    bytes_by_bin: Sequence[Sequence[int]]
    longest_gap_ms: list[int] = field(default_factory=list)
    throttles: dict[Kind, Throttles] = field(default_factory=lambda: {kind: Throttles() for kind in Kind})
    requests: int = 0
    delivery: Delivery | None = None


def bins_for(end_ms: int) -> MutableSequence[int]:
    """Nothing in any BIN_MS; an array, since ten thousand clients for ten minutes are six million numbers."""
    return array("q", bytes(8 * (end_ms // BIN_MS)))


class Gap:
    """The longest time between two messages of one client.

    Args:
        begin_ms: from when on gaps count.
    """

    __slots__ = ("last_ms", "longest_ms")

    def __init__(self, begin_ms: int) -> None:
        self.last_ms = begin_ms
        self.longest_ms = 0

    def note(self, now_ms: int) -> None:
        """A message, or the end."""
        since_ms = now_ms - self.last_ms
        if since_ms > 0:
            self.longest_ms = max(self.longest_ms, since_ms)
            self.last_ms = now_ms


class Tally:
    """One client's part in an outcome.

    Args:
        outcome: of everybody.
        kind: the client's.
        bins: its row of `Outcome.bytes_by_bin`.
        gap: its longest time without a message.
        warm_ms: when the warm-up ends.
    """

    __slots__ = ("_bins", "_gap", "_outcome", "_throttles", "_warm_ms")

    def __init__(self, outcome: Outcome, kind: Kind, bins: MutableSequence[int], gap: Gap, warm_ms: int) -> None:
        self._outcome = outcome
        self._throttles = outcome.throttles[kind]
        self._bins = bins
        self._gap = gap
        self._warm_ms = warm_ms

    def note(self, nbytes: int, throttle_ms: int, now_ms: int) -> None:
        """A broker has recorded a request."""
        self._bins[(now_ms - START_MS) // BIN_MS] += nbytes
        self._gap.note(now_ms)
        self._outcome.requests += 1
        self._throttles.note(throttle_ms, warm=now_ms >= self._warm_ms)


class Way:
    """From a client to a broker, or back."""

    __slots__ = ("_jitter_ms", "_random", "_way_ms")

    def __init__(self, network: Network, randomness: Randomness) -> None:
        self._way_ms = network.round_trip_ms / 2
        self._jitter_ms = network.jitter_ms + 1
        self._random = randomness.random

    def arrival(self, leaves_ms: int) -> int:
        """When what leaves then is there."""
        return int(leaves_ms + self._way_ms + self._random() * self._jitter_ms)


class Events:
    """Calls to come, in the order of their times; of equal times the one that was made first."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Any, int], None], Any]] = []
        self._order = 0

    def push(self, at_ms: int, call: Callable[[Any, int], None], argument: Any) -> None:
        """`call(argument, at_ms)`, when the time has come."""
        self._order += 1
        heapq.heappush(self._heap, (at_ms, self._order, call, argument))

    def run(self, end_ms: int) -> None:
        """Let the time pass."""
        heap = self._heap
        pop = heapq.heappop
        while heap:
            now_ms, _, call, argument = pop(heap)
            if now_ms >= end_ms:
                return
            call(argument, now_ms)


def managers_of(quota: float, key: str) -> QuotaManagers:
    """One broker's managers with one quota for everybody.

    Args:
        quota: bytes per second.
        key: PRODUCER_BYTE_RATE or CONSUMER_BYTE_RATE.
    """
    managers = QuotaManagers()
    managers.update_quota(ClientQuotaEntity({"client-id": CLIENT_ID}), key, quota)
    return managers
