"""Sweeps: every combination once, and the same figures as the simulation by itself."""

import random
from itertools import product

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Scenario, figures, parts, simulate
from kclient_quota.spark.jobs.simulate import Sweep, play, play_shard, sweep, told, write_sweep


def test_every_combination_comes_once():
    runs = Sweep({"clients": [1, "2", 3], "quota": ["51200", 1e6], "told": ["true", False]}, seeds=2)
    found = [runs.run(number) for number in range(len(runs))]
    got = [(chosen["clients"], chosen["quota"], chosen["told"], seed) for chosen, seed in found]
    assert sorted(got) == sorted(product([1, 2, 3], [51200.0, 1e6], [True, False], [1, 2]))
    assert all(chosen["brokers"] == 1 for chosen, _ in found)


@pytest.mark.parametrize(
    ("vary", "seeds", "words"),
    [
        ({"planets": [1]}, 1, "planets; there are brokers, clients"),
        ({"clients": ["many"]}, 1, "clients: many is no int"),
        ({"told": ["perhaps"]}, 1, "told: perhaps is no bool"),
        ({"clients": []}, 1, "at least one value"),
        ({}, 0, "seeds"),
    ],
)
def test_what_is_no_sweep(vary, seeds, words):
    with pytest.raises(ConfigError, match=words):
        Sweep(vary, seeds)


def test_a_sweep_on_executors_is_the_simulation(spark, tmp_path):
    runs = Sweep({"clients": [1, 2, -1], "quota": [200_000], "seconds": [12], "warm_up_ms": [4_000]}, seeds=2)
    output = str(tmp_path / "sweep")
    assert write_sweep(spark, runs, output) == f"{output}: 6 runs, 2 of them impossible: see the column error"
    rows = sorted(spark.read.parquet(output).collect(), key=lambda row: row["run"])
    assert [row["run"] for row in rows] == list(range(len(runs)))
    for row in rows:
        if row["clients"] < 0:
            assert "clients must be" in row["error"]
            assert row["utilisation"] is None
            continue
        scenario = Scenario(clients=row["clients"], quota=200_000.0, seconds=12, warm_up_ms=4_000)
        outcomes = [simulate(scenario, part, random.Random(f"{row['seed']}/0")) for part in parts(scenario)]
        wanted = figures(scenario, outcomes)
        assert row["error"] is None
        assert (row["utilisation"], row["jain"], row["requests"]) == (wanted.utilisation, wanted.jain, wanted.requests)
        assert row["settled_ms"] == wanted.settling[0].after_ms
    assert len({row["utilisation"] for row in rows}) > 1
    with pytest.raises(ConfigError, match="already exists"):
        write_sweep(spark, runs, output)


def test_a_run_cut_into_parts_is_the_whole_run(spark):
    vary = {"brokers": [3, 1, 0], "clients": [5], "quota": [100_000], "seconds": [12], "warm_up_ms": [4_000]}
    runs = Sweep(vary, seeds=2)
    assert runs.shards == 3
    found = {row["run"]: row.asDict() for row in sweep(spark, runs).collect()}
    assert found.keys() == set(range(len(runs)))
    for number, row in found.items():
        assert row == {**dict.fromkeys(row), **play(number, runs)}
    assert [bool(found[number]["error"]) for number in range(6)] == [False, False, False, False, True, True]
    assert found[0]["bytes_per_second"] > 2 * found[2]["bytes_per_second"]


def test_parts_come_together_in_whatever_order():
    runs = Sweep({"brokers": [4], "clients": [6], "plain": [2], "seconds": [10], "warm_up_ms": [2_000]})
    outcomes = [outcome for shard in (2, 0, 1) for outcome in play_shard(0, runs, shard, 3)]
    assert len(outcomes) == 4
    assert told(0, runs, outcomes) == play(0, runs)


def test_demand_is_everybodys():
    few = play(0, Sweep({"clients": [2], "demand": [1_000], "seconds": [10], "warm_up_ms": [2_000]}))
    assert 1_800 < few["bytes_per_second"] < 3_500
