"""How the suite runs: what is side by side, what is left out, what the end of a run says; see `tests/suite`."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache import ApacheKafka
from tests.required import require_apache_kafka
from tests.suite.reporting import Clocked, NothingLeftOut, Reporting, WithoutKafka, is_ci
from tests.suite.turns import Turns

BROKERS = ["embedded", "apache-kafka"]
"""What a test that asks for `cluster` or `three_brokers` runs on."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budgets", action="store_true", help="fail when a directory uses more time than tests/suite/rooms.py allows"
    )


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Reporting(with_budgets=config.getoption("budgets")))
    config.pluginmanager.register(WithoutKafka())
    config.pluginmanager.register(Clocked())
    if is_ci():
        config.pluginmanager.register(NothingLeftOut())
    config.pluginmanager.register(Turns(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Most tests wait: three workers share a core."""
    return max(4, min(3 * (os.cpu_count() or 2), 12))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.suite.scheduling import RoomScheduling

    return RoomScheduling(config, log)


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka for the whole session of a worker; tests name what they make so that nobody else has it."""
    require_apache_kafka()
    with ApacheKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_apache_brokers() -> Iterator[ApacheKafka]:
    """Three brokers of Apache Kafka for the whole session of a worker."""
    require_apache_kafka()
    with ApacheKafka(brokers=3) as cluster:
        yield cluster


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A running cluster with `bootstrap_servers` and `set_quota`, first the embedded one, then Apache Kafka."""
    if request.param == "apache-kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    with EmbeddedBroker() as own:
        yield own


@pytest.fixture(params=BROKERS)
def three_brokers(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster of three brokers, because quotas hold per broker."""
    if request.param == "apache-kafka":
        yield request.getfixturevalue("three_apache_brokers")
        return
    with EmbeddedBroker(brokers=3) as own:
        yield own
