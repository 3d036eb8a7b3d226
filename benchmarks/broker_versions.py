"""The embedded broker of a commit beside today's, in turn in one run: `python -m benchmarks.broker_versions COMMIT`.

What counts is the broker's CPU time for what it moves, which other processes change little.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.broker_runs import measured_round

_ROOT = Path(__file__).resolve().parent.parent
_SIZES = (1024, 100)
_KEYS = ("produce_cpu_s_per_mb", "fetch_cpu_s_per_mb", "produce_mb_per_s", "fetch_mb_per_s")
Rounds = dict[str, list[dict[str, float]]]


def main() -> None:
    """Print medians, and of pairs the median ratio of today's to the commit's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as directory:
        _unpack(given.commit, directory)
        rounds = _alternate({given.commit: directory, "today": str(_ROOT)}, given.rounds, given.messages)
    told = {"commits": [given.commit, _commit("HEAD")], "messages": given.messages, "rounds": rounds}
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    for size in _SIZES:
        for key in _KEYS:
            before, today = ([one[f"{size}_{key}"] for one in rounds[name]] for name in (given.commit, "today"))
            ratio = median(new / old for old, new in zip(before, today, strict=True))
            print(f"{size:5} bytes {key:22} {median(before):.3g} then, {median(today):.3g} today: {ratio:.2f}")


def _alternate(trees: dict[str, str], rounds: int, messages: int) -> Rounds:
    found: Rounds = {name: [] for name in trees}
    for number in range(rounds):
        # who is first has the machine as the one before has left it
        for name in sorted(trees, reverse=number % 2 == 1):
            command = ["env", "-C", trees[name], sys.executable, "-m", "benchmarks.broker_host", "embedded"]
            one: dict[str, float] = {}
            for size in _SIZES:
                moved = measured_round(command, messages, b"x" * size)
                one |= {f"{size}_{key}": value for key, value in moved.items()}
            found[name].append(one)
    return found


def _unpack(commit: str, directory: str) -> None:
    packed = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
        tree.extractall(directory, filter="data")


def _commit(name: str) -> str:
    said = subprocess.run(["git", "rev-parse", "--short", name], cwd=_ROOT, check=True, capture_output=True, text=True)
    return said.stdout.strip()


if __name__ == "__main__":
    main()
