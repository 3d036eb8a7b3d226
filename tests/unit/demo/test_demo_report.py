"""The modules that draw are loaded by the tests that need them: matplotlib takes each worker of a run a second."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kclient_quota.cli.main import main
from kclient_quota.demo.live import rows
from kclient_quota.demo.scenes import Finding, Scene, tuned_consumer, tuned_producer, verdict
from kclient_quota.demo.spec import Outcome, Sample, WorkSpec, outcome_line, parse_line, runs_of, sample_line


def scene(name: str = "producers") -> Scene:
    return Scene(name, "a. Producers", "A <story>.", "producer_byte_rate", 20_000, 10, {})


def finding(flavour: str, done: int) -> Finding:
    samples = [Sample(at, done * at // 10_000, done * at // 10, 0, at // 4, 20) for at in range(0, 10_001, 250)]
    outcome = Outcome(done, done * 1000, 3, 7, 10_000, (1, 20, 300), 2500, 2, acknowledged_ids=((0, done),))
    return Finding(flavour, outcome, done * 1000 / 200_000, 3, 1, 5, samples)


def test_what_workers_say_survives_the_pipe() -> None:
    spec = WorkSpec("produce", "plain", {"a": 1}, "t", 5.0, 10)
    assert WorkSpec.from_json(spec.to_json()) == spec
    sample, outcome = Sample(1, 2, 3, 4, 5, 6), finding("plain", 9).outcome
    assert parse_line(sample_line(sample)) == sample
    assert parse_line(outcome_line(outcome)) == outcome
    assert [parse_line(noise) for noise in ("%3|FAIL|", "[]", "{}")] == [None, None, None]


def test_ids_as_runs() -> None:
    assert runs_of([5, 1, 2, 3, 9, 3]) == ((1, 4), (5, 6), (9, 10))
    assert runs_of([]) == ()


class Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in {"src", "href"} and value and not value.startswith("#")]


def test_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    from kclient_quota.demo.report import Act, write

    acts = [Act(scene(), [finding("plain", 50), finding("tuned", 90), finding("wrapped", 200)])]
    summary_path, report_path = write(tmp_path / "out", "the embedded broker", "today", acts)
    told = json.loads(summary_path.read_text())["scenes"][0]["findings"]
    assert told["plain"]["duplicates"] == 5
    assert told["wrapped"]["share_of_quota"] == 1.0
    structure = Structure()
    structure.feed(report_path.read_text())
    assert structure.tags.count("svg") == 4
    assert structure.links == []
    html = report_path.read_text()
    assert "A &lt;story&gt;." in html
    assert html.index(
        "kclient-quota</b>: 3 lost, 5 stored twice, waits of up to 0.3 s, the group lost 2 times"
    ) < html.index("<h2>")
    assert html.index("lost 3, stored 5 twice") < html.index("<table>")
    assert html.count('role="img" aria-label="') == 4
    assert "time waited in produce()" in html


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [("producers", "stored twice", "group lost"), ("consumers", "longest time without a message", "stored twice")],
)
def test_rows_say_what_a_scene_can_say(name: str, has: str, lacks: str) -> None:
    labels = [label for label, _ in rows(scene(name), [finding("plain", 1)])]
    assert has in labels
    assert lacks not in labels


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["demo", "--seconds", "400"], "--seconds 400: give 1 to 300"),
        (["demo", "--input", "no-such-file"], "--input no-such-file: not a readable file"),
        (["demo", "--scene", "pipeline", "--bootstrap", "h:1"], "--scene pipeline plays on the embedded broker"),
    ],
)
def test_bad_options_are_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "changes", "outcome", "said"),
    [
        ("producers", {}, {}, "nothing lost, doubled or late; 97% of the quota"),
        (
            "producers",
            {"lost": 1200, "share": 1.6},
            {},
            "lost 1,200; 160% of the quota, over it: it pays with throttles",
        ),
        ("producers", {}, {"latencies_ms": (1, 2, 21_000)}, "reports up to 21 s late; 97% of the quota"),
        ("producers", {}, {"oldest_pending_ms": 44_000}, "reports up to 44 s late; 97% of the quota"),
        ("consumers", {"share": 0.5}, {"latencies_ms": (1, 2, 12_600)}, "no message for 13 s; only 50% of the quota"),
        ("consumers", {}, {}, "nothing missing, evenly; 97% of the quota"),
        (
            "transforms",
            {"duplicates": 250},
            {"rebalances": 2},
            "stored 250 twice, lost its group 2 times; 97% of the quota",
        ),
    ],
    ids=["good", "lost", "late", "unanswered", "lumps", "even", "group"],
)
def test_a_verdict_begins_with_what_is_worst(name: str, changes: dict, outcome: dict, said: str) -> None:
    found = finding("plain", 194)
    fine = replace(found.outcome, **{"rebalances": 0, **outcome})
    found = replace(found, outcome=fine, **{"share": 0.97, "lost": 0, "duplicates": 0, **changes})
    assert verdict(scene(name), found) == said


def test_no_axis_is_cut_and_the_picture_says_everything_in_words() -> None:
    from kclient_quota.demo.plots import picture

    drawn = picture(scene(), [finding("plain", 5000), finding("tuned", 200), finding("wrapped", 190)], "today")
    assert "<!-- 1e6 -->" not in drawn
    assert "<!-- 5000 -->" in drawn  # the axis goes up to what was done, twenty-five times the quota
    assert "kclient-quota: lost 3, stored 5 twice" in drawn.partition(">")[0]


def test_tuning_follows_the_quota() -> None:
    assert tuned_producer(51_200, 1_000)["queue.buffering.max.messages"] == 51
    assert tuned_producer(1_048_576, 1_000)["batch.size"] == 104_857
    assert tuned_consumer(1_000_000)["fetch.max.bytes"] == 200_000
