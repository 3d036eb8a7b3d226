"""Three brokers behind proxies, and the table that is printed at the end: lost, duplicated, re-ordered, stuck."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.proxies import Proxies
from tests.faults.played import HEAD
from tests.required import require_apache_kafka

_rows: list[str] = []
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
            cluster: Any = stack.enter_context(ApacheKafka(brokers=3, **settings))
        else:
            cluster = stack.enter_context(EmbeddedBroker(brokers=3))
        proxies.stand_before(cluster)
        yield cluster, proxies


@pytest.fixture
def table(request: pytest.FixtureRequest) -> list[str]:
    """Rows that are printed when all is over."""
    return _rows


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _rows:
        terminalreporter.section("faults")
        for line in (HEAD, *_rows):
            terminalreporter.write_line(line)
