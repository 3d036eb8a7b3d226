"""What is wrong with a pipeline's input is one clear error each, wherever in Spark it comes up."""

import gzip
import json
import os
import shutil
import time

import pytest
from confluent_kafka import KafkaError
from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark import pipeline, reading
from kclient_quota.spark.decode import points
from kclient_quota.spark.files import FORMATS, read_files
from kclient_quota.spark.kafka.asking import Brokers
from kclient_quota.spark.kafka.sink import write_batches
from kclient_quota.spark.pipeline import Plan, reason, run
from kclient_quota.spark.streaming import output
from kclient_quota.spark.streaming.checkpoint import MARK, claim
from tests.spark.pushes import BYTES, push, steady, write
from tests.spark.receiving import Client, ToFiles, receive

TOPIC = "telemetry"
ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
    "log_level": 0,
}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedBroker(topics={TOPIC: 1}, users={"alice": "secret"}) as broker:
        yield broker


def failure(spark, expected, **changes):
    with pytest.raises(expected) as found:
        run(spark, Plan(**changes))
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.fixture
def plan(cluster, tmp_path):
    client = {"bootstrap.servers": cluster.bootstrap_servers, "socket.timeout.ms": 30_000, "log_level": 0}
    return {"job": "usage", "source": TOPIC, "output": str(tmp_path / "out"), "client": client}


def test_a_wrong_schema(spark, tmp_path):
    spark.sql("select 1 as metric").write.parquet(str(tmp_path / "other"))
    plan = {"job": "usage", "source": str(tmp_path / "other"), "output": str(tmp_path / "out")}
    said = failure(spark, ConfigError, **plan, source_format="parquet")
    assert "the files have no column" in said
    assert "give the --format that wrote them" in said


def test_lines_of_something_else(spark, tmp_path):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "x.jsonl").write_text('{"a": 1}\n')
    plan = {"job": "usage", "source": str(tmp_path / "lines"), "output": str(tmp_path / "out")}
    said = failure(spark, ConfigError, **plan)
    assert "nothing for usage there, but what could not be decoded: " in said


def test_files_that_are_no_parquet(spark, tmp_path):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "x.parquet").write_text("no parquet, but long enough for a footer\n")
    plan = {"job": "usage", "source": str(tmp_path / "lines"), "output": str(tmp_path / "out")}
    said = failure(spark, ClusterError, **plan, source_format="parquet")
    assert "x.parquet" in said


@pytest.mark.parametrize(("job", "is_stream"), [("usage", False), ("usage", True), ("recommend", False)])
@pytest.mark.parametrize(("kind", "ending"), [("jsonl", "parquet"), ("parquet", "jsonl"), ("pushes", "jsonl")])
def test_all_files_are_of_another_format(spark, tmp_path, job, is_stream, kind, ending):
    folder = tmp_path / "received" / "date=2026-01-31"
    writer = (JsonLinesWriter if ending == "jsonl" else ParquetWriter)(folder)
    receive([Client(0, "app", "u", 1_000)], 3, [ToFiles(writer)])
    writer.close()
    plan = {"job": job, "source": str(folder.parent), "output": str(tmp_path / "out"), "source_format": kind}
    if is_stream:
        plan["checkpoint"] = str(tmp_path / "checkpoint")
    assert f"give --format {ending}" in failure(spark, ConfigError, **plan)


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_there_yet(spark, tmp_path, kind):
    (tmp_path / "empty").mkdir()
    assert read_files(spark, str(tmp_path / "empty"), kind, is_stream=True).isStreaming
    assert points(read_files(spark, str(tmp_path / "empty"), kind)).isEmpty()


@pytest.mark.parametrize(("older", "newer"), [("0.parquet", "1.parquet"), ("1.parquet", "0.parquet")])
def test_files_of_before_hide_no_column_of_newer_ones(spark, tmp_path, older, newer):
    """Spark asks one file for its columns, the first by name."""
    known, told = steady(1, client_id="told"), steady(1)
    write(tmp_path / "pushes", [{"value": row["value"]} for row in told], older)
    write(tmp_path / "pushes", known, newer)
    found = points(read_files(spark, str(tmp_path / "pushes"), "pushes"))
    assert {row.client_id for row in found.select("client_id").distinct().collect()} == {None, "told"}


def test_a_column_whose_name_differs_in_case(spark, tmp_path):
    others = [{"value": row["value"], "Client_Id": "other"} for row in steady(1)]
    write(tmp_path / "pushes", others, "0.parquet")
    assert not points(read_files(spark, str(tmp_path / "pushes"), "pushes")).isEmpty()


