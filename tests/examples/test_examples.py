"""Every example runs as its own page says, and prints something that is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv], cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wrapped_producer() -> None:
    out = run("examples/wrapped_producer.py")
    assert "150 delivered" in out
    assert "51200 B/s, says the cluster" in out
    waited = re.search(r"waited ([\d.]+) s for the quota", out)
    assert waited is not None
    assert 1 <= float(waited[1]) <= 20


def test_wrapped_producer_on_a_cluster_without_a_quota() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        out = run("examples/wrapped_producer.py", broker.bootstrap_servers)
    assert "150 delivered" in out
    assert "no limit known" in out


def test_wrapped_consumer() -> None:
    out = run("examples/wrapped_consumer.py")
    assert re.search(r"longest gap [\d.]+ s", out)


def test_interceptors() -> None:
    assert "{'orders: delivered': 10}" in run("examples/interceptors.py")


def test_your_service() -> None:
    assert "3 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_your_service.py")


@pytest.mark.parametrize("page", sorted(EXAMPLES.glob("*.py")), ids=lambda page: page.name)
def test_one_screen_each_and_each_is_run_here(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert f"examples/{page.name}" in tests
