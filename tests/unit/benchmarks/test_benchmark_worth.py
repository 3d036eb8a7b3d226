"""What a quota is worth on Apache Kafka: which cells, how they become scenes, and what tenants cost."""

import json
import threading
from pathlib import Path

import pytest

from benchmarks import quota_worth, tenants, worth_cells
from kclient_quota.simulation.batching import NAMES_BYTES, Batching, ideal


def test_every_two_settings_that_can_meet_do_so_in_about_two_dozen_cells() -> None:
    cells = quota_worth.cells()
    chosen = worth_cells.covering(cells)
    assert set().union(*map(worth_cells.pairs, cells)) == set().union(*map(worth_cells.pairs, chosen))
    assert 20 <= len(chosen) <= 26
    assert set(worth_cells.ANCHORS) <= set(chosen)
    assert len(set(chosen)) == len(chosen)
    assert chosen == worth_cells.covering(cells)


def test_messages_without_keys_go_to_a_topic_of_several_partitions() -> None:
    keyless, keyed = (worth_cells.scene_of(("orders", "zstd", where, 51_200.0)) for where in (0, 3))
    assert (keyless.partitions, keyless.keyless_partitions) == (0, 12)
    assert (keyed.partitions, keyed.keyless_partitions) == (3, 0)
    assert keyless.name != keyed.name
    assert worth_cells.scene_of(("documents", "none", 3, 51_200.0)).queue_kbytes == worth_cells.MOST_QUEUED_KBYTES
    assert worth_cells.scene_of(("orders", "zstd", 3, 51_200.0), 5_000).max_delay_ms == 5_000


def test_as_many_run_side_by_side_as_the_processors_bear() -> None:
    room = worth_cells.Room(clients=2, per_s=1_000)
    inside: list[str] = []
    done = threading.Event()

    def work(name: str, per_s: float) -> threading.Thread:
        def run() -> None:
            with room.place(per_s):
                inside.append(name)
                done.wait(60)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    with room.place(600):
        large = work("large", 500)
        small = work("small", 400)
        while not inside:
            small.join(0.01)
        assert inside == ["small"]
        done.set()
    large.join(60)
    assert inside == ["small", "large"]


def test_figures_are_kept_row_by_row_and_those_that_fail_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = dict.fromkeys(worth_cells._KEPT, 1.0)
    rows = [{**worth_cells._named(cell), "max_delay_ms": 1_000, "client": "ours", "ideal": 2.0} for cell in CELLS]

    def measure(_todo: object, _seconds: int, keep: worth_cells.Keep, side_by_side: int) -> None:
        assert side_by_side == 3
        keep({**rows[0], **figures})
        keep({**rows[1], "error": "RuntimeError: no end"})

    monkeypatch.setattr(worth_cells, "measure", measure)
    path = tmp_path / "found.json"
    quota_worth.main(["--real", "--jobs", "3", "--json", str(path)])
    assert [row["data"] for row in json.loads(path.read_text())["rows"]] == ["noise", "orders"]
    said = capsys.readouterr().out
    assert "0.500" in said
    assert "no end" in said


CELLS = worth_cells.ANCHORS[1:]


def test_the_ideal_pays_for_the_names_that_every_request_of_a_client_carries() -> None:
    cell = ("readings", "lz4", 100, 51_200.0)
    short = ideal(Batching("readings", "lz4"), 51_200.0, 100, 1_000)
    found = {client: worth_cells.ideal_of(cell, 0, client) for client in ("ours", "plain-tuned")}
    assert found["plain-tuned"] < found["ours"] < short.messages_per_s
    long = ideal(Batching("readings", "lz4", names_bytes=NAMES_BYTES + 51), 51_200.0, 100, 1_000)
    assert long.messages_per_s < 0.9 * short.messages_per_s
    every = {worth_cells.scene_of(cell).name for cell in quota_worth.cells()}
    assert len(every) == len(quota_worth.cells())
    named = Batching("readings", "lz4", names_bytes=NAMES_BYTES + 51)
    assert named.request_bytes(8) == Batching("readings", "lz4").request_bytes(8) + 51


def test_the_figures_in_the_documentation_are_beside_that_ideal_and_ours_reaches_it() -> None:
    for row in json.loads(quota_worth.RESULTS.read_text())["rows"]:
        cell = (row["data"], row["compression"], row["partitions"], row["quota"])
        delay_ms = 0 if row["max_delay_ms"] == 1_000 else row["max_delay_ms"]
        assert row["ideal"] == pytest.approx(worth_cells.ideal_of(cell, delay_ms, row["client"]))
        if row["client"] == "ours":
            many = cell[2:] == (100, 51_200.0)
            assert row["messages_per_s"] >= (0.85 if many else 0.95) * row["ideal"], cell
            assert row["steady_p99_ms"] <= (5_000 if many else row["max_delay_ms"] + 200), cell


def test_what_tenants_cost_is_counted() -> None:
    assert tenants.cost_us(50, 2_000) > 0
