"""How evenly those share a quota that share a producer, or a process."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.measured.hosted import Hosted
from tests.measured.scenes import EVEN, Figures, Played

ROOT = Path(__file__).parents[2]


def in_a_process(_cluster: Any, scene: str, byte_rate: int) -> Figures:
    with Hosted(1) as broker:  # here it would share Python's lock with all other scenes of the round
        broker.create_topic("orders")
        broker.set_quota(client_id="app", producer_byte_rate=byte_rate)
        command = [sys.executable, "-m", "tests.integration.field_scripts", scene, broker.bootstrap_servers, "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


FAIRNESS = partial(in_a_process, scene="fairness", byte_rate=51_200)
TOGETHER = partial(in_a_process, scene="together", byte_rate=100_000)


ROUND = EVEN
ON_THEIR_OWN = [FAIRNESS, TOGETHER]


def test_sixteen_threads_have_equal_turns(played: Played) -> None:
    found = played(FAIRNESS)
    assert found["left"] == 0
    assert found["least"] >= 0.8
    assert found["longest_s"] < 1
    assert found["sent"] > 500


def test_four_producers_of_one_process_share_one_pace(played: Played) -> None:
    found = played(TOGETHER)
    assert found["fairness"] >= 0.99
    assert found["longest_throttle_s"] <= 0.1
    assert found["used"] >= 0.9
