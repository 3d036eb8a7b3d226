"""A row a push, and clients added up window by window, against plain Python; a stream of pushes against the batch."""

import datetime as dt
import math
import random
import re
from collections import Counter, defaultdict
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode

from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.decoding.point_rows import ALL, seconds_of
from kclient_quota.spark.decoding.push_rows import push_rows
from kclient_quota.spark.decoding.schema import ddl
from kclient_quota.spark.files import read_files
from kclient_quota.spark.jobs import closed_windows
from kclient_quota.spark.jobs.closed_windows import HIGHEST, MEANS, SUMS, WHO, WINDOW
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import MEASURED, METRICS, PUSHED, SPANS
from kclient_quota.spark.pipeline import Plan, run

QUOTA = ("quota_key", "quota", "quota_level", "quota_user", "quota_client_id")
BEGIN_MS = 1_800_000_000_000
MINUTE_MS = 60_000
CLIENTS = [f"c{number}" for number in range(4)]
SOME = ("org.apache.kafka.producer.node.outgoing.byte.rate", *sorted(METRICS)[:6])


@st.composite
def found_points(draw):
    kind, temporality = draw(st.sampled_from([("gauge", None), ("sum", "delta"), ("sum", "cumulative")]))
    at_ms = draw(st.sampled_from([None, BEGIN_MS, BEGIN_MS + 1]))
    return {
        "row": draw(st.integers(0, len(CLIENTS) - 1)),
        "metric": draw(st.sampled_from(SOME)),
        "kind": kind,
        "temporality": temporality,
        "start_ms": draw(st.sampled_from([None, BEGIN_MS - 5_000, BEGIN_MS + 1])),
        "time_ms": at_ms,
        "value": draw(st.one_of(st.none(), st.integers(0, 9).map(float))),
        "attributes.node_id": draw(st.sampled_from([None, "node-1", "node-2"])),
    }


