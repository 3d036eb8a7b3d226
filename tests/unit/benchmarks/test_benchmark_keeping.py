"""What was measured is kept whatever happens, and cells run side by side only as long as there is room."""

import json
import threading
from pathlib import Path

import pytest

from benchmarks import report, runner
from benchmarks.__main__ import Found, main
from benchmarks.scenes import FULL, PEERS, TUNED, ConsumerScene, LoopScene, ProducerScene, QuotaScene, select
from benchmarks.telemetry import confidence

PRODUCER = ProducerScene("producer-51200", quota=51_200, messages=10_000)
ROW = {"kind": "producers", "scene": "producer-51200", "client": "java", "run": 1, "lost": 7, "duplicated": 0}


def test_every_row_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "found.json"
    found = Found(path, [PRODUCER])
    found.keep(ROW)
    assert json.loads(path.read_text())["producers"] == [ROW]


def test_a_scene_that_fails_takes_nothing_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    found = Found(path, [PRODUCER])
    found.keep(ROW)

    def fails() -> dict[str, object]:
        raise KeyError("whatever")

    found.keep_of("calls", PRODUCER, fails)
    kept = json.loads(path.read_text())
    assert kept["producers"] == [ROW]
    assert kept["failures"] == [
        {"kind": "failures", "scene": "producer-51200", "client": "", "error": "KeyError: 'whatever'"}
    ]
    assert main(["--tables", str(path)]) == 0
    assert "producer-51200 java" in capsys.readouterr().out


def test_all_clients_come_together_in_one_table() -> None:
    consumer = {"scene": "consumer-1", "client": "plain", "run": 1, "skipped": 3, "repeated": 4, "wait_p99_ms": 5_000}
    text = report.together({"producers": [ROW], "loops": [], "consumers": [consumer]})
    header, _, producer, consumer_row = text.splitlines()[1:]
    assert header.split()[3:7] == ["of", "quota", "lost", "dup."]
    assert producer.split() == ["producer-51200", "java", "-", "7", "0", "-", "-", "-", "-"]
    assert consumer_row.split() == ["consumer-1", "plain", "-", "3", "4", "-", "5.00", "-", "-"]


def test_ours_is_measured_as_often_as_asked_and_the_others_once() -> None:
    cells = runner.cells(select([]), [*PEERS, "ours"], 3)
    scenes = {cell.scene for cell in cells}
    assert {type(scene) for scene in scenes} == {ProducerScene, ConsumerScene, LoopScene}
    producers = sum(isinstance(scene, ProducerScene) for scene in scenes)
    assert len(cells) == len(scenes) * (len(PEERS) + 3) - (len(scenes) - producers) * len(TUNED)
    assert len({cell.client_id for cell in cells}) == len(cells)


def test_who_does_not_fit_waits_and_a_smaller_one_passes() -> None:
    room, order = runner.Room(), []

    def work(name: str, quota: int) -> threading.Thread:
        def run() -> None:
            with room.place(quota):
                order.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with room.place(3_000_000):
        small = work("small", 900_000)
        small.join(60)
        assert order == ["small"]
        large = work("large", 1_100_000)
        assert large.is_alive()
        assert order == ["small"]
    large.join(60)
    assert order == ["small", "large"]


def test_who_compresses_works_at_more_than_its_quota_says() -> None:
    wanted = {"producer-1mib": 1_048_576, "orders-zstd-12": 6 * 51_200, "orders-none-3": 51_200, "loop-20000": 20_000}
    for scene in FULL:
        if isinstance(scene, QuotaScene) and scene.name in wanted:
            assert runner.Cell(scene, "ours", 1).work == pytest.approx(wanted.pop(scene.name))
    assert not wanted


def test_nobody_begins_when_it_was_broken_off() -> None:
    room = runner.Room()
    room.close()
    with pytest.raises(RuntimeError, match="broken off"), room.place(1):
        pass


@pytest.mark.parametrize(
    ("size", "low", "high", "certainty"),
    # the sign test's published ranks and probabilities
    [(9, 2, 8, 0.961), (15, 4, 12, 0.965), (20, 6, 15, 0.959), (6, 1, 6, 0.969), (5, 1, 5, 0.938)],
)
def test_the_bounds_of_a_median_are_those_of_the_sign_test(size: int, low: int, high: int, certainty: float) -> None:
    found = confidence([float(rank) for rank in range(size, 0, -1)])
    assert found == pytest.approx((low, (size + 1) / 2, high, certainty), abs=0.0005)


def test_where_it_was_run_is_not_kept(tmp_path: Path) -> None:
    report.write_json(tmp_path / "found.json", {"stderr": [f'File "{Path(report.__file__)}", line 1']})
    assert json.loads((tmp_path / "found.json").read_text()) == {"stderr": ['File "benchmarks/report.py", line 1']}
