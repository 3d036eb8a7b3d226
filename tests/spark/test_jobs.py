"""Jobs on what a receiver wrote, against plain Python over the same files."""

import dataclasses
import json
import math
from collections import defaultdict
from itertools import pairwise
from statistics import fmean

import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter

from kclient_quota.admin.quota_file import parse_quota_file
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.spark.decode import dead_letters, points
from kclient_quota.spark.files import read_files
from kclient_quota.spark.jobs.recommend import Policy
from kclient_quota.spark.measures import as_cumulative, as_delta
from kclient_quota.spark.pipeline import Plan, run
from tests.spark.receiving import BEGIN_MS, EVERY_MS, Client, ToFiles, receive

PUSHES = 13
MINUTE = 60_000
RATE = "org.apache.kafka.producer.node.outgoing.byte.rate"
TOTAL = "org.apache.kafka.producer.node.outgoing.byte.total"
QUOTAS = """
version: 1
quotas:
  - {defaults: [client-id], set: {producer_byte_rate: 2000}}
  - {names: {user: u2, client-id: app2}, set: {producer_byte_rate: 500}}
"""


def clients():
    made = [Client(n, f"app{n}", f"u{n % 3}", 1_000 * (n + 1), delta=n % 2 == 0) for n in range(6)]
    made.append(Client(6, "app0", "u0", 4_000))  # shares app0's quota
    made.append(Client(7, "app7", "u1", 90_000, throttled=lambda push: 700.0 if push in {2, 3, 4, 11} else 0.0))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("received")
    lines, parquet = JsonLinesWriter(path / "jsonl"), ParquetWriter(path / "parquet")
    receive(clients(), PUSHES, [ToFiles(lines), ToFiles(parquet)])
    lines.close()
    parquet.close()
    with (path / "jsonl" / "broken.jsonl").open("w") as file:
        file.write('{"metric": "cut short\n')
    (path / "quotas.yaml").write_text(QUOTAS)
    return path


@pytest.fixture(scope="module")
def lines(folder):
    found = []
    for path in sorted((folder / "jsonl").glob("telemetry-*.jsonl")):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def window_of(row):
    """Of the twenty seconds before the push."""
    at_ms = row["time_unix_nano"] // 1_000_000 - EVERY_MS
    return at_ms - at_ms % MINUTE


def rates(lines):
    """(window, user, client_id, broker) -> byte rate: what was counted, else the rate told, over the whole minute."""
    told, counted = {}, {}
    last = {}
    for row in lines:
        if row["metric"] not in {RATE, TOTAL}:
            continue
        broker = row["attributes"]["node_id"].removeprefix("node-")
        who = (row["principal"].removeprefix("User:"), row["client_id"], broker)
        key = (window_of(row), row["time_unix_nano"], *who, row["client_instance_id"])
        if row["metric"] == RATE:
            told[key] = row["value"] * EVERY_MS / 1000
        elif row["temporality"] == "delta":
            counted[key] = row["value"]
        else:
            if key[2:] in last:
                counted[key] = row["value"] - last[key[2:]]
            last[key[2:]] = row["value"]
    together = defaultdict(float)
    for (window, _, *who, _), value in (told | counted).items():
        together[window, *who] += value / 60
    return together


@pytest.fixture(scope="module")
def used(spark, folder):
    target = folder / "usage"
    said = run(spark, Plan("usage", str(folder / "jsonl"), str(target), quotas=str(folder / "quotas.yaml")))
    rows = spark.read.parquet(str(target)).collect()
    assert said == f"{target}: {len(rows)} rows\nclients push every 20 s; windows of 1 min"
    return rows


def test_both_kinds_of_files_are_the_same_table(spark, folder, lines):
    tables = [points(read_files(spark, str(folder / kind), kind)).collect() for kind in ("jsonl", "parquet")]
    assert len(tables[0]) == len(lines)
    assert sorted(map(repr, tables[0])) == sorted(map(repr, tables[1]))
    (letter,) = dead_letters(read_files(spark, str(folder / "jsonl"), "jsonl")).collect()
    assert bytes(letter["payload"]).startswith(b'{"metric": "cut')


def test_usage_is_what_python_counts(used, lines):
    wanted = rates(lines)
    found = {
        (round(row["window_start"].timestamp() * 1000), row["user"], row["client_id"], row["broker"]): row["byte_rate"]
        for row in used
        if row["broker"]
    }
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted)
    assert {row["clients"] for row in used if row["client_id"] == "app0"} == {2}


