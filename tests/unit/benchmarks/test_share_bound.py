"""What nobody exceeds in Kafka's window without being refused, against batches at random times."""

from random import Random

import pytest

from benchmarks import share_bound
from kclient_quota.quota.rate import SampledRate

BYTE_RATE = 20_000
BEGIN_MS = 1_700_000_000_000


@pytest.mark.parametrize("batch", [7_000, 11_900, 15_281, 22_500, 38_000])
def test_nobody_sends_more_in_eleven_seconds(batch: int) -> None:
    random, window, sent = Random(batch), SampledRate(), list[int]()
    most = 0
    now_ms = BEGIN_MS
    for _ in range(40_000):
        now_ms += random.choice((20, 20, 20, 60, 200, 900))
        total, window_ms = window.project(now_ms)
        if (total + batch) * 1000.0 <= BYTE_RATE * window_ms:
            window.record(batch, now_ms)
            assert window.measure(now_ms) <= BYTE_RATE
            sent = [at_ms for at_ms in sent if at_ms > now_ms - 11_000] + [now_ms]
            most = max(most, len(sent))
    assert share_bound.most_batches(batch, BYTE_RATE) - 1 <= most <= share_bound.most_batches(batch, BYTE_RATE)


def test_ours_gets_nearly_what_there_is_and_is_never_refused() -> None:
    assert share_bound.bound(share_bound.counted_bytes(190), BYTE_RATE) == pytest.approx(0.873, abs=0.001)
    assert share_bound.bound(share_bound.counted_bytes(15), BYTE_RATE) == pytest.approx(0.972, abs=0.001)
    large = share_bound.played(share_bound.counted_bytes(190), BYTE_RATE, 5)
    small = share_bound.played(share_bound.counted_bytes(15), BYTE_RATE, 5)
    assert large.refused == small.refused == 0
    assert large.part >= 0.85
    assert small.part >= 0.95
