"""Three brokers behind proxies, and the table of fault and workload that is printed at the end, and written.

`make faults` writes `benchmarks/results/faults.json`; `FAULTS_JSON` names another file, without it nothing is written.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache.apart import ApacheKafkaApart
from kclient_quota.testing.proxies import Proxies
from tests.required import require_apache_kafka
from tests.soak.brokers import versions

LEFT_OUT = {"at", "delivered", "commits", "expected"}
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "1",
}


@pytest.fixture(scope="module", params=["embedded", "apache-kafka"])
def behind_proxies(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Proxies]]:
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies(3))
        if request.param == "apache-kafka":
            require_apache_kafka()
            settings = {"advertised_ports": proxies.ports, "properties": REPLICATED}
            cluster: Any = stack.enter_context(ApacheKafkaApart(brokers=3, heap_mb=384, **settings))
        else:
            cluster = stack.enter_context(EmbeddedBroker(brokers=3))
        proxies.stand_before(cluster)
        yield cluster, proxies


class Table:
    """Rows that are printed when all is over, and written."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def add(self, fault: str, workload: str, broker: str, seen: dict[str, Any]) -> None:
        """What ours and plain saw."""
        for client, one in seen.items():
            figures = {name: value for name, value in asdict(one).items() if name not in LEFT_OUT}
            self.rows.append({"fault": fault, "workload": workload, "broker": broker, "client": client, **figures})
            rounded = {name: round(value, 1) for name, value in figures.items()}
            shown = " ".join(f"{name} {value}" for name, value in rounded.items())
            self.lines.append(f"{fault:40} {workload:22} {broker:9} {client:6} {shown}")


_table = Table()


@pytest.fixture
def table() -> Table:
    return _table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _table.lines:
        terminalreporter.section("faults")
        for line in _table.lines:
            terminalreporter.write_line(line)


def pytest_sessionfinish() -> None:
    if _table.rows and (name := os.environ.get("FAULTS_JSON")):
        made = {**versions(), "rows": _table.rows}
        Path(name).write_text(json.dumps(made, indent=1).replace("Infinity", "null") + "\n")
