"""What tests of `tests/spark` assert in one cell, in the others: of a job, of a size, of a batch."""

from datetime import timedelta

import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter

from kclient_quota.spark.jobs.recommend import Policy
from kclient_quota.spark.pipeline import Plan, run
from tests.spark.receiving import BEGIN_MS, EVERY_MS, receive
from tests.spark.test_bad_input import no_dead_letters_for_the_next_try
from tests.spark.test_demand import add_up_to_no_more_than
from tests.spark.test_jobs import PUSHES, clients, folder, tried_on_time_held_out, used
from tests.spark.test_right_by_default import timestamps_without_zone_change_none

__all__ = ["folder", "used"]


def test_recommend_that_failed_leaves_no_dead_letters_for_the_next_try(spark, tmp_path):
    no_dead_letters_for_the_next_try(spark, tmp_path, "recommend")


def test_quotas_of_a_broker_add_up_to_no_more_than_it_can_do(spark):
    add_up_to_no_more_than(spark, 80_000)


def test_tight_recommendations_are_tried_on_time_held_out(spark, folder, tmp_path):
    tight = Policy(quantile=0.01, headroom=1.0, default_quantile=1.0)
    assert " of 14 quotas" in tried_on_time_held_out(spark, folder, tmp_path, tight)


def test_a_session_whose_timestamps_have_no_zone_changes_no_batch(spark, tmp_path):
    timestamps_without_zone_change_none(spark, tmp_path, is_stream=False)


class Part:
    """Keeps the first half (0) or the second half (1) of the pushes."""

    def __init__(self, writer, half):
        self.writer = writer
        self.half = half

    def accept(self, push):
        number = (push.received_unix_ms - BEGIN_MS) // EVERY_MS - 1
        if number * 2 // PUSHES == self.half:
            self.writer.write(push)

    def close(self, timeout_ms):
        pass


def test_a_stream_of_files_is_the_batch(spark, folder, tmp_path, used):
    """Two runs over files that come one after another; windows that may get more points are not written yet."""
    source = tmp_path / "source"
    target = tmp_path / "usage"
    plan = Plan("usage", str(source), str(target), checkpoint=str(tmp_path / "checkpoint"), late="0 seconds")
    for number in range(2):
        writer = JsonLinesWriter(source)
        receive(clients(), PUSHES, [Part(writer, number)])
        writer.close()
        run(spark, plan)
    rows = spark.read.parquet(str(target)).collect()
    key = lambda row: (row["window_start"], row["user"], row["client_id"], row["broker"])  # noqa: E731
    found = {key(row): row["byte_rate"] for row in rows}
    assert len(found) == len(rows)
    # a window may get a part of a push that ends an interval later
    last = max(row["window_start"] for row in used) - timedelta(minutes=1)
    wanted = {key(row): row["byte_rate"] for row in used if row["window_start"] < last}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (None if value is None else pytest.approx(value, rel=1e-3))
