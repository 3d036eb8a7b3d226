"""What share groups (KIP-932) get of a topic under a consumer_byte_rate, on Apache Kafka.

`python -m benchmarks.share_groups` fills a topic for each cell of client x quota x batch size, gives the group to one
share consumer, alone on its quota, and counts: records delivered, records the group's start offset has passed that
nobody was ever given ("archived unseen"), delivery counts above 1, the part of the quota in payload and in bytes as
Kafka counts them, seconds. All cells run side by side on one broker; a cell ends when its group has settled every
record, or after eight minutes. The raw rows are kept as JSON under `benchmarks/results/`. Needs Java.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import java_peer, report
from benchmarks.share_bound import counted_bytes
from kclient_quota.certify.filling import fill
from kclient_quota.certify.scenes.preparing import configure_group
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.testing.apache import KAFKA_VERSION, ApacheKafka
from kclient_quota.wire.messages import DescribeShareGroupOffsetsRequest

RESULTS = Path(__file__).parent / "results" / "share-groups.json"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "share-groups.md"
_PLACE = re.compile(r"(<!-- share groups -->\n).*?(<!-- end of share groups -->)", re.DOTALL)
_SOURCE = Path(__file__).with_name("SharePeer.java")
_VALUE_BYTES = 1_000
_RECORDS_A_BATCH = {"16 kB": 15, "200 kB": 190}
_RECORDS = {0: 3_000, 20_000: 3_000, 100_000: 6_000, 1_000_000: 60_000}
"""By quota in bytes a second (0: none): each is two and a half minutes' worth, or one where that is a great deal."""
_CLIENTS = ("Java", "confluent-kafka", "kclient-quota")
_LOOK_S = 2.0
_COLUMNS = (
    "client",
    "quota",
    "batches",
    "records",
    "delivered",
    "archived unseen",
    "count > 1",
    "highest",
    "of quota",
    "as counted",
    "s",
)


@dataclass(frozen=True)
class Cell:
    """One share consumer alone on its quota; a byte_rate of 0 stands for none."""

    client: str
    byte_rate: int
    batches: str

    @property
    def name(self) -> str:
        """Of its topic, its group and its client.id."""
        return f"{self.client}-{self.byte_rate}-{self.batches.replace(' ', '')}"

    @property
    def records(self) -> int:
        """In the topic."""
        return _RECORDS[self.byte_rate]


def command(cell: Cell, bootstrap_servers: str) -> list[str]:
    """What runs the consumer of a cell."""
    if cell.client == "Java":
        classes = java_peer.compiled(_SOURCE)
        memory = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *memory, "-cp", classes, "SharePeer", bootstrap_servers, cell.name, cell.name]
    kind = "ours" if cell.client == "kclient-quota" else "plain"
    return [sys.executable, "-m", "benchmarks.share_peer", kind, bootstrap_servers, cell.name, cell.name, "{}"]


def start_offset(client: ClusterClient, group: str) -> int:
    """Up to where the group has settled its one partition; 0 while it has not begun."""
    wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (found,) = client.ask_coordinator(DescribeShareGroupOffsetsRequest(groups=[wanted]), group).groups
    return max((part.start_offset for topic in found.topics for part in topic.partitions), default=0)


