"""The same jobs on executors of their own: a standalone cluster, and Spark's `local-cluster`; rows as in `local[2]`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter

from benchmarks.spark_processes import shuffled
from kclient_quota.spark.pipeline import Plan, run
from tests.spark.receiving import Client, ToFiles, receive
from tests.spark_grid.standalone import Standalone

DRIVER = Path(__file__).with_name("scale_driver.py")
COLUMNS = ("window_start", "client_id", "broker", "byte_rate", "clients")


@pytest.fixture(scope="module")
def pushes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pushes")
    for part in range(4):  # a file each, so that there is work for every executor
        writer = JsonLinesWriter(folder)
        receive([Client(part * 5 + n, f"app{n}", f"u{part}", 1_000 * (n + 1)) for n in range(5)], 6, [ToFiles(writer)])
        writer.close()
    return folder


@pytest.fixture(scope="module")
def wanted(spark, pushes, tmp_path_factory):
    target = tmp_path_factory.mktemp("local") / "usage"
    before = shuffled(spark)
    run(spark, Plan("usage", str(pushes), str(target)))
    now = shuffled(spark)
    assert now.bytes > before.bytes
    assert now.executors == 1
    return rows(spark, target)


def rows(spark, path):
    found = spark.read.parquet(str(path)).select(*COLUMNS).collect()
    return sorted(tuple(str(round(each, 6) if isinstance(each, float) else each) for each in row) for row in found)


def on(master, pushes, folder):
    """The job in a driver of its own; what it said last: `executors N, shuffled M bytes`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(DRIVER), master, str(pushes), str(folder / "usage")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.splitlines()[-1].split()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["standalone", "local-cluster"])
def test_a_job_on_executors_of_their_own_is_the_job(spark, pushes, wanted, tmp_path, kind):
    if kind == "standalone":
        with Standalone(tmp_path) as cluster:
            said = on(cluster.url, pushes, tmp_path)
    else:
        said = on("local-cluster[2,1,768]", pushes, tmp_path)
    assert rows(spark, tmp_path / "usage") == wanted
    assert (said[0], said[2]) == ("executors", "shuffled")
    assert int(said[1]) == 2
    assert int(said[3]) > 0
