"""What a pipeline does without being told: Kafka's own push interval, wrong clocks, old outputs, shared quotas."""

import json
import os
import time
from dataclasses import replace

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.spark.durations import duration_ms, told
from kclient_quota.spark.jobs.backtest import backtest
from kclient_quota.spark.jobs.throttled import throttled
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.quota_table import sharer_of
from kclient_quota.spark.reporting.tables import _session, _span
from kclient_quota.spark.streaming.checkpoint import take_output
from kclient_quota.spark.streaming.output import compact
from tests.spark.pushes import BEGIN_MS, BYTES, FIVE_S, RATE, THROTTLE, push, steady, write


@pytest.fixture(scope="module")
def five_minutes(tmp_path_factory):
    return write(tmp_path_factory.mktemp("five") / "pushes", steady(10))


@pytest.mark.parametrize("window", ["1 minute", "15 minutes"])
def test_ten_instances_that_push_every_five_minutes(spark, five_minutes, tmp_path, window):
    """Whatever the window: all ten, each with what it does."""
    plan = Plan("usage", five_minutes, str(tmp_path / "out"), source_format="pushes", window=window)
    run(spark, plan)
    rows = spark.read.parquet(plan.output)
    whole = rows.where(f"unix_millis(window_start) >= {BEGIN_MS + 900_000}")
    whole = whole.where(f"unix_millis(window_end) <= {BEGIN_MS + 3_000_000}").collect()
    assert len(whole) >= 2
    assert [row["byte_rate"] for row in whole] == pytest.approx([10 * RATE] * len(whole))


def test_what_is_recommended_then_serves(spark, five_minutes, tmp_path):
    plan = Plan("recommend", five_minutes, str(tmp_path / "q.yaml"), source_format="pushes")
    said = run(spark, plan)
    assert "clients push every 5 min; windows of 5 min" in said
    assert "producer_byte_rate: 1250304" in (tmp_path / "q.yaml").read_text().replace(".0", "")


def test_an_hour_of_throttling_is_one_session(spark, tmp_path):
    rows = [push(1, at_s, FIVE_S, {THROTTLE: 500.0}) for at_s in range(FIVE_S, 3601, FIVE_S)]
    source = write(tmp_path / "pushes", rows)
    plan = Plan("throttled", source, str(tmp_path / "out"), source_format="pushes")
    run(spark, plan)
    (row,) = (
        spark.read.parquet(plan.output).selectExpr("unix_millis(end) - unix_millis(start) as ms", "pushes").collect()
    )
    assert (row["ms"], row["pushes"]) == (3_600_000, 12)
    with pytest.raises(ConfigError, match=r"gap 2 minutes: clients push every 5 min.*write 10 min or more"):
        run(spark, Plan("throttled", source, str(tmp_path / "no"), source_format="pushes", gap="2 minutes"))
    assert throttled.__defaults__[0] is None


def test_one_clock_that_is_hours_ahead_empties_no_stream(spark, tmp_path):
    wrong = [push(99, 60, 60, {BYTES: 1.0}, client_id="wrong", skew_s=10_800)]
    source = write(tmp_path / "pushes", wrong)
    plan = Plan(
        *("usage", source, str(tmp_path / "out")),
        source_format="pushes",
        checkpoint=str(tmp_path / "c"),
    )
    run(spark, plan)
    write(tmp_path / "pushes", steady(2, span_s=60), "1.parquet")
    said = run(spark, plan)
    rows = spark.read.parquet(plan.output).where("client_id = 'app'").collect()
    assert len(rows) > 45
    assert "too late" not in said


def test_a_new_checkpoint_on_an_old_output_is_refused(spark, tmp_path):
    source = write(tmp_path / "pushes", steady(1, span_s=60))
    plan = Plan("usage", source, str(tmp_path / "out"), source_format="pushes", checkpoint=str(tmp_path / "c"))
    run(spark, plan)
    before = spark.read.parquet(plan.output).count()
    again = Plan("usage", source, str(tmp_path / "out"), source_format="pushes", checkpoint=str(tmp_path / "new"))
    with pytest.raises(ConfigError, match=r"out is not empty, and checkpoint .*new is new"):
        run(spark, again)
    run(spark, plan)
    assert spark.read.parquet(plan.output).count() == before > 0


