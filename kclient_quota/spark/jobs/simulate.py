"""Sweeps of the simulation over executors: every combination of what is varied, with every seed, one task each.

| column | meaning |
| --- | --- |
| run, seed | number of the run; seed of its generator |
| a column for each parameter of `PARAMETERS` | what was simulated, varied or not |
| a column for each number of `kclient_quota.simulation.Figures` | what came of it |
| settled_ms, slowest_settling_ms | how soon clients settled after the start, and after whichever change took longest; \
null: never |
| error | why a combination cannot be simulated; then there are no figures |
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Figures, Network, Scenario, figures, parts, simulate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORDS: Final = {"true": True, "false": False}
_TYPES: Final = {int: (pa.int64(), "bigint"), float: (pa.float64(), "double"), bool: (pa.bool_(), "boolean")}
_MOST_TASKS: Final = 10_000
_SETTLING: Final = ("settled_ms", "slowest_settling_ms")


def _scalars(of: type) -> dict[str, type]:
    return {field.name: field.type for field in fields(of) if isinstance(field.type, type) and field.type in _TYPES}


_SCENARIO: Final = _scalars(Scenario)
_NETWORK: Final = _scalars(Network)
PARAMETERS: Final = {**_SCENARIO, **_NETWORK, "demand": float}
"""What can be varied: the numbers and flags of `Scenario` and `Network`; `demand`: that of every client."""

_DEFAULTS: Final = {
    field.name: field.default for each in (Scenario, Network) for field in fields(each) if field.name in PARAMETERS
} | {"demand": float("inf")}
_FIGURES: Final = _scalars(Figures)
_RESULTS: Final = {"run": int, "seed": int, **PARAMETERS, **_FIGURES, **dict.fromkeys(_SETTLING, int)}
_SCHEMA: Final = pa.schema([*((name, _TYPES[kind][0]) for name, kind in _RESULTS.items()), ("error", pa.string())])
_DDL: Final = ", ".join([*(f"`{name}` {_TYPES[kind][1]}" for name, kind in _RESULTS.items()), "error string"])


class Sweep:
    """Which runs: a grid.

    Args:
        vary: parameter to its values, as numbers, flags or as text; parameters that are not named have one value, the
            default.
        seeds: every combination is run with seeds 1 to that.

    Raises:
        ConfigError: there is no such parameter, or a value is none of it.
    """

    def __init__(self, vary: Mapping[str, Sequence[Any]], seeds: int = 1) -> None:
        if seeds < 1:
            raise ConfigError(f"seeds must be at least 1, not {seeds}")
        unknown = sorted(vary.keys() - PARAMETERS.keys())
        if unknown:
            raise ConfigError(f"nothing to vary is called {', '.join(unknown)}; there are {', '.join(PARAMETERS)}")
        self.seeds = seeds
        self.axes = {name: [_value(name, each) for each in values] for name, values in vary.items()}
        empty = [name for name, values in self.axes.items() if not values]
        if empty:
            raise ConfigError(f"{', '.join(empty)}: give at least one value")

    def __len__(self) -> int:
        return self.seeds * prod(map(len, self.axes.values()))

    def run(self, number: int) -> tuple[dict[str, Any], int]:
        """The parameters and the seed of a run; the last parameter changes fastest after the seed."""
        rest, seed = divmod(number, self.seeds)
        chosen = {}
        for name, values in reversed(self.axes.items()):
            rest, place = divmod(rest, len(values))
            chosen[name] = values[place]
        return _DEFAULTS | chosen, seed + 1


def sweep(spark: "SparkSession", runs: Sweep) -> "DataFrame":
    """Run them all, each in a task of its own; nothing but the grid leaves the driver."""
    numbers = spark.range(0, len(runs), 1, min(len(runs), _MOST_TASKS))
    return numbers.mapInArrow(partial(_play_all, runs=runs), _DDL)


def write_sweep(spark: "SparkSession", runs: Sweep, output: str) -> str:
    """Run them all into Parquet.

    Returns:
        a line that says what was written.

    Raises:
        ConfigError: Spark cannot write there.
    """
    try:
        sweep(spark, runs).write.parquet(output)
    except AnalysisException as error:
        raise ConfigError(f"output {output}: {str(error).splitlines()[0]}") from error
    wrong = spark.read.parquet(output).where("error is not null").count()
    return f"{output}: {len(runs)} runs" + (f", {wrong} of them impossible: see the column error" if wrong else "")


def play(number: int, runs: Sweep) -> dict[str, Any]:
    """A row: one run, with the generators that `kclient-quota simulate --seed` has."""
    chosen, seed = runs.run(number)
    row = {"run": number, "seed": seed, **chosen}
    try:
        scenario = _scenario(chosen)
    except ConfigError as error:
        return row | {"error": str(error)}
    outcomes = [
        simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}"))  # noqa: S311 # not for secrets
        for part in parts(scenario)
    ]
    found = figures(scenario, outcomes)
    settling = [each.after_ms for each in found.settling]
    settled = [each for each in settling if each is not None]
    slowest = max(settled) if len(settled) == len(settling) else None
    told = {name: getattr(found, name) for name in _FIGURES}
    return row | told | {"settled_ms": settling[0], "slowest_settling_ms": slowest}


def _scenario(chosen: Mapping[str, Any]) -> Scenario:
    network = Network(**{name: chosen[name] for name in _NETWORK})
    return Scenario(**{name: chosen[name] for name in _SCENARIO}, network=network, demands=(chosen["demand"],))


def _value(name: str, given: Any) -> Any:
    kind = PARAMETERS[name]
    try:
        return _WORDS[str(given).lower()] if kind is bool else kind(given)
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{name}: {given} is no {kind.__name__}") from error


def _play_all(batches: Iterator[pa.RecordBatch], runs: Sweep) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield pa.RecordBatch.from_pylist([play(number, runs)], _SCHEMA)
