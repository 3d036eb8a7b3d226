"""The measured tables in README.md and the documentation, made from the raw figures under `benchmarks/results/`.

`python -m benchmarks.tables` writes them; a test compares them, so that no figure is typed by hand.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.report import Column, Row
from benchmarks.scenes import OURS, PEERS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "clients.json"
WORTH = ROOT / "benchmarks" / "results" / "quota-worth.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
WORTH_PAGE = ROOT / "docs" / "how-to" / "more-out-of-a-quota.md"
"""The one that shows what was measured by `python -m benchmarks.quota_worth --real`."""
LIGHT = ROOT / "benchmarks" / "results" / "light-use.json"
LIGHT_PAGE = ROOT / "docs" / "explanation" / "quota-bytes.md"
"""The one that shows what was measured by `python -m benchmarks.light_use`."""
SMALL = ROOT / "benchmarks" / "results" / "small-messages.json"
SMALL_PAGE = ROOT / "docs" / "explanation" / "pacing.md"
"""The one that shows what was measured by `python -m benchmarks.small_messages`."""
MEASURED = ((LIGHT_PAGE, LIGHT), (SMALL_PAGE, SMALL), (WORTH_PAGE, WORTH), *((page, RESULTS) for page in PAGES))
"""Pages, and what they show."""
NAMES = {
    "plain": "confluent-kafka",
    "plain-our-settings": "… with our librdkafka settings",
    "plain-tuned": "… tuned by hand",
    "java": "Java",
    "java-tuned": "Java, tuned by hand",
    OURS: "**kclient-quota**",
}
_PLACE = re.compile(r"(<!-- results: (?P<what>[\w,* -]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
_KINDS: dict[str, tuple[Column, ...]] = {
    "producers": report.PRODUCER_COLUMNS,
    "loops": report.LOOP_COLUMNS,
    "consumers": report.CONSUMER_COLUMNS,
}
_SHORT = ("utilisation", "messages_per_s", "lost", "duplicated", "latency_p99_ms", "in_call_p99_ms")


def filled(page: str, results: Mapping[str, Any]) -> str:
    """`page` with every place between `<!-- results: WHAT -->` and `<!-- end of results -->` written anew.

    WHAT is `worth` for messages per second by cell and client, `light` for latencies below the quota, `small` for small
    messages under a large quota, `machine`, `all`
    for every scene with every column, or scenes' names with commas between them, for the few columns that matter first.
    """
    return _PLACE.sub(lambda place: f"{place[1]}\n{_text(place['what'], results)}\n\n{place[3]}", page)


def _text(what: str, results: Mapping[str, Any]) -> str:
    if what == "worth":
        return _worth(results["rows"])
    if what == "light":
        return _light(results["rows"])
    if what == "small":
        return _small(results["rows"])
    if what == "machine":
        return f"{results['machine']}; commit {results['commit']}."
    if what == "all":
        return "\n\n".join(
            f"### {scene}\n\n{_table(_of(results[kind], scene), columns)}"
            for kind, columns in _KINDS.items()
            for scene in dict.fromkeys(row["scene"] for row in results[kind])
        )
    columns = [column for column in report.PRODUCER_COLUMNS if column[1] in _SHORT]
    return "\n\n".join(f"`{name}`\n\n{_table(_of(results['producers'], name), columns)}" for name in what.split(", "))


def _worth(rows: Sequence[Row]) -> str:
    """One row a cell: the ideal of ours, what each client makes of it, and how long ours takes."""
    clients = [client for client in (*PEERS, OURS) if any(row["client"] == client for row in rows)]
    head = ["data, compression, keys, quota", "ideal", *(NAMES[each] for each in clients), "p99 s", "in call p99 s"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    cells: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        name = tuple(row[key] for key in ("data", "compression", "partitions", "quota", "max_delay_ms"))
        cells.setdefault(name, {})[row["client"]] = row
    for (data, compression, partitions, quota, delay_ms), found in cells.items():
        ours = found.get(OURS, {})
        where = f"{partitions} partitions" if partitions else "none"
        name = f"{data}, {compression}, {where}, {quota:,.0f} B/s"
        if delay_ms != _DELAY_MS:
            name += f", `quota.max.delay.ms={delay_ms}`"
        best = (ours or next(iter(found.values())))["ideal"]
        shown = [name, f"{best:,.1f}", *(_rate(found.get(each)) for each in clients)]
        shown += ["-" if ours.get(key) is None else f"{ours[key] / 1000:.2f}" for key in _WAITS]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


_DELAY_MS = 1_000
_WAITS = ("steady_p99_ms", "in_call_p99_ms")


def _light(rows: Sequence[Row]) -> str:
    """One row for what was sent: latencies of plain and of ours, and the difference of the 99th percentiles."""
    lines = ["| data, partitions, part of the quota | p50 ms, plain | ours | p99 ms, plain | ours | more |"]
    lines.append("|---|" + "---:|" * 5)
    cells: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["partitions"], row["part"]), {})[row["client"]] = row
    for (data, partitions, part), found in cells.items():
        plain, ours = found["plain"], found[OURS]
        waits = [each[key] for key in ("p50_ms", "p99_ms") for each in (plain, ours)]
        shown = [f"{data}, {partitions}, {part}", *(f"{wait:.1f}" for wait in (*waits, waits[3] - waits[2]))]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _small(rows: Sequence[Row]) -> str:
    """One row for what was sent: messages a second of plain and of ours, the part of the quota, throttles, CPU time."""
    head = ["data, compression, partitions, quota", "messages/s, plain", "ours", "of plain", "recorded, plain", "ours"]
    head += ["longest throttle s, plain", "ours", "CPU us, plain", "ours"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    cells: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in ("data", "compression", "partitions", "quota")), {})[
            row["client"]
        ] = row
    for (data, compression, partitions, quota), found in cells.items():
        plain, ours = found["plain"], found[OURS]
        rates = [each["messages_per_s"] for each in (plain, ours)]
        shown = [f"{data}, {compression}, {partitions}, {quota:,} B/s", *(f"{rate:,.0f}" for rate in rates)]
        shown.append(f"{rates[1] / rates[0]:.2f}")
        shown += [f"{each['used']:.2f}" for each in (plain, ours)]
        shown += [f"{each['throttle_ms'] / 1000:.1f}" for each in (plain, ours)]
        shown += [f"{each['cpu_us']:.0f}" for each in (plain, ours)]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _rate(row: Row | None) -> str:
    """Messages per second, and what part of the ideal that is."""
    if row is None or row.get("messages_per_s") is None:
        return "-"
    return f"{row['messages_per_s']:,.1f} ({row['messages_per_s'] / row['ideal']:.2f})"


def _of(rows: Sequence[Row], scene: str) -> list[Row]:
    """One row a client, in the order of clients; medians, and the worst of losses."""
    of_scene = [row for row in rows if row["scene"] == scene]
    return [
        report.median_row(found)
        for client in (*PEERS, OURS)
        if (found := [row for row in of_scene if row["client"] == client])
    ]


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    shown = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    lines = ["| | " + " | ".join(title for title, _, _ in shown) + " |", "|---|" + "---:|" * len(shown)]
    for row in rows:
        cells = ["-" if row.get(key) is None else show(row[key]) for _, key, show in shown]
        lines.append(f"| {NAMES.get(row['client'], row['client'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the tables."""
    for page, results in MEASURED:
        if page.exists() and results.exists():
            page.write_text(filled(page.read_text(), json.loads(results.read_text())))


if __name__ == "__main__":
    main()