def test_a_new_checkpoint_is_refused_where_a_stream_has_begun_that_has_written_nothing_yet(spark, tmp_path):
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    run(spark, Plan("points", str(quiet), str(tmp_path / "out"), checkpoint=str(tmp_path / "c")))
    source = write(tmp_path / "pushes", steady(1, span_s=60))
    another = Plan(
        "points", source, str(tmp_path / "out"), source_format="pushes", checkpoint=str(tmp_path / "another")
    )
    with pytest.raises(ConfigError, match=r"out is not empty, and checkpoint .*another is new"):
        run(spark, another)
    run(spark, Plan("points", str(quiet), str(tmp_path / "out"), checkpoint=str(tmp_path / "c")))


def test_two_streams_that_begin_on_one_empty_output_at_this_moment(spark, tmp_path, monkeypatch):
    source = write(tmp_path / "pushes", [push(1, 60, 60, {BYTES: 1.0})])
    monkeypatch.setattr("kclient_quota.spark.streaming.checkpoint._is_there", lambda *_: False)  # looked just before
    plan, other = (
        Plan("points", source, str(tmp_path / "out"), source_format="pushes", checkpoint=str(tmp_path / name))
        for name in ("c", "other")
    )
    run(spark, plan)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"out is not empty, and checkpoint .*other is new"):
            run(spark, other)
    run(spark, plan)
    assert spark.read.parquet(plan.output).count() == 1


def test_a_stream_that_begins_leaves_what_another_one_is_just_writing_there(spark, tmp_path):
    """Of two that begin at one moment the slower one ended in a FileNotFoundException of Java's."""
    unfinished = tmp_path / "out" / "_kclient-quota" / "_temporary" / "0"
    unfinished.mkdir(parents=True)
    take_output(spark, "c", str(tmp_path / "out"))
    assert unfinished.exists()
    take_output(spark, "c", str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="is all that is there, as two began at one moment, remove that"):
        take_output(spark, "other", str(tmp_path / "out"))


def test_dead_letters_of_a_stream(spark, tmp_path):
    good = steady(1, span_s=60)
    source = write(tmp_path / "pushes", [{**good[0], "value": b"\xff\xff"}, *good[1:]])
    letters = str(tmp_path / "letters")
    options = {"source_format": "pushes", "checkpoint": str(tmp_path / "c"), "dead_letters": letters}
    said = run(spark, Plan("usage", source, str(tmp_path / "out"), **options))
    assert "1 pushes could not be decoded" in said
    (row,) = spark.read.parquet(letters).collect()
    assert (bytes(row["payload"]), row["client_id"]) == (b"\xff\xff", "app")
    run(spark, Plan("usage", source, str(tmp_path / "out"), **options))
    assert spark.read.parquet(letters).count() == 1


def test_dead_letters_of_two_streams_in_one_place_are_refused(spark, tmp_path):
    good = steady(1, span_s=60)
    source = write(tmp_path / "pushes", [{**good[0], "value": b"\xff\xff"}, *good[1:]])
    plans = [
        Plan(
            *("usage", source, str(tmp_path / f"out{number}")),
            source_format="pushes",
            checkpoint=str(tmp_path / f"c{number}"),
            dead_letters=str(tmp_path / "letters"),
        )
        for number in range(2)
    ]
    run(spark, plans[0])
    with pytest.raises(ConfigError, match=r"letters is not empty, and checkpoint .*c1/dead-letters is new"):
        run(spark, plans[1])
    run(spark, replace(plans[1], dead_letters=str(tmp_path / "letters1")))
    assert [spark.read.parquet(str(tmp_path / name)).count() for name in ("letters", "letters1")] == [1, 1]


def timestamps_without_zone_change_none(spark, tmp_path, is_stream):
    """Of an application's own session: its `timestamp` has no time zone, and the windows would be off by that."""
    source = write(tmp_path / "pushes", steady(2, span_s=60))

    def windows(name):
        options = {"source_format": "pushes"} | ({"checkpoint": str(tmp_path / f"{name}-c")} if is_stream else {})
        plan = Plan("usage", source, str(tmp_path / name), **options)
        run(spark, plan)
        rows = spark.read.parquet(plan.output)
        return dict(rows.dtypes)["window_start"], sorted(r[0] for r in rows.select("window_start").distinct().collect())

    expected = windows("expected")
    assert expected[0] == "timestamp"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert windows("found") == expected
    finally:
        spark.conf.unset("spark.sql.timestampType")
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_session_whose_timestamps_have_no_zone_changes_none(spark, tmp_path):
    timestamps_without_zone_change_none(spark, tmp_path, is_stream=True)


QUOTA = 150_000.0
BY_USER = {"producer_byte_rate": {("u", None): QUOTA}}


