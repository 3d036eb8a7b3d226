"""What a quota is worth: messages per second of our send queue in virtual time, beside the most that is possible.

`python -m benchmarks.quota_worth` plays every cell of {readings of 20 bytes, orders of 290, noise of 1,000, documents
of 10,000} x {none, lz4, zstd} x {keys over 1, 3, 12, 100 partitions, no keys} x {51,200 B/s, 1 MiB/s} for a minute, and
prints messages per second, the ideal, their ratio, the 99th percentile from `produce()` returning to the report, of the
time inside `produce()`, throttles, and what part of the quota is recorded, and is payload. The ideal is the best over
all batches of n that arrive for a partition within the delay allowed: 0.995 of the quota, less the price of lumps,
divided by what librdkafka's own batches of n take, the names of topic and client that every request carries included.

`--ages` prints, in place of that, how many bytes a message takes in batches of all that arrives within so long.

`--real` measures two dozen of them on Apache Kafka instead (with `--only`, all that it names), beside the peers, and
keeps every figure in `benchmarks/results/quota-worth.json`; in steady state, that is from 15 s after the start.
"""

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report, worth_cells
from benchmarks.scenes import OURS
from kclient_quota.simulation.batching import NAMES_BYTES, Batching, aged, ideal
from kclient_quota.simulation.sending import Cell, SendingWorld

DATA: Final = ("readings", "orders", "noise", "documents")
CODECS: Final = ("none", "lz4", "zstd")
PARTITIONS: Final = (1, 3, 12, 100, 0)
QUOTAS: Final = (51_200.0, 1_048_576.0)
JOBS: Final = 2
MOST_MESSAGES: Final = 20_000
"""Above so many messages per second the processor is the bound."""
RESULTS: Final = Path(__file__).parent / "results" / "quota-worth.json"
PATIENT: Final = (
    (("orders", "zstd", 100, 51_200.0), 5_000),
    (("orders", "zstd", 12, 51_200.0), 10_000),
    (("orders", "zstd", 12, 51_200.0), 60_000),
)
"""Cells that are worth more with a longer delay, and that delay."""
AGES_MS: Final = (300, 1_200, 3_000, 10_000, 60_000)
AGED: Final = (
    ("orders", "zstd", 12),
    ("orders", "zstd", 100),
    ("readings", "zstd", 12),
    ("readings", "zstd", 100),
    ("noise", "none", 12),
    ("noise", "none", 100),
)
"""Data, compression and partitions whose batches of every age are shown."""


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
    payload: float

    @property
    def ratio(self) -> float:
        """Ours / ideal."""
        return self.ours / self.ideal

    def __str__(self) -> str:
        return (
            f"{self.data:<9} {self.compression:<4} {_where(self.partitions):>9}"
            f" {self.quota:>9.0f} B/s {self.max_delay_ms:>5} ms"
            f" {self.ours:>8.1f} {self.ideal:>8.1f} {self.ratio:>6.3f} {self.p99_ms:>6} {self.blocked_p99_ms:>6}"
            f" {self.throttles:>4} {self.longest_throttle_ms:>5} {self.used:>6.3f} {self.payload:>7.3f}"
        )


HEAD: Final = (
    "data      comp      where         quota    delay     ours    ideal  ratio    p99  call"
    "  thr. longest   used payload"
)


def play(
    cell: tuple[str, str, int, float],
    max_delay_ms: int = 1_000,
    seconds: int = 75,
    seed: int = 1,
    names_bytes: int = NAMES_BYTES,
) -> Row:
    """One cell in virtual time; figures from 15 s after the start."""
    data, compression, partitions, quota = cell
    batching = Batching(data, compression, names_bytes)
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
        sent.payload_bytes / quota / sent.seconds,
    )


