"""How large a consumer's fetches are and how much it queues: fixed when librdkafka's client is made.

A broker returns a fetch's first batch whole, however large, and cuts later ones at the byte limit: what is cut was paid
for and is thrown away. So a fetch asks for little, a twentieth of a second, and usually gets exactly one batch.

A limit that must be learnt may be anything, and is shared with nobody knows whom. So a fetch asks for so little that it
gets one batch, whose size is the producers' choice: where much is written batches are large, and fetches with them.

Where nothing limits, fetches stay librdkafka's. The queue does not: a quota that comes later is followed by leaving so
much in the queue that no fetch goes out, and librdkafka's own 64 MB would first have to be filled at the quota's rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kclient_quota.config import whole_number

FETCH_MS: Final = 50
"""How much time one fetch's bytes stand for."""
LEAST_FETCH_BYTES: Final = 1_000
MOST_FETCH_BYTES: Final = 1_000_000
LEARNING_FETCH_BYTES: Final = 4_096
"""What one fetch asks for where the limit must be learnt."""
LEARNING_QUEUE_KBYTES: Final = 18
"""More than a full batch of a producer's default `batch.size` (16,384 bytes): the next fetch goes out at once as long
as nothing is paced. No more than that, as whoever was refused for long fills the queue at once."""
LEARNING_BACKOFF_MS: Final = 1
"""How soon room in that queue is noticed, where a batch is larger."""
SMALL_QUEUE_BYTES: Final = LEARNING_QUEUE_KBYTES * 1_024
"""A queue of no more can hold fetches back, however small the limit: one fetch fills it."""
QUEUE_BACKOFF_MS: Final = 10
"""How soon librdkafka notices that the queue has room again."""
OPEN_QUEUE_KBYTES: Final = 1_024
"""What is queued while no limit is known, for one that may come."""
OPEN_QUEUE_BACKOFF_MS: Final = 2
"""How soon room in that queue is noticed: it must not run empty before the next fetch has come."""
DEFAULT_QUEUE_KBYTES: Final = 65_536
DEFAULT_FETCH_BYTES: Final = 1_048_576
MOST_TIME_MS: Final = 25_000
"""A queue that stands for more time than this cannot hold fetches back: filling it would take as long."""
LEAST_TIME_MS: Final = 2
"""Fetches that stand for less time than this cannot keep up with the limit."""

_FETCH_KEYS: Final = ("fetch.message.max.bytes", "max.partition.fetch.bytes")


@dataclass(frozen=True, slots=True)
class FetchSizes:
    """What one client fetches and queues.

    Attributes:
        fetch_bytes: what one fetch asks for from one partition.
        queue_bytes: below so many bytes in librdkafka's queue the next fetch goes out.
        sized: whether they were chosen for a limit, or are librdkafka's or the user's own.
    """

    fetch_bytes: int
    queue_bytes: int
    sized: bool

    def fit(self, byte_rate: float) -> bool:
        """Whether spacing alone can follow a limit of `byte_rate` bytes per second with these sizes."""
        keeps_up = self.fetch_bytes >= MOST_FETCH_BYTES or self.fetch_bytes * 1000 / byte_rate >= LEAST_TIME_MS
        return keeps_up and self.hold_back(byte_rate)

    def hold_back(self, byte_rate: float) -> bool:
        """Whether what is left in the queue can hold fetches back to `byte_rate` bytes per second."""
        return self.queue_bytes <= SMALL_QUEUE_BYTES or self.queue_bytes * 1000 / byte_rate <= MOST_TIME_MS


def sizes_for(byte_rate: float | None) -> tuple[dict[str, Any], FetchSizes]:
    """Choose sizes.

    Args:
        byte_rate: bytes per second and broker; None where they must be learnt.

    Returns:
        librdkafka's configuration and what it comes to.
    """
    if byte_rate is None:
        fetch_bytes, queue_kbytes, backoff_ms = LEARNING_FETCH_BYTES, LEARNING_QUEUE_KBYTES, LEARNING_BACKOFF_MS
    else:
        fetch_bytes = int(min(max(byte_rate * FETCH_MS / 1000, LEAST_FETCH_BYTES), MOST_FETCH_BYTES))
        queue_kbytes, backoff_ms = max(1, fetch_bytes // 1024), QUEUE_BACKOFF_MS
    conf = {
        "fetch.message.max.bytes": fetch_bytes,
        # For a consumer message.max.bytes is nothing but the least that fetch.max.bytes may be.
        "message.max.bytes": fetch_bytes,
        "fetch.max.bytes": fetch_bytes,
        "queued.max.messages.kbytes": queue_kbytes,
        "fetch.queue.backoff.ms": backoff_ms,
    }
    return conf, FetchSizes(fetch_bytes, queue_kbytes * 1024, sized=True)


def _open_conf(*, follow: bool) -> dict[str, Any]:
    """What is set where nothing limits."""
    if not follow:
        return {}
    return {"queued.max.messages.kbytes": OPEN_QUEUE_KBYTES, "fetch.queue.backoff.ms": OPEN_QUEUE_BACKOFF_MS}


def with_sizes(
    conf: Mapping[str, Any], byte_rate: float | None, *, follow: bool, learn: bool = False
) -> tuple[dict[str, Any], FetchSizes]:
    """`conf` with sizes for the limit, where the user has not set any.

    Args:
        conf: the user's.
        byte_rate: bytes per second and broker; None where nothing limits, or nothing is known to.
        follow: whether a limit may come later, where there is none; otherwise sizes stay librdkafka's.
        learn: whether there is said to be a limit that nobody tells.

    Returns:
        the configuration and the sizes that hold.
    """
    sized = learn or byte_rate is not None
    chosen = sizes_for(byte_rate)[0] if sized else _open_conf(follow=follow)
    theirs = {key for key in conf if key in chosen or key in _FETCH_KEYS}
    if theirs & {*_FETCH_KEYS, "fetch.max.bytes", "message.max.bytes"}:
        for key in (*_FETCH_KEYS, "fetch.max.bytes", "message.max.bytes"):
            chosen.pop(key, None)
    merged = {**chosen, **conf}
    fetch_bytes = whole_number(merged, _FETCH_KEYS, DEFAULT_FETCH_BYTES)
    queue_bytes = whole_number(merged, ("queued.max.messages.kbytes",), DEFAULT_QUEUE_KBYTES) * 1024
    return merged, FetchSizes(fetch_bytes, queue_bytes, sized=sized and not theirs)
