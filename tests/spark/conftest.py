"""Apache Kafka with users, and the payloads that real clients pushed."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from tests.required import require_java_of_its_own
from tests.spark_session import IS_INSTALLED, spark

__all__ = ["spark"]

PAYLOADS = Path(__file__).parent / "payloads"

if not IS_INSTALLED:  # one module says so; the others cannot even be imported
    collect_ignore = [
        path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_spark_installed.py"
    ]
else:
    collect_ignore = []
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:  # PySpark 4.1
        collect_ignore += ["test_kafka_edges.py", "test_raw_hour.py"]
    if not importlib.metadata.version("pyspark").startswith(("4.1.", "4.2.")):  # Delta has no release for it
        collect_ignore.append("test_delta.py")

PLAYED_ON_ANY_JAVA = {"test_decode_job.py", "test_pipeline_command.py", "test_session.py", "test_spark_installed.py"}
"""What a machine without a Java of its own plays: on pip's the jobs are the same, and take half of the suite's time."""
NEEDS_42 = "streams of topics need Spark 4.2"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.path.parent == Path(__file__).parent and item.path.name not in PLAYED_ON_ANY_JAVA:
        require_java_of_its_own()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """What PySpark 4.1 cannot do is left out, as the package itself says; with a later one that would be a failure."""
    try:
        return (yield)
    except Exception as error:
        if IS_INSTALLED and NEEDS_42 in str(error):
            from kclient_quota.spark.kafka.source import HAS_LIMITS

            if not HAS_LIMITS:
                pytest.skip(NEEDS_42)
        raise


@pytest.fixture(scope="session")
def apache_kafka():
    """Apache Kafka, where anybody may do anything without a login, and alice (password "secret") nothing at all."""
    from kclient_quota.testing.apache import ApacheKafka
    from tests.required import require_apache_kafka

    require_apache_kafka()
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "quota.window.num": "3",
    }
    with ApacheKafka(topics={"one": 1}, users={"alice": "secret"}, properties=properties) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real_payloads():
    """(name, payload as pushed, compression type) of every captured push."""
    return [(path.stem, path.read_bytes(), int(path.stem[-1])) for path in sorted(PAYLOADS.glob("*.bin"))]


def pytest_collection_modifyitems(items):
    """A time-out within a call into the JVM breaks the session of all tests that follow: a last resort."""
    for item in items:
        if item.nodeid.startswith("tests/spark/") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
