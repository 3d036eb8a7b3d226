"""What runs say at their end, by runs of small suites of their own."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Write a file of tests below `tests/DIRECTORY` and run it; the exit status and what was printed."""
    for name in ("CI", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'telemetry'}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading them all is most of what such a run takes

    def play(directory, text, *arguments, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "tests" / directory
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "tests" / "suite", tmp_path / "tests" / "suite", dirs_exist_ok=True)
        measured = ("measured/conftest.py", "measured/hosted.py", "measured/scenes.py")
        for name in ("conftest.py", "java_tools.py", "required.py", "spark_session.py", *measured):
            (tmp_path / "tests" / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
        (folder / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 120\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "xdist",
            "-p",
            "pytest_timeout",
            "--import-mode=importlib",
            *arguments,
            "tests",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=160, check=False)
        return done.returncode, done.stdout

    return play


MISSING = """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_one(number):
    pytest.skip("no `go` on the path")
def test_two():
    pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_out_is_one_line(run, workers):
    status, said = run("unit", MISSING, "-n", workers)
    assert status == 0
    assert said.count("no `go` on the path") == 1
    assert "3 tests: no `go` on the path" in said
    assert "1 passed, 3 skipped in" in said.splitlines()[-1]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_in_ci_nothing_is_left_out(run, workers):
    status, said = run("unit", MISSING, "-n", workers, CI="true")
    assert status == 1
    assert "3 failed, 1 passed" in said.splitlines()[-1]
    assert "no `go` on the path; with CI set nothing may be left out" in said


def test_in_ci_a_whole_file_is_not_left_out_either(run):
    text = "import pytest\npytest.importorskip('no_such_module')\ndef test_one(): pass\n"
    assert run("unit", text)[0] == 5
    status, said = run("unit", text, CI="true")
    assert status == 2
    assert "with CI set nothing may be left out" in said


DIES = """
import os, pytest
@pytest.mark.parametrize("number", range(12))
def test_one(number):
    if number == 7:
        os.abort()
"""


@pytest.mark.parametrize("directory", ["unit", "spark", "measured"])
def test_a_worker_that_dies_fails_its_test_and_no_other(run, tmp_path, directory):
    more = tmp_path / "tests" / "integration"
    more.mkdir(parents=True)
    for number in range(4):
        (more / f"test_more_{number}.py").write_text("import pytest\ndef test_one(): pass\ndef test_two(): pass\n")
    status, said = run(directory, DIES, "-n", "2")
    assert status == 1
    assert "1 failed, 19 passed in" in said.splitlines()[-1], said
    assert said.count("crashed while running") == 1


STUCK = """
import signal, time
def test_one():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)
def test_two():
    pass
"""
IMPATIENT = ("-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true", "-n", "2")


def test_a_worker_that_no_signal_reaches_is_ended_and_the_others_go_on(run):
    status, said = run("unit", STUCK, *IMPATIENT)
    assert status == 1
    assert "1 failed, 1 passed in" in said.splitlines()[-1], said
    with (ROOT / "pyproject.toml").open("rb") as file:
        set_so = tomllib.load(file)["tool"]["pytest"]
    assert set_so["faulthandler_exit_on_timeout"] is True
    assert int(set_so["faulthandler_timeout"]) > int(set_so["timeout"])


def test_to_wait_for_ones_turn_is_not_to_be_stuck(run, tmp_path):
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    slow = "import time\n" + "".join(f"def test_{number}(): time.sleep(1.5)\n" for number in range(4))
    (tmp_path / "tests" / "integration" / "test_slow.py").write_text(slow)
    status, said = run("measured", "def test_one(): pass\n", *IMPATIENT)
    assert status == 0, said


TWICE = """
import pathlib
def test_one():
    count = pathlib.Path({path!r})
    tries = int(count.read_text()) if count.exists() else 0
    count.write_text(str(tries + 1))
    assert tries >= {fails}, "too slow"
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_measured_again_is_named(run, tmp_path, workers):
    status, said = run("measured", TWICE.format(path=str(tmp_path / "count"), fails=2), "-n", workers)
    assert status == 0, said
    assert "measured again" in said
    assert "test_it.py::test_one: try 1: AssertionError: too slow" in said
    assert "test_it.py::test_one: try 2: AssertionError: too slow" in said
    assert "1 passed in" in said.splitlines()[-1]


