"""What these tests share: a broker, Kafka's own tools, and tidying up."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import limits
from tests.integration.agents_runs import filled
from tests.integration.event_loops import Loop, made
from tests.integration.made_producers import close_what_was_made


@pytest.fixture
def java(java_tools):
    """Runs one of Apache Kafka's own tools and returns its standard output."""

    def run(tool, *arguments):
        done = java_tools.run(tool, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of the test's own, with a topic of one partition."""
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Of a broker that has messages for programs under a tracing agent."""
    with filled() as address:
        yield address


@pytest.fixture
def group(cluster: Any) -> Iterator[Any]:
    """Of group g, whose coordinator is broker 1."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    try:
        yield consumer.consumer_group_metadata()
    finally:
        consumer.close()


@pytest.fixture
def patiently_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a second must not make a client begin without knowing its limit."""
    monkeypatch.setattr(limits, "ASK_DEADLINE_MS", 30_000)


@pytest.fixture(autouse=True)
def _tidied_up():
    yield
    close_what_was_made()


@pytest.fixture
def first() -> Iterator[Loop]:
    """In which clients are made; it goes."""
    yield from made(goes=True)


@pytest.fixture
def second() -> Iterator[Loop]:
    """Another one; it goes, too."""
    yield from made(goes=True)


@pytest.fixture
def standing() -> Iterator[Loop]:
    """It stands, and runs what it is told to run."""
    yield from made(goes=False)
