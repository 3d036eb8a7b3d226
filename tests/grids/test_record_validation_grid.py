"""What `tests/unit/broker/test_record_validation.py` damages in a few ways, in three times as many."""

import pytest

from tests.unit.broker.test_record_validation import (
    SEEDS_ALIKE,
    SEEDS_IN_PASSING,
    SHAPES,
    alike_read_as_one_by_one,
    read_in_passing_as_one_by_one,
)


@pytest.mark.parametrize("seed", SEEDS_IN_PASSING)
def test_what_is_read_in_passing_is_read_as_what_is_read_one_by_one(monkeypatch, seed):
    read_in_passing_as_one_by_one(monkeypatch, seed, damages=200)


@pytest.mark.parametrize("seed", SEEDS_ALIKE)
@pytest.mark.parametrize("shape", SHAPES)
def test_records_cut_alike_are_read_as_one_by_one(monkeypatch, shape, seed):
    alike_read_as_one_by_one(monkeypatch, shape, seed, damages=40)
