"""What is asked besides: quotas tried on last week's usage, what batches and compression would save, SQL."""

import pytest

from kclient_quota.cli.main import main
from kclient_quota.spark.decode import points
from kclient_quota.spark.files import read_files
from kclient_quota.spark.jobs.backtest import COLUMNS
from kclient_quota.spark.jobs.gains import BATCH_BYTES, HEADERS, gains
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.pipeline import Plan, _counted, _untold, run
from kclient_quota.spark.views import answer, create_views
from tests.spark.pushes import BYTES, RATE, THROTTLE, push, steady, write
from tests.spark.test_pipeline_command import Kept

QUOTAS = "version: 1\nquotas:\n  - {names: {user: u}, set: {producer_byte_rate: 50000}}\n"
BATCH, RATIO, QUEUE = (f"producer.{name}.avg" for name in ("batch.size", "compression.rate", "record.queue.time"))
OWN = tuple(f"producer.quota.{name}.avg" for name in ("batch.size", "compression.rate", "queue.time"))
HEADER = 61


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """Usage of an hour of one user who does RATE, and of one who does a hundredth of it and is throttled."""
    folder = tmp_path_factory.mktemp("written")
    rows = steady(1, span_s=60)
    rows += [
        push(7, at_s, 60, {BYTES: RATE / 100 * 60, THROTTLE: 500.0}, user="v", client_id="small")
        for at_s in range(60, 3_601, 60)
    ]
    source = write(folder / "pushes", rows)
    (folder / "q.yaml").write_text(QUOTAS)
    run(spark, Plan("usage", source, str(folder / "usage"), source_format="pushes", quotas=str(folder / "q.yaml")))
    return folder


def test_quotas_are_tried_on_usage_that_was_written_before(spark, written, tmp_path):
    given = {"source_format": "usage", "quotas": str(written / "q.yaml")}
    said = run(spark, Plan("whatif", str(written / "usage"), str(tmp_path / "whatif"), **given))
    assert said == f"{tmp_path / 'whatif'}: 1 rows"
    (row,) = spark.read.parquet(str(tmp_path / "whatif")).collect()
    assert (row["user"], row["quota"], row["seconds"]) == ("u", 50_000.0, 3_600)
    assert row["throttled_ms"] > 3_000_000
    assert row["is_told"]
    run(spark, Plan("recommend", str(written / "usage"), str(tmp_path / "q.yaml"), source_format="usage"))
    assert "producer_byte_rate: 125952" in (tmp_path / "q.yaml").read_text()


@pytest.mark.parametrize(("form", "rows"), [("csv", 2), ("csv", 0), ("json", 0)])
def test_a_trial_is_counted_in_formats_that_name_no_columns(spark, tmp_path, form, rows):
    tried = [(None, "1", "producer", "user", "u", None, 1.0, 1.0, 60, 0.0, 9, 1, 99, n == 0) for n in range(rows)]
    spark.createDataFrame(tried, COLUMNS).coalesce(1).write.format(form).save(str(tmp_path / "out"))
    plan = Plan("whatif", "in", str(tmp_path / "out"), quotas="q.yaml", output_format=form, push_interval="20 s")
    count, said = _counted(spark, plan)
    assert count == rows
    assert [each.split(":")[0] for each in said] == ["1 of 2 quotas (by broker)"][:rows]


@pytest.mark.parametrize(("interval", "is_advised"), [("20 seconds", False), ("60 seconds", True), (None, True)])
def test_who_pushes_every_20_s_is_not_told_to(interval, is_advised):
    (said,) = _untold(Plan("usage", "in", "out", push_interval=interval), 1, 2, "those two")
    assert "clients may burst, or pushes were lost" in said
    assert ("every 20 s" in said) is is_advised


def told(spark, folder, clients):
    """Gains of clients that push `told` beside RATE bytes a second, by client-id."""
    rows = [
        push(n, at_s, 60, {BYTES: RATE * 60, **values}, client_id=f"app{n}")
        for n, values in enumerate(clients)
        for at_s in range(60, 601, 60)
    ]
    table = points(read_files(spark, write(folder / "pushes", rows), "pushes"))
    return {row["client_id"]: row for row in gains(table, usage(table)).collect()}


