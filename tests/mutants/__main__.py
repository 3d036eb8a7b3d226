"""Small faults in the pure cores, one at a time: which of them the unit tests notice (by cosmic-ray's operators).

    make mutants                                             # a sample; benchmarks/results/mutants.json
    python -m tests.mutants --sample 40 --seed 7             # a smaller one, another one
    python -m tests.mutants --sample 1000 --of pacing/turns  # every place of one module

Needs cosmic-ray, which `make mutants` installs. What survives is printed with its change: either a test is missing, or
the change means nothing, and `equivalent.txt` says why. Nothing is written to the source: a child of a process that has
loaded what the tests need imports the one module changed.
"""

import argparse
import ast
import difflib
import importlib
import importlib.machinery
import json
import os
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from tests.mutants.cores import CORES, SLOW

SEED = 714
SAMPLE = 200
WANTED = 0.9
CPU_S = 120
"""A mutant whose tests work for longer goes round in circles, which counts as noticed."""
ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
LOADED = ("pytest", "hypothesis", "confluent_kafka", "opentelemetry.proto.metrics.v1.metrics_pb2")
PLAIN = ("-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore:Module already imported")
PASSES = 0


@dataclass(frozen=True)
class Mutant:
    """One change to one module."""

    path: str
    source: str
    tests: tuple[str, ...]

    @property
    def change(self) -> str:
        """The lines that differ."""
        before = (ROOT / self.path).read_text().splitlines()
        lines = list(difflib.unified_diff(before, self.source.splitlines(), n=0, lineterm=""))[2:]
        return "\n".join(line.rstrip() for line in lines if line[0] in "+-")

    def is_noticed(self) -> bool:
        """Whether a test fails, in a process of its own."""
        child = os.fork()
        if child == 0:
            failed = 1
            with suppress(BaseException):  # it may fail to be imported, or exit
                failed = self._play()
            os._exit(failed)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) != PASSES

    def _play(self) -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        changed, source = str(ROOT / self.path), self.source
        usual = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> Any:
            return compile(source, changed, "exec") if loader.path == changed else usual(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        importlib.import_module(self.path.removeprefix("telemetry/").removesuffix(".py").replace("/", "."))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        import pytest

        quick = f"not ({' or '.join(SLOW)})"
        return int(pytest.main([*self.tests, "-x", "-q", *PLAIN, "-k", quick]))


def places(path: str) -> list[list[tuple[Any, int]]]:
    """What may go wrong in each place of a module: an operator, and which of the places it knows this is."""
    # only `make mutants` installs it
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast_from_path(ROOT / path)
    found: dict[Any, list[tuple[Any, int]]] = {}
    for name in sorted(operator_names()):
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        spots = [spot for node in ast_nodes(tree) for spot, _ in operator.mutation_positions(node)]
        for occurrence, spot in enumerate(spots):
            found.setdefault(spot, []).append((operator, occurrence))
    return [found[spot] for spot in sorted(found)]


def mutant(path: str, tests: tuple[str, ...], operator: Any, occurrence: int) -> Mutant | None:
    """One of them; None where nothing but an annotation would change, or it cannot be compiled."""
    from cosmic_ray.mutating import mutate_code

    code = (ROOT / path).read_text()
    made = mutate_code(code, operator, occurrence)
    return None if made is None or _meaning(made) in {_meaning(code), ""} else Mutant(path, made, tests)


def _meaning(code: str) -> str:
    """The tree without annotations, whose change nobody could notice; nothing where it cannot be compiled."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def sample(count: int, seed: int, part: str) -> tuple[list[Mutant], int]:
    """As many places as asked for, one mutant of each; how many places there are."""
    random = Random(seed)
    every = [(path, options) for path in CORES if part in path for options in places(path)]
    random.shuffle(every)
    made = (mutant(path, CORES[path], *random.choice(options)) for path, options in every)
    return list(islice((one for one in made if one is not None), count)), len(every)


def judge(played: list[Mutant], of: int, processes: int) -> dict[str, Any]:
    """Counts, the score, and what survived without being excused."""
    with ThreadPoolExecutor(processes) as pool:
        noticed = list(pool.map(_told, played))
    survived = [mutant for mutant, was_noticed in zip(played, noticed, strict=True) if not was_noticed]
    excused = EQUIVALENT.read_text()
    left = [mutant for mutant in survived if f"{mutant.path}\n{mutant.change}\n" not in excused]
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


def _told(mutant: Mutant) -> bool:
    noticed = mutant.is_noticed()
    if not noticed:
        print(f"{mutant.path}\n{mutant.change}\n", flush=True)
    return noticed


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
    played, of = sample(chosen.sample, chosen.seed, chosen.of)
    for name in LOADED:
        importlib.import_module(name)
    for path, tests in {one.path: one.tests for one in played}.items():
        if Mutant(path, (ROOT / path).read_text(), tests).is_noticed():
            raise SystemExit(f"the tests of {path} fail without a mutant: {' '.join(tests)}")
    from tests.soak.brokers import versions

    found = {**versions(), "seed": chosen.seed, **judge(played, of, chosen.processes)}
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
