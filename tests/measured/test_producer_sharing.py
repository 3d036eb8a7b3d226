"""How evenly those share a quota that share a producer, or a process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kclient_quota.broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]


def played(scene: str, byte_rate: int) -> dict[str, Any]:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=byte_rate)
        command = [sys.executable, "-m", "tests.integration.field_scripts", scene, broker.bootstrap_servers, "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_sixteen_threads_have_equal_turns() -> None:
    found = played("fairness", 51_200)
    assert found["left"] == 0
    assert found["least"] >= 0.8
    assert found["longest_s"] < 1
    assert found["sent"] > 500


def test_four_producers_of_one_process_share_one_pace() -> None:
    found = played("together", 100_000)
    assert found["fairness"] >= 0.99
    assert found["longest_throttle_s"] <= 0.1
    assert found["used"] >= 0.9
