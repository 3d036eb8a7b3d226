"""Puts Apache Kafka and the embedded broker to every row of `kclient-quota certify broker`: less than a minute.

`python -m benchmarks.certify_brokers` keeps a card of each under `benchmarks/results/certify-brokers/` and makes the
table in `docs/how-to/certify-a-broker.md` from them; `--pages` only makes that. Needs Java.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import report
from kclient_quota import __version__
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify import card
from kclient_quota.certify.brokers.run import ALL, certify
from kclient_quota.testing.apache import KAFKA_VERSION, ApacheKafka

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "benchmarks" / "results" / "certify-brokers"
PAGE = ROOT / "docs" / "how-to" / "certify-a-broker.md"
_PLACE = re.compile(r"(<!-- table -->\n).*?(<!-- end of table -->)", re.DOTALL)
VERSIONS = {"Apache Kafka": KAFKA_VERSION, "embedded": __version__}


def cluster(name: str, stack: ExitStack) -> Any:
    """A running one, which takes client telemetry."""
    if name == "embedded":
        return stack.enter_context(EmbeddedBroker())
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    reporters = {"metric.reporters": "Recorder,TelemetryReceiver", "telemetry.receiver.folder": folder}
    return stack.enter_context(ApacheKafka(properties=reporters))


def measure(name: str) -> None:
    """One broker's card."""
    with ExitStack() as stack:
        conf = {"bootstrap.servers": cluster(name, stack).bootstrap_servers}
        results = certify(conf, ALL, say=print)
    rows = [(found.row.name, found.verdict.grade.value, found.verdict.why, found.seconds) for found in results]
    made = card.card(name, rows, f"{VERSIONS[name]}; commit {report.commit()}")
    print(f"{name}: {card.score(made)}", flush=True)
    CARDS.mkdir(parents=True, exist_ok=True)
    (CARDS / f"{name.replace(' ', '-')}.json").write_text(json.dumps(made, indent=1) + "\n")


def cards() -> list[card.Card]:
    """What was kept."""
    return [json.loads((CARDS / f"{name.replace(' ', '-')}.json").read_text()) for name in VERSIONS]


def page() -> str:
    """The docs page with the table of what was kept."""
    table = card.markdown(cards(), ALL)
    return _PLACE.sub(lambda place: f"{place[1]}\n{table}\n\n{place[2]}", PAGE.read_text())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, then make the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certify_brokers", description=__doc__)
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    if not parser.parse_args(arguments).pages:
        for name in VERSIONS:
            measure(name)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
