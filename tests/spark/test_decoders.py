"""Both decoders, without Spark: on what real clients pushed, on what they never will, and on bytes that are nothing."""

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from kclient_telemetry.compression import decompress
from kclient_telemetry.errors import InvalidPayloadError
from kclient_telemetry.otlp import parse, with_resource_attributes
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kclient_quota.spark.decode import MAX_PAYLOAD_BYTES, decode_all
from kclient_quota.spark.decoding.fast_decode import decode_many
from kclient_quota.spark.decoding.schema import Wanted
from kclient_quota.spark.decoding.slow_decode import decode_one
from kclient_quota.spark.measures import PUSHED

FILES = sorted((Path(__file__).parent / "payloads").glob("*.bin"))
REAL = {path.stem: decompress(path.read_bytes(), int(path.stem[-1]), MAX_PAYLOAD_BYTES) for path in FILES}


def rows_of(batches):
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def slowly(payloads):
    return rows_of(decode_one(payload, row) for row, payload in enumerate(payloads))


def fast(payloads):
    return rows_of(decode_many(pa.array(payloads, pa.binary())))


def payload(*attributes):
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    point = metric.gauge.data_points.add(as_double=1.5, time_unix_nano=7_000_000)
    for key, values in attributes:
        pair = point.attributes.add(key=key)
        for field, value in values.items():
            setattr(pair.value, field, value)
    return request


def test_both_agree_on_every_real_payload():
    assert len(REAL) >= 20
    together = list(REAL.values())
    assert fast(together) == slowly(together)
    assert len(fast(together)) > 1_000
    for name, data in REAL.items():
        assert fast([data]) == slowly([data]), name


def test_both_agree_on_enriched_payloads():
    named = {"client_id": "orders", "principal": "User:alice"}
    enriched = [with_resource_attributes(data, named, parse(data)) for data in REAL.values()]
    assert fast(enriched) == slowly(enriched)
    first = decode_one(enriched[0], 0).to_pylist()[0]
    assert named.items() <= dict(first["resource"]).items()


def test_both_agree_on_odd_but_valid_values():
    request = payload(
        ("text", {"string_value": ""}),
        ("no", {"bool_value": False}),
        ("number", {"int_value": -3}),
        ("double", {"double_value": 1e21}),
        ("nothing", {}),
    )
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="h", unit="ms")
    metric.histogram.aggregation_temporality = 1
    metric.histogram.data_points.add(
        count=2**64 - 1, sum=3.5, bucket_counts=[1, 2**63], explicit_bounds=[0.5], time_unix_nano=2**64 - 1
    )
    metric.histogram.data_points.add()
    total = request.resource_metrics.add().scope_metrics.add().metrics.add(name="s")
    total.sum.data_points.add(as_double=float("nan"))
    total.sum.data_points.add(as_double=float("-inf"))
    total.sum.data_points.add()
    total.sum.data_points.add(as_int=-(2**63))
    data = [b"", request.SerializeToString(), payload().SerializeToString()]
    assert fast(data) == slowly(data)
    rows = {row["metric"]: row for row in decode_one(data[1], 0).to_pylist()}
    assert dict(rows["m"]["attributes"]) == {
        "text": "", "no": "false", "number": "-3", "double": "1e+21", "nothing": ""
    }  # fmt: skip
    assert rows["s"]["value"] == float(-(2**63))
    assert (rows["m"]["time_ms"], rows["m"]["start_ms"]) == (7, None)


def test_what_the_fast_decoder_leaves_to_the_other_one():
    request = payload()
    pair = request.resource_metrics[0].resource.attributes.add(key="list")
    pair.value.array_value.values.add(string_value="x")
    twins = payload(("a", {"string_value": "1"}), ("a", {"string_value": "2"}))
    for each in (request, twins):
        data = each.SerializeToString()
        with pytest.raises(InvalidPayloadError):
            fast([data])
        errors = {}
        assert rows_of(decode_all(pa.array([b"", data], pa.binary()), errors)) == slowly([b"", data])
        assert errors == {}


WANTED = Wanted(
    columns=frozenset({"metric", "value"}),
    metrics=frozenset({"m", "h"}),
    valued=True,
    resource=("client_id",),
    attributes=("node.id",),
)
"""Values, as the jobs want them: no units, no histograms, no maps of attributes."""


def test_what_nobody_wants_is_not_looked_at():
    """A list among the attributes of a client, as many applications have, would make its pushes ten times dearer."""
    request = payload(("node.id", {"int_value": 3}), ("nothing", {}))
    scope = request.resource_metrics[0].scope_metrics[0]
    scope.metrics[0].unit = "ms"
    scope.metrics.add(name="h").histogram.data_points.add(count=1)
    arguments = request.resource_metrics[0].resource.attributes.add(key="process.command_args")
    arguments.value.array_value.values.add(string_value="run")
    request.resource_metrics[0].resource.attributes.add(key="client_id").value.string_value = "orders"
    data = request.SerializeToString()
    row = {"row": 0, "metric": "m", "value": 1.5, "resource.client_id": "orders", "attributes.node.id": "3"}
    for found in (decode_many(pa.array([data], pa.binary()), WANTED), [decode_one(data, 0, WANTED)]):
        assert [each for batch in found for each in batch.to_pylist()] == [row]


@pytest.mark.parametrize("value", [{"bytes_value": b"3"}, {}], ids=["bytes", "nothing"])
def test_a_wanted_attribute_that_is_no_text_is_left_to_the_other_decoder(value):
    data = payload(("node.id", value)).SerializeToString()
    with pytest.raises(InvalidPayloadError, match=r"attribute node\.id has a value that is no text"):
        decode_many(pa.array([data], pa.binary()), WANTED)
    errors = {}
    found = rows_of(decode_all(pa.array([b"", data], pa.binary()), errors, WANTED))
    assert (found, errors) == (rows_of([decode_one(data, 1, WANTED)]), {})


def test_both_agree_on_what_the_jobs_want_of_every_real_payload():
    wanted = replace(PUSHED.wanted({}), resource=("client_id", "group_id"))
    for name, data in REAL.items():
        found = decode_many(pa.array([data], pa.binary()), wanted)
        assert rows_of(found) == rows_of([decode_one(data, 0, wanted)]), name


def test_bad_payloads_do_not_touch_their_neighbours():
    good = list(REAL.values())[:9]
    mixed = [*good[:3], b"\xff\xff", *good[3:6], good[0][:100], None, *good[6:]]
    errors = {}
    found = rows_of(decode_all(pa.array(mixed, pa.binary()), errors))
    assert set(errors) == {3, 7}
    assert all("no OTLP metrics message" in reason for reason in errors.values())
    wanted = rows_of(decode_one(data, row) for row, data in enumerate(mixed) if data and row not in errors)
    assert found == wanted


def test_damaged_payloads_are_read_alike_or_refused():
    chance = random.Random(714)
    refused = 0
    for data in [value for value in REAL.values() if len(value) < 3_000][:6]:
        for _ in range(40):
            damaged = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            cut = bytes(damaged[: chance.randint(1, len(damaged))])
            errors = {}
            found = rows_of(decode_all(pa.array([cut], pa.binary()), errors))
            try:
                wanted = slowly([cut])
            except InvalidPayloadError:
                refused += 1
                assert errors.keys() == {0} or found
            else:
                assert not errors
                assert found == wanted
    assert refused > 20