def table_of(spark, rows, tmp_path):
    from kclient_quota.spark.decode import points
    from kclient_quota.spark.files import read_files

    return points(read_files(spark, write(tmp_path / "pushes", rows), "pushes"))


def test_utilisation_is_of_the_quota_and_not_of_a_group_or_client(spark, tmp_path):
    """Three groups at 100 kB/s, two of them of another client-id, share the user's 150 kB/s."""
    rows = [
        row
        for n, (client_id, group) in enumerate([("a", "g1"), ("b", "g2"), ("b", "g3")])
        for row in [
            {**each, "client_instance_id": f"i{n}"} for each in steady(1, span_s=60, client_id=client_id, group=group)
        ]
    ]
    found = usage(table_of(spark, rows, tmp_path), "1 minute", limits=BY_USER).collect()
    assert {(row["client_id"], row["group_id"]) for row in found} == {("a", "g1"), ("b", "g2"), ("b", "g3")}
    for row in found:
        assert row["byte_rate"] == pytest.approx(RATE)
        assert row["quota_byte_rate"] == pytest.approx(3 * RATE)
        assert row["utilisation"] == pytest.approx(2.0)
        assert (row["quota_user"], row["quota_client_id"]) == ("u", None)


@pytest.mark.parametrize("clients", [1, 10])
def test_a_quota_is_tried_on_all_who_share_it(spark, tmp_path, clients):
    """A user's quota of 500 kB/s: one client-id at 100 kB/s has room, ten have not; and minutes are played once."""
    rows = [
        {**each, "client_instance_id": f"i{n}", "client_id": f"app{n}"}
        for n in range(clients)
        for each in steady(1, span_s=60, group=f"g{n % 2}")
    ]
    table = usage(table_of(spark, rows, tmp_path), "1 minute").where(
        f"unix_millis(window_start) < {BEGIN_MS + 300_000}"
    )
    (row,) = backtest(table, {"producer_byte_rate": {("u", None): 500_000.0}}).collect()
    assert (row["user"], row["client_id"], row["seconds"], row["clients"]) == ("u", None, 300, clients)
    if clients == 1:
        assert row["throttles"] == row["throttled_ms"] == row["highest_ms"] == 0
    else:
        assert row["throttled_ms"] > 0.8 * 295_000
        assert row["lowest_ms"] <= row["throttled_ms"] <= row["highest_ms"]


def test_what_if_is_a_job(spark, tmp_path):
    (tmp_path / "q.yaml").write_text("version: 1\nquotas:\n  - {names: {user: u}, set: {producer_byte_rate: 50000}}\n")
    source = write(tmp_path / "pushes", steady(1, span_s=60))
    options = {"source_format": "pushes", "quotas": str(tmp_path / "q.yaml")}
    run(spark, Plan("whatif", source, str(tmp_path / "out"), **options))
    (row,) = spark.read.parquet(str(tmp_path / "out")).collect()
    assert (row["user"], row["quota"], row["quota_level"]) == ("u", 50_000.0, "{user=u}")
    assert row["throttled_ms"] > 3_000_000


