"""The pytest plug-in: fixtures for services that use Kafka under quotas."""

import pytest

from kclient_quota.testing.clock import ManualClock


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock at zero that moves only when told to."""
    return ManualClock()
