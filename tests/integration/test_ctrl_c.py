"""Ctrl-C ends every command within a second, with all that it has started."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kclient_quota import ClientQuotaFilter, QuotaAdmin
from kclient_quota.broker import EmbeddedBroker

PROMPT_S = 5
"""A second, and what a busy machine takes besides; each of these took ten or more, or did not end."""
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
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", accepted
        server.shutdown(socket.SHUT_RDWR)
    for connection in taken:
        connection.close()


def started(module, *words):
    """A command in a process of its own, which has begun to load."""
    interruptible = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in the background, too
    named = f"import sys; sys.argv[1:] = {list(words)!r}; import {module} as m"
    code = f"{interruptible}; {named}; print('on', flush=True); m.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "on\n"
    return process


def interrupted(process):
    """How many seconds it took to end, and what it said besides."""
    with process:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert "Traceback" not in err
        return time.monotonic() - began, err


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
def test_ctrl_c_ends_within_a_second(module, words, silent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 5}}\n")
    (tmp_path / "empty.journal").write_text("")
    address, accepted = silent
    process = started(module, *words, "--bootstrap-server", address)
    assert accepted.wait(30)  # it asks
    assert interrupted(process)[0] < PROMPT_S
    assert process.returncode == 130


def test_ctrl_c_ends_what_plays_within_a_second(tmp_path):
    """Whatever it has started is gone as well."""
    pids = tmp_path / "pids"
    driver = tmp_path / "driver"
    driver.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 600\n")
    driver.chmod(0o755)
    process = started(MAIN, "certify", "client", "--side-by-side", "2", "--", str(driver))
    soon(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    assert interrupted(process)[0] < PROMPT_S
    assert process.returncode == 130
    soon(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))
    process = started(MAIN, "simulate", "--clients", "400", "--brokers", "4", "--seconds", "90000", "--jobs", "2")
    soon(lambda: len(children_of(process.pid)) >= 2)
    workers = children_of(process.pid)
    assert interrupted(process)[0] < PROMPT_S
    assert process.returncode == 130
    soon(lambda: not any(map(is_alive, workers)))
    process = started(MAIN, "demo", "--scene", "producers", "--output", str(tmp_path / "report"))
    soon(lambda: len(children_of(process.pid)) == 3)
    workers = children_of(process.pid)
    assert interrupted(process)[0] < PROMPT_S
    assert process.returncode == 130
    soon(lambda: not any(map(is_alive, workers)))


def test_what_certify_has_set_on_a_broker_is_gone_after_ctrl_c():
    with EmbeddedBroker() as broker, QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:

        def quotas():
            return admin.describe_client_quotas(ClientQuotaFilter.all()).result()

        process = started(MAIN, "certify", "broker", "--bootstrap-server", broker.bootstrap_servers)
        soon(quotas)
        interrupted(process)
        assert process.returncode == 130
        assert not quotas()


def soon(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.05)


def is_alive(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for child in (task / "children").read_text().split()
    ]
