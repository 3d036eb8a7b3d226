"""Quotas as code, from an empty cluster to a plan taken back, on the embedded broker."""

import io
import json
import os
import subprocess
import sys

import pytest

from kclient_quota.admin import applying
from kclient_quota.admin.journal import Journal
from kclient_quota.admin.topic_store import DEFAULT_TOPIC
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import HANG_UP
from kclient_quota.cli import quotas
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import MetadataResponse

ALTER = 49
METADATA = 3
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
def run(broker, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def command(name, *arguments, status=0):
        got = quotas.main([name, *map(str, arguments), "--bootstrap-server", broker.bootstrap_servers])
        out, err = capsys.readouterr()
        assert got == status, out + err
        return out if status in {0, 4} else err

    command.server = broker.bootstrap_servers
    return command


def test_from_an_empty_cluster_and_back(run, file, broker):
    plan = run("plan", file)
    assert plan.splitlines() == [
        "+ {user=<default>} consumer_byte_rate:broker_bps=2000",
        "+ {user=<default>} producer_byte_rate:broker_bps=1000",
        "+ {user=alice, client-id=app} producer_byte_rate:bps=5000",
        "",
        "worked out of bps and shares, per broker:",
        "  + {user=alice, client-id=app} producer_byte_rate:broker_bps=1000",
        "",
        "effective, per broker:",
        "  {user=<default>} consumer_byte_rate: no limit -> 2000",
        "  {user=<default>} producer_byte_rate: no limit -> 1000",
        "  {user=alice, client-id=app} consumer_byte_rate: no limit -> 2000 of {user=<default>}",
        "  {user=alice, client-id=app} producer_byte_rate: no limit -> 1000",
        "",
        "3 to add, 0 to change, 0 to remove, 1 to work out",
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
    assert "2 entities altered" in run("undo", file)
    assert run("export") == "version: 1\nquotas: []\n"
    assert "it has nothing to undo" in run("undo", file, status=2)
    assert run("diff", file, status=4).splitlines()[0] == "+ {user=<default>} consumer_byte_rate:broker_bps=2000"


def test_what_others_set_stays_unless_pruned(run, file, broker):
    broker.set_quota(user="bob", producer_byte_rate=7)
    assert "1 that the file does not manage stay as they are" in run("apply", file)
    assert "names: {user: bob}" in run("export")
    assert "1 quotas would be removed and there is nobody to ask; add --yes" in run("apply", file, "--prune", status=2)
    assert "names: {user: bob}" in run("export")
    assert "1 to remove" in run("apply", file, "--prune", "--yes")
    assert "bob" not in run("export")
    run("undo", file)
    assert "names: {user: bob}" in run("export")


def test_a_kept_plan_that_is_no_longer_true_is_refused(run, file, broker, tmp_path):
    kept = tmp_path / "plan.json"
    run("plan", file, "--out", kept)
    broker.set_quota(default_user=True, producer_byte_rate=9000)
    assert "is no longer what would be done" in run("apply", file, "--plan", kept, status=3)
    assert "producer_byte_rate: 9000\n" in run("export").replace("}", "\n")
    run("plan", file, "--out", kept)
    run("apply", file, "--plan", kept)
    for text, said in (("{", "Expecting"), ("{}", "'cluster' is missing"), ("[]", "is of another kind"), ("1", "kind")):
        kept.write_text(text)
        err = run("apply", file, "--plan", kept, status=2)
        assert f"--plan {kept}: this is no plan: " in err
        assert said in err
        assert err.endswith(f"; make one with kafka-quotas plan FILE --out {kept}\n")
        assert "Error" not in err, "Python's words"


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
    # what was done can be taken back; the stranger's own is not touched
    undone = run("undo", file)
    assert "- {user=u0} producer_byte_rate:broker_bps=5" in undone
    assert "u3" not in undone
    assert run("--list") == "{user=u3}\nproducer_byte_rate:broker_bps=77\n"


def test_a_broker_that_refuses_refuses_before_anything_is_done(run, tmp_path):
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 1}}\n"
        "- {names: {ip: no.such.host.invalid}, set: {connection_creation_rate: 1}}\n"
    )
    said = run("apply", file, status=1)
    assert "no.such.host.invalid is not a valid IP or resolvable host" in said
    assert "nothing was altered: 1 of 2 entities did not pass the check: " in said
    assert run("export") == "version: 1\nquotas: []\n"
    assert not list(tmp_path.glob("*.journal"))
    assert run("apply", file, "--validate-only", status=1) == said


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
        assert capsys.readouterr().out == (
            "~ {user=a} producer_byte_rate:broker_bps=9000 -> 3000\nnothing to work out anew\n"
        )
        assert quotas.main(["--list", *server]) == 0
        assert capsys.readouterr().out == "{user=a}\nproducer_byte_rate:bps=9000\nproducer_byte_rate:broker_bps=3000\n"


