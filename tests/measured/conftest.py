"""Figures in real time (`tests/suite/measuring.py`), on one kind of brokers; `tests/measured_grid` has the other."""

import pytest

from kclient_quota.testing.apache import apache_kafka_unavailable_reason
from tests.measured.scenes import played
from tests.suite.reporting import is_ci

__all__ = ["played"]

REPRESENTATIVE = "apache-kafka" if is_ci() or apache_kafka_unavailable_reason() is None else "embedded"
"""What the README claims is claimed of Apache Kafka; without it the embedded broker stands for it."""


@pytest.fixture(scope="session", params=[REPRESENTATIVE])
def broker_kind(request: pytest.FixtureRequest) -> str:
    """One kind for all of the directory."""
    return str(request.param)
