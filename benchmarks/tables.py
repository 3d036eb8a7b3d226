"""The measured tables in README.md and docs/results.md, made from the raw figures under `benchmarks/results/`.

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
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
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

    WHAT is `machine`, `all` for every scene with every column, or scenes' names with commas between them, for the few
    columns that matter first.
    """
    return _PLACE.sub(lambda place: f"{place[1]}\n{_text(place['what'], results)}\n\n{place[3]}", page)


def _text(what: str, results: Mapping[str, Any]) -> str:
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
    results = json.loads(RESULTS.read_text())
    for path in PAGES:
        if path.exists():
            path.write_text(filled(path.read_text(), results))


if __name__ == "__main__":
    main()
