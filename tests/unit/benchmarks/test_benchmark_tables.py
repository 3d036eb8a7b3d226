"""Measured tables are made from raw figures, and are what those figures say."""

import json

import pytest

from benchmarks import tables

ROW = {"scene": "producer-1", "client": "plain", "run": 1, "utilisation": 1.0704, "lost": 3, "messages_per_s": 499.4}
OURS = {**ROW, "client": "ours", "utilisation": 0.98, "lost": 0, "messages_per_s": 911}
RESULTS = {"machine": "two cores", "commit": "abc", "producers": [OURS, ROW], "loops": [], "consumers": []}


def test_a_place_is_filled_and_filling_it_again_changes_nothing() -> None:
    page = "before\n<!-- results: producer-1 -->\nold\n<!-- end of results -->\nafter\n"
    once = tables.filled(page, RESULTS)
    assert "old" not in once
    assert "| confluent-kafka | 1.070 | 499 | 3 |\n| **kclient-quota** | 0.980 | 911 | 0 |" in once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert tables.filled(once, RESULTS) == once


def test_where_it_was_measured_is_told() -> None:
    page = tables.filled("<!-- results: machine -->\n<!-- end of results -->", RESULTS)
    assert "two cores; commit abc." in page
    assert "### producer-1" in tables.filled("<!-- results: all -->\n<!-- end of results -->", RESULTS)


@pytest.mark.parametrize(("path", "results"), tables.MEASURED, ids=lambda path: path.name)
def test_the_pages_say_what_was_measured(path: tables.Path, results: tables.Path) -> None:
    if path.exists() and results.exists():
        page = path.read_text()
        assert tables.filled(page, json.loads(results.read_text())) == page


def test_what_the_queue_costs_below_the_quota_is_told_beside_plain() -> None:
    plain = {"data": "orders", "partitions": 12, "part": 0.79, "client": "plain", "p50_ms": 6.04, "p99_ms": 30.0}
    results = {"rows": [plain, {**plain, "client": "ours", "p50_ms": 12.0, "p99_ms": 25.25}]}
    page = tables.filled("<!-- results: light -->\n<!-- end of results -->", results)
    assert "| orders, 12, 0.79 | 6.0 | 12.0 | 30.0 | 25.2 | -4.8 |" in page


def test_small_messages_are_told_beside_plain() -> None:
    plain = {"data": "orders", "compression": "none", "partitions": 12, "quota": 10_000_000, "client": "plain"}
    plain |= {"messages_per_s": 40_000.4, "used": 1.04, "throttle_ms": 1_040.0, "cpu_us": 3.2}
    results = {"rows": [plain, {**plain, "client": "ours", "messages_per_s": 30_000.0, "used": 0.99, "throttle_ms": 0}]}
    page = tables.filled("<!-- results: small -->\n<!-- end of results -->", results)
    line = "| orders, none, 12, 10,000,000 B/s | 40,000 | 30,000 | 0.75 | 1.04 | 0.99 | 1.0 | 0.0 | 3 | 3 |"
    assert line in page


def test_what_a_quota_is_worth_is_told_by_cell_and_client() -> None:
    row = {"data": "orders", "compression": "zstd", "partitions": 3, "quota": 51_200.0, "max_delay_ms": 1_000}
    ours = {"client": "ours", "ideal": 960.0, "messages_per_s": 912.0, "steady_p99_ms": 800.0, "in_call_p99_ms": 50.0}
    keyless = {**row, **ours, "partitions": 0, "max_delay_ms": 5_000}
    results = {"rows": [{**row, **ours}, {**row, "client": "plain", "ideal": 960.0, "error": "no end"}, keyless]}
    page = tables.filled("<!-- results: worth -->\n<!-- end of results -->", results)
    assert "| orders, zstd, 3 partitions, 51,200 B/s | 960.0 | - | 912.0 (0.95) | 0.80 | 0.05 |" in page
    assert "| orders, zstd, none, 51,200 B/s, `quota.max.delay.ms=5000` |" in page
