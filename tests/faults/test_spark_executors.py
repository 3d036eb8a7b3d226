"""A stream of Spark whose executors are killed while they work, with late pushes: each row once, and it goes on."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.spark.pipeline import Plan, run
from tests.spark.receiving import FROM_THE_FUTURE, Client, ToTopic, receive
from tests.spark.stream_process import goes_on, kill, numbers, started
from tests.spark_session import spark

__all__ = ["spark"]

TOPIC = "telemetry"
CLIENTS, PUSHES, AT_ONCE = 20, 12, 40
KILLED, WAIT_S = 2, 300
OF_POINTS = ("client_id", "time_ms", "metric", "attributes", "value")
OF_USAGE = ("client_id", "window_start", "broker", "clients", "byte_rate")


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    """Half of the clients' pushes come when the other half has pushed all: four minutes late."""
    with EmbeddedBroker(topics={TOPIC: 2}, properties=FROM_THE_FUTURE) as broker:
        sink = ToTopic(broker, TOPIC)
        clients = [Client(n, f"app{n}", "u", 1_000) for n in range(CLIENTS)]
        for part in (clients[::2], clients[1::2]):
            receive(part, PUSHES, [sink])
        sink.close(20_000)
        yield broker


def executors(group: int) -> list[int]:
    """Processes of a driver's group that are executors."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes() if path.name.isdigit() else b""
            if b"CoarseGrainedExecutorBackend" in words and os.getpgid(int(path.name)) == group:
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return found


def kill_in_batches(process: subprocess.Popen[bytes], checkpoint: Path, log: Path) -> None:
    """In each of some batches that are planned and not committed, which is looked at while all stands still."""
    killed: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_S
    while len(killed) < KILLED:
        os.killpg(process.pid, signal.SIGSTOP)
        open_ = numbers(checkpoint / "offsets") - numbers(checkpoint / "commits") - set(killed)
        workers = [pid for pid in executors(process.pid) if pid not in killed.values()]
        if open_ and workers:
            killed[open_.pop()] = workers[0]
            os.kill(workers[0], signal.SIGKILL)
        goes_on(process, log, deadline)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("job", ["points", "usage"])
def test_executors_that_are_killed_leave_every_row_once(spark, cluster, tmp_path, job):
    given = [cluster.bootstrap_servers, TOPIC, str(tmp_path / "out"), str(tmp_path / "checkpoint"), str(AT_ONCE)]
    log = tmp_path / "driver.log"
    process = started([*given, job, "local-cluster[2,1,768]"], log, SPARK_LOCAL_IP="127.0.0.1")
    try:
        kill_in_batches(process, tmp_path / "checkpoint", log)
        assert process.wait(WAIT_S) == 0, log.read_text(errors="replace")[-4_000:]
    finally:
        kill(process)
    client = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "undisturbed"}
    plan = Plan(job, TOPIC, str(tmp_path / "wanted"), client=client, checkpoint=str(tmp_path / "its"), max_rows=AT_ONCE)
    run(spark, plan)
    found, wanted = (rows(spark, tmp_path / name) for name in ("out", "wanted"))
    assert found == wanted
    if job == "points":
        pushed = {(row[0], row[1]) for row in found}
        assert len(pushed) == CLIENTS * PUSHES
    else:
        assert len(found) >= CLIENTS


def rows(spark, folder):
    """All of them, the same ones as often as they are there."""
    table = spark.read.parquet(str(folder))
    names = OF_POINTS if "metric" in table.columns else OF_USAGE
    found = table.select(*names).collect()
    return sorted(tuple(str(round(each, 6) if isinstance(each, float) else each) for each in row) for row in found)
