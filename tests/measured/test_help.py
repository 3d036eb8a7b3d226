"""How quick `--help` is."""

import resource
import subprocess
import sys

import pytest

from tests.suite.speed import Speed


def seconds(speed: Speed, *arguments: str) -> float:
    """Of a processor, the best of five."""
    best = 1e9
    for _ in range(5):
        speed.take()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize("program", ["quotas", "client_metrics", "main"])
def test_help_takes_less_than_a_tenth_of_a_second_of_a_processor(program: str) -> None:
    """Beyond what Python itself takes, on the processor that the budgets of tests are for."""
    speed = Speed()
    help_of = f"import sys; sys.argv[1:] = ['--help']; import kclient_quota.cli.{program} as m; m.entry()"
    assert seconds(speed, "-c", help_of) - seconds(speed, "-c", "pass") < 0.1 * speed.factor()
