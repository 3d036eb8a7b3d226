"""The examples of asyncio, transactions, heartbeats and callbacks run as their pages say, and print what is true."""

import ast
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "examples/asyncio_service.py",
    "examples/consume_transform_produce.py",
    "examples/heartbeat_safety_plain.py",
    "examples/heartbeat_safety_wrapped.py",
    "examples/quota_callback.py",
    "examples/lanes.py",
    "examples/newest_value.py",
]


def run(page: str) -> str:
    done = subprocess.run([sys.executable, page], cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_they_print() -> None:
    # They wait for quotas rather than work: side by side they take as long as the longest.
    with ThreadPoolExecutor(len(PAGES)) as pool:
        service, copier, plain, wrapped, callback, lanes, newest = pool.map(run, PAGES)

    taken = re.search(r"taken \(201\): (\d+), told to come back \(429\): (\d+)", service)
    assert taken is not None
    assert int(taken[1]) == 40
    assert int(taken[2]) > 0
    assert "100 orders in " in copier
    assert "100 invoices, 0 of them twice" in copier
    lost = re.search(r"group lost (\d+) times; (\d+) come a second time", plain)
    assert lost is not None
    assert int(lost[1]) >= 1
    assert int(lost[2]) > 0
    assert "110 copied" in wrapped
    assert "group lost 0 times; 0 come a second time" in wrapped
    assert "free: 40,000 B/s" in callback
    assert "paid: 120,000 B/s" in callback
    delivered = re.search(r"delivered: (\{.*\})", lanes)
    assert delivered is not None
    by_lane = ast.literal_eval(delivered[1])
    assert by_lane["alerts"] == 250
    assert by_lane["orders"] > 2 * by_lane["bulk"] > 0
    values = re.search(r"values: (\{.*\}), the oldest was ([\d.]+) s old", newest)
    assert values is not None
    became = ast.literal_eval(values[1])
    assert sum(became.values()) == 8_000
    assert became["sent"] > 800
    assert float(values[2]) <= 12, "worth sending for 5 s"
