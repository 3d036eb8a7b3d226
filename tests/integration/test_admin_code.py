"""Quotas as code, from an empty cluster to a plan taken back, on the embedded broker."""

import json

import pytest

from kclient_quota.admin import applying
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas
from kclient_quota.quota.entity import ClientQuotaEntity

ALTER = 49
FILE = """
version: 1
quotas:
  - defaults: [user]
    set: {producer_byte_rate: 1000, consumer_byte_rate: 2000}
  - names: {user: alice, client-id: app}
    set: {producer_byte_rate:bps: 5000}
"""


@pytest.fixture
def broker():
    with EmbeddedBroker(brokers=2, topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "quotas.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def run(broker, capsys):
    def command(name, *arguments, status=0):
        got = quotas.main([name, *map(str, arguments), "--bootstrap-server", broker.bootstrap_servers])
        out, err = capsys.readouterr()
        assert got == status, out + err
        return out if status in {0, 4} else err

    return command


def test_from_an_empty_cluster_and_back(run, file, broker):
    plan = run("plan", file)
    assert plan.splitlines() == [
        "+ {user=<default>} consumer_byte_rate:broker_bps=2000",
        "+ {user=<default>} producer_byte_rate:broker_bps=1000",
        "+ {user=alice, client-id=app} producer_byte_rate:bps=5000",
        "",
        "effective, per broker:",
        "  {user=<default>} consumer_byte_rate: no limit -> 2000",
        "  {user=<default>} producer_byte_rate: no limit -> 1000",
        "  {user=alice, client-id=app} consumer_byte_rate: no limit -> 2000 of {user=<default>}",
        "  {user=alice, client-id=app} producer_byte_rate: no limit -> 1000",
        "",
        "3 to add, 0 to change, 0 to remove",
    ]
    assert run("export") == "version: 1\nquotas: []\n"
    assert "2 entities altered; journal:" in run("apply", file)
    assert run("diff", file) == ""
    asked = sum(seen.api_key == ALTER for seen in broker.requests)
    assert "0 to add, 0 to change, 0 to remove" in run("apply", file)
    assert sum(seen.api_key == ALTER for seen in broker.requests) == asked
    exported = file.with_name("exported.yaml")
    exported.write_text(run("export"))
    assert run("diff", exported) == ""
    assert "2 entities altered" in run("undo", file.with_name("quotas.journal"))
    assert run("export") == "version: 1\nquotas: []\n"
    assert "it has nothing to undo" in run("undo", file.with_name("quotas.journal"), status=2)
    assert run("diff", file, status=4).splitlines()[0] == "+ {user=<default>} consumer_byte_rate:broker_bps=2000"


def test_what_others_set_stays_unless_pruned(run, file, broker):
    broker.set_quota(user="bob", producer_byte_rate=7)
    assert "1 that the file does not manage stay as they are" in run("apply", file)
    assert "names: {user: bob}" in run("export")
    assert "1 to remove" in run("apply", file, "--prune")
    assert "bob" not in run("export")
    run("undo", file.with_name("quotas.journal"))
    assert "names: {user: bob}" in run("export")


def test_a_kept_plan_that_is_no_longer_true_is_refused(run, file, broker, tmp_path):
    kept = tmp_path / "plan.json"
    run("plan", file, "--out", kept)
    broker.set_quota(default_user=True, producer_byte_rate=9000)
    assert "is no longer what would be done" in run("apply", file, "--plan", kept, status=3)
    assert "producer_byte_rate: 9000\n" in run("export").replace("}", "\n")
    run("plan", file, "--out", kept)
    run("apply", file, "--plan", kept)
    kept.write_text("{")
    assert "this is no plan" in run("apply", file, "--plan", kept, status=2)


def test_somebody_who_comes_between_is_not_overwritten(run, tmp_path, broker, monkeypatch):
    """Altered in steps, with a look at the cluster before each: the second step meets a stranger."""
    monkeypatch.setattr(applying, "STEP", 2)
    file = tmp_path / "quotas.yaml"
    entries = "".join(f"- {{names: {{user: u{n}}}, set: {{producer_byte_rate: 5}}}}\n" for n in range(6))
    file.write_text("version: 1\nquotas:\n" + entries)
    seen = []

    def meddle(intercepted):
        if not intercepted.request.validate_only:
            seen.append(len(intercepted.request.entries))
            broker._running().cluster.set_quota(ClientQuotaEntity.of(user="u3"), "producer_byte_rate", 77.0)

    broker.control(ALTER, meddle, times=None)
    err = run("apply", file, status=3)
    assert "{user=u3} producer_byte_rate was not set and is 77" in err
    assert "2 entities were altered before" in err
    assert seen == [2]
    broker.clear_controls()
    # what was done can be taken back; the stranger's own cannot be, and nothing is until it is gone
    assert "somebody has changed since {user=u3}" in run("undo", file.with_name("quotas.journal"), status=3)
    broker.set_quota(user="u3", producer_byte_rate=None)
    run("undo", file.with_name("quotas.journal"))
    assert run("export") == "version: 1\nquotas: []\n"


def test_a_broker_that_refuses_refuses_before_anything_is_done(run, tmp_path):
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 1}}\n- {names: {group: g}, set: {x: 1}}\n"
    )
    assert "Unhandled client quota entity type: group" in run("apply", file, status=1)
    assert run("export") == "version: 1\nquotas: []\n"
    assert not file.with_name("quotas.journal").exists()
    assert "Unhandled" in run("apply", file, "--validate-only", status=1)


