"""What Kafka's window allows a share consumer that is never refused, and what ours gets of it, in virtual time.

`python -m benchmarks.share_bound [--minutes 20]`. A batch that is recorded stays in the window for 11 s at the least:
its sample goes 11 s after its last event. So what is sent within any 11 s is in the window together. If it all began in
these 11 s the window is shorter than 11 s; if the window began before, it is shorter than 12 s, but then it holds one
batch more, which opened it. So n batches, each worth t seconds of the quota, need n t < 11, or (n + 1) t < 12: nobody
has more than n t / 11 of the quota for long.
"""

import argparse
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from benchmarks import report
from kclient_quota.pacing.fetching.share_fetch import SharePacer
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledRate

_KEPT_MS = QUOTA_SAMPLES * QUOTA_WINDOW_MS
_BEGIN_MS = 1_700_000_000_000
_PAYLOAD_BYTES = 1_000
_RECORD_BYTES = _PAYLOAD_BYTES + 10
_BATCH_BYTES = 131
"""Of a batch's header and an answer's own, as the embedded broker counts them."""
_CELLS = ((20_000, 5), (20_000, 15), (20_000, 190), (100_000, 15), (100_000, 190), (1_000_000, 15), (1_000_000, 190))
"""Bytes a second, and records a batch: those of `benchmarks.share_groups`, and smaller batches."""
_COLUMNS = ("quota", "records a batch", "at most", "payload", "ours", "payload", "refused")


class Played(NamedTuple):
    """What a share consumer came to.

    Attributes:
        part: of the quota, as the broker counts.
        refused: answers that were acquired and sent empty.
    """

    part: float
    refused: int


def counted_bytes(records: int) -> int:
    """What a broker counts for a batch of so many records of 1 kB that an answer brings."""
    return records * _RECORD_BYTES + _BATCH_BYTES


def most_batches(batch_bytes: float, byte_rate: float) -> int:
    """How many fit into any 11 s, for a client that is never refused."""
    batch_ms = batch_bytes * 1000.0 / byte_rate
    within = ceil(_KEPT_MS / batch_ms) - 1
    longer = ceil((_KEPT_MS + QUOTA_WINDOW_MS) / batch_ms) - 2
    return max(within, longer)


def bound(batch_bytes: float, byte_rate: float) -> float:
    """The part of the quota that nobody exceeds for long without being refused."""
    return most_batches(batch_bytes, byte_rate) * batch_bytes * 1000.0 / _KEPT_MS / byte_rate


def played(batch_bytes: int, byte_rate: int, minutes: float, *, busy_ms: int = 0) -> Played:
    """Ours against Kafka's own window, in virtual time; the first minute, which begins with an empty one, left out.

    Args:
        batch_bytes: that the broker counts.
        byte_rate: the quota.
        minutes: how long.
        busy_ms: how long the application is after each batch.
    """
    pacer, window = SharePacer(byte_rate), SampledRate()
    now_ms, sent, refused = _BEGIN_MS, 0, 0
    from_ms, end_ms = _BEGIN_MS + 60_000, _BEGIN_MS + round(60_000 * minutes)
    while now_ms < end_ms:
        wait_ms = pacer.wait_ms(now_ms)
        if wait_ms:
            now_ms += min(wait_ms, 100)
            continue
        pacer.asks()
        window.record(batch_bytes, now_ms + 1)
        if window.measure(now_ms + 1) > byte_rate:
            window.record(-batch_bytes, now_ms + 1)
            refused += 1
        elif now_ms >= from_ms:
            sent += batch_bytes
        pacer.answered({1: batch_bytes}, now_ms, now_ms + 2)
        now_ms += 2 + busy_ms
    return Played(sent * 1000.0 / (end_ms - from_ms) / byte_rate, refused)


def rows(minutes: float) -> Iterator[list[str]]:
    """One a cell."""
    for byte_rate, records in _CELLS:
        batch = counted_bytes(records)
        ours = played(batch, byte_rate, minutes)
        payload = records * _PAYLOAD_BYTES / batch
        most = bound(batch, byte_rate)
        parts = (most, most * payload, ours.part, ours.part * payload)
        yield [f"{byte_rate // 1000} kB/s", str(records), *(f"{part:.3f}" for part in parts), str(ours.refused)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.share_bound", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="of virtual time (default: 20)")
    options = parser.parse_args(arguments)
    print(report.table("parts of the quota, in batches of records of 1 kB", _COLUMNS, list(rows(options.minutes))))


if __name__ == "__main__":
    main()
