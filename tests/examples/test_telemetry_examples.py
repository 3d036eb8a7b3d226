"""The telemetry examples run as their own pages say, and what they print is true."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*argv: str) -> str:
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_telemetry_to_collector() -> None:
    out = run("examples/telemetry_to_collector.py")
    received, exported = map(int, re.search(r"(\d+) pushes received, (\d+) exported", out).groups())
    assert received == exported >= 3
    counts = [int(count) for count in re.findall(r"collector: (\d+) metrics of shop \(kclient-quota\)", out)]
    assert len(counts) == exported
    assert max(counts) >= 15


def test_application_metrics() -> None:
    out = run("examples/application_metrics.py")
    assert "'org.apache.kafka.shop.orders.total', 'org.apache.kafka.shop.queue.depth'" in out
    assert "100 orders of 100" in out


def test_otel_meter_provider() -> None:
    assert "orders {'BE': 25, 'NL': 75}, 100 checkouts timed" in run("examples/otel_meter_provider.py")
