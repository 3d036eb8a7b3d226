"""Ctrl-C ends every command before any wait of its own is over, with all that it has started; so do other stops."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from kclient_quota import ClientQuotaFilter, QuotaAdmin
from kclient_quota.broker import EmbeddedBroker
from tests.ctrl_c import PROMPT_S, children_of, interrupted, is_alive, soon, started

QUOTAS, METRICS, MAIN = "kclient_quota.cli.quotas", "kclient_quota.cli.client_metrics", "kclient_quota.cli.main"


@pytest.fixture
def silent():
    """A broker that takes connections and never answers, and what is set when the first has come."""
    accepted, taken = threading.Event(), []

    def accept():
        with contextlib.suppress(OSError):
            while True:
                taken.append(server.accept()[0])
                accepted.set()

    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", accepted
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    for connection in taken:
        connection.close()


ASKING = [
    (QUOTAS, ["configs", "--describe", "--user=a"]),
    (QUOTAS, ["--list"]),
    (QUOTAS, ["export"]),
    (QUOTAS, ["apply", "q.yaml", "--yes"]),
    (QUOTAS, ["undo", "empty.journal"]),
    (METRICS, ["--list"]),
    (MAIN, ["doctor"]),
    (MAIN, ["certify", "broker"]),
]


@pytest.mark.parametrize(("module", "words"), ASKING)
def test_ctrl_c_ends_a_command_that_waits_for_an_answer(module, words, silent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 5}}\n")
    (tmp_path / "empty.journal").write_text("")
    address, accepted = silent
    process = started(module, *words, "--bootstrap-server", address)
    assert accepted.wait(90)  # it asks
    assert interrupted(process)[0] < PROMPT_S
    assert process.returncode == 130


INSTALLED = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

PRESSED = """
import importlib, signal, sys

class Pressed:
    def find_spec(self, name, *_):
        if name == "argparse":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Pressed())
getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
"""


@pytest.mark.parametrize("command", INSTALLED)
def test_ctrl_c_ends_a_command_that_is_being_loaded(command):
    words = [sys.executable, "-c", PRESSED, *INSTALLED[command].split(":")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


ALL = pytest.mark.parametrize(("by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])


@ALL
def test_ctrl_c_ends_what_plays(by, status, tmp_path):
    """Whatever it has started is gone as well."""
    pids = tmp_path / "pids"
    driver = tmp_path / "driver"
    driver.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 600\n")
    driver.chmod(0o755)
    process = started(MAIN, "certify", "client", "--side-by-side", "2", "--", str(driver))
    soon(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    assert interrupted(process, by)[0] < PROMPT_S
    assert process.returncode == status
    soon(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))
    process = started(MAIN, "simulate", "--clients", "400", "--brokers", "4", "--seconds", "90000", "--jobs", "2")
    soon(lambda: len(children_of(process.pid)) >= 2)
    workers = children_of(process.pid)
    assert interrupted(process, by)[0] < PROMPT_S
    assert process.returncode == status
    soon(lambda: not any(map(is_alive, workers)))
    process = started(MAIN, "demo", "--scene", "producers", "--output", str(tmp_path / "report"))
    soon(lambda: len(children_of(process.pid)) == 3)
    workers = children_of(process.pid)
    assert interrupted(process, by)[0] < PROMPT_S
    assert process.returncode == status
    soon(lambda: not any(map(is_alive, workers)))


@ALL
def test_what_certify_has_set_on_a_broker_is_gone_after_ctrl_c(by, status):
    with EmbeddedBroker() as broker, QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:

        def quotas():
            return admin.describe_client_quotas(ClientQuotaFilter.all()).result()

        process = started(MAIN, "certify", "broker", "--bootstrap-server", broker.bootstrap_servers)
        soon(quotas)
        interrupted(process, by)
        assert process.returncode == status
        assert not quotas()