def test_utilisation_is_against_the_quota_that_applies(used):
    decided = {(row["client_id"], row["quota"], row["quota_level"]) for row in used}
    assert ("app2", 500.0, "{user=u2, client-id=app2}") in decided
    assert {(quota, level) for client, quota, level in decided if client != "app2"} == {
        (2000.0, "{client-id=<default>}")
    }
    for row in used:
        if row["byte_rate"] is not None:
            assert row["utilisation"] == row["byte_rate"] / row["quota"] == row["quota_byte_rate"] / row["quota"]


def test_throttled_sessions(spark, folder):
    target = str(folder / "throttled")
    run(spark, Plan("throttled", str(folder / "jsonl"), target, quotas=str(folder / "quotas.yaml")))
    rows = sorted(spark.read.parquet(target).collect(), key=lambda row: row["start"])
    at = lambda push: BEGIN_MS + (push + 1) * EVERY_MS  # noqa: E731
    assert [(row["client_id"], row["pushes"], row["depth_ms"], row["throttle_avg_ms"]) for row in rows] == [
        ("app7", 3, 700.0, 350.0),
        ("app7", 1, 700.0, 350.0),
    ]
    spans = [(row["start"].timestamp() * 1000, row["end"].timestamp() * 1000) for row in rows]
    assert spans == [(at(2) - EVERY_MS, at(4)), (at(11) - EVERY_MS, at(11))]
    assert {row["quota_level"] for row in rows} == {"{client-id=<default>}"}


def test_outliers(spark, folder, lines):
    target = str(folder / "outliers")
    run(spark, Plan("outliers", str(folder / "jsonl"), target, k=2, capacity=100_000.0))
    found = defaultdict(list)
    for row in spark.read.parquet(target).collect():
        if row["broker"]:
            found[round(row["window_start"].timestamp() * 1000), row["broker"]].append(row)
    wanted = defaultdict(list)
    for (window, _, client, broker), rate in rates(lines).items():
        wanted[window, broker].append((rate, client))
    assert found.keys() == wanted.keys()
    for place, rows in found.items():
        ranked = sorted(wanted[place], reverse=True)
        rows.sort(key=lambda row: row["rank"])
        assert [row["client_id"] for row in rows] == [client for _, client in ranked[:2]]
        assert [row["share"] for row in rows] == pytest.approx([rate / 100_000 for rate, _ in ranked[:2]])
        assert {math.isclose(row["containing_quota"], ranked[2][0]) for row in rows} == {True}
        assert {row["neighbours"] for row in rows} == {len(ranked)}


def nearest_rank(values, part):
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)), 1) - 1]


def test_recommendations_are_a_file_for_kafka_quotas(spark, folder, lines):
    target = folder / "recommended.yaml"
    policy = Policy(quantile=0.8, headroom=1.5, default_quantile=0.7)
    said = run(spark, Plan("recommend", str(folder / "jsonl"), str(target), policy=policy))
    assert "kafka-quotas plan" in said
    demand = defaultdict(lambda: defaultdict(float))
    for (window, _, client, _), rate in rates(lines).items():
        demand[client][window] = max(demand[client][window], rate)
    part = defaultdict(list)
    for row in lines:
        if row["metric"].endswith("produce.throttle.time.avg") and row["client_id"] == "app7":
            part[window_of(row)].append(row["value"] * 2.0 / 1000)
    for window, values in part.items():
        demand["app7"][window] /= 1 - min(fmean(values), 0.75)
    wanted = {
        client: max(math.ceil(nearest_rank(of.values(), 0.8) * 1.5 / 1024), 1) * 1024.0 for client, of in demand.items()
    }
    default = nearest_rank(wanted.values(), 0.7)
    entities = {ClientQuotaEntity.of(client_id=DEFAULT): default}
    entities |= {ClientQuotaEntity.of(client_id=name): value for name, value in wanted.items() if value > default}
    file = parse_quota_file(target.read_text(), "recommended.yaml")
    found = {entry.entity: {str(quota): value for quota, value in entry.wanted.items()} for entry in file.entries}
    assert found == {entity: {"producer_byte_rate:broker_bps": value} for entity, value in entities.items()}
    assert 1 < len(found) < len(wanted)


