"""Puts eight clients to every scene of `kclient-quota certify`, one after the other: about a quarter of an hour.

`python -m benchmarks.certify_clients` keeps a card of each under `benchmarks/results/certify/` and makes the page
`docs/certify.html` and the badge `docs/images/certify.svg` from them; `--pages` only makes these. With `--only` the
other scenes stay as they were measured before; `--wrong` plays the driver that fails them all. Needs Java and Go.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks import report
from kclient_quota import __version__
from kclient_quota.certify import card
from kclient_quota.certify.run import certify
from kclient_quota.certify.scenes import ALL, select
from kclient_quota.certify.verdict import Grade
from kclient_quota.testing.apache import KAFKA_VERSION

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "benchmarks" / "results" / "certify"
WRONG = CARDS.with_name("certify-wrong.json")
PAGE = ROOT / "docs" / "certify.html"
BADGE = ROOT / "docs" / "images" / "certify.svg"
README = ROOT / "README.md"
_PLACE = re.compile(r"(<!-- certify -->\n).*?(<!-- end of certify -->)", re.DOTALL)
_SHOWN = (Grade.PASS, Grade.WEAK, Grade.FAIL, Grade.ABSENT)
_DRIVERS = "kclient_quota.certify.drivers"
CLIENTS: dict[str, tuple[str, ...]] = {
    "kclient-quota": (f"{_DRIVERS}.confluent", "ours"),
    "confluent-kafka": (f"{_DRIVERS}.confluent", "plain"),
    "kafka-python": (f"{_DRIVERS}.kafka_python",),
    "aiokafka": (f"{_DRIVERS}.aiokafka",),
    "Java": (f"{_DRIVERS}.java",),
    "franz-go": (f"{_DRIVERS}.go", "franz"),
    "sarama": (f"{_DRIVERS}.go", "sarama"),
    "kafka-go": (f"{_DRIVERS}.go", "kafkago"),
}
_MODULES = {
    "franz-go": "github.com/twmb/franz-go ",
    "sarama": "github.com/IBM/sarama ",
    "kafka-go": "github.com/segmentio/kafka-go ",
}


def versions(client: str) -> str:
    """Which version of the client is measured."""
    if client == "Java":
        return KAFKA_VERSION
    if client in _MODULES:
        modules = (ROOT / "kclient_quota" / "certify" / "drivers" / "golang" / "go.mod").read_text()
        return next(line.split()[1] for line in modules.splitlines() if line.strip().startswith(_MODULES[client]))
    return __version__ if client == "kclient-quota" else metadata.version(client)


def cards() -> list[card.Card]:
    """What was kept, in the order of clients."""
    paths = [CARDS / f"{client}.json" for client in CLIENTS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def pages() -> dict[Path, str]:
    """What is made from the cards."""
    kept = cards()
    readme = _PLACE.sub(lambda place: f"{place[1]}\n{_table(kept)}\n\n{place[2]}", README.read_text())
    return {PAGE: card.page(kept), BADGE: card.badge(kept[0]), README: readme}


def _table(kept: Sequence[card.Card]) -> str:
    lines = ["| | " + " | ".join(grade.value for grade in _SHOWN) + " |", "|---|" + "---:|" * len(_SHOWN)]
    for made in kept:
        grades = Counter(row["grade"] for row in made["scenes"].values())
        name = f"{made['client']} {made['versions'].split(';')[0]}"
        lines.append(f"| {name} | " + " | ".join(str(grades[grade]) for grade in _SHOWN) + " |")
    return "\n".join(lines)


def measure(client: str, only: Sequence[str] = (), runs: int = 1) -> None:
    """One client's card; with `only` these scenes of it."""
    command = [sys.executable, "-m", *CLIENTS[client]]
    results = certify(select(only), command, runs=runs, say=lambda line: print(line, file=sys.stderr, flush=True))
    rows = [(found.scene.name, found.verdict.grade.value, found.verdict.why, found.seconds) for found in results]
    made = card.card(client, rows, f"{versions(client)}; commit {report.commit()}", runs=runs)
    path = CARDS / f"{client}.json"
    if only and path.exists():
        former = json.loads(path.read_text())
        scenes = {**former["scenes"], **made["scenes"]}
        made["scenes"] = {scene.name: scenes[scene.name] for scene in ALL if scene.name in scenes}
        made["versions"] = former["versions"]
    print(f"{client}: {card.score(made)}", flush=True)
    CARDS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n")


def measure_wrong() -> None:
    """The card of the driver that fails on purpose."""
    command = [sys.executable, "-m", "benchmarks.wrong_driver"]
    results = certify(ALL, command, say=lambda line: print(line, file=sys.stderr, flush=True))
    rows = [(found.scene.name, found.verdict.grade.value, found.verdict.why, found.seconds) for found in results]
    WRONG.write_text(json.dumps(card.card("wrong", rows, f"commit {report.commit()}"), indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, then make the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certify_clients", description=__doc__)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only these; repeatable")
    parser.add_argument("--only", action="append", default=[], help="only scenes whose names begin so; repeatable")
    parser.add_argument("--runs", type=int, default=1, help="how often each scene is played (default: 1)")
    parser.add_argument("--wrong", action="store_true", help="play the driver that fails on purpose")
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    if options.wrong:
        measure_wrong()
    elif not options.pages:
        for client in options.client or CLIENTS:
            measure(client, options.only, options.runs)
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
