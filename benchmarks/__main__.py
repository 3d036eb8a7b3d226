"""Command line of the benchmarks."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report, runner
from benchmarks.scenes import OURS, PEERS, BrokerScene, CallScene, Scene, select
from kclient_quota.testing.apache import ApacheKafka, apache_kafka_unavailable_reason


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for, prints tables, optionally writes JSON."""
    options = _parser().parse_args(arguments)
    try:
        scenes = select(options.only, is_quick=options.quick)
    except ValueError as error:
        _parser().error(str(error))
    reason = apache_kafka_unavailable_reason()
    if reason is not None and not all(isinstance(scene, BrokerScene) for scene in scenes):
        print(reason, file=sys.stderr)
        return 1
    print(report.machine(), flush=True)
    clients = options.client or [*PEERS, OURS]
    runs = options.runs or (1 if options.quick else 3)
    results = _measure(scenes, clients, runs)
    _print(results)
    if options.json is not None:
        report.write_json(options.json, {"scenes": [asdict(scene) for scene in scenes], **results})
    for row in results["failures"]:
        print(f"{row['scene']} {row['client']} failed: {row['error']}", file=sys.stderr)
    return 1 if results["failures"] else 0


def _measure(scenes: list[Scene], clients: list[str], runs: int) -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = {
        kind: [] for kind in ("producers", "consumers", "calls", "brokers", "failures")
    }
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.0f} s] {text}", file=sys.stderr, flush=True)

    if any(not isinstance(scene, BrokerScene) for scene in scenes):
        with ApacheKafka() as cluster:
            for row in runner.under_quota(cluster, runner.cells(scenes, clients, runs), say):
                results[row["kind"]].append(row)
            for scene in scenes:
                if isinstance(scene, CallScene):
                    results["calls"] += _kept(results, scene, partial(runner.calls, cluster, scene, clients, say))
    for scene in scenes:
        if isinstance(scene, BrokerScene):
            results["brokers"] += _kept(results, scene, partial(runner.broker, scene, say))
    return results


def _kept(
    results: dict[str, list[dict[str, Any]]], scene: Scene, measure: Callable[[], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What was measured; a scene that fails must not take the others' figures with it."""
    try:
        return [measure()]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        results["failures"].append({"scene": scene.name, "client": "", "error": str(error)})
        return []


def _print(results: dict[str, list[dict[str, Any]]]) -> None:
    parts = []
    if results["producers"]:
        parts.append(report.quota_tables(results["producers"], report.PRODUCER_COLUMNS))
    if results["consumers"]:
        parts.append(report.quota_tables(results["consumers"], report.CONSUMER_COLUMNS))
    if results["calls"]:
        parts.append(report.call_table(results["calls"]))
    if results["brokers"]:
        parts.append(report.broker_table(results["brokers"]))
    print("\n" + "\n".join(parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter scenes, each once: under 15 minutes in all")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="scenes that begin with NAME; repeatable"
    )
    parser.add_argument("--client", action="append", choices=[*PEERS, OURS], help="only these clients; repeatable")
    parser.add_argument("--runs", type=int, help="how often ours is measured (default 3, with --quick 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run's figures there")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
