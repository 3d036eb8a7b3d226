"""Strangers' test suites against the embedded broker and Apache Kafka, side by side: `make peers`."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.peers.brokers import APACHE, EMBEDDED, running
from tests.peers.outcomes import counted, worse
from tests.peers.suites import SUITES, Suite

SIDES = (EMBEDDED, APACHE)


def main() -> None:
    """Fetch, run, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all if none is named")
    parser.add_argument("--work", type=Path, default=Path("build/peers"), help="where suites are kept and logs written")
    parser.add_argument("--json", type=Path, help="write the result there; what it has of other suites stays")
    parser.add_argument("--side", choices=SIDES, help="run on one broker only")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}")
    found = json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    for name in options.suites or SUITES:
        suite = SUITES[name]
        found[name] = {**found.get(name, {}), **compared(suite, options.work.resolve(), options.side)}
        say(name, found[name])
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


def compared(suite: Suite, work: Path, side: str | None) -> dict[str, Any]:
    """What every test of a suite came to on the brokers."""
    folder = work / suite.name.replace(" ", "-").replace("'", "")
    if not (folder / ".prepared").exists():
        folder.mkdir(parents=True, exist_ok=True)
        suite.prepare(folder)
        (folder / ".prepared").touch()
    outcomes: dict[str, Any] = {"version": suite.version}
    for one in SIDES if side is None else (side,):
        results = work / "results" / one.replace(" ", "-")
        results.mkdir(parents=True, exist_ok=True)
        with running(one, suite.furniture) as addresses:
            begin = time.monotonic()
            outcomes[one] = suite.run(folder, results, addresses, suite.patience_s)
            print(f"{suite.name} on {one}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        if not outcomes[one]:
            sys.exit(f"{suite.name} said nothing on {one}; see {results}")
    return outcomes


def say(name: str, found: dict[str, Any]) -> None:
    """One line, and one for each test that passes on Apache Kafka alone."""
    if not all(side in found for side in SIDES):
        return
    ours, theirs = (found[side] for side in SIDES)
    print(f"{name} {found['version']}: {counted(ours)} embedded, {counted(theirs)} Apache Kafka")
    for test in worse(ours, theirs):
        print(f"  {ours.get(test, 'absent')}: {test}")


if __name__ == "__main__":
    main()
