"""`kclient-quota pipeline`: the jobs that read no telemetry, and options that do not fit."""

import io
import re
import sys

import pytest

from kclient_quota.cli import progress
from kclient_quota.cli.main import main
from tests.ctrl_c import PROMPT_S, children_of, interrupted, is_alive, soon, started


class Kept:
    """The tests' session, which the command must not stop."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.fixture
def ours(spark, monkeypatch):
    monkeypatch.setattr("kclient_quota.spark.session.session", lambda *given: Kept(spark))


class Terminal(io.StringIO):
    """Somebody looks at it."""

    def isatty(self):
        return True


def test_a_sweep_shows_spark_s_tasks_on_a_terminal_and_prints_its_result_alone(
    spark, ours, tmp_path, capsys, monkeypatch
):
    output = str(tmp_path / "sweep")
    vary = ["--vary", "clients=1,2", "--vary", "seconds=10", "--vary", "warm_up_ms=2000"]
    monkeypatch.setattr(progress, "CALM_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["pipeline", "simulate", *vary, "--output", output]) == 0
    monkeypatch.undo()
    assert re.search(r"\x1b\[2Ksimulate, stage \d+: \d+ of \d+ tasks, \d+ s", terminal.getvalue())
    assert capsys.readouterr().out == f"{output}: 2 runs\n"
    assert {row["clients"] for row in spark.read.parquet(output).collect()} == {1, 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["simulate", "--vary", "planets=1"], "nothing to vary is called planets"),
        (["simulate", "--input", "pushes"], "simulate reads nothing"),
        (["usage"], "usage: name what it reads"),
        (["report", "--topic", "pushes"], "report: name the directory"),
        (["report", "--input", "/nowhere"], "none of the directories usage"),
        (["whatif", "--input", "pushes"], "whatif tries quotas: name a file"),
        (["usage", "--input", "pushes", "--conf", "spark.foo"], "--conf spark.foo: write KEY=VALUE"),
        (["usage", "--input", "pushes", "--trigger", "10 seconds"], "say that it is endless, too"),
        (["usage", "--input", "pushes", "--window", "a while"], "window a while: write whole numbers with units"),
        (["compact"], "compact: name what it reads"),
        (["usage", "--input", "pushes", "--format", "usage"], "format usage: only recommend and whatif"),
        (["sql", "--input", "/nowhere"], "none of the directories usage"),
    ],
)
def test_what_does_not_fit_is_one_message(ours, tmp_path, capsys, given, words):
    assert main(["pipeline", *given, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_ctrl_c_ends_a_pipeline_at_work_and_its_jvm(tmp_path):
    output = tmp_path / "sweep"
    process = started(
        "kclient_quota.cli.main", "pipeline", "simulate", "--vary", "seconds=9000000", "--output", str(output)
    )
    soon((output / "_temporary").exists, 150)  # its tasks are under way
    jvm = children_of(process.pid)
    took_s, _ = interrupted(process)
    assert process.returncode == 130
    assert took_s < PROMPT_S
    assert jvm
    soon(lambda: not any(map(is_alive, jvm)))