def test_small_batches_gain_by_waiting_and_large_ones_by_compression(spark, tmp_path):
    found = told(
        spark,
        tmp_path,
        [
            {BATCH: 200.0 + HEADER, RATIO: 0.4, QUEUE: 5.0},  # many small batches, compressed
            {BATCH: 16_000.0, RATIO: 1.0, QUEUE: 400.0},  # full ones, which are not
            {BATCH: 200.0 + HEADER, RATIO: 1.0, QUEUE: 5.0},  # neither
            {BATCH: 16_000.0, RATIO: 0.4, QUEUE: 400.0},  # nothing to gain
            {QUEUE: 0.03},  # librdkafka's
        ],
    )
    assert [found[f"app{n}"]["advice"] for n in range(5)] == ["batches", "compression", "both", "none", None]
    small, large, neither, full, unknown = (found[f"app{n}"] for n in range(5))
    assert small["overhead"] == pytest.approx(HEADERS / (200 + HEADERS))
    # a twentieth of the headers is left of records that wait for twenty times as long
    after = (1 + HEADERS / 4_000) / (1 + HEADERS / 200)
    assert small["by_batches"] == small["saved"] == pytest.approx(RATE * (1 - after))
    assert small["by_compression"] == 0
    # as far as those of the fleet that compress
    assert large["by_compression"] == pytest.approx(RATE * (1 - 0.4), rel=0.01)
    assert large["by_batches"] == pytest.approx(0)
    assert neither["saved"] > max(neither["by_batches"], neither["by_compression"])
    assert full["saved"] == pytest.approx(0, abs=1e-6)
    assert unknown["batch_bytes"] is None
    assert unknown["saved"] is None
    assert {row["byte_rate"] for row in found.values()} == {RATE}


def test_batches_grow_no_further_than_they_may(spark, tmp_path):
    found = told(spark, tmp_path, [{BATCH: 8_000.0, RATIO: 0.3, QUEUE: 1.0}])["app0"]
    after = (1 + HEADERS / (BATCH_BYTES - HEADER)) / (1 + HEADERS / (8_000 - HEADER))
    assert found["by_batches"] == pytest.approx(RATE * (1 - after))


def test_our_own_metrics_say_the_same_as_javas(spark, tmp_path):
    """Ours tell the bytes of records, and a ratio that holds all that the quota pays for."""
    records, compressed = 1_000.0, 400.0
    java = {BATCH: compressed + HEADER, RATIO: compressed / records, QUEUE: 20.0}
    ours = dict(zip(OWN, (records, (compressed + HEADERS) / records, 20.0), strict=True))
    found = told(spark, tmp_path, [java, ours])
    for name in ("batch_bytes", "ratio", "queue_ms", "overhead", "saved"):
        assert found["app1"][name] == pytest.approx(found["app0"][name])


def test_gains_is_a_job(spark, written, tmp_path):
    source = write(tmp_path / "pushes", [push(1, 60 * n, 60, {BYTES: RATE * 60, BATCH: 261.0}) for n in range(1, 5)])
    run(spark, Plan("gains", source, str(tmp_path / "out"), source_format="pushes", linger="200 ms"))
    (row,) = spark.read.parquet(str(tmp_path / "out")).collect()
    assert (row["client_id"], row["batch_bytes"]) == ("app", 261.0)
    nobody = Plan("gains", str(written / "pushes"), str(tmp_path / "nobody"), source_format="pushes")
    assert "no producer there tells of its batches" in run(spark, nobody)


def test_views_over_what_jobs_have_written(spark, written):
    names = create_views(spark, written)
    assert names == ["usage", "clients", "over_quota", "throttled_hours"]
    (row,) = spark.sql("select * from clients where user = 'v'").collect()
    assert (row["windows_throttled"], row["throttle_max_ms"]) == (60, 500.0)
    assert row["byte_rate_mean"] == pytest.approx(RATE / 100)
    over = spark.sql("select distinct quota_user, quota, utilisation, sharers from over_quota").collect()
    assert [tuple(each) for each in over] == [("u", 50_000.0, 2.0, 1)]
    hours = spark.sql("select sum(clients) as clients, max(throttle_max_ms) as most from throttled_hours").collect()
    assert (hours[0]["clients"] >= 1, hours[0]["most"]) == (True, 500.0)


def test_a_query_is_answered_as_text(spark, written, monkeypatch, capsys):
    monkeypatch.setattr("kclient_quota.spark.session.session", lambda *given: Kept(spark))
    query = "select user, byte_rate_mean from clients where byte_rate_mean is not null order by 2 desc"
    assert main(["pipeline", "sql", "--input", str(written), "--query", query]) == 0
    assert capsys.readouterr().out.split() == ["user", "byte_rate_mean", "u", "100,000.00", "v", "1,000.00"]
    assert "clients: user, client_id, role, windows," in answer(spark, written, None)
