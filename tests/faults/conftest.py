"""Every fault on both kinds of brokers, and the rows of ours and plain that are printed at the end, and written.

`make faults` writes `benchmarks/results/faults.json`; `FAULTS_JSON` names another file, without it nothing is written.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import FAULTS
from tests.faults.clusters import cluster_of
from tests.soak.brokers import versions

LEFT_OUT = {"at", "asked", "delivered", "taken", "commits", "expected", "before", "begun"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask for `fault` to be run with each one that the brokers can have."""
    if "fault" in metafunc.fixturenames:
        pairs = [(kind, fault) for kind, faults in FAULTS.items() for fault in faults]
        names = [f"{kind}-{fault.__name__}" for kind, fault in pairs]
        metafunc.parametrize(("behind_proxies", "fault"), pairs, indirect=["behind_proxies"], ids=names)
    elif "behind_proxies" in metafunc.fixturenames:
        metafunc.parametrize("behind_proxies", FAULTS, indirect=True)


@pytest.fixture(scope="module")
def behind_proxies(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Proxies]]:
    yield from cluster_of(request.param)


class Table:
    """Rows that are printed when all is over, and written as they come, in place of those of an earlier run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kind = ""

    def add(self, fault: str, workload: str, seen: dict[str, Any]) -> None:
        """What ours and plain saw."""
        for client, one in seen.items():
            figures = {name: value for name, value in asdict(one).items() if name not in LEFT_OUT}
            figures["resumed_s"] = round(one.resumed_s, 2)
            shown = " ".join(f"{name} {value}" for name, value in figures.items())
            self.lines.append(f"{fault:40} {workload:22} {self.kind:9} {client:6} {shown}")
            key = {"broker": self.kind, "workload": workload, "fault": fault, "client": client}
            if name := os.environ.get("FAULTS_JSON"):
                _write(Path(name), key, figures)


def _write(path: Path, key: dict[str, str], figures: dict[str, Any]) -> None:
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    head = versions()
    rows = [row for row in rows if any(row[name] != value for name, value in key.items())]
    rows.append({**key, **figures, "commit": head.pop("commit")[:7]})
    text = json.dumps({**head, "rows": rows}, indent=1).replace("Infinity", "null")
    path.write_text(text + "\n")


_table = Table()


@pytest.fixture
def table(behind_proxies: tuple[Any, Proxies], request: pytest.FixtureRequest) -> Table:
    """Of the brokers that the test has."""
    _table.kind = request.node.callspec.params["behind_proxies"]
    return _table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _table.lines:
        terminalreporter.section("faults")
        for line in _table.lines:
            terminalreporter.write_line(line)
