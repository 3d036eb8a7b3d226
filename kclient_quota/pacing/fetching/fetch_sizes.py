"""How large a consumer's fetches are and how much it queues: librdkafka fixes both when a client is made.

A broker returns a fetch's first batch whole, however large, and cuts later ones at the byte limit: what is cut was paid
for and is thrown away. So a fetch that asks for one byte gets exactly one batch, whatever batches there are, and
nothing of it is ever thrown away. Asking for half a batch, or an eighth, only looks as good: batches are never equal,
and what follows a small one is cut off (of exponentially spread sizes 6 and 0.6 % of all bytes).

But one fetch at a time is on its way to a broker, and each has a framing of its own, H bytes. So fetches are of several
batches where one in a round trip is less than the quota r allows, and where batches are so small beside H that framing
costs more. Of F bytes a part C of a batch of B bytes is cut off, half of it where all are alike, all of it where sizes
are exponentially spread; and what comes in lumps of F leaves a part of F / 11r unused, in a window of 11 s. In all
(C B + H) / F + F / 11r, least for F = sqrt(11 r (C B + H)). Where a single batch would keep up no more than a hundredth
may be thrown away: then F is 125 batches or more, if that loses less than H for each of them. Where H is as much as a
batch (400 partitions have 15 kB) more may be, as half of all bytes is lost otherwise, and F may be as long as H is.

A limit that must be learnt may be anything, and is shared with nobody knows whom. So its fetches begin with so little
that each gets one batch, whose size is the producers' choice, and grow with what is really received.

Where nothing limits, sizes are librdkafka's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, Final

from kclient_quota.config import whole_number
from kclient_quota.pacing.known_share import CALM_MS, REQUEST_MS

SLACK: Final = 1.3
"""How much more than needed is on its way, or in a queue whose length is known about only."""
ROUND_TRIP_MS: Final = 3
"""Taken for the round trip until one is known."""
SPARE_MS: Final = 10
"""A fetch goes out so much earlier than it must, as librdkafka may look late whether the queue has room."""
LOOK_MS: Final = 2
"""How often it looks, once for each broker. Those that share a queue must all look before the first of them, which
answers within a few milliseconds, has filled it: or one has several batches in a row, and the others wait for it to be
paid (of 100 kB/s from each of three near brokers 0.87 came at 10 ms, 0.94 at 2, 0.96 at 1, where each broker takes
1.5 % of a processor instead of 1)."""
BATCH_BYTES: Final = 16_384
"""Taken for a batch where none is looked at: a producer's default `batch.size`."""
ONE_BATCH: Final = 1
"""What a fetch asks for that is to bring one batch."""
LEAST_MOST_BYTES: Final = 1_000
"""The least that librdkafka takes for `message.max.bytes`, and so for `fetch.max.bytes`."""
MOST_MOST_BYTES: Final = 1_000_000_000
"""And the most; what it refuses stays for it to refuse."""
CUT: Final = (1 / 2 + 1) / 2
"""C above: what part of a batch a fetch of several ends within, between those that are alike and exponential ones."""
MANY: Final = 125
"""So many batches in a fetch throw less than a hundredth away, even of exponentially spread ones."""
LONGEST_LUMP_MS: Final = 750
"""So many must not stand for more of the quota's time: what comes in longer lumps has to be spaced by the window."""
HEADER_BYTES: Final = 61
"""Of a batch; `wire.batches` says so too, but brings a codec that a client need not load."""
FRAME_BYTES: Final = 60
"""What a fetch's response takes whatever is in it."""
PARTITION_BYTES: Final = 37
"""And for each partition that is asked for, whether there is anything in it or not."""
LUMP: Final = 11
"""Samples in a broker's window, in seconds: see above."""
LEARNING_QUEUE_BYTES: Final = BATCH_BYTES + 2_048
"""More than a full batch of a producer's default `batch.size` (16,384 bytes): the next fetch goes out at once as long
as nothing is paced. No more than that, as whoever was refused for long fills the queue at once. A queue of no more can
hold fetches back, however small the limit: one fetch fills it."""
STEP: Final = 4
"""Sizes are changed when they are wrong by more than this factor: a change costs a fetch that was on its way. What is
lost by fetches of F bytes is a / F + b F, so that those of k times the best size lose (k + 1/k) / 2 as much as the
best: twice as much from k = 3.7 on, and 4 is the next power of two, by which sizes grow."""
LEARNING_FETCH_BYTES: Final = BATCH_BYTES // STEP
"""What one fetch asks for at least where the limit must be learnt."""
MOST_TIME_MS: Final = 2 * CALM_MS
"""A queue that stands for more time than this, two windows, cannot hold fetches back: filling it would take as long."""
DEFAULT_FETCH_BYTES: Final = 1_048_576
DEFAULT_QUEUE_BYTES: Final = 65_536 * 1_024
MOST_FETCH_BYTES: Final = 52_428_800
"""librdkafka's own `fetch.max.bytes`."""

