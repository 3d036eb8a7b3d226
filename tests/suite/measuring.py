"""Figures in real time: each is taken alone, after everything else, and up to three times.

A machine that stalls, or lends its cores to somebody else, disturbs a rate, a share or a gap that is measured against
the wall clock, and says nothing of the code. A test of these directories that fails is therefore played again from its
fixtures on, and every try but the last that failed is named at the end of the run. One during which the machine was
lent to others is named, too, and no try: the next one waits until it is calm. What has to hold always (no loss, no
duplicate, order, values, an error's text) is tested elsewhere, and never taken twice.
"""

import faulthandler

import pytest
from _pytest.runner import runtestprotocol

from tests.suite.reporting import RETAKEN
from tests.suite.rooms import MEASURED, MEASURED_GRID, directory_of
from tests.suite.stolen import MUCH, Stolen
from tests.suite.turns import Turns

TRIES = 3
MOST_TRIES = 6
"""Those included during which the machine was lent to others."""


class Measuring:
    """A plug-in by which what is measured awaits its turn, and is taken again where it fails.

    Args:
        turns: of the workers of this run.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Time-outs hold per try: one of the whole item would be gone with the first failure."""
        for item in items:
            if _is_measured(item):
                given = item.get_closest_marker("timeout")
                seconds = given.args[0] if given is not None else float(config.getini("timeout"))
                item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not _is_measured(item):
            return None
        faulthandler.cancel_dump_traceback_later()  # others may have much to do
        self._turns.await_others()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        counted, stolen = 0, Stolen()
        for number in range(1, MOST_TRIES + 1):
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            part = stolen.part()
            counted += part <= MUCH
            failed = [report for report in reports if report.failed]
            if not failed or counted == TRIES or number == MOST_TRIES:
                break
            why = getattr(getattr(failed[0].longrepr, "reprcrash", None), "message", str(failed[0].longrepr))
            lent = f" (others had {part:.0%} of the processors)" if part > MUCH else ""
            item.user_properties.append((RETAKEN, f"try {number}{lent}: {why.splitlines()[0]}"))
            if part > MUCH:
                stolen.await_calm()
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _is_measured(item: pytest.Item) -> bool:
    return directory_of(item.nodeid) in {MEASURED, MEASURED_GRID}