def markdown(rows: Sequence[Row]) -> str:
    """A table for the documentation: part of the ideal, and the 99th percentile in seconds."""
    lines = ["| data, compression, quota | " + " | ".join(map(_where, PARTITIONS)) + " |", "|---" * 6 + "|"]
    for quota, data, compression in dict.fromkeys((row.quota, row.data, row.compression) for row in rows):
        found = {row.partitions: row for row in rows if row[:2] == (data, compression) and row.quota == quota}
        shown = [f"{row.ratio:.2f}, {row.p99_ms / 1000:.2f} s" if row else "" for row in map(found.get, PARTITIONS)]
        lines.append(f"| {data}, {compression}, {quota:,.0f} B/s | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def ages(quota: float, names_bytes: int) -> str:
    """A table for the documentation: bytes a message and messages a second, by how long a batch is filled."""
    heads = [f"{age_ms / 1000:g} s" for age_ms in AGES_MS]
    lines = [f"| data, compression, partitions | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for data, compression, partitions in AGED:
        batching = Batching(data, compression, names_bytes)
        found = [aged(batching, quota, partitions, age_ms) for age_ms in AGES_MS]
        cells = [
            f"{batching.request_bytes(each.batch) / each.batch:,.1f}, {each.messages_per_s:,.0f}" for each in found
        ]
        lines.append(f"| {data}, {compression}, {partitions} | {' | '.join(cells)} |")
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


def real(
    cells_wanted: Sequence[worth_cells.WorthCell],
    clients: Sequence[str],
    seconds: int,
    path: Path,
    side_by_side: int,
) -> None:
    """Measures cells on Apache Kafka, so many at a time, prints rows as they come, and keeps all in a file."""
    found: dict[str, Any] = {"machine": report.machine(), "commit": report.commit(), "seconds": seconds, "rows": []}
    todo = [(cell, 0, client) for cell in cells_wanted for client in clients]
    todo += [(cell, delay_ms, OURS) for cell, delay_ms in PATIENT if cell in cells_wanted and OURS in clients]
    began_s = time.monotonic()

    def keep(row: dict[str, Any]) -> None:
        found["rows"].append(row)
        found["rows"].sort(key=lambda each: [each[key] for key in ("quota", "data", "compression", "partitions")])
        report.write_json(path, found)
        print(f"[{time.monotonic() - began_s:4.0f} s] {_told(row)}", flush=True)

    worth_cells.measure(todo, seconds, keep, side_by_side)


def _told(row: dict[str, Any]) -> str:
    where = f"{row['data']:<9} {row['compression']:<4} {_where(row['partitions']):>9} {row['quota']:>9.0f} B/s"
    name = f"{where} {row['max_delay_ms']:>5} ms {row['client']:<11}"
    if "error" in row or row["messages_per_s"] is None:
        return f"{name} {row.get('error', 'too short')}"
    return (
        f"{name} {row['messages_per_s']:>8.1f} of {row['ideal']:>8.1f} {row['messages_per_s'] / row['ideal']:>6.3f}"
        f" {row['bytes_a_message'] or 0:>8.1f} B p99 {row['steady_p99_ms'] or 0:>6.0f} ms"
        f" in call {row['in_call_p99_ms'] or 0:>5.0f} ms used {row['utilisation'] or 0:>6.3f}"
        f" payload {row['payload_share'] or 0:>6.3f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-delay-ms", type=int, default=1_000, help="quota.max.delay.ms (default: %(default)s)")
    parser.add_argument(
        "--names", type=int, default=NAMES_BYTES, help="bytes of topic and client.id together (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=int, default=75, help="time of each (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose line contains this")
    parser.add_argument(
        "--jobs",
        type=int,
        help=f"how many at a time (default: {JOBS}; --real: {worth_cells.MOST_SIDE_BY_SIDE}, who disturb each other)",
    )
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation, too")
    parser.add_argument("--ages", action="store_true", help="bytes a message by how old batches are, at 51,200 B/s")
    parser.add_argument("--real", action="store_true", help="on Apache Kafka, beside the peers")
    parser.add_argument("--client", action="append", choices=worth_cells.CLIENTS, help="only these; repeatable")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where --real keeps its figures")
    options = parser.parse_args(arguments)
    jobs = options.jobs or (worth_cells.MOST_SIDE_BY_SIDE if options.real else JOBS)
    if options.ages:
        print(ages(QUOTAS[0], options.names))
        return
    wanted = worth_cells.covering(cells()) if options.real and not options.only else cells()
    wanted = [each for each in wanted if options.only in " ".join(map(str, each))]
    if options.real:
        real(wanted, options.client or worth_cells.CLIENTS, options.seconds, options.json, jobs)
        return
    rows = []
    played = partial(play, max_delay_ms=options.max_delay_ms, seconds=options.seconds, names_bytes=options.names)
    print(HEAD)
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(played, wanted):
            print(row, flush=True)
            rows.append(row)
    if rows:
        _summed_up(rows, with_table=options.markdown)


def _summed_up(rows: Sequence[Row], *, with_table: bool) -> None:
    if with_table:
        print(markdown(rows))
    below = [row for row in rows if row.ratio < 0.95]
    print(f"{len(rows)} cells, {len(below)} below 0.95 of the ideal, least {min(row.ratio for row in rows):.3f};")
    print(f"longest p99 {max(row.p99_ms for row in rows)} ms, throttle {max(r.longest_throttle_ms for r in rows)} ms")


if __name__ == "__main__":
    main()
