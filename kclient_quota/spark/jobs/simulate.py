"""Sweeps of the simulation over executors: every combination of what is varied, with every seed.

A run of one broker is a task. A run of several is cut into the parts that share no client (see `simulation.parts`),
which are played by as many tasks as there are brokers, and put together again: the figures are the same.

| column | meaning |
| --- | --- |
| run, seed | number of the run; seed of its generator |
| a column for each parameter of `PARAMETERS` | what was simulated, varied or not |
| a column for each number of `kclient_quota.simulation.Figures` | what came of it |
| settled_ms, slowest_settling_ms | how soon clients settled after the start, and after whichever change took longest; \
null: never |
| error | why a combination cannot be simulated; then there are no figures |
"""

import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Figures, Network, Outcome, Scenario, figures, parts, simulate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORDS: Final = {"true": True, "false": False}
_TYPES: Final = {int: (pa.int64(), "bigint"), float: (pa.float64(), "double"), bool: (pa.bool_(), "boolean")}
_MOST_TASKS: Final = 10_000
_MOST_SHARDS: Final = 256
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
_PLAYED: Final = pa.schema([("run", pa.int64()), ("outcomes", pa.binary())])
_PLAYED_DDL: Final = "run bigint, outcomes binary"


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

    @property
    def shards(self) -> int:
        """Into how many tasks a run is cut: as many as the most brokers, since parts share none."""
        most = max([1, *self.axes.get("brokers", [])])
        return min(int(most), _MOST_SHARDS)

    def run(self, number: int) -> tuple[dict[str, Any], int]:
        """The parameters and the seed of a run; the last parameter changes fastest after the seed."""
        rest, seed = divmod(number, self.seeds)
        chosen = {}
        for name, values in reversed(self.axes.items()):
            rest, place = divmod(rest, len(values))
            chosen[name] = values[place]
        return _DEFAULTS | chosen, seed + 1


def sweep(spark: "SparkSession", runs: Sweep) -> "DataFrame":
    """Run them all, spread over tasks; nothing but the grid leaves the driver."""
    count = len(runs) * runs.shards
    numbers = spark.range(0, count, 1, min(count, _MOST_TASKS))
    if runs.shards == 1:
        return numbers.mapInArrow(partial(_play_all, runs=runs), _DDL)
    played = numbers.mapInArrow(partial(_play_shards, runs=runs), _PLAYED_DDL)

    def put_together(one: pa.Table) -> pa.Table:  # a function with hints: Spark looks at them
        return _put_together(one, runs)

    return played.groupBy("run").applyInArrow(put_together, _DDL)


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
    try:
        return told(number, runs, play_shard(number, runs, 0, 1))
    except ConfigError as error:
        return _impossible(number, runs, error)


def play_shard(number: int, runs: Sweep, shard: int, shards: int) -> list[Outcome]:
    """Every so many-th part of a run, in the order of `simulation.parts`.

    Args:
        number: of the run.
        runs: the grid.
        shard: where to begin.
        shards: how many parts to go on by.

    Raises:
        ConfigError: this combination cannot be simulated.
    """
    chosen, seed = runs.run(number)
    scenario = _scenario(chosen)
    return [
        simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}"))  # noqa: S311 # not for secrets
        for part in parts(scenario)[shard::shards]
    ]


def told(number: int, runs: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The row of a run out of all of its parts, in whatever order."""
    chosen, seed = runs.run(number)
    found = figures(_scenario(chosen), sorted(outcomes, key=lambda outcome: outcome.part.brokers))
    settling = [each.after_ms for each in found.settling]
    settled = [each for each in settling if each is not None]
    slowest = max(settled) if len(settled) == len(settling) else None
    row = {name: getattr(found, name) for name in _FIGURES}
    times = {"settled_ms": settling[0], "slowest_settling_ms": slowest}
    return {"run": number, "seed": seed, **chosen, **row, **times}


def _impossible(number: int, runs: Sweep, error: ConfigError) -> dict[str, Any]:
    chosen, seed = runs.run(number)
    return {"run": number, "seed": seed, **chosen, "error": str(error)}


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


def _play_shards(batches: Iterator[pa.RecordBatch], runs: Sweep) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            number, shard = divmod(place, runs.shards)
            with suppress(ConfigError):  # `_put_together` meets it again, and tells
                outcomes = play_shard(number, runs, shard, runs.shards)
                yield pa.RecordBatch.from_pylist([{"run": number, "outcomes": pickle.dumps(outcomes)}], _PLAYED)
                continue
            yield pa.RecordBatch.from_pylist([{"run": number, "outcomes": None}], _PLAYED)


def _put_together(played: pa.Table, runs: Sweep) -> pa.Table:
    number = played.column("run")[0].as_py()
    packed = [each for each in played.column("outcomes").to_pylist() if each is not None]
    try:
        row = told(number, runs, [each for one in packed for each in pickle.loads(one)])  # noqa: S301 # ours, see above
    except ConfigError as error:
        row = _impossible(number, runs, error)
    return pa.Table.from_pylist([row], _SCHEMA)
