"""What `tests/measured` measures on Apache Kafka, on the embedded broker, and what takes longer; by `make grids`."""

import pytest

from tests.measured.scenes import played
from tests.spark_session import IS_INSTALLED, spark

__all__ = ["played", "spark"]
if not IS_INSTALLED:  # tests/spark says so
    collect_ignore = ["test_closed_loop.py"]


@pytest.fixture(scope="session", params=["embedded"])
def broker_kind(request: pytest.FixtureRequest) -> str:
    """The kind that stands in `tests/measured` only where Apache Kafka cannot run."""
    return str(request.param)
