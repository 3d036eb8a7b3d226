"""What tests cannot do without."""

import os

import pytest

from kclient_quota.testing.apache import apache_kafka_unavailable_reason


def require_apache_kafka() -> None:
    """Its absence is an error in CI and a skip elsewhere."""
    reason = apache_kafka_unavailable_reason()
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
