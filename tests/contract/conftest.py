"""One suite on two brokers: the embedded one and Apache Kafka.

A test asks for `cluster` and runs on both. It names its topics, groups and client-ids through `unique`, because Apache
Kafka is started once for the session, when the first test asks for it. What the embedded broker cannot do yet is marked
`@pytest.mark.embedded_gap("why")`: the test must then fail there, and pass on Apache Kafka.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kclient_quota.testing.apache import ApacheKafka, apache_kafka_unavailable_reason

Unique = Callable[[str], str]
BROKERS = ["embedded", pytest.param("apache-kafka", marks=pytest.mark.kafka)]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "embedded_gap(reason): the embedded broker fails this test (strict xfail)")


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka for the whole session."""
    _require_apache_kafka()
    with ApacheKafka() as cluster:
        yield cluster


def _require_apache_kafka() -> None:
    """Its absence is an error in CI and a skip elsewhere."""
    reason = apache_kafka_unavailable_reason()
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A running cluster with `bootstrap_servers` and `set_quota`, first the embedded one, then Apache Kafka."""
    if request.param == "apache-kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    gap = request.node.get_closest_marker("embedded_gap")
    if gap is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=gap.args[0]))
    with _own_cluster("embedded") as embedded:
        yield embedded


@pytest.fixture(params=BROKERS)
def three_brokers(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster of three brokers of its own, because quotas hold per broker."""
    with _own_cluster(request.param, brokers=3) as own:
        yield own


@pytest.fixture(params=BROKERS)
def secure_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster of its own with the users alice and bob, whose passwords are "secret"."""
    with _own_cluster(request.param, users={"alice": "secret", "bob": "secret"}) as own:
        yield own


def _own_cluster(kind: str, **options: Any) -> Any:
    if kind == "apache-kafka":
        _require_apache_kafka()
        return ApacheKafka(**options)
    from kclient_quota.broker import EmbeddedBroker

    return EmbeddedBroker(**options)


@pytest.fixture
def unique() -> Unique:
    """Names that no other test has used on the shared cluster."""
    suffix = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{suffix}"