def no_dead_letters_for_the_next_try(spark, tmp_path, job):
    """The next try wrote them once more: each letter was there as often as the job was run."""
    good = steady(1, span_s=60)
    source = write(tmp_path / "pushes", [{**good[0], "value": b"\xff\xff"}, *good[1:]])
    output, letters = tmp_path / "out", str(tmp_path / "letters")
    (output if job == "usage" else output / "in the way").mkdir(parents=True)
    plan = {"job": job, "source": source, "output": str(output), "source_format": "pushes", "dead_letters": letters}
    failure(spark, ConfigError, **plan)
    shutil.rmtree(output)
    run(spark, Plan(**plan))
    assert spark.read.parquet(letters).count() == 1


def test_a_batch_that_failed_leaves_no_dead_letters_for_the_next_try(spark, tmp_path):
    no_dead_letters_for_the_next_try(spark, tmp_path, "usage")


def test_a_missing_quota_file(spark, plan):
    said = failure(spark, ConfigError, **plan, quotas="/nowhere/quotas.yaml")
    assert "write one with: kafka-quotas export" in said


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_unreachable_broker(spark, plan, tmp_path, is_stream):
    plan["client"] |= {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1_000}
    checkpoint = str(tmp_path / "checkpoint") if is_stream else None
    assert "telemetry at 127.0.0.1:1: " in failure(spark, ClusterError, **plan, checkpoint=checkpoint)


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_permission(spark, cluster, plan, tmp_path, is_stream):
    plan["client"] |= {**ALICE, "bootstrap.servers": cluster.sasl_bootstrap_servers, "sasl.password": "wrong"}
    checkpoint = str(tmp_path / "checkpoint") if is_stream else None
    said = failure(spark, ClusterError, **plan, checkpoint=checkpoint)
    assert "telemetry at " in said
    assert "uthentication failed" in said


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_permission_on_apache_kafka(spark, apache_kafka, plan, tmp_path, is_stream):
    plan["client"] = {**ALICE, "bootstrap.servers": apache_kafka.sasl_bootstrap_servers}
    plan["source"] = "one"
    checkpoint = str(tmp_path / "checkpoint") if is_stream else None
    said = failure(spark, ClusterError, **plan, checkpoint=checkpoint)
    assert "one at " in said
    assert "opic authorization failed (TOPIC_AUTHORIZATION_FAILED)" in said


def test_no_permission_to_write_on_apache_kafka(apache_kafka):
    conf = {**ALICE, "bootstrap.servers": apache_kafka.sasl_bootstrap_servers}
    with pytest.raises(ClusterError, match=r"writing to one at .*uthorization failed \(TOPIC_AUTHORIZATION_FAILED\)"):
        write_batches(conf, "one", [])


def test_a_refused_login_is_told_of_at_once(cluster):
    refused = {**ALICE, "bootstrap.servers": cluster.sasl_bootstrap_servers, "sasl.password": "wrong"}
    brokers = Brokers({**refused, "group.id": "g", "socket.timeout.ms": 300_000}, [TOPIC])
    brokers._timeout_s = 300
    began = time.monotonic()
    with pytest.raises(ClusterError, match="uthentication failed"):
        brokers.offsets()
    brokers.close()
    assert time.monotonic() - began < 60


def test_no_permission_for_a_topic(cluster):
    class Refused:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    class Listing:
        topics = {TOPIC: Refused}  # noqa: RUF012 - a stub

    class Asking:
        list_topics = staticmethod(lambda timeout: Listing)
        poll = staticmethod(lambda timeout: None)

    brokers = Brokers({"bootstrap.servers": "b:1"}, [TOPIC])
    brokers._consumer = Asking
    with pytest.raises(ClusterError, match=r"telemetry at b:1: .*uthorization failed .*TOPIC_AUTHORIZATION_FAILED"):
        brokers.offsets()


def test_a_topic_that_is_not_there(spark, plan):
    plan["source"] = "nowhere"
    assert "nowhere at " in failure(spark, ClusterError, **plan)


