"""The window of a rate when a clock goes back: Java divides towards zero."""

import pytest

from kclient_quota.quota.rate import SampledRate


@pytest.mark.parametrize(
    ("now_ms", "window_ms"), [(10_000, 10_000), (9_999, 9_999), (9_000, 10_000), (8_999, 9_999), (7_500, 9_500)]
)
def test_a_window_that_begins_in_the_future(now_ms, window_ms):
    rate = SampledRate(11, 1_000)
    rate.record(5_000, 10_000)
    assert rate.window_size_ms(now_ms) == window_ms
