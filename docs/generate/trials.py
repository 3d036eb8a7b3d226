"""docs/reference/trials.md: what broke when everything around it was broken, from the raw results of the last runs."""

import json
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from docs.generate.page import ROOT, cell, head

RESULTS = ROOT / "benchmarks" / "results"
WORKLOADS = ("producer, idempotent", "producer", "consumer", "transactions")
PRODUCED = {"lost": "lost", "duplicated": "twice", "reordered": "re-ordered", "failed": "failed", "stuck": "stuck"}
READ = {"lost": "lost", "repeated": "twice", "reordered": "of what was committed", "stuck": "stuck"}
SAID = {
    "producer, idempotent": "`enable.idempotence`, `acks=all`, three replicas, under a quota.",
    "producer": "`acks=all` without idempotence, under a quota.",
    "consumer": "Under a quota, with a commit each second; what was read after the last commit may come twice.",
    "transactions": "Read, produce and commit offsets in one transaction, under quotas; judged by what a reader of committed records sees."
    " After a fatal error, as from a transaction that has timed out meanwhile, the application makes a new producer.",
}


def page() -> str:
    """The whole page."""
    text = head(
        "Trials",
        "What became of messages, memory and answers when networks, brokers, processes, clocks, disks or bytes were"
        " broken on purpose. Each command prints its table again; the raw figures are in `benchmarks/results/`.",
    )
    return text + "\n" + "\n".join([*_faults(_read("faults")), *_fuzz(_read("fuzz"))])


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def _made_by(found: dict[str, Any]) -> str:
    named = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"{named}; {found['cpus']} cores"


def _faults(found: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## Faults: `make faults`",
        "",
        "Ours / plain confluent-kafka with the same settings, at the same time, each with a quota of its own. *Goes on*: seconds from the",
        "mend to the first delivery of what was taken after it broke, or to the next message or transaction; -: not within six seconds, or everything had been",
        "read by then. Where messages come twice without idempotence is chance, of what was under way: all together counts.",
        "Where plain producers are quicker: behind half open connections both go on `socket.timeout.ms` (10 s here) after the "
        "first request that has no answer, which ours sends once they have broken, and plain's, which stands behind a "
        "throttle, up to 2 s before; after brokers that refused or stood still librdkafka's pause before it connects again "
        "is of a random length.",
        "Transactions behind half open connections, and whose coordinators are killed, are three each: the mean, and the "
        "most that were lost or stuck. It is chance which request is under way then, and one that stands makes such a mean: "
        f"the raw figures have all three. {_made_by(found)}.",
        "",
    )
    for broker in sorted({row["broker"] for row in found["rows"]}):
        for workload in WORKLOADS:
            rows = [row for row in found["rows"] if (row["broker"], row["workload"]) == (broker, workload)]
            if rows:
                yield from _workload(broker, workload, rows)


def _workload(broker: str, workload: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    columns = PRODUCED if workload.startswith("producer") else READ
    kind = "Apache Kafka" if broker == "Apache" else "embedded broker"
    yield from (f"### {workload.capitalize()}, {kind}", "", SAID[workload], "")
    yield "| fault | " + " | ".join(columns.values()) + " | goes on, s |"
    yield "|---|" + "---:|" * (len(columns) + 1)
    faults = dict.fromkeys(row["fault"] for row in rows)
    for fault in faults:
        both = {row["client"]: row for row in rows if row["fault"] == fault}
        pairs = [_pair(both, name) for name in (*columns, "resumed_s")]
        yield f"| {fault.replace('_', ' ')} | " + " | ".join(pairs) + " |"
    yield ""
    for row in rows:
        if row["client"] == "paced":
            yield (
                f"After {row['fault'].replace('_', ' ')}, five times over, the longest counts: a librdkafka that has nothing under"
                " way when it loses all connections at once begins anew from the bootstrap servers, which takes up to 2 s. Handed"
                f" messages one by one at the rate of its quota, plain went on after {row['resumed_s']:.1f} s."
            )
            yield ""
    if told := {row["fault"]: row["told"] for row in rows if row.get("told") is not None}:
        yield _told(told)
        yield ""


def _told(told: dict[str, float]) -> str:
    """How much of what was delivered pushes have told, by fault."""
    less = [f"{part:.1%} after {fault.replace('_', ' ')}" for fault, part in told.items() if part != 1]
    text = "Telemetry told brokers all of what our producers had delivered"
    if not less:
        return f"{text}."
    return f"{text}, but {', '.join(less)}: a push on a half open connection had not timed out when its producer was closed."


def _pair(both: dict[str, dict[str, Any]], name: str) -> str:
    values = [_of(both, kind, name) for kind in ("ours", "plain")]
    return " / ".join(
        "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in values
    )


def _of(both: dict[str, dict[str, Any]], kind: str, name: str) -> float | None:
    """The most of what is counted, the mean of what is timed: where chance decides there are three of a kind."""
    found = [row[name] for client, row in both.items() if client.partition("-")[0] == kind]
    if not found or None in found:
        return None
    return fmean(found) if isinstance(found[0], float) else max(found)


def _fuzz(found: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## Broken bytes: `make fuzz`",
        "",
        f"One to four mistakes in each frame; seed {found['seed']}, {found['minutes']} minutes. {_made_by(found)}.",
        "",
        "| reader | frames | read | refused | slowest, ms of CPU | memory, MB |",
        "|---|---:|---:|---:|---:|---:|",
    )
    for name, one in found["in_process"].items():
        figures = [one[key] for key in ("frames", "read", "refused", "slowest_ms", "memory_mb")]
        yield f"| {name} | " + " | ".join(f"{figure:,}" for figure in figures) + " |"
    java, sockets = found.get("java"), found["sockets"]
    yield ""
    if java is not None:
        same = sum(count for name, count in java.items() if name in {"both refuse", "both read the same"})
        yield f"- Kafka's own Java classes, {java['frames']:,} frames: {same:,} the same; {len(java['differences'])} differences."
        yield from (f"- {java.get(kind, 0):,} by design: {cell(why)}." for kind, why in java["known"].items())
    for one in java["differences"] if java is not None else []:
        yield f"- {one['message']}, {one['kind']}: `{one['bytes']}`."
    yield (
        f"- On sockets of a broker, {sockets['frames']:,} frames on {sockets['connections']:,} connections: somebody else waited"
        f" {sockets['longest_wait_of_others_s']} s at most; memory {sockets['before']['memory_mb']} to {sockets['after']['memory_mb']} MB."
    )
    yield ""
