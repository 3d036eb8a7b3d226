"""Small faults in the pure cores, one at a time: which of them the unit tests notice (by cosmic-ray's operators).

    make mutants                                             # a sample; benchmarks/results/mutants.json
    python -m tests.mutants --sample 40 --seed 7             # a smaller one, another one
    python -m tests.mutants --sample 1000 --of pacing/sending/turns  # every place of one module

Needs cosmic-ray, which `make mutants` installs. What survives is printed with its change: either a test is missing, or
the change means nothing, and `equivalent.txt` says why. Nothing is written to the source.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.mutants.cores import CORES
from tests.mutants.judging import noticed
from tests.mutants.making import Mutant, sample

SEED = 714
SAMPLE = 400
WANTED = 0.9
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
LOADED = ("hypothesis", "coverage", "confluent_kafka", "opentelemetry.proto.metrics.v1.metrics_pb2")


def judge(played: list[Mutant], of: int, processes: int) -> dict[str, Any]:
    """Counts, the score, and what survived without being excused."""
    survived = []
    for tests in dict.fromkeys(CORES[one.path] for one in played):
        of_room = [one for one in played if CORES[one.path] == tests]
        found = zip(of_room, noticed(of_room, tests, processes), strict=True)
        survived += [one for one, was_noticed in found if not was_noticed]
    excused = EQUIVALENT.read_text()
    left = [one for one in survived if f"{one.path}\n{one.change}\n" not in excused]
    for one in left:
        print(f"{one.path}\n{one.change}\n", flush=True)
    every, alive = Counter(one.path for one in played), Counter(one.path for one in left)
    return {
        "mutants": len(played),
        "places": of,
        "killed": len(played) - len(survived),
        "equivalent": len(survived) - len(left),
        "survived": len(left),
        "score": round(1 - len(left) / len(played), 3),
        "modules": {path: {"mutants": every[path], "survived": alive[path]} for path in sorted(every)},
        "survivors": [{"module": one.path, "change": one.change} for one in left],
    }


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants")
    parser.add_argument("--seed", type=int, default=SEED, help="which")
    parser.add_argument("--of", default="", help="only modules whose path contains this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where the result goes, such as benchmarks/results/mutants.json")
    chosen = parser.parse_args()
    begin = time.monotonic()
    for name in LOADED:
        importlib.import_module(name)
    played, of = sample(chosen.sample, chosen.seed, chosen.of)
    found = judge(played, of, chosen.processes)
    from tests.soak.brokers import versions

    found = {**versions(), "seed": chosen.seed, **found}
    found["minutes"] = round((time.monotonic() - begin) / 60, 1)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    print(
        ", ".join(
            f"{found[name]} {name}" for name in ("mutants", "places", "killed", "equivalent", "survived", "score")
        )
    )
    return 0 if found["score"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
