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


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_the_pages_say_what_was_measured(path: tables.Path) -> None:
    if path.exists() and tables.RESULTS.exists():
        page = path.read_text()
        assert tables.filled(page, json.loads(tables.RESULTS.read_text())) == page