def test_a_journal_of_several_clusters(run, file, capsys):
    run("apply", file, "--journal", "one.journal")
    journal = file.with_name("one.journal")
    with EmbeddedBroker(topics={"orders": 1}) as other:
        server = ["--bootstrap-server", other.bootstrap_servers]
        assert quotas.main(["undo", str(journal), *server]) == 2
        assert "was applied to cluster" in capsys.readouterr().err
        assert quotas.main(["apply", str(file), "--journal", str(journal), *server]) == 0
        capsys.readouterr()
    assert "run 1 of" in run("undo", journal)  # what came later was another cluster's
    assert run("export") == "version: 1\nquotas: []\n"


def test_each_cluster_has_a_journal_of_its_own(run, file, broker, capsys):
    run("apply", file)
    with EmbeddedBroker(topics={"orders": 1}) as other:
        server = ["--bootstrap-server", other.bootstrap_servers]
        assert quotas.main(["apply", str(file), *server]) == 0
        assert quotas.main(["undo", str(file), *server]) == 0
        capsys.readouterr()
    assert len(list(file.parent.glob("quotas.*.journal"))) == 2
    assert "2 entities altered" in run("undo", file)


def test_a_torn_journal_is_mended_and_said_to_be(run, file, capsys, tmp_path):
    run("apply", file)
    (journal,) = tmp_path.glob("*.journal")
    for torn in ('{"run": 2, "clus', '{"run": 2}\n', "\0\0\0\0", '{"run": 1, "ended": tr\n'):
        with journal.open("a") as appended:
            appended.write(torn)
        file.write_text(FILE.replace("1000", "1001"))
        capsys.readouterr()
        assert quotas.main(["apply", str(file), "--bootstrap-server", run.server]) == 0
        assert "its last line was cut short" in capsys.readouterr().err
        assert "~ {user=<default>} producer_byte_rate:broker_bps=1001 -> 1000" in run("undo", journal)
        assert torn.rstrip("\n") in (tmp_path / f"{journal.name}.torn").read_text()
    assert "run 1 of" in run("undo", journal)
    assert run("export") == "version: 1\nquotas: []\n"


def test_no_journal_is_left_as_it_is(run, file, tmp_path):
    for text in ("[]\n", "dear diary", '{"apply": 1}\n{"done": 1}\n'):
        (tmp_path / "diary").write_text(text)
        assert "this is no journal of quotas" in run("apply", file, "--journal", "diary", status=2)
        assert (tmp_path / "diary").read_text() == text
    assert run("export") == "version: 1\nquotas: []\n"


def test_names_with_line_breaks_of_unicode(run, tmp_path):
    file = tmp_path / "quotas.yaml"
    file.write_text('version: 1\nquotas:\n- {names: {user: "a\\u2028b\\x85c"}, set: {producer_byte_rate: 5}}\n')
    run("apply", file)
    run("undo", file)
    assert run("export") == "version: 1\nquotas: []\n"


def test_a_crash_after_the_journal_was_begun_can_be_taken_back(run, file, tmp_path):
    run("apply", file)
    (journal,) = tmp_path.glob("*.journal")
    begun = [line for line in journal.read_text().splitlines() if "ended" not in line]
    journal.write_text("\n".join(begun) + "\n")
    assert ", which did not end, to be taken back" in run("undo", journal)
    assert run("export") == "version: 1\nquotas: []\n"


