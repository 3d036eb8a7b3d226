"""The report of what jobs have written, and the notebook that makes one."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter

from kclient_quota.errors import ConfigError
from kclient_quota.spark.jobs.backtest import Verdict
from kclient_quota.spark.report import render, write_report
from kclient_quota.spark.reporting.tables import BINS, TIMES, TOP, UTILISATION, Heat, Tables, collect
from tests.spark.receiving import BEGIN_MS, EVERY_MS, Client, ToFiles, receive

NOTEBOOK = Path(__file__).parents[2] / "examples" / "throttling_report.ipynb"
CLIENTS = TOP + 4
PUSHES = 12
QUOTAS = """
version: 1
quotas:
  - {defaults: [client-id], set: {producer_byte_rate: 4000}}
"""


@pytest.fixture(scope="module")
def notebook(spark, tmp_path_factory):
    """What the notebook's names are at its end: run cell by cell, as a kernel would, on 24 clients.

    Those with a number above 1 are throttled in the second half, the longer the higher the number.
    """
    path = tmp_path_factory.mktemp("report")
    lines = JsonLinesWriter(path / "pushes")
    made = [Client(n, f"app{n:02}<b>", "u", 500.0 * (n + 1), brokers=(1,)) for n in range(CLIENTS)]
    for n, client in enumerate(made):
        client.throttled = lambda push, n=n: 100.0 * n if push >= PUSHES // 2 and n > 1 else 0.0
    receive(made, PUSHES, [ToFiles(lines)])
    lines.close()
    (path / "quotas.yaml").write_text(QUOTAS)
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUSHES", str(path / "pushes"))
        patch.setenv("QUOTAS", str(path / "quotas.yaml"))
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


@pytest.fixture(scope="module")
def folder(notebook):
    return notebook["folder"]


@pytest.fixture(scope="module")
def tables(spark, folder):
    return collect(spark, folder)


def test_the_heat_map_has_the_worst_and_when(tables):
    assert tables.heat.clients == [f"u / app{n:02}<b>" for n in range(CLIENTS - 1, CLIENTS - 1 - TOP, -1)]
    assert tables.heat.begin_ms == BEGIN_MS
    assert len(tables.heat.seconds[0]) == math.ceil(PUSHES * EVERY_MS / tables.heat.width_ms) <= TIMES
    first = (BEGIN_MS + PUSHES // 2 * EVERY_MS - tables.heat.begin_ms) // tables.heat.width_ms
    for place, row in enumerate(tables.heat.seconds):
        assert row[:first] == [0.0] * first
        assert set(row[first:]) == {(CLIENTS - 1 - place) / 10}


def test_everything_is_counted_but_no_more_than_so_many_rows_come(spark, folder, tables):
    usage = spark.read.parquet(str(folder / "usage"))
    assert tables.facts["clients (user, client-id, role)"] == f"{CLIENTS} on 1 brokers"
    assert tables.facts["throttled at some time"] == str(CLIENTS - 2)
    assert sum(tables.spread) == usage.where("utilisation is not null").count()
    assert len(tables.spread) == BINS
    assert sum(tables.spread[BINS // 2 :]) == usage.where("utilisation >= 1").count() > 0
    for rows in (tables.utilisation, tables.sessions, tables.quotas):
        assert len(rows) == TOP
    assert 3 <= len(tables.outliers) <= TOP
    assert tables.sessions[0]["longest, s"] == "2.300"  # a millisecond is not nothing
    assert tables.sessions[0]["quota"] == "{client-id=<default>}"


def test_a_recommendation_is_better_than_what_is_in_force(tables):
    before, after = tables.verdicts
    assert before[0] == "in force"
    assert after[0] == "recommended"
    assert before[1] > after[1]
    assert before[2] == after[2] == CLIENTS
    assert before[3] > 10 * after[3]


@pytest.fixture(scope="module", autouse=True)
def plots():
    """Loaded where tests are played: whoever only collects them needs no matplotlib, which takes a second to load."""
    pytest.importorskip("matplotlib")
    from kclient_quota.spark.reporting import plots

    return plots


def drawn(monkeypatch, plots, draw, *given):
    """The axes of a picture."""
    found = []
    monkeypatch.setattr(plots, "_svg", lambda figure: found.extend(figure.axes) or "")
    draw(*given)
    return found


def test_short_throttling_no_throttling_and_no_push_are_of_different_colours_beside_a_long_one(monkeypatch, plots):
    heat = Heat(["a"], BEGIN_MS, 60_000, [[None, 0.0, 0.001, 0.9, 12.0, 61.0]])
    axes, scale = drawn(monkeypatch, plots, plots.heat_map, heat)
    free, throttled = axes.collections
    colours = [tuple(each) for each in throttled.to_rgba(throttled.get_array()[0])]
    assert list(free.get_array()[0].mask) == [True, False, True, True, True, True]
    assert list(throttled.get_array()[0].mask) == [True, True, False, False, False, False]
    assert len(set(colours[2:])) == 4
    assert max(abs(a - b) for a, b in zip(colours[3], colours[4], strict=True)) > 0.2
    assert scale.get_ylabel() == "longest throttle time, s"


def test_utilisation_has_one_axis_in_both_pictures_and_says_what_is_beyond(monkeypatch, plots):
    (one,) = drawn(monkeypatch, plots, plots.utilisation, [("a", 1641.8, 2267.0), ("b", 0.5, 3.9), ("c", 0.1, 0.9)])
    (other,) = drawn(monkeypatch, plots, plots.spread, [1] * BINS)
    assert one.get_xlim() == other.get_xlim() == (0, UTILISATION)
    assert [text.get_text().strip(" ▸") for text in one.texts] == ["1,641.8 to 2,267.0", "to 3.9"]


class Reader(HTMLParser):
    """Counts tags, and what would be loaded from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.loaded = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name == "src" or (tag == "link" and name == "href")]


def test_the_report_is_one_file_that_loads_nothing(folder):
    text = (folder / "report.html").read_text()
    page = Reader(text)
    assert page.tags.count("svg") == 5
    assert page.loaded == []
    assert "app23&lt;b&gt;" in text
    assert "b" not in page.tags
    assert len(text) < 2_000_000


def test_a_report_of_nothing_throttled_says_so():
    assert "Nobody was throttled" in render(Tables())


def test_a_range_is_said_to_be_one():
    page = render(Tables(quotas=[("u", 1.0, None, 2.0)], verdicts=[Verdict("in force", 1, 9, 5.0, 1.0, 9.0, 60.0, 3)]))
    assert "of 3 of 9 quotas" in page
    assert "may burst, or pushes were lost" in page


def test_what_is_missing_is_said(spark, tmp_path):
    with pytest.raises(ConfigError, match="none of the directories usage"):
        write_report(spark, tmp_path, tmp_path / "report.html")


def test_the_notebooks_tables_are_frames(notebook):
    assert notebook["used"].where("byte_rate is not null").count() > CLIENTS
    assert notebook["sessions"].count() == CLIENTS - 2
    assert notebook["better"].count() == 0  # none of these clients tells its batches
    assert notebook["tried"].where("throttles > 0").count() >= CLIENTS - 8
    found = notebook["spark"].sql("select count(*) as n from clients where windows_throttled > 0").collect()
    assert found[0]["n"] == CLIENTS - 2
