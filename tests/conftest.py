"""How the suite runs: what is side by side, what is left out, what the end of a run says; see `tests/suite`."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pytest

from kclient_quota import broker
from kclient_quota.testing import apache
from tests.java_tools import JavaTools
from tests.required import require_apache_kafka
from tests.suite.compiling import import_in_turns
from tests.suite.measuring import Measuring
from tests.suite.reporting import Clocked, NothingLeftOut, Reporting, WithoutKafka, is_ci
from tests.suite.turns import Turns
from tests.suite.waiting_threads import WaitingThreads

BROKERS = ["embedded", "apache-kafka"]
"""What a test that asks for `cluster` or `three_brokers` runs on."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java processes of tests live for seconds: what the second compiler makes of their code is not used often enough.

With one compiler Java keeps 48 MB of code. Spark's planner has more: it was thrown away and compiled anew, a seventh of
what its tests cost."""

SELDOM = (50_000, 5, 50)
"""When garbage is looked for: after so many new objects, so many young collections, so many middle ones. CPython 3.11's
own: 700, 10, 10."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budgets", action="store_true", help="fail when a directory uses more time than tests/suite/rooms.py allows"
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICK_JAVA)
    _keep_bytecode()
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Reporting(with_budgets=config.getoption("budgets")))
    config.pluginmanager.register(WithoutKafka())
    config.pluginmanager.register(Clocked())
    config.pluginmanager.register(WaitingThreads())
    if is_ci():
        config.pluginmanager.register(NothingLeftOut())
    turns = Turns(config)
    config.pluginmanager.register(turns)
    config.pluginmanager.register(Measuring(turns))


def _keep_bytecode() -> None:
    """For the hundreds of Python processes that tests start; images of Python forbid it by default."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Garbage is not looked for while eleven thousand tests are collected: each worker does so, and there is none.

    Nor are they all looked through again and again afterwards: half a second each time, a third of what tests cost.
    (`gc.freeze()` would hide them from `gc.get_referrers()`, too, by which hypothesis knows its random numbers alive.)
    """
    gc.disable()
    try:
        import_in_turns(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.unfreeze()  # they are old now without having been looked through for that twice
        gc.enable()
        gc.set_threshold(*SELDOM)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """pytest has just looked for garbage everywhere; it does so once more, and Python after it: in what is new."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Most tests wait, so several workers share a core; those of `-n logical` work, and one more than cores is enough.

    With four a core beside Spark's and Kafka's own processes Spark gave up a Python worker that took 10 s to begin:
    three, and one more that begins with what computes (`tests/suite/rooms.py`), so that nobody waits for all of that.
    """
    cores = os.cpu_count() or 2
    if config.option.numprocesses == "logical":
        return cores + 1
    wanted = 3 * cores + 1 if apache.apache_kafka_unavailable_reason() is None else 7 * cores
    return max(4, min(wanted, 14))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.suite.scheduling import RoomScheduling

    return RoomScheduling(config, log)


@pytest.fixture(scope="module")
def only_what_is_new() -> Iterator[None]:
    """Tests that collect garbage look at what they have made, not at ten thousand tests: a quarter of a second each."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator["apache.ApacheKafka"]:
    """Apache Kafka for the whole session of a worker; tests name what they make so that nobody else has it."""
    require_apache_kafka()
    with apache.ApacheKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_apache_brokers() -> Iterator["apache.ApacheKafka"]:
    """Three brokers of Apache Kafka for the whole session of a worker."""
    require_apache_kafka()
    with apache.ApacheKafka(brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def java_tools() -> Iterator[JavaTools]:
    """Apache Kafka's command-line tools, in one Java process for the whole session of a worker."""
    require_apache_kafka()
    with closing(JavaTools()) as tools:
        yield tools


@pytest.fixture(scope="module", params=BROKERS)
def broker_kind(request: pytest.FixtureRequest) -> str:
    """Whose brokers `cluster` and `three_brokers` are; a directory may have its own choice."""
    return str(request.param)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Any]:
    """A running cluster with `bootstrap_servers` and `set_quota`, first the embedded one, then Apache Kafka."""
    if broker_kind == "apache-kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    # loaded by whoever asks for it: half a second for each process of a run, and of those that tests begin
    with broker.EmbeddedBroker() as own:
        yield own


@pytest.fixture
def three_brokers(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Any]:
    """A cluster of three brokers, because quotas hold per broker."""
    if broker_kind == "apache-kafka":
        yield request.getfixturevalue("three_apache_brokers")
        return
    with broker.EmbeddedBroker(brokers=3) as own:
        yield own