@given(st.lists(found_points(), max_size=40), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_value_is_in_one_row_of_its_push(found, is_received):
    known = {"client_id": pa.array(CLIENTS), "user": pa.array(["u"] * len(CLIENTS))}
    if is_received:
        known["received_ms"] = pa.array([BEGIN_MS + 7] * len(CLIENTS))
    schema = PUSHED.wanted(known).schema
    batches = [pa.RecordBatch.from_pylist(part, schema) for part in (found[:13], found[13:]) if part]
    table = push_rows(batches, known, PUSHED)
    assert table.schema == PUSHED.decoded
    wanted, told = Counter(), Counter()
    for each in found:
        at_ms = each["time_ms"] or (BEGIN_MS + 7 if is_received else None)
        if each["value"] is None or at_ms is None or each["temporality"] == "cumulative":
            continue
        role, measure = METRICS[each["metric"]]
        broker = (each["attributes.node_id"] or "").removeprefix("node-") or None
        seconds = None
        if measure in SPANS and each["time_ms"] and each["start_ms"] and each["time_ms"] > each["start_ms"]:
            seconds = (each["time_ms"] - each["start_ms"]) / 1000
        wanted[CLIENTS[each["row"]], "u", role, broker, at_ms, measure, each["value"], seconds] += 1
    for row in table.to_pylist():
        at_ms = round(row["time"].timestamp() * 1000)
        who = (row["client_id"], row["user"], row["role"], row["broker"], at_ms)
        cells = [(name, row[name]) for name in PUSHED.values if row[name] is not None]
        assert cells
        for name, value in cells:
            told[(*who, name, value, row[seconds_of(name)] if name in SPANS else None)] += 1
    assert told == wanted
    groups = {key[:5] for key in wanted}
    most = Counter(key[:6] for key in wanted.elements())
    rows = Counter(
        (row["client_id"], row["user"], row["role"], row["broker"], round(row["time"].timestamp() * 1000))
        for row in table.to_pylist()
    )
    assert rows == {group: max(n for key, n in most.items() if key[:5] == group) for group in groups}


@pytest.mark.parametrize("many", [1, 10, 50_000])
def test_clients_of_a_quota_are_added_up_in_however_many_steps(monkeypatch, many):
    monkeypatch.setattr(closed_windows, "_MANY", many)
    chance = random.Random(7)
    numbers = (*SUMS, *MEANS, *HIGHEST)
    rows = []
    for _ in range(300):
        start = BEGIN_MS + chance.randrange(2) * MINUTE_MS
        row = {"window_start": start * 1000, "window_end": (start + MINUTE_MS) * 1000}
        row |= {name: chance.choice([None, "a", "b"]) if name == "client_id" else None for name in WHO}
        row |= dict.fromkeys(QUOTA) | {"quota": 4.0, "quota_user": chance.choice("xy"), "clients": 1}
        row["sender"] = chance.randrange(3)
        rows.append(row | {name: chance.choice([None, chance.random()]) for name in numbers})
    times, texts, doubles = pa.timestamp("us", "UTC"), pa.string(), pa.float64()
    kinds = {**dict.fromkeys(WINDOW, times), **dict.fromkeys((*WHO, *QUOTA), texts), **dict.fromkeys(numbers, doubles)}
    kinds |= {"quota": doubles, "clients": pa.int64(), "sender": pa.int32()}
    table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    added = closed_windows._add_up(iter(table.to_batches(max_chunksize=17)))
    found = [row for batch in added for row in batch.to_pylist()]
    groups, shared, keys = defaultdict(list), defaultdict(float), (*WINDOW, *WHO, "quota_user")
    for row in table.to_pylist():
        groups[tuple(row[name] for name in keys)].append(row)
        if row["byte_rate"] is not None:
            shared[row["window_start"], row["quota_user"]] += row["byte_rate"]
    assert {tuple(row[name] for name in keys) for row in found} == groups.keys()
    assert len(found) == len(groups)
    for row in found:
        members = groups[tuple(row[name] for name in keys)]
        together = None if row["byte_rate"] is None else shared[row["window_start"], row["quota_user"]]
        assert row["quota_byte_rate"] == pytest.approx(together)
        assert row["utilisation"] == (None if together is None else pytest.approx(together / 4.0))
        assert row["clients"] == len(members)
        seats = Counter(each["sender"] for each in members)
        told = None if row["senders"] is None else {one["sender"]: one["clients"] for one in row["senders"]}
        assert told == (dict(sorted(seats.items())) if len(members) > 1 else None)
        for names, way in ((SUMS, math.fsum), (MEANS, fmean), (HIGHEST, max)):
            for name in names:
                known = [each[name] for each in members if each[name] is not None]
                assert math.isclose(row[name], way(known)) if known else row[name] is None
    assert list(closed_windows._add_up(iter(()))) == []


def push(number, minute):
    """A client's push at some moment of a minute: gauges and deltas of two brokers, throttling of all of it."""
    at_ms = BEGIN_MS + minute * MINUTE_MS + 5_000 + number * 100
    made = []

    def add(name, value, kind=MetricKind.GAUGE, node=None):
        key = PointKey(f"org.apache.kafka.{name}", (("node_id", node),) if node else ())
        start = at_ms - MINUTE_MS if kind is MetricKind.SUM else None
        made.append(PushPoint(Point(key, kind, value), value, start, at_ms, delta=kind is MetricKind.SUM))

    for node in ("node-1", "node-2"):
        if number % 3:
            add("producer.node.outgoing.byte.rate", 100.0 * number + minute, node=node)
        else:
            add("producer.node.outgoing.byte.total", 3_000.0 * (number + 1), MetricKind.SUM, node)
        add("producer.node.request.total", 60.0 + number, MetricKind.SUM, node)
    add("producer.produce.throttle.time.avg", 2.5 * number)
    add("producer.produce.throttle.time.max", 9.0 * number)
    add("producer.quota.wait.time.total", 40.0 * number, MetricKind.SUM)
    return encode(made, (), 0).payload


def write(folder, name, pushes):
    """(client, minute) -> a file of raw pushes; two clients share a quota."""
    folder.mkdir(exist_ok=True)
    columns = {
        "value": [push(number, minute) for number, minute in pushes],
        "client_instance_id": [f"i{number}" for number, _ in pushes],
        "client_id": [f"app{number % 5}" for number, _ in pushes],
        "principal": ["User:u"] * len(pushes),
        "received_unix_ms": [BEGIN_MS + minute * MINUTE_MS for _, minute in pushes],
        "push_interval_ms": [MINUTE_MS] * len(pushes),
    }
    pq.write_table(pa.table(columns), folder / name)


def rows_of(frame):
    """Everything that usage says, by window and client."""
    found = {}
    for row in frame.toArrow().to_pylist():
        found[tuple(row.pop(name) for name in (*WINDOW, *WHO))] = row
    assert len(found) == frame.count()
    return found


def same(found, wanted, *, at_most=()):
    """Whether rows are equal; columns of `at_most` may be less in those that were found."""
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            other = found[key][name]
            if name in at_most and other is not None and value is not None:
                assert 0.0 <= other <= value * (1 + 1e-9), (key, name)
                continue
            assert math.isclose(other, value) if isinstance(value, float) else other == value, (key, name)


def test_usage_of_pushes_is_usage_of_points(spark, real_payloads):
    rows = [(data, kind, f"client-{name[:6]}") for name, data, kind in real_payloads]
    frame = spark.createDataFrame(rows, "value binary, compression_type int, client_id string")
    wanted = rows_of(usage(points(decode(frame, MEASURED))).cache())
    assert len(wanted) > 5
    same(rows_of(usage(points(decode(frame, PUSHED))).cache()), wanted)


@pytest.mark.parametrize("shape", [ALL, MEASURED, PUSHED], ids=["all", "measured", "pushed"])
def test_a_bootstrap_connection_is_not_the_client_as_a_whole(spark, shape):
    """Java tells a few bytes of node--1, a moment apart from the sum of all: its rate was halved by them."""
    made = []
    for name, node, value, at_ms in (
        ("producer.outgoing.byte.total", None, 600_140.0, BEGIN_MS + MINUTE_MS),
        ("producer.node.outgoing.byte.total", "node-1", 600_000.0, BEGIN_MS + MINUTE_MS),
        ("producer.node.outgoing.byte.total", "node--1", 140.0, BEGIN_MS + MINUTE_MS - 1),
    ):
        key = PointKey(f"org.apache.kafka.{name}", (("node_id", node),) if node else ())
        point = Point(key, MetricKind.SUM, value)
        made.append(PushPoint(point, value, BEGIN_MS, at_ms, delta=True))
    frame = spark.createDataFrame(
        [(encode(made, (), 0).payload, "i", "app")], "value binary, client_instance_id string, client_id string"
    )
    found = usage(points(decode(frame, shape))).select("broker", "clients", "byte_rate").collect()
    assert {row["broker"]: row["byte_rate"] for row in found} == {
        None: pytest.approx(600_140 / 60),
        "1": pytest.approx(10_000),
    }


@pytest.mark.timeout(420)
def test_a_stream_of_pushes_is_the_batch_but_for_what_came_too_late(spark, tmp_path):
    """Three runs of one checkpoint; in the second come pushes late, but not too late, in the third some too late."""
    source, target = tmp_path / "source", tmp_path / "usage"
    clients = range(7)
    early = [(number, minute) for minute in range(4) for number in clients if (number, minute) != (2, 3)]
    later = [(2, 3), *((number, minute) for minute in range(4, 8) for number in clients)]
    too_late = [(0, 0), (3, 1)]
    last = [(number, minute) for minute in range(8, 10) for number in clients]
    plan = Plan(
        "usage", str(source), str(target), source_format="pushes", checkpoint=str(tmp_path / "c"), late="30 seconds"
    )
    for number, pushes in enumerate((early, later, too_late + last)):
        write(source, f"{number}.parquet", pushes)
        said = run(spark, plan)
    assert re.search(r"[1-9]\d* rows came too late for their windows and were dropped: raise --late", said)
    write(tmp_path / "in-time", "all.parquet", early + later + last)
    whole = usage(points(read_files(spark, str(tmp_path / "in-time"), "pushes", shape=MEASURED)))
    wanted = rows_of(whole.where(f"unix_millis(window_start) < {BEGIN_MS + 7 * MINUTE_MS}").cache())
    assert {row["clients"] for row in wanted.values()} == {1, 2}
    # A stream does not compare a push with the one before: what it says of its error is within the batch's.
    same(rows_of(spark.read.parquet(str(target))), wanted, at_most=("byte_rate_error",))


@pytest.mark.parametrize("waited_ms", [900_000.0, 1_200_000.0, 1e19])
@pytest.mark.parametrize("name", ["wait_total_ms", "wait_wall_ms", "throttle_total_ms"])
def test_a_push_that_waited_very_long_keeps_its_own_windows(spark, name, waited_ms):
    told = {
        "client_instance_id": "i",
        "client_id": "c",
        "time": dt.datetime.fromtimestamp(BEGIN_MS / 1000, dt.UTC),
        "role": "producer",
        "bytes": 60_000.0,
        "bytes_s": 60.0,
        name: waited_ms,
    }
    rows = [tuple(told.get(field) for field in PUSHED.schema.names)]
    found = usage(spark.createDataFrame(rows, ddl(PUSHED.schema)), "1 second").where("byte_rate > 0").collect()
    assert sum(row["byte_rate"] for row in found) == pytest.approx(60_000)
    assert len(found) == 60
