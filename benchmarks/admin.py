"""Quota administration: `python -m benchmarks.admin`.

1, 100 and 10,000 users altered and described on Apache Kafka by QuotaAdmin, by `kafka-quotas apply` in a process of its
own, by Kafka's Admin client in a JVM of its own, and by kafka-configs, which takes a JVM per entity (its time for many
is that of the quickest of a few, multiplied); and how long it takes to work out what applies to a client.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kclient_quota.admin.effective import EffectiveQuotas
from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaAlterationOp
from kclient_quota.admin.output import table
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.apache.artefacts import class_path

COUNTS = (1, 100, 10_000)
ENTRIES = (10, 10_000, 1_000_000)
JVM_CALLS = 5
ASKED = 2_000
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints two tables, optionally writes JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admin", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="the quickest counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    with ApacheKafka() as cluster:
        altered = [row for count in COUNTS for row in _of_cluster(cluster.bootstrap_servers, count, options.runs)]
    resolved = [_of_index(count, options.runs) for count in ENTRIES]
    print(_tables(altered, resolved))
    if options.json is not None:
        options.json.write_text(json.dumps({"altered": altered, "resolved": resolved}, indent=1) + "\n")
    return 0


def _of_cluster(servers: str, count: int, runs: int) -> list[Row]:
    rows = []
    for name, measure in (
        ("QuotaAdmin", _ours),
        ("kafka-quotas apply (a process)", _ours_in_a_process),
        ("Java's Admin (a JVM)", _java),
        ("kafka-configs (a JVM per entity)", _kafka_configs),
    ):
        found = [measure(servers, count, 1_000.0 + run) for run in range(1 if measure is _kafka_configs else runs)]
        alter, describe, whole = (min(each[at] for each in found) for at in range(3))
        rows.append({"tool": name, "entities": count, "alter_s": alter, "describe_s": describe, "whole_s": whole})
    return rows


Times = tuple[float, float, float]
"""Seconds to alter, to describe, and of everything with starting up; where a process does both, they are not known."""


def _ours(servers: str, count: int, value: float) -> Times:
    start = time.perf_counter()
    alterations = [
        ClientQuotaAlteration(
            ClientQuotaEntity.of(user=f"user-{number}"), (ClientQuotaAlterationOp("producer_byte_rate", value),)
        )
        for number in range(count)
    ]
    with QuotaAdmin({"bootstrap.servers": servers}) as admin:
        admin.alter_client_quotas(alterations).all().result()
        altered = time.perf_counter()
        admin.describe_client_quotas().result()
        described = time.perf_counter()
    return altered - start, described - altered, described - start


def _ours_in_a_process(servers: str, count: int, value: float) -> Times:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "quotas.yaml")
        entries = "".join(
            f"- {{names: {{user: user-{number}}}, set: {{producer_byte_rate: {value + 50:.0f}}}}}\n"
            for number in range(count)
        )
        file.write_text(f"version: 1\nquotas:\n{entries}")
        whole = _timed([sys.executable, "-m", "kclient_quota.cli.quotas", "apply", str(file)], servers)
    return float("nan"), float("nan"), whole


def _java(servers: str, count: int, value: float) -> Times:
    source = Path(__file__).with_name("AdminQuotas.java")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-proc:none", "-d", folder, "-cp", class_path(), str(source)], check=True)
        start = time.perf_counter()
        done = subprocess.run(
            ["java", "-cp", f"{folder}:{class_path()}", "AdminQuotas", servers, str(count), str(value)],
            check=True,
            capture_output=True,
            text=True,
        )
        whole = time.perf_counter() - start
    alter, describe, _ = done.stdout.split()
    return float(alter), float(describe), whole


def _kafka_configs(servers: str, count: int, value: float) -> Times:
    """One JVM per entity to alter, one to describe all of them."""
    configs = ("java", "-cp", class_path(), "kafka.admin.ConfigCommand")
    calls = min(count, JVM_CALLS)
    one = min(
        _timed([*configs, "--alter", "--user", f"user-{number}", f"--add-config=producer_byte_rate={value}"], servers)
        for number in range(calls)
    )
    describe = _timed([*configs, "--describe", "--entity-type", "users"], servers)
    return one * count, describe, one * count + describe


def _timed(command: list[str], servers: str) -> float:
    start = time.perf_counter()
    subprocess.run([*command, "--bootstrap-server", servers], check=True, capture_output=True)
    return time.perf_counter() - start


def _of_index(count: int, runs: int) -> Row:
    """Entries at all eight levels, and clients of which half have entries of their own."""
    entries = _entries(count)
    build = _quickest(runs, lambda: EffectiveQuotas(entries))
    index = EffectiveQuotas(entries)
    chance = random.Random(1)
    clients = [
        ClientQuotaEntity.of(user=f"user-{chance.randrange(2 * count)}", client_id=f"app-{chance.randrange(100)}")
        for _ in range(ASKED)
    ]
    resolve = _quickest(runs, lambda: [index.describe(client, include_overrides=True) for client in clients])
    return {"entries": count, "index_s": build, "resolve_us": resolve / ASKED * 1e6}


def _entries(count: int) -> list[tuple[ClientQuotaEntity, dict[str, float]]]:
    of = ClientQuotaEntity.of
    general = [of(user=DEFAULT, client_id=DEFAULT), of(user=DEFAULT), of(client_id=DEFAULT), of(client_id="app-1")]
    users = [
        of(user=f"user-{number}", client_id=f"app-{number % 100}" if number % 2 else None)
        for number in range(count - len(general))
    ]
    return [(entity, {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}) for entity in (*general, *users)]


def _quickest(runs: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _tables(altered: list[Row], resolved: list[Row]) -> str:
    def seconds(value: float) -> str:
        return "-" if value != value else f"{value:,.3f}"  # noqa: PLR0124 - NaN is what is not known

    cells = [
        (
            f"{row['entities']:,}",
            row["tool"],
            seconds(row["alter_s"]),
            seconds(row["describe_s"]),
            seconds(row["whole_s"])
            + (" *" if row["entities"] > JVM_CALLS and row["tool"].startswith("kafka-configs") else ""),
        )
        for row in altered
    ]
    first = table(("ENTITIES", "BY", "ALTER s", "DESCRIBE s", "WHOLE s"), cells)
    rows = [(f"{row['entries']:,}", f"{row['index_s']:.4f}", f"{row['resolve_us']:.1f}") for row in resolved]
    second = table(("ENTRIES", "INDEX s", "RESOLVE µs PER CLIENT"), rows)
    note = f"* the quickest of {JVM_CALLS} entities, multiplied"
    return f"{first}\n{note}\n\n{second}"


if __name__ == "__main__":
    sys.exit(main())