def test_what_fails_three_times_fails(run, tmp_path):
    status, said = run("measured", TWICE.format(path=str(tmp_path / "count"), fails=3))
    assert status == 1
    assert "1 failed in" in said.splitlines()[-1]


def test_elsewhere_nothing_is_taken_twice(run, tmp_path):
    status, _ = run("contract", TWICE.format(path=str(tmp_path / "count"), fails=1))
    assert status == 1
    assert (tmp_path / "count").read_text() == "1"


def test_a_directory_that_uses_too_much_fails_the_run(run):
    text = "from tests.suite import rooms\nrooms.CPU_BUDGET_S['unit'] = 0.05\nimport time\n"
    text += "def test_one():\n    end = time.process_time() + 0.2\n    while time.process_time() < end: pass\n"
    status, said = run("unit", text, "--budgets")
    assert status == 1
    assert "over the budget of time, which fails the run" in said
    assert re.search(r"unit: \d+ s, 0\.(0[5-9]|1[0-5]?) s allowed", said)
    assert run("unit", text)[0] == 0


def test_time_that_is_waited_is_not_used(run):
    text = "from tests.suite import rooms\nrooms.CPU_BUDGET_S['unit'] = 2\n"  # what a busy machine's start may take
    text += "import time\ndef test_one(): time.sleep(3)\n"
    assert run("unit", text, "--budgets")[0] == 0


SESSION = """
import time
import pytest
from tests.suite import rooms
rooms.CPU_BUDGET_S['unit'] = 2

@pytest.fixture(scope="session")
def costly():
    yield
    end = time.process_time() + 5
    while time.process_time() < end: pass

def test_one(costly): pass
"""


def test_what_a_session_had_is_no_cost_of_its_last_test(run):
    assert run("unit", SESSION, "--budgets")[0] == 0


NO_KAFKA = """
from kclient_quota.testing.apache import ApacheKafka
def test_one():
    with ApacheKafka():
        pass
"""


@pytest.mark.parametrize(("ci", "status", "last"), [("", 0, "1 skipped in"), ("true", 1, "1 failed in")])
def test_who_meets_the_absence_of_java_is_left_out_but_in_ci(run, ci, status, last):
    found, said = run("contract", NO_KAFKA, PATH="/nowhere", CI=ci)
    assert found == status, said
    assert "needs java" in said
    assert last in said.splitlines()[-1]


REPRESENTED = """
def test_one(cluster):
    assert cluster.bootstrap_servers
"""


@pytest.mark.parametrize(
    ("ci", "status", "kind"), [("", 0, "test_one[embedded] PASSED"), ("true", 1, "test_one[apache-kafka] ERROR")]
)
def test_without_java_the_embedded_broker_is_measured_but_in_ci(run, ci, status, kind):
    found, said = run("measured", REPRESENTED, "-v", PATH="/nowhere", CI=ci)
    assert found == status, said
    assert kind in said


ALONE = """
import pathlib, time
def test_one():
    assert pathlib.Path({path!r}).exists()
"""


def test_what_is_measured_waits_for_the_other_workers(run, tmp_path):
    done = str(tmp_path / "done")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for number in range(3):
        slow = f"import pathlib, time\ndef test_slow():\n    time.sleep({0.5 * number + 0.5})\n"
        slow += f"    pathlib.Path({done!r}).touch()\n" if number == 2 else ""
        (tmp_path / "tests" / "unit" / f"test_slow_{number}.py").write_text(slow)
    status, said = run("measured", ALONE.format(path=done), "-n", "3")
    assert status == 0, said
    assert "4 passed" in said.splitlines()[-1]