_FETCH_KEYS: Final = ("fetch.message.max.bytes", "max.partition.fetch.bytes")
_QUEUE_KEY: Final = "queued.max.messages.kbytes"
_LEAST_KEY: Final = "message.max.bytes"
"""For a consumer nothing but the least that `fetch.max.bytes` may be; stands where producers have the same settings."""
_SIZE_KEYS: Final = (*_FETCH_KEYS, "fetch.max.bytes", _QUEUE_KEY)
_BACKOFF_KEY: Final = "fetch.queue.backoff.ms"


@dataclass(frozen=True, slots=True)
class FetchSizes:
    """What one client fetches and queues.

    Attributes:
        fetch_bytes: what one fetch asks for from one partition.
        queue_bytes: below so many bytes in librdkafka's queue the next fetch goes out.
        by_hand: whether the user has set any of it, so that all of it stays.
    """

    fetch_bytes: int = DEFAULT_FETCH_BYTES
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    by_hand: bool = False

    @property
    def conf(self) -> dict[str, Any]:
        """Librdkafka's configuration; nothing where it is the default."""
        if self == OPEN:
            return {}
        most = max(self.fetch_bytes, LEAST_MOST_BYTES)
        return {
            "fetch.message.max.bytes": self.fetch_bytes,
            _LEAST_KEY: most,
            "fetch.max.bytes": most,
            "queued.max.messages.kbytes": self.queue_bytes // 1_024,
            # How soon librdkafka notices that the queue has room again; nobody knows how little time that may take.
            _BACKOFF_KEY: 1 if self.queue_bytes == LEARNING_QUEUE_BYTES else LOOK_MS,
        }

    @property
    def imposed(self) -> dict[str, Any]:
        """What holds whatever the user has set: a broker that waits for more than one batch waits in vain."""
        return {"fetch.min.bytes": 1} if self.fetch_bytes == ONE_BATCH and not self.by_hand else {}

    def most_bytes(self, partitions: int) -> int:
        """What one fetch of so many partitions may bring at most; 0: it is not known of how many."""
        if self != OPEN and not self.by_hand:
            return self.fetch_bytes
        return min(self.fetch_bytes * partitions, MOST_FETCH_BYTES) if partitions else MOST_FETCH_BYTES

    def room_bytes(self, queued: float) -> float:
        """What a queue that holds so much has room for; 0 where that is the user's choice, who has it never full."""
        return 0.0 if self.by_hand else max(0.0, self.queue_bytes - queued)

    def hold_back(self, byte_rate: float) -> bool:
        """Whether what is left in the queue can hold fetches back to `byte_rate` bytes per second."""
        return self.queue_bytes <= LEARNING_QUEUE_BYTES or self.queue_bytes * 1000 / byte_rate <= MOST_TIME_MS

    def like(self, wanted: "FetchSizes") -> bool:
        """Whether these do as well as those wanted."""
        near = all(
            mine < STEP * theirs and theirs < STEP * mine
            for mine, theirs in (
                (self.fetch_bytes, wanted.fetch_bytes),
                (max(self.queue_bytes, LEARNING_QUEUE_BYTES), max(wanted.queue_bytes, LEARNING_QUEUE_BYTES)),
            )
        )
        return self.by_hand or (near and max(self.queue_bytes * 1.5, LEARNING_QUEUE_BYTES) >= wanted.queue_bytes)


OPEN: Final = FetchSizes()
"""librdkafka's defaults."""