def test_undo_takes_the_journal_as_apply_does(run, file, tmp_path):
    journal = tmp_path / "elsewhere.journal"
    run("apply", file, "--journal", journal)
    assert "2 entities altered" in run("undo", "--journal", journal)
    with pytest.raises(SystemExit):
        run("undo", file, "--journal", journal)


@pytest.mark.parametrize("name", ["quotas.json", "QUOTAS.YAML", "quotas", "quotas.txt"])
def test_a_journal_lies_beside_a_file_of_any_name(run, tmp_path, name):
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / name).write_text(FILE)
    assert "2 entities altered" in run("apply", folder / name)
    assert (folder / name).read_text() == FILE
    assert len(list(folder.glob("*.journal"))) == 1
    assert "2 entities altered" in run("undo", folder)
    run("apply", folder / name)
    assert f", by {name}, to be taken back" in run("undo", folder / name)


def test_undo_of_a_file_takes_back_what_that_file_has_done(run, file, tmp_path):
    """What another file of the folder has applied since stays, and is taken back where it is meant."""
    other = tmp_path / "other.yaml"
    other.write_text("version: 1\nquotas:\n- {names: {user: bob}, set: {producer_byte_rate: 5}}\n")
    assert "there is no such file" in run("undo", other, status=2)
    run("apply", file)
    nothing = run("undo", other, status=2)
    assert "nothing to undo of other.yaml; run 1, the last that stands, is of quotas.yaml: --run 1 takes" in nothing
    run("apply", other)
    assert ", by quotas.yaml, to be taken back" in run("undo", file)
    assert "user: bob" in run("export")
    assert "run 2 of" in run("undo")
    assert run("export") == "version: 1\nquotas: []\n"


def test_runs_that_say_of_no_file_are_of_any(run, file, tmp_path):
    """As earlier versions wrote them."""
    run("apply", file)
    (journal,) = tmp_path.glob("*.journal")
    journal.write_text(journal.read_text().replace(', "file": "quotas.yaml"', ""))
    assert "2 entities altered" in run("undo", file)


def test_the_journal_of_what_comes_through_a_pipe_is_in_this_folder(run, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, FILE.encode())
    os.close(writing)
    assert "2 entities altered" in run("apply", f"/dev/fd/{reading}")
    os.close(reading)
    assert len(list(tmp_path.glob("*.journal"))) == 1
    assert ", by -, to be taken back" in run("undo", "-")


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_standard_input_is_a_file(run, tmp_path, command):
    words = [sys.executable, "-m", "kclient_quota.cli.quotas", command, "-", "--bootstrap-server", run.server]
    done = subprocess.run(words, input=FILE, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 to add" in done.stdout
    assert not (tmp_path / "-").exists()


def test_an_undo_that_failed_goes_on_with_the_same_run(run, file, broker):
    run("apply", file)
    file.write_text(FILE.replace("2000", "3000"))
    run("apply", file)
    before = run("export")
    broker.control(ALTER, lambda seen: None if seen.request.validate_only else HANG_UP, times=None)
    assert "goes on with run 2" in run("undo", file, "--timeout", 6, status=1)
    broker.clear_controls()
    assert run("export") == before
    assert "run 2 of" in run("undo", file)
    assert "consumer_byte_rate: 2000" in run("export")
    assert "run 1 of" in run("undo", file)
    assert run("export") == "version: 1\nquotas: []\n"


def test_a_run_by_its_number(run, file, broker):
    run("apply", file)
    file.write_text(FILE.replace("2000", "3000"))
    run("apply", file)
    assert "run 1 cannot be undone: somebody has changed since" in run("undo", file, "--run", 1, status=3)
    run("undo", file, "--run", 2)
    assert "run 2 is undone already" in run("undo", file, "--run", 2, status=2)
    assert "run 9 is none of this cluster" in run("undo", file, "--run", 9, status=2)


def test_an_undo_is_not_undone(run, file):
    run("apply", file)
    run("undo", file)
    assert "run 2 took run 1 back; to have that again, apply its file" in run("undo", file, "--run", 2, status=2)
    run("apply", file)
    run("undo", file)
    assert run("export") == "version: 1\nquotas: []\n"


BEGUN = b'{"run": 1, "cluster": "c", "at": "t", "changes": [], "sources": []}\n'


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000 + b"\n" + BEGUN,
        b'{"run": 1e999, "cluster": "x", "at": "y", "changes": [], "sources": []}\n' + BEGUN,
        BEGUN + b'{"run": 1, "attempted": 1e999}\n' + BEGUN,
        BEGUN + b"<<<<<<< HEAD\n" + BEGUN.replace(b"1", b"2"),
        BEGUN.replace(b"}", b', "undoes": 77}', 1) + BEGUN,
        BEGUN + BEGUN + BEGUN,
        BEGUN + b"\0" * 4_096 + b"\n" + BEGUN.replace(b"1", b"2"),
    ],
    ids=["deep", "infinite", "infinitely many", "merged", "of another", "twice", "zeros between"],
)
def test_a_journal_that_is_damaged_in_the_middle_is_left_as_it_is(run, file, tmp_path, text):
    (tmp_path / "damaged").write_bytes(text)
    for command in (["undo", "damaged"], ["apply", file, "--journal", "damaged"]):
        err = run(*command, status=2)
        assert "this is no journal of quotas" in err
        assert "Error" not in err, "Python's words"
    assert (tmp_path / "damaged").read_bytes() == text
    assert run("export") == "version: 1\nquotas: []\n"


