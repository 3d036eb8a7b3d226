"""examples/quotas_as_code.py runs as its page says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quotas_as_code() -> None:
    done = subprocess.run(
        [sys.executable, "examples/quotas_as_code.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert "4 to add, 0 to change, 0 to remove, 3 to work out\n" in out
    assert "{user=alice, client-id=app} producer_byte_rate: no limit -> 1000000\n" in out
    assert "consumer_byte_rate:shares=2\nproducer_byte_rate:bps=3000000\nproducer_byte_rate:broker_bps=1000000" in out
    assert "*consumer_byte_rate:shares=1 {user=<default>}" in out
    assert "0 to add, 0 to change, 0 to remove; 1 that the file does not manage stay as they are" in out
    assert "2 entities altered\n" in out
    assert out.endswith("- names: {user: mallory}\n  set: {producer_byte_rate: 99}\n")
