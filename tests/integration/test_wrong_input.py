"""Generated command lines: whatever is wrong is said in a line or two, never in a traceback."""

import contextlib
import io
import random

import pytest

from kclient_quota.cli import client_metrics, quotas
from kclient_quota.cli import main as kclient_quota_main
from kclient_quota.errors import ClusterError

RUNS = 40
"""Of each program; `tests/grids` has 500, these among them."""
ODD = ["", " ", "-", "--", "=", ",", ":", "a=", "=b", "a=b=c", "nan", "inf", "-1", "0", "1e999", "99999999999999999999"]
ODD += [
    "\0",
    "\u2028",
    "é",
    "%ff",
    "%",
    "10MB",
    "1MiB/s",
    "10 parsecs",
    "[",
    "{}",
    "'",
    "http://",
    "http://[",
    "/",
    ".",
    "..",
]
ODD += ["/proc/none/x", "user=u", "user", "client-id=", "producer_byte_rate=10MB", "producer_byte_rate:bps=x", "bash"]
ODD += ["2147483648", "65536", "--help-me", "--na", "-q", "x" * 300, "topic", "none", "json", "yaml", "list", "aply"]


class NoAdmin:
    """In place of a cluster."""

    def __init__(self, conf, *args, **kwargs):
        from kclient_quota.cluster.client import ClusterClient

        ClusterClient(conf, kwargs.get("clock")).close()  # what is wrong with a configuration is found all the same
        raise ClusterError("no cluster here")


def refuse(*_args, **_kwargs):
    raise OSError("not here")


@pytest.fixture(autouse=True)
def nothing_is_really_done(monkeypatch, tmp_path):
    from kclient_quota.admin import quotas as admin_quotas
    from kclient_quota.cli import (
        certify,
        configs,
        demo,
        pipeline,
        quota_advice,
        quota_code,
        quota_draft,
        simulate,
    )

    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 10MB}}\n")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe: [")
    for module in (admin_quotas, configs, quota_advice, quota_code, quota_draft):
        monkeypatch.setattr(module, "QuotaAdmin", NoAdmin)
    for module in (certify, demo, pipeline, simulate):
        monkeypatch.setattr(module, "run", lambda options: 0)  # minutes; their options are read all the same
    monkeypatch.setattr("kclient_quota.broker.server.EmbeddedBroker.start", refuse)
    monkeypatch.setattr("kclient_quota.clients.consumer.Consumer", refuse)


def words_of(parser):
    """Commands, options and choices that a parser knows."""
    found = []
    for action in parser._actions:
        found += action.option_strings
        found += [str(choice) for choice in action.choices or ()]
        if isinstance(action.choices, dict):
            for sub in action.choices.values():
                found += words_of(sub)
    return [word for word in found if word not in {"--help", "-h", "--version"}]


def kafka_quotas(command):
    from kclient_quota.cli.quota_arguments import command_parser, draft_parser

    if command.startswith("--"):
        return quotas.main, [command], words_of(draft_parser())
    (sub,) = (a.choices[command] for a in command_parser()._actions if isinstance(a.choices, dict))
    return quotas.main, [command], words_of(sub)


def kclient_quota(command):
    parser = kclient_quota_main._parser([command])
    (sub,) = (a.choices[command] for a in parser._actions if isinstance(a.choices, dict))
    return kclient_quota_main.main, [command], words_of(sub)


def programs():
    from kclient_quota.cli.quota_arguments import COMMANDS

    for command in (*COMMANDS, "--list", "--describe", "--alter"):
        yield pytest.param(lambda command=command: kafka_quotas(command), id=f"kafka-quotas {command}")
    for command in (*(each.name for each in kclient_quota_main._COMMANDS), "completion"):
        yield pytest.param(lambda command=command: kclient_quota(command), id=f"kclient-quota {command}")
    yield pytest.param(lambda: (quotas.main, [], list(COMMANDS)), id="kafka-quotas")
    yield pytest.param(lambda: (client_metrics.main, [], words_of(client_metrics._parser())), id="kafka-client-metrics")


@pytest.mark.parametrize("program", list(programs()))
def test_whatever_is_wrong_is_said_in_words(program):
    play(program, RUNS)


def play(program, runs):
    main, first, known = program()
    chance = random.Random(" ".join(first))
    extra = ["good.yaml", "bad.yaml", "none.yaml", "--bootstrap-server", "127.0.0.1:1"]
    for _ in range(runs):
        count = chance.randrange(7)
        words = [chance.choice(chance.choice((known or ODD, ODD, extra))) for _ in range(count)]
        words = [w + "=" + chance.choice(ODD) if w.startswith("--") and chance.random() < 0.3 else w for w in words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main([*first, *words])
            except SystemExit as ended:
                status = ended.code
        said = out.getvalue() + err.getvalue()
        assert status in {0, 1, 2, 3, 4}, (words, status)
        assert said or status == 0, (words, status)
        assert "Traceback" not in said
