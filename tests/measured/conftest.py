"""Figures in real time: each is taken alone, after everything else, and up to three times.

A machine that stalls, or lends its cores to somebody else, disturbs a rate, a share or a gap that is measured against
the wall clock, and says nothing of the code. A test here that fails is therefore played again from its fixtures on, and
every try but the last that failed is named at the end of the run. What has to hold always (no loss, no duplicate,
order, values, an error's text) is tested elsewhere, and never taken twice.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from kclient_quota.broker import EmbeddedBroker
from tests.conftest import BROKERS
from tests.measured.scenes import Played
from tests.spark_session import IS_INSTALLED, spark
from tests.suite.reporting import RETAKEN
from tests.suite.turns import Turns

__all__ = ["spark"]
TRIES = 3
if not IS_INSTALLED:  # tests/spark says so
    collect_ignore = ["test_closed_loop.py"]


def is_measured(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time-outs hold per try: one of the whole item would be gone with the first failure."""
    for item in items:
        if is_measured(item):
            given = item.get_closest_marker("timeout")
            seconds = given.args[0] if given is not None else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not is_measured(item):  # pytest-xdist asks every conftest about every test
        return None
    for plugin in item.config.pluginmanager.get_plugins():
        if isinstance(plugin, Turns):
            plugin.await_others()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(1, TRIES + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        if not failed or number == TRIES:
            break
        why = getattr(getattr(failed[0].longrepr, "reprcrash", None), "message", str(failed[0].longrepr))
        item.user_properties.append((RETAKEN, f"try {number}: {why.splitlines()[0]}"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="module", params=BROKERS)
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """The figures of the module's `SCENES`, which are played side by side."""
    with ExitStack() as stack:
        if request.param == "apache-kafka":
            cluster = request.getfixturevalue("apache_kafka")
        else:
            cluster = stack.enter_context(EmbeddedBroker())
        pool = stack.enter_context(ThreadPoolExecutor(len(request.module.SCENES)))
        yield Played(cluster, request.module.SCENES, pool)
