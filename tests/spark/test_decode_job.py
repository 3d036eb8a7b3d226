"""Decoding on executors: the table's columns, dead letters, brokers' ids."""

import json

import pyarrow as pa
import pytest
from kclient_telemetry.compression import decompress
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kclient_quota.spark.decode import MAX_PAYLOAD_BYTES, dead_letters, decode, points
from kclient_quota.spark.decoding.point_rows import ALL
from kclient_quota.spark.decoding.schema import COLUMNS
from kclient_quota.spark.decoding.slow_decode import decode_one
from kclient_quota.spark.files import read_files
from kclient_quota.spark.measures import MEASURED, PUSHED


@pytest.fixture(scope="module")
def decoded(spark, real_payloads):
    rows = [(data, kind, f"client-{name}", "User:alice", 1_000) for name, data, kind in real_payloads]
    rows += [(b"not zstd at all", 4, "broken", None, 2_000), (b"\xff\xff", 0, "garbage", None, 2_000)]
    rows += [(b"abc", 9, "unknown", None, 2_000), (b"", 0, "empty", None, 2_000), (None, None, "null", None, 2_000)]
    schema = "value binary, compression_type int, client_id string, principal string, received_unix_ms long"
    return decode(spark.createDataFrame(rows, schema).repartition(2)).cache()


def test_every_real_point_is_in_the_table(decoded, real_payloads):
    found = points(decoded).toArrow()
    assert found.column_names == list(COLUMNS)
    wanted = []
    for name, data, kind in real_payloads:
        batch = decode_one(decompress(data, kind, MAX_PAYLOAD_BYTES), 0)
        wanted += [(f"client-{name}", row["metric"], row["value"], row["time_ms"]) for row in batch.to_pylist()]
    rows = found.to_pylist()
    assert sorted(map(repr, wanted)) == sorted(
        repr((row["client_id"], row["metric"], row["value"], row["time_ms"])) for row in rows
    )
    assert {row["user"] for row in rows} == {"alice"}
    # pushed years after they are said to be received: such clocks are not believed
    assert {row["time"].timestamp() for row in rows} == {1.0}
    assert {None, "g"} <= {row["group_id"] for row in rows}
    assert {row["temporality"] for row in rows} == {None, "delta", "cumulative"}


def test_brokers_have_one_id_whoever_names_them(decoded):
    rows = points(decoded).where("map_contains_key(attributes, 'node.id') or map_contains_key(attributes, 'node_id')")
    named = {
        tuple(row)
        for row in rows.selectExpr("attributes['node_id']", "attributes['node.id']", "broker").distinct().collect()
    }
    java = {(java, broker) for java, rdkafka, broker in named if rdkafka is None}
    assert ("node-1", "1") in java
    assert ("node--1", None) in java
    assert all(broker == java.removeprefix("node-") for java, broker in java if broker and len(java) < 12)
    assert {(rdkafka, broker) for java, rdkafka, broker in named if java is None} == {("1", "1"), ("-1", None)}


def test_the_coordinators_connection_is_its_brokers(spark):
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for node in ("node-2147483646", "node-7", "rack/a"):
        metric.gauge.data_points.add(as_int=1).attributes.add(key="node_id").value.string_value = node
    frame = points(decode(spark.createDataFrame([(request.SerializeToString(),)], "value binary")))
    assert sorted(row["broker"] for row in frame.collect()) == ["1", "7", "rack/a"]


def test_dead_letters_say_why_and_from_whom(decoded):
    letters = {row["client_id"]: row for row in dead_letters(decoded).collect()}
    assert letters.keys() == {"broken", "garbage", "unknown"}
    assert "zstd" in letters["broken"]["error"]
    assert "no OTLP metrics message" in letters["garbage"]["error"]
    assert "compression type 9" in letters["unknown"]["error"]
    assert bytes(letters["garbage"]["payload"]) == b"\xff\xff"


IMPOSSIBLE = (2_534_023_008_000_000, 2**63 - 1, -(2**62), -2)
"""The years 82,269 and 292 million, and before 1970."""