def play(cell: Cell, bootstrap_servers: str, within_s: float) -> dict[str, Any]:
    """One cell: the consumer until its group is done or time is up."""
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": "benchmark-watch"}
    with tempfile.TemporaryFile("w+") as told, ClusterClient(conf, SYSTEM_CLOCK) as client:
        begun = time.monotonic()
        with subprocess.Popen(
            command(cell, bootstrap_servers), stdin=subprocess.PIPE, stdout=told, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and time.monotonic() - begun < within_s:
                time.sleep(_LOOK_S)
                if len({row[0] for row in _told(told)}) == cell.records:
                    break
                if start_offset(client, cell.name) == cell.records:
                    break
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        return figures(cell, _told(told), start_offset(client, cell.name))


def _told(file: IO[str]) -> list[tuple[int, ...]]:
    """The whole lines of what a consumer has written so far."""
    text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()  # it shares our place in the file
    return [tuple(map(int, line.split())) for line in text.split("\n")[:-1]]


def figures(cell: Cell, told: Sequence[tuple[int, ...]], settled: int) -> dict[str, Any]:
    """What came of a cell.

    Args:
        cell: which.
        told: offset, delivery count and milliseconds of each delivery, in order.
        settled: the group's start offset in the end.
    """
    seen = {row[0] for row in told}
    counts = Counter(row[1] for row in told)
    unseen = [offset for offset in range(settled) if offset not in seen]
    span_ms = told[-1][2] - told[0][2] if told else 0
    return {
        "client": cell.client,
        "byte_rate": cell.byte_rate,
        "batches": cell.batches,
        "records": cell.records,
        "delivered": len(seen),
        "deliveries": len(told),
        "start_offset": settled,
        "archived_unseen": len(unseen),
        "first_unseen": unseen[:1],
        "last_unseen": unseen[-1:],
        "delivery_counts": {str(count): number for count, number in sorted(counts.items())},
        "of_quota": len(told) * _VALUE_BYTES / span_ms * 1_000 / cell.byte_rate if span_ms and cell.byte_rate else None,
        "seconds": round(span_ms / 1_000, 1),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line a cell."""
    return report.table(f"share groups on Apache Kafka {KAFKA_VERSION}", _COLUMNS, _cells(rows))


def page() -> str:
    """The docs page with what was kept, cells without a quota left out."""
    rows = [row for row in json.loads(RESULTS.read_text())["rows"] if row["byte_rate"]]
    lines = [_COLUMNS, ["---"] * 3 + ["---:"] * (len(_COLUMNS) - 3), *_cells(rows)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return _PLACE.sub(lambda place: f"{place[1]}\n{text}\n\n{place[2]}", PAGE.read_text())


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    body = []
    for row in rows:
        counts = {int(count): number for count, number in row["delivery_counts"].items()}
        share = "-" if row["of_quota"] is None else f"{row['of_quota']:.2f}"
        again = sum(number for count, number in counts.items() if count > 1)
        quota = f"{row['byte_rate'] // 1000} kB/s" if row["byte_rate"] else "none"
        cells = [row["client"], quota, row["batches"], row["records"], row["delivered"], row["archived_unseen"]]
        counted = share if row["of_quota"] is None else f"{row['of_quota'] * _framing(row['batches']):.2f}"
        body.append([str(cell) for cell in [*cells, again, max(counts, default=0), share, counted, row["seconds"]]])
    return body


def _framing(batches: str) -> float:
    """How many times a batch's payload Kafka counts."""
    records = _RECORDS_A_BATCH[batches]
    return counted_bytes(records) / (records * _VALUE_BYTES)


def main(arguments: Sequence[str] | None = None) -> None:
    """All cells side by side, then the table and the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.share_groups", description=__doc__)
    parser.add_argument("--client", action="append", choices=_CLIENTS, help="only these; repeatable")
    parser.add_argument("--byte-rate", action="append", type=int, choices=_RECORDS, help="only these; repeatable")
    parser.add_argument("--seconds", type=float, default=480, help="when a cell is given up (default: 480)")
    parser.add_argument(
        "--json", type=Path, help=f"where the rows are kept (default: {RESULTS.name} among the results)"
    )
    options = parser.parse_args(arguments)
    chosen = itertools.product(options.client or _CLIENTS, options.byte_rate or _RECORDS, _RECORDS_A_BATCH)
    cells = [Cell(*parts) for parts in chosen]
    java_peer.compiled(_SOURCE)
    with ApacheKafka() as cluster:
        for cell in cells:
            cluster.create_topic(cell.name, 1)
            fill(cluster.bootstrap_servers, cell.name, cell.records, _VALUE_BYTES, _RECORDS_A_BATCH[cell.batches])
            if cell.byte_rate:
                cluster.set_quota(client_id=cell.name, consumer_byte_rate=cell.byte_rate)
        for cell in cells:
            configure_group(cluster.bootstrap_servers, cell.name, {"share.auto.offset.reset": "earliest"})
        with ThreadPoolExecutor(len(cells)) as pool:
            rows = list(pool.map(lambda cell: play(cell, cluster.bootstrap_servers, options.seconds), cells))
    print(table(rows))
    kept = {"machine": report.machine(), "kafka": KAFKA_VERSION, "commit": report.commit(), "rows": rows}
    path = options.json or RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")
    if path == RESULTS:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
