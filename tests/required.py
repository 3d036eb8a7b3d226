"""What tests cannot do without. Its absence leaves them out, said in one line at the end; in CI it is a failure."""

import shutil

import pytest

from kclient_quota.testing.apache import apache_kafka_unavailable_reason


def require_apache_kafka() -> None:
    """Java and Maven, or Java and what Maven has fetched before."""
    require(apache_kafka_unavailable_reason())


def require_tool(name: str, purpose: str) -> None:
    """A command on the path."""
    require(None if shutil.which(name) else f"no `{name}` on the path, which {purpose} needs")


def require(reason: str | None) -> None:
    """Leave the test out for this reason; with `CI` set, `tests/suite/reporting.py` makes that a failure."""
    if reason is not None:
        pytest.skip(reason)