def sizes_for(
    byte_rate: float | None,
    round_trip_ms: float = ROUND_TRIP_MS,
    batch_bytes: float = inf,
    *,
    partitions: int = 1,
    ahead_bytes: float = 0.0,
) -> FetchSizes:
    """Sizes for a limit of so many bytes per second and broker; None where it must be learnt.

    Args:
        byte_rate: as above.
        round_trip_ms: to the brokers.
        batch_bytes: how large batches are, on average; infinite as long as that is not known: one shows it.
        partitions: how many are fetched from one broker.
        ahead_bytes: what the queue is to have room for besides.
    """
    if byte_rate is None:
        return FetchSizes(LEARNING_FETCH_BYTES, LEARNING_QUEUE_BYTES)
    if byte_rate == inf:
        return OPEN
    fetch_bytes = ONE_BATCH
    if batch_bytes < inf:
        framing = framing_bytes(partitions)
        if keeps_up(byte_rate, round_trip_ms, batch_bytes):
            fetch_bytes = int(min(_one_or_many(byte_rate, batch_bytes, framing), MOST_FETCH_BYTES))
        else:
            fetch_bytes = several_bytes(byte_rate, round_trip_ms, batch_bytes, partitions=partitions)
    if ahead_bytes:  # what the window spaces, as it stands for so long, does not come ahead
        fetch_bytes = min(fetch_bytes, int(LONGEST_LUMP_MS * byte_rate / 1000 / SLACK))
    queue_bytes = int(min(_needed_bytes(byte_rate, round_trip_ms) + ahead_bytes, DEFAULT_QUEUE_BYTES))
    return FetchSizes(fetch_bytes, max(1, queue_bytes // 1024) * 1024)


def _needed_bytes(byte_rate: float, round_trip_ms: float) -> float:
    """What must be there, or on its way, for the limit to be used."""
    return byte_rate * (SLACK * round_trip_ms + SPARE_MS) / 1000


def several_bytes(byte_rate: float, round_trip_ms: float, batch_bytes: float, *, partitions: int) -> int:
    """What a fetch asks for where one batch in a round trip is less than the limit allows."""
    best = _best_bytes(byte_rate, batch_bytes, framing_bytes(partitions))
    return int(min(max(_needed_bytes(byte_rate, round_trip_ms), best), MOST_FETCH_BYTES))


def _best_bytes(byte_rate: float, batch_bytes: float, framing: float) -> float:
    """F above, of which least is lost."""
    return sqrt(LUMP * byte_rate * (CUT * batch_bytes + framing))


def sizes_that_stay(byte_rate: float | None) -> FetchSizes:
    """Sizes for a client whose sizes are never changed, so that they must do for batches of any size."""
    if byte_rate is None:
        return sizes_for(None)
    sizes = sizes_for(byte_rate, batch_bytes=BATCH_BYTES)
    half = min(BATCH_BYTES / 2, byte_rate * REQUEST_MS / 1000)  # where quotas are tiny batches may be, too
    return FetchSizes(max(sizes.fetch_bytes, int(half), LEAST_MOST_BYTES), sizes.queue_bytes)


def framing_bytes(partitions: int) -> int:
    """H above, of a fetch that asks for so many partitions."""
    return FRAME_BYTES + PARTITION_BYTES * partitions


def keeps_up(byte_rate: float, round_trip_ms: float, batch_bytes: float) -> bool:
    """Whether fetches of one batch each bring as many bytes per second as the limit allows."""
    return 1.1 * byte_rate * round_trip_ms / 1000 <= batch_bytes


def _one_or_many(byte_rate: float, batch_bytes: float, framing: float) -> float:
    """Which loses less: fetches of one batch each, or of many."""
    most = max(LONGEST_LUMP_MS * byte_rate / 1000, framing)
    if MANY * batch_bytes > most and framing < batch_bytes:
        return ONE_BATCH
    many_bytes = min(max(_best_bytes(byte_rate, batch_bytes, framing), MANY * batch_bytes), most)
    return ONE_BATCH if _one_is_better(byte_rate, batch_bytes, framing, many_bytes) else many_bytes


def _one_is_better(byte_rate: float, batch_bytes: float, framing: float, many_bytes: float) -> bool:
    one_loses = framing / (batch_bytes + framing) + batch_bytes / LUMP / byte_rate
    many_lose = (CUT * batch_bytes + framing) / (many_bytes + framing) + many_bytes / LUMP / byte_rate
    return one_loses <= many_lose


def one_will_do(
    byte_rate: float, round_trip_ms: float, batch_bytes: float, *, partitions: int, many_bytes: float
) -> bool:
    """Whether fetches of one batch keep up, and lose no more by their framing than those of `many_bytes` cut off."""
    keeps = keeps_up(byte_rate, round_trip_ms, batch_bytes)
    return keeps and _one_is_better(byte_rate, batch_bytes, framing_bytes(partitions), many_bytes)


def sizes_while_learning(byte_rate: float, partitions: int = 1, round_trip_ms: float = 0.0) -> FetchSizes:
    """Sizes for a client that has learnt so many bytes per second of a broker, so far away.

    Its queue is of one of a few sizes as well, as what is learnt goes up and down.
    """
    sizes = _in_steps(max(2 * byte_rate * SPARE_MS / 1000, framing_bytes(partitions)))
    on_its_way, queue_bytes = min(SLACK * byte_rate * round_trip_ms / 1000, DEFAULT_QUEUE_BYTES), sizes.queue_bytes
    while queue_bytes < on_its_way:
        queue_bytes *= STEP
    return replace(sizes, queue_bytes=queue_bytes)


def sizes_while_nothing_is_learnt(byte_rate: float, round_trip_ms: float) -> FetchSizes:
    """Sizes for a client that receives so many bytes per second from its best broker, and was never refused.

    A limit is somewhere beyond that. So as long as half of what a fetch asks for comes in each round trip, the next
    ones ask for more: with one batch in 20 ms it had 0.8 MB/s for good, of a quota of 5 and of none at all.
    """
    wanted = max(2 * byte_rate * SPARE_MS, 2 * STEP * byte_rate * round_trip_ms) / 1000
    return OPEN if wanted >= STEP * DEFAULT_FETCH_BYTES else _in_steps(wanted)


def _in_steps(wanted_bytes: float) -> FetchSizes:
    if wanted_bytes >= DEFAULT_FETCH_BYTES:
        return FetchSizes(DEFAULT_FETCH_BYTES, STEP * DEFAULT_FETCH_BYTES)
    fetch_bytes = LEARNING_FETCH_BYTES
    while fetch_bytes * STEP <= wanted_bytes:
        fetch_bytes *= STEP
    return FetchSizes(fetch_bytes, max(fetch_bytes, LEARNING_QUEUE_BYTES))


def with_sizes(
    conf: Mapping[str, Any], byte_rate: float | None, *, learn: bool = False
) -> tuple[dict[str, Any], FetchSizes]:
    """`conf` with sizes for the limit, where the user has not set any.

    Args:
        conf: the user's.
        byte_rate: bytes per second and broker; None where nothing limits, or nothing is known to.
        learn: whether there is said to be a limit that nobody tells.

    Returns:
        the configuration and the sizes that hold.
    """
    by_hand = bool(conf.keys() & {*_SIZE_KEYS})
    sizes = sizes_that_stay if by_hand else sizes_for
    chosen = (sizes(byte_rate) if learn or byte_rate is not None else OPEN).conf
    if conf.keys() & {*_SIZE_KEYS[:-1]}:
        for key in (*_SIZE_KEYS[:-1], _LEAST_KEY):
            chosen.pop(key, None)
    merged = {**chosen, **conf}
    if _LEAST_KEY in chosen and LEAST_MOST_BYTES <= whole_number(merged, (_LEAST_KEY,), 0) <= MOST_MOST_BYTES:
        merged[_LEAST_KEY] = chosen[_LEAST_KEY]
    backoff_ms = chosen.get(_BACKOFF_KEY)
    if backoff_ms is not None and _QUEUE_KEY not in conf and whole_number(conf, (_BACKOFF_KEY,), 0) > SPARE_MS:
        # What suits a queue of megabytes has one of ours empty for most of the time.
        merged[_BACKOFF_KEY] = backoff_ms
    fetch_bytes = whole_number(merged, _FETCH_KEYS, DEFAULT_FETCH_BYTES)
    queue_kbytes = whole_number(merged, (_QUEUE_KEY,), DEFAULT_QUEUE_BYTES // 1_024)
    return merged, FetchSizes(fetch_bytes, queue_kbytes * 1_024, by_hand)
