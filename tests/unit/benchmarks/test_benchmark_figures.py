"""The benchmarks' arithmetic."""

import bisect
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import figures, payloads, report, scenes
from benchmarks.filling import shape
from benchmarks.ledger import Ledger, value_of
from kclient_quota.certify.driver import id_of
from kclient_quota.testing.apache import ByteSample


def test_percentiles_are_nearest_rank() -> None:
    assert figures.percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert figures.percentile([3.0, 1.0, 2.0, 4.0], 0.99) == 4.0
    assert figures.percentile([], 0.5) is None


def test_the_longest_gap_counts_both_ends() -> None:
    assert max(figures.gaps_s([1000, 1500], 0, 9000)) == 7.5
    assert figures.gaps_s([], 0, 9000) == [9.0]
    assert figures.gaps_s([500, 8000, 99_000], 7000, 9000) == [1.0, 1.0]


@pytest.mark.parametrize("gaps", [[10.0], [0.0, 0.0, 12.5, 0.5, 3.0], [1.0] * 50, [0.01] * 900 + [20.0, 20.0]])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_wait_is_that_of_a_random_moment(gaps: list[float], share: float) -> None:
    # by brute force: walk through the run in small steps and see how long the next message is away from each
    steps = 200_000
    ends = list(itertools.accumulate(gaps))
    moments = [(number + 0.5) / steps * ends[-1] for number in range(steps)]
    waits = sorted(ends[bisect.bisect_right(ends, moment)] - moment for moment in moments)
    assert figures.wait_s(gaps, share) == pytest.approx(waits[int(share * steps)], abs=0.001 * ends[-1] / 10)


def test_samples_of_other_clients_and_empty_ones_are_left_out() -> None:
    samples = [
        ByteSample(1, "Produce", "", "a", 2000, 5.0),
        ByteSample(1, "Produce", "", "a", 1000, 7.0),
        ByteSample(1, "Produce", "", "a", 3000, 0.0),
        ByteSample(1, "Fetch", "", "a", 1000, 9.0),
        ByteSample(1, "Produce", "", "b", 1000, 9.0),
    ]
    assert figures.of_client(samples, "Produce", "a") == [(1000, 7.0), (2000, 5.0)]


def test_lumps_are_weighed_with_the_wait_that_follows_them() -> None:
    # 1,000 bytes every 10 s are 100 B/s, wherever the run happens to end
    lumps = [(start * 1000, 1000.0) for start in (0, 10, 20, 30, 40)]
    assert figures.producer_rate(lumps, 0) == pytest.approx(100)
    assert figures.producer_rate(lumps[:3], 0) is None


def test_a_consumer_is_measured_to_the_end_of_its_run() -> None:
    assert figures.consumer_rate([(14_999, 9.0), (15_000, 500.0), (20_000, 500.0), (25_000, 9.0)], 0, 25_000) == 100


@pytest.mark.parametrize("batch_bytes", [16_000, 200_000, 470_000])
def test_batches_are_within_a_hundredth_of_their_size(batch_bytes: int) -> None:
    count, size = shape(batch_bytes)
    assert count * (size + 10) + 61 == pytest.approx(batch_bytes, rel=0.01)
    assert size == pytest.approx(1000, rel=0.03)


def test_quick_scenes_keep_their_names_and_quotas() -> None:
    for size in (scenes.quick, scenes.tiny):
        chosen = scenes.select([], size)
        assert [scene.name for scene in chosen] == [scene.name for scene in scenes.FULL]
        for small, full in zip(chosen, scenes.FULL, strict=True):
            assert getattr(small, "quota", None) == getattr(full, "quota", None)
    with pytest.raises(ValueError, match="no scene 'nonsense'; known: producer-51200"):
        scenes.select(["nonsense"])


def test_a_median_row_is_taken_figure_by_figure_and_tells_the_worst_of_losses() -> None:
    rows = [{"client": "ours", "p50": value, "p99": None if value == 1 else value} for value in (1, 5, 3)]
    assert report.median_row(rows) == {"client": "ours", "p50": 3, "p99": None}
    assert report.median_row([{"lost": lost, "duplicated": lost} for lost in (0, 0, 7)]) == {"lost": 7, "duplicated": 7}


def test_columns_line_up() -> None:
    text = report.table("title", ["client", "n"], [["plain", "10"], ["peer", "7"]])
    assert text.splitlines() == ["title", "client   n", "------  --", "plain   10", "peer     7"]


@pytest.fixture
def few_bodies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("BODIES", "NOISE", "DOCUMENTS"):
        monkeypatch.setattr(payloads, name, 40)
    payloads.bodies.cache_clear()
    yield
    payloads.bodies.cache_clear()


@pytest.mark.usefixtures("few_bodies")
def test_every_client_sends_the_same_bytes(tmp_path: Path) -> None:
    for kind in payloads.KINDS:
        assert payloads.bodies(kind, 300) == payloads.bodies.__wrapped__(kind, 300)
        payloads.write(tmp_path / kind, kind, 300)
        first = payloads.bodies(kind, 300)[0]
        assert (tmp_path / kind).read_bytes().startswith(len(first).to_bytes(4, "big") + first)
        assert id_of(value_of(4_711, 300, kind)) == 4_711
    assert len(value_of(1, 300)) == len(value_of(1, 300, "noise")) == 300


def test_deliveries_are_counted_from_the_warm_up_to_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("benchmarks.ledger.time.monotonic", lambda: now_s)
    ledger = Ledger()
    for second in range(60):
        now_s = 100.0 + second
        number = ledger.next_id()
        ledger.accepted(number, now_s - 0.25)
        ledger.report(number, "lost" if second % 2 else None)
    summary = ledger.summary()
    assert summary["messages_per_s"] == pytest.approx(0.5, rel=0.05)
    assert summary["in_call_p99_ms"] == 250
