"""An `apply` that ends in the midst of its steps: what it says is done, and that this can be taken back."""

import signal
import threading

import pytest

from kclient_quota.admin import applying
from kclient_quota.admin.journal import OpenJournal
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.unit_quotas import UnitQuotas
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import HANG_UP, IGNORE
from kclient_quota.cli import quotas
from kclient_quota.errors import ConfigError
from tests.ctrl_c import interrupted, started

ALTER = 49


@pytest.fixture
def broker():
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def run(broker, capsys):
    def command(name, *arguments, status=0):
        got = quotas.main([name, *map(str, arguments), "--bootstrap-server", broker.bootstrap_servers])
        out, err = capsys.readouterr()
        assert got == status, out + err
        return err if status else out

    return command


@pytest.fixture
def in_steps(monkeypatch, tmp_path, broker):
    """A file of six entities, two a step; what its function says of the second step's request happens to that."""
    monkeypatch.setattr(applying, "STEP", 2)
    file = tmp_path / "steps.yaml"
    entries = "".join(f"- {{names: {{user: u{n}}}, set: {{producer_byte_rate: 5}}}}\n" for n in range(6))
    file.write_text("version: 1\nquotas:\n" + entries)

    def second(happens):
        steps = []

        def control(seen):
            if seen.request.validate_only:
                return None
            steps.append(seen)
            return happens() if len(steps) > 1 else None

        broker.control(ALTER, control, times=None)
        return file

    return second


def test_what_earlier_steps_have_altered_is_counted_when_a_later_one_gets_no_answer(run, in_steps):
    err = run("apply", in_steps(lambda: HANG_UP), "--timeout", 6, status=1)
    assert err.startswith("kafka-quotas: 2 of 6 entities were altered; of 2 it is not known: ")
    assert "Run it again for the rest, or `kafka-quotas undo " in err


def test_ctrl_c_says_what_is_done_and_how_it_is_taken_back(run, in_steps, monkeypatch):
    file = in_steps(lambda: None)
    alter = UnitQuotas.alter_brokers
    steps = []

    def pressed(self, wanted, *, validate_only=False):
        alter(self, wanted, validate_only=validate_only)
        steps.extend([] if validate_only else [wanted])
        if len(steps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(UnitQuotas, "alter_brokers", pressed)
    monkeypatch.setattr(QuotaAdmin, "__exit__", lambda admin, *_: admin.close())  # else a socket is left to the system
    err = run("apply", file, status=130)
    assert err.startswith("warning: interrupted: 2 of 6 entities were altered, of 2 it is not known. Run it again for ")
    monkeypatch.undo()
    assert "4 entities altered" in run("undo", file)


def test_sigterm_says_what_is_done_and_leaves_a_journal_that_takes_it_back(run, broker, tmp_path):
    file = tmp_path / "steps.yaml"
    entries = "".join(f"- {{names: {{user: u{n}}}, set: {{producer_byte_rate: 5}}}}\n" for n in range(3))
    file.write_text("version: 1\nquotas:\n" + entries)
    came = threading.Event()
    broker.control(ALTER, lambda seen: None if seen.request.validate_only else came.set() or IGNORE)
    process = started("kclient_quota.cli.quotas", "apply", str(file), "--bootstrap-server", broker.bootstrap_servers)
    assert came.wait(60)
    _, err = interrupted(process, by=signal.SIGTERM)
    assert process.returncode == 143, err
    assert "interrupted: 0 of 3 entities were altered, of 3 it is not known. Run it again for the rest, or" in err
    assert "3 entities altered" in run("undo", file)


def test_a_journal_that_cannot_be_written_in_the_middle_says_what_is_done(run, in_steps, monkeypatch):
    attempt = OpenJournal.attempt

    def full(self, number, entities):
        if entities > 2:
            raise ConfigError("journal: No space left on device")
        attempt(self, number, entities)

    monkeypatch.setattr(OpenJournal, "attempt", full)
    err = run("apply", in_steps(lambda: None), status=1)
    assert "2 of 6 entities were altered; then it went no further: journal: No space left on device. Run it" in err
