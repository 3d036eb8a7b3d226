"""What commands print with `--json`: one document each, and nothing else on standard output."""

import json
import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import client_metrics, quotas
from kclient_quota.cli.main import main

FILE = "version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 10MB, consumer_byte_rate:bps: 2MB}}\n"


@pytest.fixture
def cluster():
    with EmbeddedBroker(brokers=2, topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def asked(cluster, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(FILE)

    def call(command, *words):
        assert command([*words, "--bootstrap-server", cluster.bootstrap_servers, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_a_run_its_undo_and_what_is_exported(asked, tmp_path):
    (applied,) = asked(quotas.main, "apply", "quotas.yaml")
    exported = tmp_path / "exported.json"
    exported.write_text(json.dumps(asked(quotas.main, "export")))
    (plan,) = asked(quotas.main, "plan", str(exported))
    assert (applied["altered"], plan["changes"]) == (1, []), "what was exported as JSON is a file of quotas"
    (undone,) = asked(quotas.main, "undo")
    assert (undone["run"], undone["ended"], undone["altered"]) == (1, True, 1)
    assert {(row["quota"], row["before"], row["after"]) for row in undone["changes"]} == {
        ("producer_byte_rate", 10e6, None),
        ("consumer_byte_rate", 1e6, None),
    }
    assert asked(quotas.main, "export") == {"version": 1, "quotas": []}


def test_what_is_worked_out_anew(asked, cluster):
    asked(quotas.main, "apply", "quotas.yaml")
    cluster.set_quota(user="a", consumer_byte_rate=7e9)
    (worked_out,) = asked(quotas.main, "reconcile", "--journal", "j")
    row = {"entity": {"user": "a"}, "quota": "consumer_byte_rate", "before": 7e9, "after": 1e6}
    assert worked_out == {"changes": [row], "altered": 1}
    assert asked(quotas.main, "reconcile", "--dry-run") == [{"changes": [], "altered": 0}]


def test_the_drafts_options_and_kafkas(asked):
    alter = ["--alter", "--names=user=b", "--add=request_percentage=5"]
    assert asked(quotas.main, *alter, "--validate-only") == [{"entity": {"user": "b"}, "altered": False}]
    assert asked(quotas.main, *alter) == [{"entity": {"user": "b"}, "altered": True}]
    add = ["--alter", "--user=c", "--add-config=producer_byte_rate=1.5MiB/s,request_percentage=2"]
    values = {"producer_byte_rate": 1572864, "request_percentage": 2}
    assert asked(quotas.main, "configs", *add) == [{"entity": {"user": "c"}, "altered": values}]
    found = asked(quotas.main, "configs", "--describe", "--user=c")
    assert found == [{"entity": {"user": "c"}, "quotas": values}]
    assert asked(quotas.main, "configs", "--describe", "--user=none") == []


def test_subscriptions(asked):
    run = client_metrics.main
    assert asked(run, "--list") == []
    assert asked(run, "--alter", "--name", "all", "--metrics", "*") == {"name": "all", "done": "altered"}
    assert asked(run, "--list") == ["all"]
    assert asked(run, "--delete", "--name", "all") == {"name": "all", "done": "deleted"}


def test_nothing_is_subscribed_to_and_that_is_said(cluster, capsys):
    assert client_metrics.main(["--list", "--bootstrap-server", cluster.bootstrap_servers]) == 0
    assert capsys.readouterr() == ("\n", "there are no client metrics subscriptions\n")


def test_scenes_rows_and_files(capsys, tmp_path):
    for what in ("scenes", "rows"):
        assert main(["certify", what, "--json"]) == 0
        assert all(list(each) == ["name", "expects", "source"] for each in json.loads(capsys.readouterr().out))
    assert main(["dashboards", "--rules", str(tmp_path / "rules.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"written": str(tmp_path / "rules.yaml")}]


def test_a_card_without_a_file(cluster, capsys):
    words = [
        "certify",
        "broker",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--only",
        "telemetry-first",
        "--json",
    ]
    assert main(words) == 0
    assert {row["grade"] for row in json.loads(capsys.readouterr().out)["scenes"].values()} == {"pass"}


def test_where_a_broker_listens():
    words = [sys.executable, "-m", "kclient_quota", "broker", "--port", "0", "--metrics-port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == ""
    assert said["listeners"] == {"PLAINTEXT": said["bootstrap.servers"]}
    assert said["metrics"].startswith("http://")
