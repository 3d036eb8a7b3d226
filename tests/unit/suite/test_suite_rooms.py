"""The directory decides what runs when; nothing is left to markers, and no directory is forgotten."""

import tomllib
from pathlib import Path

import pytest

from tests.suite import rooms
from tests.suite.rooms import (
    CPU_BUDGET_S,
    KAFKA,
    MEASURED,
    ON_REQUEST,
    SPARK,
    TESTED,
    computes,
    room_of,
    turn_of,
    unit_of,
)

ROOT = Path(__file__).parents[3]
NO_TESTS = {"suite", "typing"}


def test_every_directory_has_a_target():
    found = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert found - NO_TESTS <= {*TESTED, *ON_REQUEST}
    targets = (ROOT / "Makefile").read_text()
    for name in found & set(ON_REQUEST):
        target = ON_REQUEST[name]
        assert f"\n{target}: " in targets, f"tests/{name} has no make target"
        recipe = targets.partition(f"\n{target}: ")[2].partition("\n\n")[0]
        assert name == target or f"tests/{name}" in recipe, f"make {target} does not run tests/{name}"


def test_what_make_test_runs_is_what_pytest_runs_by_itself():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert settings["testpaths"] == [f"tests/{name}" for name in TESTED]
    assert set(CPU_BUDGET_S) == set(TESTED)


@pytest.mark.parametrize(
    ("nodeid", "unit", "room"),
    [
        ("tests/unit/wire/test_codec.py::test_one[3]", "tests/unit/wire/test_codec.py", None),
        ("tests/contract/test_log.py::test_one[embedded]", "tests/contract/test_log.py", None),
        ("tests/contract/test_log.py::test_one[apache-kafka]", "tests/contract/test_log.py@kafka", KAFKA),
        ("tests/spark/test_jobs.py::test_one", "tests/spark/test_jobs.py", SPARK),
        ("tests/spark/test_loop.py::test_one[apache-kafka]", "tests/spark/test_loop.py@kafka", SPARK),
        ("tests/spark_grid/test_fleet.py::test_one", "tests/spark_grid/test_fleet.py", SPARK),
        ("tests/measured/test_a.py::test_one[apache-kafka-x]", "tests/measured/", MEASURED),
        ("tests/measured/test_b.py::test_one", "tests/measured/", MEASURED),
    ],
)
def test_what_shares_a_worker(nodeid, unit, room):
    assert unit_of(nodeid) == unit
    assert room_of(unit) == room


def test_what_is_measured_comes_last_and_what_takes_long_first():
    units = [
        "tests/measured/",
        "tests/unit/broker/test_acls.py",
        "tests/unit/simulation/test_sending.py",
        "tests/integration/test_aio_producer.py",
        "tests/integration/test_otlp_collector.py",
        "tests/contract/test_log.py@kafka",
        "tests/spark/test_jobs.py",
        "tests/examples/test_pages.py",
    ]
    order = [units[4], units[6], units[5], units[7], units[3], units[2], units[1], units[0]]
    assert sorted(units, key=turn_of) == order


def test_one_worker_of_many_begins_with_what_computes():
    assert [computes(worker, 10) for worker in range(10)] == [False] * 9 + [True]
    assert [computes(worker, 7) for worker in range(7)] == [False] * 6 + [True], "as many as beside an Apache Kafka"
    assert not any(computes(worker, 6) for worker in range(6))
    units = [
        "tests/measured/",
        "tests/contract/test_log.py",
        "tests/unit/wire/test_codec.py",
        "tests/" + rooms._BUSY[0],
    ]
    assert sorted(units, key=lambda unit: turn_of(unit, computing=True)) == [units[3], units[2], units[1], units[0]]


@pytest.mark.parametrize("file", [*rooms._LONG, *rooms._WAIT_FOR_LONG, *rooms._BUSY])
def test_a_file_that_has_a_turn_of_its_own_is_there(file):
    assert (ROOT / "tests" / file).is_file()
