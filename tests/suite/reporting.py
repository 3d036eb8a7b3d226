"""What the end of a run says: what was left out, which figures were taken again, which directory used too much time."""

import os
import resource
import time
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from kclient_quota.testing.apache import ApacheKafkaUnavailable, apache_kafka_unavailable_reason
from tests.suite.rooms import BUDGET_OF_ALL_S, CPU_BUDGET_S, directory_of
from tests.suite.speed import Speed

ALL = "all, by the wall clock"
RETAKEN = "taken again"
"""The user property of a report that names a try that failed."""
REPORTS_PER_SPEED = 100
"""After so many reports the machine's speed is looked at."""


class Reporting:
    """A plug-in of the process that reports (under pytest-xdist the controller).

    Args:
        with_budgets: whether a directory that uses more than its budget fails the run.
    """

    def __init__(self, *, with_budgets: bool) -> None:
        self._with_budgets = with_budgets
        self._began_ns = time.monotonic_ns()
        self._left_out: Counter[str] = Counter()
        self._retaken: list[str] = []
        self._used_s: Counter[str] = Counter()
        self._over: list[str] = []
        self._speed = Speed()
        self._heard = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._heard % REPORTS_PER_SPEED == 0:
            self._speed.take()
        self._heard += 1
        self._used_s[directory_of(report.nodeid)] += getattr(report, "cpu_s", 0.0)
        if report.skipped and not hasattr(report, "wasxfail"):
            self._left_out[reason_of(report.longrepr)] += 1
        if report.when == "teardown":
            self._retaken += [f"{report.nodeid}: {why}" for name, why in report.user_properties if name == RETAKEN]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._left_out[f"{reason_of(report.longrepr)} ({report.nodeid})"] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._with_budgets:
            return
        took = {**self._used_s, ALL: (time.monotonic_ns() - self._began_ns) / 1e9}
        allowed = {name: self._allowed_s(name) for name in CPU_BUDGET_S}
        allowed[ALL] = BUDGET_OF_ALL_S * self._speed.factor()
        self._over = [
            f"{name}: {took[name]:.0f} s, {round(budget, 2):g} s allowed"
            for name, budget in allowed.items()
            if took.get(name, 0) > budget
        ]
        if self._over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _allowed_s(self, directory: str) -> float:
        return CPU_BUDGET_S.get(directory, 0) * self._speed.factor()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for title, lines in self._sections():
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        if self._left_out:
            yield "left out", [f"{_tests(count)}: {reason}" for reason, count in sorted(self._left_out.items())]
        if self._retaken:
            yield "measured again", self._retaken
        if self._with_budgets:
            yield (
                f"seconds of CPU by directory, on a machine that takes {self._speed.factor():.1f} times as long",
                [
                    f"{name}: {seconds:.0f} of {self._allowed_s(name):.0f}"
                    for name, seconds in sorted(self._used_s.items())
                ],
            )
        if self._over:
            yield "over the budget of time, which fails the run", self._over


class Clocked:
    """A plug-in that notes the CPU time of each report: this process's, and that of processes it has waited for.

    What a worker has for its session (Spark, Apache Kafka) is waited for after its last test, and is no cost of that.
    """

    def __init__(self) -> None:
        self._so_far_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        try:
            return (yield)
        finally:
            if nextitem is None:
                self._so_far_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now_s = _cpu_s()
        report.cpu_s = now_s - self._so_far_s
        self._so_far_s = now_s
        return report


class WithoutKafka:
    """A plug-in by which a test that meets the absence of Java or Maven is left out, not failed."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        error = call.excinfo
        # looked for only where it matters: three times for each of ten thousand tests it is a third of what they cost
        is_met = error is not None and error.errisinstance(ApacheKafkaUnavailable)
        reason = apache_kafka_unavailable_reason() if is_met else None
        is_absent = reason is not None
        if is_absent:
            # Before it is written down as a failure: CPython 3.11 parses no source while another thread does so, too.
            call.excinfo = None
        report = yield
        if is_absent:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
        return report


class NothingLeftOut:
    """A plug-in that makes every skip a failure: in CI every tool is there."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        return _failed_if_skipped(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        report = yield
        return _failed_if_skipped(report)


def is_ci() -> bool:
    """Whether a test that cannot run fails rather than is left out."""
    return bool(os.environ.get("CI"))


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def reason_of(longrepr: Any) -> str:
    """Why something was skipped, in one line."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ").splitlines()[0] if text else "no reason given"


def _failed_if_skipped(report: Any) -> Any:
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{reason_of(report.longrepr)}; with CI set nothing may be left out"
    return report


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"