def test_a_push_of_no_possible_time_is_a_dead_letter(spark, real_payloads):
    _, data, _ = next(each for each in real_payloads if each[2] == 0)
    rows = [(data, f"c{at}", at) for at in (*IMPOSSIBLE, -1, 1_800_000_000_000, None)]
    frame = spark.createDataFrame(rows, "value binary, client_id string, received_unix_ms long").coalesce(1)
    for shape in (ALL, MEASURED, PUSHED):
        found = decode(frame, shape)
        assert {row["client_id"] for row in points(found).collect()} == {"c-1", "c1800000000000", "cNone"}
        letters = {row["client_id"]: row for row in dead_letters(found).collect()}
        assert letters.keys() == {f"c{at}" for at in IMPOSSIBLE}
        for at in IMPOSSIBLE:
            assert letters[f"c{at}"]["error"].endswith(f"after the year 9998, received_unix_ms is {at}")
            assert bytes(letters[f"c{at}"]["payload"]) == data


def test_a_line_of_no_possible_time_is_a_dead_letter(spark, tmp_path):
    line = {"metric": "m", "kind": "gauge", "value": 1.0, "time_unix_nano": 10**18, "attributes": {}, "resource": {}}
    lines = [json.dumps({**line, "client_id": f"c{at}", "received_unix_ms": at}) for at in (*IMPOSSIBLE, 10**12, None)]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    found = read_files(spark, str(tmp_path), "jsonl")
    assert {row["client_id"] for row in points(found).collect()} == {"c1000000000000", "cNone"}
    letters = {row["client_id"]: row["error"] for row in dead_letters(found).collect()}
    assert {name: error.split()[-1] for name, error in letters.items()} == {f"c{at}": str(at) for at in IMPOSSIBLE}


def test_the_resource_speaks_where_no_column_does(spark, real_payloads):
    from kclient_telemetry.otlp import parse, with_resource_attributes

    _, data, _ = next(each for each in real_payloads if each[2] == 0)
    known = {"client_id": "orders", "principal": "User:bob", "client_instance_id": "id", "client_software_version": "9"}
    enriched = with_resource_attributes(data, known, parse(data))
    frame = points(decode(spark.createDataFrame([(enriched,)], "value binary")))
    rows = frame.select("client_id", "user", "client_instance_id", "software_version").distinct().collect()
    assert [tuple(row) for row in rows] == [("orders", "bob", "id", "9")]
    assert isinstance(frame.toArrow(), pa.Table)


def test_what_jobs_need_is_the_same_as_in_the_whole_table(spark, real_payloads):
    """The shape is cut on the executors; both decoders, senders beside the push and within it, brokers, roles."""
    from kclient_quota.spark.measures import MEASURED, measured

    odd = ExportMetricsServiceRequest()
    resource = odd.resource_metrics.add()
    resource.resource.attributes.add(key="list").value.array_value.values.add(string_value="only the slow one reads it")
    resource.resource.attributes.add(key="principal").value.string_value = "User:bob"
    metric = resource.scope_metrics.add().metrics.add(name="org.apache.kafka.producer.node.outgoing.byte.rate")
    metric.gauge.data_points.add(as_double=5.0).attributes.add(key="node_id").value.string_value = "node-2147483646"
    metric.gauge.data_points.add()
    rows = [(data, kind, f"client-{name}", None, 1_000) for name, data, kind in real_payloads]
    rows += [(odd.SerializeToString(), 0, "odd", None, 2_000), (b"\xff", 0, "broken", "User:eve", 3_000)]
    schema = "value binary, compression_type int, client_id string, principal string, received_unix_ms long"
    frame = spark.createDataFrame(rows, schema).repartition(1)
    narrow = decode(frame, MEASURED)
    names = points(narrow).columns
    assert names == [field.name for field in MEASURED.schema]
    found = points(narrow).toArrow().to_pylist()
    wanted = measured(points(decode(frame))).select(names).toArrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    (letter,) = dead_letters(narrow).collect()
    assert (letter["client_id"], letter["user"]) == ("broken", "eve")
    (odd_row,) = [row for row in found if row["client_id"] == "odd"]
    assert (odd_row["user"], odd_row["broker"], odd_row["role"], odd_row["measure"]) == (
        "bob", "1", "producer", "byte_rate"
    )  # fmt: skip
    assert len(found) > 50
