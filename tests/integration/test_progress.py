"""Long work shows how far it is where somebody looks at a terminal, and nothing but results goes into a pipe."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import progress
from kclient_quota.cli.main import main as simulate
from kclient_quota.cli.quotas import main

SIMULATED = ["--json", "--clients", "12", "--seconds", "60"]
ENTITIES = 4_100
DRAWN = "\r\x1b[2K"


@contextmanager
def terminal() -> Iterator[tuple[int, list[str]]]:
    """A terminal to write to, and what has been read from it once the context is left."""
    ours, theirs = os.openpty()
    seen: list[str] = []

    def read() -> None:
        try:
            while found := os.read(ours, 65_536):
                seen.append(found.decode())
        except OSError:  # its other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield theirs, seen
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


@pytest.fixture
def is_hasty(monkeypatch) -> None:
    """What takes a moment only is drawn, too."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "CALM_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.001)


@pytest.mark.usefixtures("is_hasty")
def test_a_simulation_draws_on_the_terminal_and_its_results_go_into_the_pipe(monkeypatch, capsys) -> None:
    with terminal() as (theirs, seen), os.fdopen(os.dup(theirs), "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert simulate(["simulate", *SIMULATED]) == 0
        monkeypatch.undo()
    assert json.loads(capsys.readouterr().out)["utilisation"] > 0
    drawn = "".join(seen)
    assert f"{DRAWN}simulating 12 producers for 60 s, " in drawn
    assert drawn.endswith(DRAWN)
    assert "\n" not in drawn


@pytest.mark.usefixtures("is_hasty")
def test_a_simulation_says_nothing_in_a_pipe(capsys) -> None:
    assert simulate(["simulate", *SIMULATED]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)


def test_what_a_simulation_finds_is_read_in_80_columns(capsys) -> None:
    words = ["--clients", "20", "--plain", "5", "--quota", "1MiB", "--seconds", "30"]
    assert simulate(["simulate", *words]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.fixture
def many(tmp_path) -> str:
    path = tmp_path / "quotas.yaml"
    lines = [f"- {{names: {{client-id: a{number}}}, set: {{producer_byte_rate: 1000}}}}" for number in range(ENTITIES)]
    path.write_text("\n".join(["version: 1", "quotas:", *lines]))
    return str(path)


@pytest.mark.usefixtures("is_hasty")
def test_thousands_of_quotas_are_counted_while_they_are_altered(many, monkeypatch, capsys) -> None:
    with EmbeddedBroker() as cluster, terminal() as (theirs, seen), os.fdopen(os.dup(theirs), "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["apply", many, "--bootstrap-server", cluster.bootstrap_servers, "--yes"]) == 0
        monkeypatch.undo()
    drawn = "".join(seen)
    assert "altering, 2,000 of 4,100 entities, " in drawn
    assert drawn.endswith(DRAWN)
    assert "altering" not in capsys.readouterr().out


@pytest.mark.parametrize("of", ["pipe", "dumb terminal"])
def test_nothing_is_drawn_where_nobody_looks(of, monkeypatch) -> None:
    monkeypatch.setattr(progress, "CALM_S", 0.0)
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as (theirs, seen), os.fdopen(os.dup(theirs), "w") as stream:
        if of != "pipe":
            monkeypatch.setattr(sys, "stderr", stream)
        with progress.progress("working") as drawn:
            drawn.tell(1, 2, "parts")
            assert type(drawn) is progress.Unseen
        monkeypatch.undo()
    assert seen == []