@pytest.mark.parametrize(("threads", "part"), [(10, 1.0), (1, 0.25)])
def test_parallel_waits_are_no_longer_than_the_time_there_was(spark, tmp_path, threads, part):
    """Ten threads that wait all the time wait one minute a minute, and nothing of it in the windows before."""
    wait = "producer.quota.wait.time.total"
    rows = [push(1, at_s, 60, {wait: 60_000.0 * threads * part if at_s > 600 else 0.0}) for at_s in range(60, 1201, 60)]
    found = (
        usage(table_of(spark, rows, tmp_path), "1 minute").selectExpr("unix_millis(window_start) as at", "*").collect()
    )
    waits = {(row["at"] - BEGIN_MS) // 60_000: row["wait_total_ms"] for row in found}
    assert waits == pytest.approx({n: 60_000.0 * part if n >= 10 else 0.0 for n in range(20)})


def test_throttling_that_lasts_longer_than_the_push_goes_on_after_it(spark, tmp_path):
    total = "producer.produce.throttle.time.total"
    rows = [push(1, at_s, 60, {total: 150_000.0 if at_s == 120 else 0.0}) for at_s in range(60, 601, 60)]
    found = (
        usage(table_of(spark, rows, tmp_path), "1 minute").selectExpr("unix_millis(window_start) as at", "*").collect()
    )
    spent = {(row["at"] - BEGIN_MS) // 60_000: row["throttle_total_ms"] for row in found}
    assert spent == pytest.approx({n: {1: 60_000.0, 2: 60_000.0, 3: 30_000.0}.get(n, 0.0) for n in range(10)})


def test_a_lost_push_is_made_up_for_and_a_restart_is_not(spark, tmp_path):
    kept = [row for row in steady(1) if (row["received_unix_ms"] - BEGIN_MS) // 1000 not in {1_500, 1_800}]
    found = usage(table_of(spark, kept, tmp_path), "5 minutes").collect()
    assert [row["byte_rate"] for row in found] == pytest.approx([RATE] * 12)
    other = {**push(2, 3_900, 150, {BYTES: RATE * 150}), "push_interval_ms": 300_000}
    found = usage(table_of(spark, [*kept, other], tmp_path), "5 minutes").orderBy("window_start").collect()
    assert [row["byte_rate"] for row in found] == pytest.approx([RATE] * 12 + [RATE / 2])


def test_directories_files_tables_and_compaction(spark, tmp_path):
    source = write(tmp_path / "pushes", steady(2, span_s=60))
    options = {"source_format": "pushes", "partition_by": ("date", "hour"), "files": 2}
    run(spark, Plan("usage", source, str(tmp_path / "out"), **options))
    assert [path.name for path in (tmp_path / "out").glob("date=*/hour=*")] == ["hour=8"]
    assert len(list((tmp_path / "out").glob("date=2027-01-15/hour=8/*.parquet"))) <= 2
    rows = spark.read.parquet(str(tmp_path / "out"))
    rows.repartition(3).write.partitionBy("date", "hour").parquet(str(tmp_path / "many"))
    assert compact(spark, str(tmp_path / "many"), str(tmp_path / "few")).endswith(": 1 files of what were 3")
    assert len(list((tmp_path / "few").glob("date=2027-01-15/hour=8/*.parquet"))) == 1
    assert spark.read.parquet(str(tmp_path / "few")).count() == rows.count() > 0
    run(spark, Plan("usage", source, "used_by_minute", source_format="pushes", is_table=True))
    assert spark.table("used_by_minute").count() == 60
    with pytest.raises(ConfigError, match="partition by planet: usage has no such column; there are date, hour"):
        run(spark, Plan("usage", source, str(tmp_path / "no"), source_format="pushes", partition_by=("planet",)))
    with pytest.raises(ConfigError, match="output format delta: this session has no such data source"):
        run(spark, Plan("usage", source, str(tmp_path / "no"), source_format="pushes", output_format="delta"))
    spark.sql("drop table used_by_minute")


def test_times_are_utc_wherever_the_driver_is(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert _span(BEGIN_MS, BEGIN_MS + 60_000) == "2027-01-15 08:00 to 08:01 UTC"
        assert _span(BEGIN_MS, BEGIN_MS + 86_400_000) == "2027-01-15 08:00 to 2027-01-16 08:00 UTC"
        row = {"user": "u", "client_id": "c", "role": "producer", "start_ms": BEGIN_MS, "end_ms": BEGIN_MS + 5_000}
        row |= {"depth_ms": 1.0, "quota_level": None, "group_id": None, "heartbeat_headroom_ms": None}
        told_row = _session(row)
        assert (told_row["since, UTC"], told_row["until, UTC"]) == ("2027-01-15 08:00:00", "2027-01-15 08:00:05")
    finally:
        monkeypatch.undo()
        os.environ.pop("TZ", None)
        time.tzset()


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("5 minutes", 300_000), ("90s", 90_000), ("1 hour 30 minutes", 5_400_000), ("interval 2 days", 172_800_000)],
)
def test_lengths_of_time(text, length_ms):
    assert duration_ms("window", text) == length_ms


@pytest.mark.parametrize("text", ["", "5", "minutes", "5 months", "1.5 hours", "-1 s"])
def test_what_is_no_length_of_time(text):
    with pytest.raises(ConfigError, match=r"window .*: write whole numbers with units"):
        duration_ms("window", text)


def test_lengths_are_told_in_their_largest_unit():
    assert [told(each) for each in (300_000, 20_000, 1_500, 3_600_000)] == ["5 min", "20 s", "1.5 s", "1 h"]


def test_who_shares_a_quota():
    from kclient_quota.quota.entity import DEFAULT

    assert sharer_of(("u", None), "u", "c") == sharer_of((DEFAULT, None), "u", "c") == ("u", None)
    assert sharer_of((None, DEFAULT), "u", "c") == (None, "c")
    assert sharer_of((DEFAULT, DEFAULT), "u", "c") == ("u", "c")
    assert json.dumps(sharer_of(("u", "c"), "u", "c")) == '["u", "c"]'