def tried_on_time_held_out(spark, folder, tmp_path, policy):
    """What is said of recommendations that were made of the first three fifths of the time."""
    plan = Plan("recommend", str(folder / "jsonl"), str(tmp_path / "q.yaml"), hold_out=0.4, policy=policy)
    return run(spark, plan).splitlines()[1]


def test_recommendations_are_tried_on_time_held_out(spark, folder, tmp_path):
    wide = Policy(quantile=1.0, headroom=3.0, default_quantile=1.0)
    said = tried_on_time_held_out(spark, folder, tmp_path, wide)
    assert said.startswith("tried on the time held out: 0 of 14 quotas (by broker) throttled, 0 of ")
    plan = Plan("recommend", str(folder / "jsonl"), "/nowhere/q.yaml")
    with pytest.raises(ConfigError, match=r"output /nowhere/q.yaml: No such file.*; recommend writes one file"):
        run(spark, plan)
    with pytest.raises(ConfigError, match="hold_out"):
        dataclasses.replace(plan, hold_out=1.0)


def test_cumulative_sums_as_deltas_and_back(spark, folder, lines):
    table = points(read_files(spark, str(folder / "parquet"), "parquet"))
    is_total = "metric like '%byte.total'"
    deltas = as_delta(table).where(is_total).collect()
    assert {row["temporality"] for row in deltas} == {"delta"}
    series = defaultdict(list)
    for row in lines:
        if row["metric"].endswith("byte.total"):
            key = (row["client_instance_id"], row["attributes"]["node_id"])
            series[key].append((row["time_unix_nano"] // 1_000_000, row["value"], row["temporality"]))
    wanted = set()
    for key, rows in series.items():
        rows.sort()
        wanted |= {(key, at, value) for at, value, kind in rows if kind == "delta"}
        pairs = [(a, b) for a, b in pairwise(rows) if a[2] == "cumulative"]
        wanted |= {(key, at, value - last) for (_, last, _), (at, value, _) in pairs}
    key_of = lambda row: (row["client_instance_id"], row["attributes"]["node_id"])  # noqa: E731
    assert {(key_of(row), row["time_ms"], row["value"]) for row in deltas} == wanted
    last = {key: max(rows)[1] for key, rows in series.items() if rows[0][2] == "cumulative"}
    assert len(last) == 6
    sums = as_cumulative(as_delta(table)).where(is_total).groupBy("client_instance_id", "attributes.node_id")
    ends = {(row[0], row[1]): row[2] for row in sums.agg({"value": "max"}).collect()}
    assert all(ends[key] == last[key] - min(series[key])[1] for key in last)


def test_a_counter_that_begins_anew(spark):
    rows = [(1, 0, 10.0), (2, 0, 25.0), (3, 2, 4.0), (4, 3, 30.0), (5, 3, 45.0)]
    frame = spark.createDataFrame(
        [("i", "c", "m", {}, "sum", "cumulative", start, at, value) for at, start, value in rows],
        "client_instance_id string, client_id string, metric string, attributes map<string,string>, kind string, "
        "temporality string, start_ms long, time_ms long, value double",
    ).selectExpr("*", "timestamp_millis(time_ms) as time")
    found = sorted((row["time_ms"], row["start_ms"], row["value"]) for row in as_delta(frame).collect())
    assert found == [(2, 1, 15.0), (3, 2, 4.0), (4, 3, 30.0), (5, 4, 15.0)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": "nothing"}, "write one of points, usage"),
        ({"source": "/nowhere"}, "no such directory"),
        ({"quotas": "/nowhere.yaml"}, "kafka-quotas export"),
        ({"source_format": "csv"}, "write one of jsonl"),
        ({"source_format": "pushes", "source": "parquet"}, "no binary of pushes"),
        ({"job": "recommend", "checkpoint": "/nowhere"}, "without a checkpoint"),
        ({"window": "a while"}, "a while"),
        ({"output": "parquet"}, "already exists"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(spark, folder, tmp_path, changes, words):
    given = {"job": "usage", "source": str(folder / "jsonl"), "output": str(tmp_path / "out"), **changes}
    for name in ("source", "output"):
        if given[name] == "parquet":
            given[name] = str(folder / "parquet")
    with pytest.raises(ConfigError, match=words):
        run(spark, Plan(**given))
