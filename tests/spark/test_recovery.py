"""What a stream has written when its driver is killed in mid-batch, and is started again: everything once."""

import os
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ConfigError
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.streaming.checkpoint import MARK, claim, marked
from tests.spark.receiving import FROM_THE_FUTURE, Client, ToFiles, ToTopic, receive
from tests.spark.stream_process import goes_on, kill, numbers, started

TOPIC = "telemetry"
CLIENTS = 20
PUSHES = 6
AT_ONCE = 20
WAIT_S = 400


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={TOPIC: 2}, properties=FROM_THE_FUTURE) as broker:
        sink = ToTopic(broker, TOPIC)
        receive([Client(n, f"app{n}", "u", 1_000) for n in range(CLIENTS)], PUSHES, [sink])
        sink.close(60_000)
        yield broker


@pytest.fixture
def driver(cluster, tmp_path):
    """A driver in a group of processes of its own, which ends with the test."""
    given = [cluster.bootstrap_servers, TOPIC, str(tmp_path / "out"), str(tmp_path / "checkpoint"), str(AT_ONCE)]
    process = started(given, tmp_path / "driver.log")
    yield process
    kill(process)


def is_in_mid_batch(checkpoint):
    """A batch after the first is planned and not committed."""
    planned, committed = numbers(checkpoint / "offsets"), numbers(checkpoint / "commits")
    return bool(committed and planned - committed)


def kill_in_mid_batch(process, checkpoint, log):
    """It is stopped only when it seems to be there, and looked at again: one stopped at every look gets nowhere."""
    deadline = time.monotonic() + WAIT_S
    while True:
        if is_in_mid_batch(checkpoint):
            os.killpg(process.pid, signal.SIGSTOP)
            if is_in_mid_batch(checkpoint):
                kill(process)
                return
        goes_on(process, log, deadline)


@pytest.mark.timeout(600)
def test_a_driver_killed_in_mid_batch_leaves_every_point_once(spark, cluster, driver, tmp_path):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "out"
    kill_in_mid_batch(driver, checkpoint, tmp_path / "driver.log")
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    plan = Plan("points", TOPIC, str(output), client=client, checkpoint=str(checkpoint))
    assert re.search(r": [1-9]\d* rows read in [1-9]", run(spark, plan))
    rows = spark.read.parquet(str(output)).select("client_id", "time_ms", "metric", "attributes").collect()
    found = Counter((row["client_id"], row["time_ms"], row["metric"], str(row["attributes"])) for row in rows)
    assert set(found.values()) == {1}
    pushes = Counter(client_id for client_id, _ in {(who, at_ms) for who, at_ms, _, _ in found})
    assert pushes == {f"app{n}": PUSHES for n in range(CLIENTS)}


def test_a_checkpoint_says_whose_it_is(spark, tmp_path):
    folder = tmp_path / "checkpoint"
    claim(spark, str(folder), {"job": "usage"})
    claim(spark, str(folder), {"job": "usage"})
    with pytest.raises(ConfigError, match="a stream with job usage, this one has throttled: start with a new checkp"):
        claim(spark, str(folder), {"job": "throttled"})


def test_a_stream_goes_on_in_the_directories_and_the_format_that_it_began_with(spark, tmp_path):
    """Of rows beside directories of columns Spark reads one or the other, and says nothing of those that it leaves."""
    sink = ToFiles(JsonLinesWriter(tmp_path / "in"))
    receive([Client(0, "app", "u", 1_000)], 2, [sink])
    sink.close(0)
    to = {"source_format": "jsonl", "checkpoint": str(tmp_path / "checkpoint"), "partition_by": ("date",)}
    plan = Plan("points", str(tmp_path / "in"), str(tmp_path / "out"), **to)
    assert "rows read" in run(spark, plan)
    for changed, words in [
        ({"partition_by": ()}, "with partition_by date, this one has None"),
        ({"partition_by": ("date", "hour")}, "with partition_by date, this one has date,hour"),
        ({"output_format": "json"}, "with output_format parquet, this one has json"),
    ]:
        with pytest.raises(ConfigError, match=words):
            run(spark, replace(plan, **changed))
    assert "0 rows read" in run(spark, plan)


def test_a_checkpoint_that_does_not_say_where_its_rows_go_is_gone_on_with(spark, tmp_path):
    claim(spark, str(tmp_path / "checkpoint"), {"job": "usage"})
    claim(spark, str(tmp_path / "checkpoint"), {"job": "usage", "partition_by": "date"})


def test_a_run_that_was_killed_as_it_marked_its_checkpoint_is_begun_anew(spark, tmp_path):
    """Spark makes the directory first, and the line comes last: whatever restarts drivers would do so for ever."""
    folder = tmp_path / "checkpoint"
    (folder / MARK / "_temporary" / "0").mkdir(parents=True)
    assert marked(spark, str(folder)) is None
    claim(spark, str(folder), {"job": "usage"}, patience_s=0)
    assert marked(spark, str(folder))["job"] == "usage"


def test_a_run_that_is_just_marking_its_checkpoint_is_waited_for_and_said(spark, tmp_path):
    mark = tmp_path / MARK
    mark.mkdir()

    def written(*_):
        (mark / "part-00000.txt").write_text('{"version": 5, "job": "usage"}\n')

    timer = threading.Timer(1, written)
    timer.start()
    with pytest.raises(ConfigError, match="another run has begun with it at this moment"):
        claim(spark, str(tmp_path), {"job": "usage"})
    timer.join()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (None, "older version of the pipeline, or by another program: start with a new checkpoint"),
        ('{"version": 0, "job": "usage"}', "is of version 0 of the pipeline, this is version 5"),
        ("[", "its kclient-quota.json cannot be read"),
    ],
)
def test_a_checkpoint_of_another_version_is_refused(spark, tmp_path, mark, words):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"0"}')
    if mark is not None:
        (folder / MARK).write_text(mark)
    with pytest.raises(ConfigError, match=words):
        claim(spark, str(folder), {"job": "usage"})
