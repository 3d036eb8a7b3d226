"""Figures in real time (`tests/suite/measuring.py`), on one kind of brokers; `tests/measured_grid` has the other."""

import pytest

from tests.measured.scenes import REPRESENTATIVE, played

__all__ = ["played"]


@pytest.fixture(scope="session", params=[REPRESENTATIVE])
def broker_kind(request: pytest.FixtureRequest) -> str:
    """One kind for all of the directory."""
    return str(request.param)
