"""Command line of the benchmarks."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import report, runner
from benchmarks.scenes import FULL, OURS, PEERS, BrokerScene, CallScene, QuotaScene, Scene, quick, select, tiny
from kclient_quota.errors import KclientQuotaError
from kclient_quota.testing.apache import ApacheKafka, apache_kafka_unavailable_reason

KINDS = ("producers", "consumers", "loops", "calls", "brokers", "failures")
_LATEST = Path("bench-results", "latest.json")


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for, prints tables, writes JSON after every row."""
    options = _parser().parse_args(arguments)
    if options.tables is not None:
        _print(json.loads(options.tables.read_text()))
        return 0
    size = tiny if options.tiny else quick if options.quick else lambda scene: scene
    try:
        scenes = select(options.only, size)
    except ValueError as error:
        _parser().error(str(error))
    reason = apache_kafka_unavailable_reason()
    if reason is not None and not all(isinstance(scene, BrokerScene) for scene in scenes):
        print(reason, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _terminated)
    found = Found(options.json, scenes)
    print(found.results["machine"], flush=True)
    runs = options.runs or (1 if options.quick or options.tiny else 3)
    try:
        _measure(scenes, options.client or [*PEERS, OURS], runs, found)
    finally:
        _print(found.results)
    for row in found.results["failures"]:
        print(f"{row['scene']} {row['client']} failed: {row['error']}", file=sys.stderr)
    return 1 if found.results["failures"] else 0


def _terminated(number: int, _: object) -> NoReturn:
    """Ends as Ctrl-C does, so that brokers and children are stopped and what was measured is printed."""
    raise SystemExit(128 + number)


class Found:
    """What has been measured so far, on disk as soon as it is known.

    Args:
        path: the JSON file.
        scenes: what is to be measured.
    """

    def __init__(self, path: Path, scenes: list[Scene]) -> None:
        self._path = path
        self._begin = time.monotonic()
        self.results: dict[str, Any] = {kind: [] for kind in KINDS}
        self.results |= {"machine": report.machine(), "commit": report.commit()}
        self.results["scenes"] = [asdict(scene) for scene in scenes]

    def say(self, text: str) -> None:
        """How far it is."""
        print(f"[{time.monotonic() - self._begin:6.0f} s] {text}", file=sys.stderr, flush=True)

    def keep(self, row: dict[str, Any]) -> None:
        """One more row."""
        self.results[row["kind"]].append(row)
        self.results["seconds"] = round(time.monotonic() - self._begin)
        report.write_json(self._path, self.results)
        if row["kind"] == "failures":
            self.say(f"FAILED {row['scene']} {row['client']}: {row['error']}")

    def keep_of(self, kind: str, scene: Scene, measure: Callable[[], dict[str, Any]]) -> None:
        """What is measured now; a scene that fails must not take the others' figures with it."""
        try:
            row = {"kind": kind, **measure()}
        except Exception as error:  # noqa: BLE001 - whatever it is
            row = {"kind": "failures", "scene": scene.name, "client": "", "error": f"{type(error).__name__}: {error}"}
        self.keep(row)


def _measure(scenes: list[Scene], clients: list[str], runs: int, found: Found) -> None:
    if any(not isinstance(scene, BrokerScene) for scene in scenes):
        try:
            with ApacheKafka() as cluster:
                _on_kafka(cluster, scenes, clients, runs, found)
        except KclientQuotaError as error:
            found.keep({"kind": "failures", "scene": "Apache Kafka", "client": "", "error": str(error)})
    for scene in scenes:
        if isinstance(scene, BrokerScene):
            found.keep_of("brokers", scene, partial(runner.broker, scene, found.say))


def _on_kafka(cluster: ApacheKafka, scenes: list[Scene], clients: list[str], runs: int, found: Found) -> None:
    # Calls first: they leave no client behind that still waits out a throttle.
    for scene in scenes:
        if isinstance(scene, CallScene):
            found.keep_of("calls", scene, partial(runner.calls, cluster, scene, clients, found.say))
    todo = [scene for scene in scenes if isinstance(scene, QuotaScene)]
    runner.under_quota(cluster, runner.cells(todo, clients, runs), found.say, found.keep)


def _print(results: dict[str, Any]) -> None:
    """All tables, rows in the order of scenes and clients."""
    scenes, clients = [scene.name for scene in FULL], [*PEERS, OURS]

    def place(row: dict[str, Any]) -> tuple[int, int, int]:
        return scenes.index(row["scene"]), clients.index(row["client"]), row["run"]

    under_quota = {kind: sorted(results[kind], key=place) for kind in ("producers", "consumers", "loops")}
    parts = [
        report.quota_tables(under_quota["producers"], report.PRODUCER_COLUMNS),
        report.quota_tables(under_quota["loops"], report.LOOP_COLUMNS),
        report.quota_tables(under_quota["consumers"], report.CONSUMER_COLUMNS),
    ]
    if any(under_quota.values()):
        parts.append(report.together(under_quota))
    if results["calls"]:
        parts.append(report.call_table(results["calls"]))
    if results["brokers"]:
        parts.append(report.broker_table(results["brokers"]))
    print("\n" + "\n".join(filter(None, parts)), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter scenes, each once: under 15 minutes in all")
    parser.add_argument(
        "--tiny", action="store_true", help="every scene in seconds: whether everything works, no figures worth reading"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="scenes that begin with NAME; repeatable"
    )
    parser.add_argument("--client", action="append", choices=[*PEERS, OURS], help="only these clients; repeatable")
    parser.add_argument("--runs", type=int, help="how often ours is measured (default 3, with --quick 1)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=_LATEST, help="where every run's figures go (default: %(default)s)"
    )
    parser.add_argument("--tables", type=Path, metavar="FILE", help="measure nothing, print the tables of such a file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
