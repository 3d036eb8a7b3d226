"""Figures measured in real time may be taken again: `@pytest.mark.measured`.

A machine that stalls, or lends its cores to somebody else, disturbs a rate, a share or a gap that is measured against
the wall clock, and says nothing of the code. A test with this mark that fails is therefore played again from its
fixtures on, three times in all, and every try but the last that failed is named at the end of the run. What has to hold
always (no loss, no duplicate, order, an error's text) is no reason for this mark, and nothing in virtual time is.
"""

import pytest
from _pytest.runner import runtestprotocol

TRIES = 3
_played_again: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"measured: a figure in real time, taken up to {TRIES} times")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time-outs hold per try: one of the whole item would be gone with the first failure."""
    for item in items:
        if item.get_closest_marker("measured") is not None:
            given = item.get_closest_marker("timeout")
            seconds = given.args[0] if given is not None else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("measured") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(1, TRIES + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        if not failed or number == TRIES:
            break
        why = getattr(getattr(failed[0].longrepr, "reprcrash", None), "message", str(failed[0].longrepr))
        _played_again.append(f"{item.nodeid}, try {number}: {why.splitlines()[0]}")
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _played_again:
        terminalreporter.section("measured again")
        for line in _played_again:
            terminalreporter.write_line(line)
