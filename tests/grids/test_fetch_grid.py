"""What `tests/unit/pacing/test_fetch.py` has some cells of, in every cell."""

import pytest

from tests.unit.pacing.test_fetch import small_batches_use_it_all_and_come_evenly


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message"),
    [
        (1_000_000, 200_000, 1_000),
        (1_000_000, 40_000, 1_000),
        (1_000_000, 2_000, 100),
        (100_000, 16_000, 1_000),
        (100_000, 2_000, 100),
        (100_000, 1_000, 1_000),
        (20_000, 1_000, 1_000),
    ],
)
def test_batches_that_are_small_beside_the_window_use_it_all_and_come_evenly(byte_rate, batch, message):
    small_batches_use_it_all_and_come_evenly(byte_rate, batch, message)
