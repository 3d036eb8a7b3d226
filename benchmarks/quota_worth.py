"""What a quota is worth: messages per second of our send queue in virtual time, beside the most that is possible.

`python -m benchmarks.quota_worth` plays every cell of {readings of 20 bytes, orders of 290, noise of 1,000, documents
of 10,000} x {none, lz4, zstd} x {keys over 1, 3, 12, 100 partitions, no keys} x {51,200 B/s, 1 MiB/s} for a minute, and
prints messages per second, the ideal, their ratio, the 99th percentile from `produce()` returning to the report, of the
time inside `produce()`, and throttles. The ideal is the best over all batches of n that arrive for a partition within
the delay allowed: 0.995 of the quota, less the price of lumps, divided by what librdkafka's own batches of n take.
"""

import argparse
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from kclient_quota.simulation.batching import Batching, ideal
from kclient_quota.simulation.sending import Cell, SendingWorld

DATA: Final = ("readings", "orders", "noise", "documents")
CODECS: Final = ("none", "lz4", "zstd")
PARTITIONS: Final = (1, 3, 12, 100, 0)
QUOTAS: Final = (51_200.0, 1_048_576.0)
MOST_MESSAGES: Final = 20_000
"""Above so many messages per second the processor is the bound."""


class Row(NamedTuple):
    """One cell: see above; times in ms."""

    data: str
    compression: str
    partitions: int
    quota: float
    max_delay_ms: int
    ours: float
    ideal: float
    p99_ms: int
    blocked_p99_ms: int
    throttles: int
    longest_throttle_ms: int
    used: float

    @property
    def ratio(self) -> float:
        """Ours / ideal."""
        return self.ours / self.ideal

    def __str__(self) -> str:
        return (
            f"{self.data:<9} {self.compression:<4} {_where(self.partitions):>9}"
            f" {self.quota:>9.0f} B/s {self.max_delay_ms:>5} ms"
            f" {self.ours:>8.1f} {self.ideal:>8.1f} {self.ratio:>6.3f} {self.p99_ms:>6} {self.blocked_p99_ms:>6}"
            f" {self.throttles:>4} {self.longest_throttle_ms:>5} {self.used:>6.3f}"
        )


HEAD: Final = (
    "data      comp      where         quota    delay     ours    ideal  ratio    p99  call  thr. longest   used"
)


def play(cell: tuple[str, str, int, float], max_delay_ms: int = 1_000, seconds: int = 75, seed: int = 1) -> Row:
    """One cell in virtual time; figures from 15 s after the start."""
    data, compression, partitions, quota = cell
    batching = Batching(data, compression)
    sent = SendingWorld(
        Cell(batching, partitions, quota, max_delay_ms=max_delay_ms, seconds=seconds), random.Random(seed)
    ).run()
    best = ideal(batching, quota, max(partitions, 1), max_delay_ms).messages_per_s
    return Row(
        *cell,
        max_delay_ms,
        sent.messages_per_s,
        best,
        sent.latency_ms(),
        sent.wait_ms(),
        len(sent.throttles),
        max((throttle_ms for _, throttle_ms in sent.throttles), default=0),
        sent.wire_bytes / quota / sent.seconds,
    )


def markdown(rows: Sequence[Row]) -> str:
    """A table for the documentation: part of the ideal, and the 99th percentile in seconds."""
    lines = ["| data, compression, quota | " + " | ".join(map(_where, PARTITIONS)) + " |", "|---" * 6 + "|"]
    for quota, data, compression in dict.fromkeys((row.quota, row.data, row.compression) for row in rows):
        found = {row.partitions: row for row in rows if row[:2] == (data, compression) and row.quota == quota}
        shown = [f"{row.ratio:.2f}, {row.p99_ms / 1000:.2f} s" if row else "" for row in map(found.get, PARTITIONS)]
        lines.append(f"| {data}, {compression}, {quota:,.0f} B/s | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _where(partitions: int) -> str:
    return f"{partitions} keyed" if partitions else "no keys"


def cells() -> list[tuple[str, str, int, float]]:
    """Those where the quota is the bound."""
    found = [(d, c, p, q) for q in QUOTAS for d in DATA for c in CODECS for p in PARTITIONS]
    return [each for each in found if _possible(each) <= MOST_MESSAGES]


def _possible(cell: tuple[str, str, int, float]) -> float:
    data, compression, partitions, quota = cell
    return ideal(Batching(data, compression), quota, max(partitions, 1), 1_000).messages_per_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-delay-ms", type=int, default=1_000, help="quota.max.delay.ms (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=75, help="simulated time of each (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose line contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation, too")
    options = parser.parse_args(arguments)
    wanted = [each for each in cells() if options.only in " ".join(map(str, each))]
    print(HEAD)
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(partial(play, max_delay_ms=options.max_delay_ms, seconds=options.seconds), wanted):
            print(row, flush=True)
            rows.append(row)
    if rows:
        if options.markdown:
            print(markdown(rows))
        below = [row for row in rows if row.ratio < 0.95]
        print(f"{len(rows)} cells, {len(below)} below 0.95 of the ideal, least {min(row.ratio for row in rows):.3f};")
        print(
            f"longest p99 {max(row.p99_ms for row in rows)} ms, throttle {max(r.longest_throttle_ms for r in rows)} ms"
        )


if __name__ == "__main__":
    main()
