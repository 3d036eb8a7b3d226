"""Small faults in the pure cores, one at a time: which of them the unit tests notice (by mutmut).

    make mutants                                   # a sample; benchmarks/results/mutants.json
    python -m tests.mutants --sample 100 --seed 7  # a smaller one
    python -m tests.mutants --of pacing.turns      # every mutant of one module

Needs mutmut, which `make mutants` installs. What survives is printed with its change: either a test is missing,
or the change means nothing, and `equivalent.txt` says why.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.soak.brokers import versions

SEED = 714
SAMPLE = 300
ROOT = Path(__file__).parents[2]
ROOM = ROOT / "build" / "mutants"
"""Where the copies are that are broken."""
CORES = [
    "kclient_quota/quota/*.py",
    "kclient_quota/pacing/*.py",
    "kclient_quota/clients/producer/core.py",
    "kclient_quota/clients/producer/routes.py",
    "kclient_quota/clients/consumer/core.py",
    "kclient_quota/clients/consumer/held.py",
    "kclient_quota/clients/consumer/joining.py",
    "kclient_quota/clients/consumer/poll_idle.py",
    "kclient_quota/clients/consumer/sizing.py",
    "kclient_quota/clients/consumer/stall.py",
    "kclient_quota/clients/heartbeat.py",
    "kclient_quota/clients/quota_state.py",
    "kclient_quota/wire/records.py",
    "kclient_telemetry/client/payload.py",
    "kclient_telemetry/client/reporter.py",
    "kclient_telemetry/client/retry.py",
    "kclient_telemetry/client/subscription.py",
    "kclient_telemetry/client/temporality.py",
    "kclient_telemetry/receiver/manager.py",
    "kclient_telemetry/receiver/stats.py",
    "kclient_telemetry/receiver/subscription.py",
]
TESTS = [
    "tests/unit/quota",
    "tests/unit/pacing",
    "tests/unit/clients",
    "tests/unit/telemetry",
    "tests/unit/wire",
]
SLOW = [
    "a_quota_is_followed_with_librdkafkas",
    "batches_that_fill_much",
    "batches_that_are_small",
    "strangers",
    "other_windows_of_the_broker",
    "each_broker_has_a_quota",
    "a_quota_that_nobody_told",
    "test_parquet",
    "noise_after_letters",
    "zstd_frame",
    "scraper",
    "runner",
    "endpoint",
]
"""Simulations of seconds, threads and sockets: a mutant is to be noticed without them."""
SURVIVED, UNTESTED = 0, 33
"""Exit codes that mutmut keeps: pytest's, and its own for what no test calls."""
FIRST = "kclient_quota.quota.rate.x*_stretched__mutmut_1"
WANTED = 0.9
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def settle() -> None:
    """Copy what is broken and what notices it, with both packages at the top, as mutmut wants them."""
    shutil.rmtree(ROOM, ignore_errors=True)
    ROOM.mkdir(parents=True)
    shutil.copytree(ROOT / "kclient_quota", ROOM / "kclient_quota")
    shutil.copytree(ROOT / "telemetry" / "kclient_telemetry", ROOM / "kclient_telemetry")
    shutil.copytree(ROOT / "tests", ROOM / "tests")
    quick = f"not ({' or '.join(SLOW)})"
    settings = {
        "source_paths": ["kclient_quota", "kclient_telemetry"],
        "only_mutate": CORES,
        "pytest_add_cli_args": ["-q", "-p", "no:cacheprovider", "-o", "pythonpath=.", "-k", quick],
        "pytest_add_cli_args_test_selection": TESTS,
        "track_dependencies": False,
        "use_git_change_detection": False,
    }
    said = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    declared = (ROOT / "pyproject.toml").read_text()
    (ROOM / "pyproject.toml").write_text(f"{declared}\n[tool.mutmut]\n{said}\n")


def mutmut(*arguments: str) -> str:
    """What it says; it says little of use but for `show`."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=ROOM, env=environment, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"mutmut {' '.join(arguments[:2])}: {done.stdout[-4_000:]}{done.stderr[-4_000:]}")
    return done.stdout


def outcomes() -> dict[str, int | None]:
    """Every mutant by name, with the exit code of its tests, or None as long as they have not run."""
    found: dict[str, int | None] = {}
    for path in sorted((ROOM / "mutants").rglob("*.py.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def change_of(name: str) -> str:
    """The lines that differ, without what is around them."""
    lines = [line for line in mutmut("show", name).splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
    return "\n".join(lines)


def module_of(name: str) -> str:
    """`kclient_quota.quota.rate` of the name of a mutant."""
    return name.rpartition(".")[0]


def verdict(names: list[str]) -> dict[str, Any]:
    """Counts, the score, and what survived without being excused."""
    codes = outcomes()
    survived = {name: change_of(name) for name in names if codes[name] in {SURVIVED, UNTESTED}}
    excused = EQUIVALENT.read_text()
    left = {name: change for name, change in survived.items() if change not in excused}
    mutants, alive = Counter(map(module_of, names)), Counter(map(module_of, left))
    return {
        "mutants": len(names),
        "of": len(codes),
        "killed": len(names) - len(survived),
        "equivalent": len(survived) - len(left),
        "survived": len(left),
        "score": round(1 - len(left) / len(names), 3),
        "modules": {name: {"mutants": mutants[name], "survived": alive[name]} for name in sorted(mutants)},
        "survivors": left,
    }


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants")
    parser.add_argument("--seed", type=int, default=SEED, help="which")
    parser.add_argument("--of", default="", help="only those whose module's name contains this")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="where the result goes, such as benchmarks/results/mutants.json")
    chosen = parser.parse_args()
    begin = time.monotonic()
    settle()
    children = ("--max-children", str(chosen.processes))
    mutmut("run", *children, FIRST)  # makes all, and finds out which tests call what
    every = sorted(name for name in outcomes() if chosen.of in module_of(name))
    names = sorted(Random(chosen.seed).sample(every, min(chosen.sample, len(every))))
    mutmut("run", *children, *names)
    found = {**versions(), "seed": chosen.seed, **verdict(names), "minutes": round((time.monotonic() - begin) / 60, 1)}
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    for name, change in found["survivors"].items():
        print(f"\n{name}\n{change}")
    print(
        f"\n{found['mutants']} of {found['of']} mutants: {found['killed']} killed, {found['equivalent']} equivalent, ",
        end="",
    )
    print(f"{found['survived']} survived; score {found['score']}")
    return 0 if found["score"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