def test_a_journal_that_git_has_given_other_line_ends_is_read(run, file, tmp_path):
    run("apply", file)
    (journal,) = tmp_path.glob("*.journal")
    journal.write_bytes(journal.read_bytes().replace(b"\n", b"\r\n"))
    assert "2 entities altered" in run("undo", journal)
    assert run("export") == "version: 1\nquotas: []\n"


def test_two_runs_at_a_time_do_not_mix(run, file, tmp_path):
    run("apply", file)
    (path,) = tmp_path.glob("*.journal")
    with Journal(path, print).opened():
        assert "another run is writing to it" in run("undo", file, status=2)
    with subprocess.Popen([sys.executable, "-c", LOCKS, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        assert "another run is writing to it" in run("undo", file, status=2)
        process.kill()
    run("undo", file)


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_file_is_exported_as_it_is_read_whatever_the_locale(run, file, broker, monkeypatch, options, encoding):
    for name in ("é", "日本", "😀", "a\x85b", "a\u2028b"):
        broker.set_quota(client_id=name, producer_byte_rate=1000)
    exported = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", io.TextIOWrapper(exported, encoding, "backslashreplace", write_through=True))
        assert quotas.main(["export", *options, "--bootstrap-server", run.server]) == 0
        file.write_bytes(exported.getvalue())
    assert run("diff", file, "--prune") == ""


LOCKS = """
import sys, time, pathlib
from kclient_quota.admin.journal import Journal
with Journal(pathlib.Path(sys.argv[1]), print).opened():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_drift_of_what_is_worked_out_is_shown(run, file, broker):
    run("apply", file)
    broker.set_quota(user="alice", client_id="app", producer_byte_rate=7)
    # a smaller number by hand counts as asked for; a larger one than what was asked for has drifted
    broker.set_quota(user="alice", client_id="app", producer_byte_rate=70_000)
    line = "~ {user=alice, client-id=app} producer_byte_rate:broker_bps=70000 -> 1000"
    planned = run("plan", file)
    assert line in planned
    assert "0 to add, 0 to change, 0 to remove, 1 to work out" in planned
    assert line in run("diff", file, status=4)
    run("apply", file)
    assert run("diff", file) == ""


def test_a_kept_plan_holds_though_a_stranger_sets_something_else(run, file, broker, tmp_path):
    kept = tmp_path / "plan.json"
    run("plan", file, "--out", kept)
    broker.set_quota(user="stranger", producer_byte_rate=9)
    assert "2 entities altered" in run("apply", file, "--plan", kept)


def test_exit_codes_of_terraform(run, file):
    run("plan", file, "--detailed-exitcode", status=2)
    run("diff", file, "--detailed-exitcode", status=2)
    run("apply", file)
    run("plan", file, "--detailed-exitcode")
    run("diff", file, "--detailed-exitcode")
    for wrong in ([file.with_name("none.yaml")], [file, "--nonsense"], []):
        run("plan", *wrong, "--detailed-exitcode", status=1)


def test_an_empty_file_prunes_nothing_unasked(run, file, tmp_path):
    run("apply", file)
    empty = tmp_path / "empty.yaml"
    empty.write_text("version: 1\nquotas: []\n")
    before = run("export")
    for command in ("plan", "diff", "apply"):
        yes = ["--yes"] if command == "apply" else []
        assert "it sets nothing, so --prune would remove every" in run(command, empty, "--prune", *yes, status=2)
    run("apply", empty, "--prune", "--allow-empty", status=2)
    assert run("export") == before
    run("apply", empty, "--prune", "--allow-empty", "--yes")
    assert run("export") == "version: 1\nquotas: []\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "altered"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_at_a_terminal_the_plan_is_shown_and_then_asked_about(broker, file, monkeypatch, answer, altered):
    out = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stdout", out)
    assert quotas.main(["apply", str(file), "--bootstrap-server", broker.bootstrap_servers]) == 0
    shown, _, said = out.getvalue().partition("apply this? [y/N] ")
    assert "3 to add" in shown
    assert "\x1b[32m+ {user=<default>} consumer_byte_rate:broker_bps=2000\x1b[0m\n" in shown
    assert ("2 entities altered" in said) is altered
    assert ("nothing was altered" in said) is not altered


def test_json_is_one_document(run, file):
    (result,) = json.loads(run("apply", file, "--json"))
    assert (result["altered"], len(result["changes"]), len(result["derived"])) == (2, 3, 1)
    assert result["journal"].endswith(".journal")


def without_the_units_topic(broker):
    """Who has KIP-546's rights only: DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster, nothing on the topic."""

    def deny(seen):
        if [topic.name for topic in seen.request.topics or ()] != [DEFAULT_TOPIC]:
            return None
        topic = MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=DEFAULT_TOPIC, partitions=[]
        )
        return MetadataResponse(brokers=[], controller_id=1, topics=[topic])

    broker.control(METADATA, deny, times=None)


def test_who_may_not_see_the_units_topic_looks_and_alters_all_the_same(run, file, broker, capsys):
    run("apply", file)
    without_the_units_topic(broker)
    enforced = file.with_name("enforced.yaml")
    enforced.write_text("version: 1\nquotas:\n- {names: {user: bob}, set: {producer_byte_rate: 5}}\n")
    for command in (["--list"], ["--describe", "--names=user=alice,client-id=app"], ["export"], ["plan", enforced]):
        got = quotas.main([*map(str, command), "--bootstrap-server", run.server])
        out, err = capsys.readouterr()
        assert got == 0, err
        assert "1000" in out or "bob" in out
        assert "warning: quotas in bps and shares cannot be seen" in err
        assert err.count("\n") == 1
    run("apply", enforced)
    run("undo", enforced, "--run", 2)
    run("--alter", "--names=user=bob", "--add=producer_byte_rate=6")
    for refused in (["apply", file], ["--alter", "--names=user=bob", "--add=producer_byte_rate:bps=6"]):
        before = run("--list")
        assert "TOPIC_AUTHORIZATION_FAILED" in run(*refused, status=1)
        assert run("--list") == before


def test_wrong_files(run, tmp_path):
    assert "name a file that can be read" in run("plan", tmp_path / "none.yaml", status=2)
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: fast\n")
    assert f"{bad}:5: set: producer_byte_rate:broker_bps=fast: that is no number" in run("plan", bad, status=2)