def test_reconcile_when_brokers_come_to_lead(run, tmp_path, capsys):
    file = tmp_path / "quotas.yaml"
    file.write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate:bps: 9000}}\n")
    with EmbeddedBroker(brokers=3, topics={"orders": 1}) as broker:
        server = ["--bootstrap-server", broker.bootstrap_servers]
        assert quotas.main(["apply", str(file), *server]) == 0
        assert quotas.main(["--list", *server]) == 0
        assert "producer_byte_rate:broker_bps=9000" in capsys.readouterr().out
        broker.create_topic("more", 3)
        assert quotas.main(["reconcile", "--dry-run", *server]) == 0
        assert capsys.readouterr().out == "~ {user=a} producer_byte_rate:broker_bps=9000 -> 3000\n"
        journal = ["--journal", str(tmp_path / "j")]
        assert quotas.main(["reconcile", *journal, *server]) == 0
        assert quotas.main(["reconcile", str(file), *server]) == 0
        assert capsys.readouterr().out == "~ {user=a} producer_byte_rate:broker_bps=9000 -> 3000\n"
        assert quotas.main(["--list", *server]) == 0
        assert capsys.readouterr().out == "{user=a}\nproducer_byte_rate:bps=9000\nproducer_byte_rate:broker_bps=3000\n"


def test_a_journal_belongs_to_its_cluster(run, file, capsys):
    run("apply", file)
    journal = file.with_name("quotas.journal")
    with EmbeddedBroker() as other:
        assert quotas.main(["undo", str(journal), "--bootstrap-server", other.bootstrap_servers]) == 2
        assert "was applied to cluster" in capsys.readouterr().err
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([*lines, '{"apply": 2, "clus']))  # cut short by a crash
    run("undo", journal)
    journal.write_text("[]\n" + "\n".join(lines))
    assert "this is no journal of quotas" in run("undo", journal, status=2)


def test_a_crash_after_the_journal_was_begun_can_be_taken_back(run, file):
    run("apply", file)
    journal = file.with_name("quotas.journal")
    begun = [line for line in journal.read_text().splitlines() if "apply" in json.loads(line)]
    journal.write_text("\n".join(begun) + "\n")
    run("undo", journal)
    assert run("export") == "version: 1\nquotas: []\n"


def test_wrong_files(run, tmp_path):
    assert "name a file that can be read" in run("plan", tmp_path / "none.yaml", status=2)
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: fast\n")
    assert f"{bad}:5: set: producer_byte_rate:broker_bps=fast: that is no number" in run("plan", bad, status=2)
