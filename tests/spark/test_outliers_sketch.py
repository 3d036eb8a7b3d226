"""Noisy neighbours of many clients: the summary's law, and sketched against exact."""

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.spark.decoding.schema import ddl
from kclient_quota.spark.jobs.outliers import noisiest, outliers, sketched
from kclient_quota.spark.jobs.sketch import Summary
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import MEASURED

BEGIN_MS = 1_800_000_000_000
MANY = 600


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 1_000)), max_size=200),
    st.integers(1, 12),
    st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_a_counter_is_never_too_high_and_never_too_low_by_more_than_was_lost(added, counters, every):
    summary = Summary(counters)
    truth = Counter()
    for number, (who, weight) in enumerate(added):
        summary.add((who,), float(weight))
        truth[who,] += weight
        if number % every == 0:
            summary.trim()
    summary.trim()
    kept = summary.weights()
    assert len(kept) <= counters
    assert summary.total == sum(truth.values())
    assert summary.lost <= summary.total / (counters + 1)
    for who, weight in truth.items():
        assert weight - summary.lost <= kept.get(who, 0.0) <= weight


@pytest.fixture(scope="module")
def measured(spark):
    """600 clients that push three times a minute, four of them far above the others."""
    chance = random.Random(5)
    names = [field.name for field in MEASURED.schema]
    rows = []
    for number in range(MANY):
        rate = 1_000_000.0 * (5 - number) if number < 4 else chance.uniform(10, 2_000)
        for push in range(6):
            at_ms = BEGIN_MS + (push + 1) * 20_000
            given = {
                "client_instance_id": str(number),
                "client_id": f"c{number}",
                "user": "u",
                "broker": str(number % 2),
                "push_interval_ms": 20_000,
                "metric": "org.apache.kafka.producer.node.outgoing.byte.rate",
                "kind": "gauge",
                "value": rate,
                "time_ms": at_ms,
                "time": datetime.fromtimestamp(at_ms / 1000, tz=UTC),
                "role": "producer",
                "measure": "byte_rate",
            }
            rows.append(tuple(given.get(name) for name in names))
    return spark.createDataFrame(rows, ddl(MEASURED.schema)).repartition(3).cache()


def test_sketched_is_exact_within_its_error(measured):
    exact = outliers(usage(measured), k=2).collect()
    rough = sketched(measured, k=2, counters=20).collect()
    key = lambda row: (row["window_start"], row["broker"], row["rank"])  # noqa: E731
    wanted = {key(row): row for row in exact}
    assert {key(row) for row in rough} == wanted.keys()
    assert len(wanted) == 2 * 2 * 2
    assert any(row["error"] > 0 for row in rough)
    for row in rough:
        true = wanted[key(row)]
        assert row["client_id"] == true["client_id"]
        assert true["byte_rate"] - row["error"] - 1e-3 <= row["byte_rate"] <= true["byte_rate"] + 1e-3
        assert abs(row["share"] - true["share"]) < 0.05
        assert row["containing_quota"] is None or row["containing_quota"] <= true["containing_quota"] + 1e-3
        assert true["error"] == 0


def test_few_clients_are_kept_apart_many_are_sketched(measured):
    table = usage(measured)
    few = noisiest(measured, table, 2, None, "1 minute")
    many = noisiest(measured, table, 2, None, "1 minute", exact=100)
    assert {row["neighbours"] for row in few.collect()} == {MANY // 2}
    assert {row["neighbours"] for row in many.collect()} == {None}