def test_a_file_that_was_cut_short_is_named_with_what_to_do(spark, tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    lines = "\n".join(json.dumps({"metric": "m", "value": number}) for number in range(3_000)).encode()
    (folder / "whole.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "torn.jsonl.gz").write_bytes(gzip.compress(lines)[:-300])
    said = failure(spark, ClusterError, job="points", source=str(folder), output=str(tmp_path / "out"))
    assert "torn.jsonl.gz" in said
    assert said.endswith(
        "take that file away, or have what cannot be read left out: --conf spark.sql.files.ignoreCorruptFiles=true"
    )


def test_a_file_that_goes_while_it_is_read_is_named_with_what_to_do(spark, tmp_path, monkeypatch):
    folder = tmp_path / "lines"
    folder.mkdir()
    for name in ("stays", "goes"):
        (folder / f"{name}.jsonl").write_text(json.dumps({"metric": "m", "value": 1}))

    def read(*arguments, **options):
        found = reading.read(*arguments, **options)
        (folder / "goes.jsonl").unlink()  # Spark has listed the files, and reads them later
        return found

    monkeypatch.setattr(pipeline, "read", read)
    plan = {"job": "points", "source": str(folder), "output": str(tmp_path / "out")}
    said = failure(spark, ClusterError, **plan)
    assert "goes.jsonl" in said
    assert said.endswith("run it again, or have files that go left out: --conf spark.sql.files.ignoreMissingFiles=true")
    assert not (tmp_path / "out").exists(), "or the next try would be refused"
    (folder / "goes.jsonl").touch()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert "1 rows" in run(spark, Plan(**plan))
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_task_that_ends_after_its_batch_has_failed_leaves_no_output_either(tmp_path, monkeypatch):
    out, ends = tmp_path / "out", []

    def ends_later(_seconds):
        if not ends:
            (out / "_temporary" / "0").mkdir(parents=True)
        ends.append(None)

    out.mkdir()
    monkeypatch.setattr(output, "sleep", ends_later)
    output._remove_if_empty(out)
    assert not out.exists(), "or the next try would be refused"
    assert len(ends) == 2


def test_rows_that_a_failed_batch_has_written_stay(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0").touch()
    monkeypatch.setattr(output, "sleep", lambda _seconds: None)
    output._remove_if_empty(tmp_path / "out")
    assert (tmp_path / "out" / "part-0").exists()


def damage_offsets(checkpoint):
    last = max(path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    last.write_text("garbage\n")
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def damage_metadata(checkpoint):
    (checkpoint / "metadata").write_text("{")
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)


def damage_state(checkpoint):
    shutil.rmtree(checkpoint / "state")
    (checkpoint / "state").mkdir()


def damage_sources(checkpoint):
    shutil.rmtree(checkpoint / "sources")


@pytest.mark.parametrize("damage", [damage_offsets, damage_metadata, damage_state, damage_sources])
def test_a_checkpoint_that_is_damaged_is_named_with_what_to_do(spark, ran, damage, tmp_path):
    whole, out, source = ran
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(whole, checkpoint)
    damage(checkpoint)
    plan = {"job": "usage", "source": source, "source_format": "pushes", "output": out, "checkpoint": str(checkpoint)}
    said = failure(spark, (ClusterError, ConfigError), **plan)
    remedy = (
        "put back a copy of it and of its output, both of one time, or start with a new checkpoint and a new output"
    )
    assert said.endswith(f"checkpoint {checkpoint} is damaged: {remedy}")


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    """The checkpoint and the output of a stream that has ended, and what it goes on with."""
    folder = tmp_path_factory.mktemp("ran")
    source = write(folder / "in", steady(1, span_s=60))
    out, checkpoint = str(folder / "out"), folder / "checkpoint"
    plan = {"job": "usage", "source": source, "source_format": "pushes", "output": out, "checkpoint": str(checkpoint)}
    run(spark, Plan(**plan))
    write(folder / "in", [push(1, 3_700, 60, {BYTES: 1.0})], name="1.parquet")
    return checkpoint, out, source


@pytest.mark.parametrize("name", ["telemetry[prod]", "st*r", "a?b", "in{a}"])
def test_a_directory_whose_name_spark_takes_for_a_pattern(spark, tmp_path, name):
    """A stream read each file of `st*r` once for each file, `a?b` was `a b` as well."""
    write(tmp_path / name, [push(1, 60, 60, {BYTES: 1.0})])
    plan = {"job": "points", "source": str(tmp_path / name), "output": str(tmp_path / "out")}
    assert "for a pattern" in failure(spark, ConfigError, **plan, source_format="pushes")


def test_an_older_checkpoint(spark, plan, tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / MARK).write_text('{"version": 0}')
    assert "version 0 of the pipeline" in failure(spark, ConfigError, **plan, checkpoint=str(folder))


def test_a_checkpoint_that_another_run_begins_with_at_this_moment(spark, tmp_path, monkeypatch):
    claim(spark, str(tmp_path), {"job": "points"})
    monkeypatch.setattr("kclient_quota.spark.streaming.checkpoint.marked", lambda *_: None)  # looked just before
    with pytest.raises(ConfigError, match="another run has begun with it"):
        claim(spark, str(tmp_path), {"job": "points"})


def dies(batches):
    for _ in batches:
        os._exit(3)
    return iter(())


def test_a_worker_that_dies_is_explained(spark):
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly") as found:
        spark.range(1).mapInArrow(dies, "id bigint").collect()
    assert reason(found.value).startswith("a Python worker of Spark ended without saying why")


def test_a_reason_is_ours_where_there_is_one():
    traceback = "An exception was thrown\nTraceback:\n  kclient_quota.errors.ClusterError: a; b\nSQLSTATE: 1"
    assert reason(ValueError(traceback)) == "a; b"
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(ValueError()) == "ValueError"
    assert reason(ValueError("An error occurred while calling o1.parquet.\n: org.x.Y: why\n\tat")) == "org.x.Y: why"
