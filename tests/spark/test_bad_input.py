"""What is wrong with a pipeline's input is one clear error each, wherever in Spark it comes up."""

import os
import time

import pytest
from confluent_kafka import KafkaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.asking import Brokers
from kclient_quota.spark.kafka.sink import write_batches
from kclient_quota.spark.pipeline import Plan, reason, run
from kclient_quota.spark.streaming.checkpoint import MARK

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


def test_an_older_checkpoint(spark, plan, tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / MARK).write_text('{"version": 0}')
    assert "version 0 of the pipeline" in failure(spark, ConfigError, **plan, checkpoint=str(folder))


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
