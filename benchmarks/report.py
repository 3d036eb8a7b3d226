"""Tables and the JSON file."""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.scenes import TEST_BROKERS

_PACKAGES = ("kclient-quota", "confluent-kafka", "kafka-python", "aiokafka")

_ROOT = Path(__file__).parents[1]
_NONE = "-"
_RATES = ("calls_per_s", "calls_per_cpu_s", "messages_per_s")

Row = Mapping[str, Any]
Column = tuple[str, str, Callable[[float], str]]


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value / 1000:,.2f}"


def _plain_seconds(value: float) -> str:
    return f"{value:,.1f}"


PRODUCER_COLUMNS: tuple[Column, ...] = (
    ("of quota", "utilisation", _ratio),
    ("payload", "payload_share", _ratio),
    ("messages/s", "messages_per_s", _count),
    ("B/message", "bytes_a_message", _plain_seconds),
    ("handed", "handed_over", _count),
    ("lost", "lost", _count),
    ("dup.", "duplicated", _count),
    ("failed", "failed", _count),
    ("yet stored", "failed_yet_stored", _count),
    ("req. t/o", "request_timeouts", _count),
    ("p50 s", "latency_p50_ms", _seconds),
    ("p99 s", "latency_p99_ms", _seconds),
    ("max s", "latency_max_ms", _seconds),
    ("in call p99 s", "in_call_p99_ms", _seconds),
    ("throttle s", "longest_throttle_ms", _seconds),
    ("CPU s", "cpu_s", _plain_seconds),
)
CONSUMER_COLUMNS: tuple[Column, ...] = (
    ("of quota", "utilisation", _ratio),
    ("payload", "payload_share", _ratio),
    ("messages", "messages", _count),
    ("first s", "first_message_s", _plain_seconds),
    ("gap s", "longest_gap_s", _plain_seconds),
    ("repeated", "repeated", _count),
    ("skipped", "skipped", _count),
    ("throttle s", "longest_throttle_ms", _seconds),
    ("stall told s", "stall_reported_s", _plain_seconds),
    ("CPU s", "cpu_s", _plain_seconds),
)


LOOP_COLUMNS: tuple[Column, ...] = (
    ("of quota", "utilisation", _ratio),
    ("sent", "handed_over", _count),
    ("committed", "committed", _count),
    ("lost", "lost", _count),
    ("dup.", "duplicated", _count),
    ("rebalances", "rebalances", _count),
    ("p50 s", "latency_p50_ms", _seconds),
    ("p99 s", "latency_p99_ms", _seconds),
    ("max s", "latency_max_ms", _seconds),
    ("throttle s", "longest_throttle_ms", _seconds),
    ("CPU s", "cpu_s", _plain_seconds),
)
_TOGETHER: tuple[Column, ...] = (
    ("of quota", "utilisation", _ratio),
    ("lost", "lost", _count),
    ("dup.", "duplicated", _count),
    ("p50 s", "latency_p50_ms", _seconds),
    ("p99 s", "latency_p99_ms", _seconds),
    ("max s", "latency_max_ms", _seconds),
    ("rebalances", "rebalances", _count),
)
# a consumer's row in the table of all clients: what its own figures stand for there
_CONSUMER_KEYS = {
    "lost": "skipped",
    "duplicated": "repeated",
    "latency_p50_ms": "wait_p50_ms",
    "latency_p99_ms": "wait_p99_ms",
    "latency_max_ms": "wait_max_ms",
}


def machine() -> str:
    """What the figures were measured on, in one line."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load}"
    return f"{system}; Python {platform.python_version()}; {'; '.join(versions)}"


def commit() -> str:
    """Which state of the code was measured: the newest commit that is on main, with a `+` where more was done since.

    A branch's own commits are others once they are on main, and nobody could look them up.
    """
    head = _git("rev-parse", "HEAD")
    base = _git("merge-base", "HEAD", "main") or _git("merge-base", "HEAD", "origin/main") or head
    changed = base != head or _git("status", "--porcelain", "--untracked-files=no")
    return f"{base[:10]}{'+' if changed else ''}" if base else "unknown"


def _git(*arguments: str) -> str:
    """What git says; nothing where it does not know."""
    told = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )  # fmt: skip
    return told.stdout.strip() if told.returncode == 0 else ""


_WORST = ("lost", "duplicated", "failed", "failed_yet_stored", "repeated", "skipped", "rebalances")


def median_row(rows: Sequence[Row]) -> Row:
    """One row of medians, but the worst of what must not happen at all; words and lists are the first row's."""
    if len(rows) == 1:
        return rows[0]
    merged = dict(rows[0])
    for key, first in rows[0].items():
        if isinstance(first, bool) or not isinstance(first, int | float):
            continue
        values = [row[key] for row in rows if row.get(key) is not None]
        merged[key] = max(values) if key in _WORST else median(values)
    return merged


def table(title: str, header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Plain text in columns; the first column is left-aligned."""
    widths = [max(len(row[at]) for row in [header, *body]) for at in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([title, line(header), "  ".join("-" * width for width in widths), *map(line, body), ""])


def quota_tables(results: Sequence[Row], columns: Sequence[Column]) -> str:
    """One table a scene, one line a client."""
    parts = []
    for scene in dict.fromkeys(row["scene"] for row in results):
        body = []
        for client in dict.fromkeys(row["client"] for row in results if row["scene"] == scene):
            rows = [row for row in results if row["scene"] == scene and row["client"] == client]
            name = client if len(rows) == 1 else f"{client} (median of {len(rows)})"
            body.append([name, *_cells(median_row(rows), columns)])
        parts.append(table(scene, ["client", *(title for title, _, _ in columns)], body))
        parts += [
            f"  {row['client']} after {row['stall_reported_s']:.1f} s: {row['stall_text']}\n"
            for row in results
            if row["scene"] == scene and row.get("stall_text")
        ]
    return "\n".join(parts)


def together(results: Mapping[str, Sequence[Row]]) -> str:
    """All clients under quota in one table, scene by scene; latencies as benchmarks/README.md says."""
    rows = [
        *results["producers"],
        *results["loops"],
        *({**row, **{key: row.get(other) for key, other in _CONSUMER_KEYS.items()}} for row in results["consumers"]),
    ]
    body = []
    for scene in dict.fromkeys(row["scene"] for row in rows):
        for client in dict.fromkeys(row["client"] for row in rows if row["scene"] == scene):
            row = median_row([row for row in rows if row["scene"] == scene and row["client"] == client])
            body.append([f"{scene} {client}", *_cells(row, _TOGETHER)])
    return table("all clients under quota", ["scene and client", *(title for title, _, _ in _TOGETHER)], body)


def _cells(row: Row, columns: Sequence[Column]) -> list[str]:
    return [_NONE if row.get(key) is None else show(row[key]) for _, key, show in columns]


def call_table(results: Sequence[Row]) -> str:
    """Medians over every repeat of every round, and their share of plain's."""
    header = ["call", "calls/s", "of plain", "calls/CPU s", "of plain", "messages/s", "of plain"]
    body = []
    for result in results:
        plain = result["rates"].get("plain")
        same = result["rates"].get("plain-same-settings")
        for variant, rates in result["rates"].items():
            cells = [f"{result['scene']} {variant}"]
            for key in _RATES:
                if key not in rates:
                    cells += [_NONE, _NONE]
                    continue
                rate = median(rates[key])
                cells += [_count(rate), _share(rate, plain, key)]
            body.append(cells)
            if same is not None and variant == "ours":
                shares = [_share(median(rates[key]), same, key) for key in _RATES]
                body.append(
                    [
                        f"{result['scene']} ours, of plain-same-settings",
                        *(cell for share in shares for cell in ("", share)),
                    ]
                )
    return table("un-throttled calls, 100-byte messages", header, body)


def _share(rate: float, base: Mapping[str, Sequence[float]] | None, key: str) -> str:
    return _NONE if base is None else _ratio(rate / median(base[key]))


def broker_table(results: Sequence[Row]) -> str:
    """The embedded broker beside librdkafka's mock, and kfake where Go was there."""
    header = ["broker", "start ms", "produce MB/s", "fetch MB/s", "CPU s/MB produced", "CPU s/MB fetched"]
    header += ["100-byte messages/s produced", "fetched"]
    body = []
    for result in results:
        for name in (name for name in TEST_BROKERS if name in result):
            row = result[name]
            body.append(
                [
                    name,
                    *(
                        _NONE if row.get(key) is None else f"{row[key]:.{digits}f}"
                        for key, digits in (
                            ("start_ms", 1),
                            ("produce_mb_per_s", 1),
                            ("fetch_mb_per_s", 1),
                            ("produce_cpu_s_per_mb", 4),
                            ("fetch_cpu_s_per_mb", 4),
                            ("produce_messages_per_s", 0),
                            ("fetch_messages_per_s", 0),
                        )
                    ),
                ]
            )
    return table("brokers for tests, 1 KiB messages where not said otherwise", header, body)


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Everything that was measured, run by run; the file is whole at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    text = json.dumps(results, indent=1, sort_keys=True).replace(f"{_ROOT}/", "")  # where it was run concerns nobody
    whole.write_text(text + "\n")
    whole.replace(path)
