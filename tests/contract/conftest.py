"""One suite on two brokers: the embedded one and Apache Kafka.

A test asks for `cluster` and runs on both. It names its topics, groups and client-ids through `unique`, because Apache
Kafka is started once for the session, when the first test asks for it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import limits
from kclient_quota.testing.apache import ApacheKafka
from tests.contract.group_talk import Talk
from tests.contract.scenes import Scenes, named
from tests.required import require_apache_kafka

Unique = Callable[[str], str]
COUPLES = 6
USERS = {f"{name}-{number}": "secret" for name in ("alice", "bob") for number in range(COUPLES)}
_couples = count()


@pytest.fixture(scope="module")
def scenes(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Scenes]:
    """The module's `SCENES`, which name their topics and client-ids themselves, side by side on a cluster.

    The embedded one takes the module's `EMBEDDED`, if it has that.
    """
    with ExitStack() as stack:
        if broker_kind == "apache-kafka":
            cluster = request.getfixturevalue("apache_kafka")
        else:
            cluster = stack.enter_context(EmbeddedBroker(**getattr(request.module, "EMBEDDED", {})))
        pool = stack.enter_context(ThreadPoolExecutor(len(request.module.SCENES)))
        yield Scenes(cluster, request.module.SCENES, pool)


@pytest.fixture(scope="session")
def secure_apache_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka with users, for the whole session."""
    require_apache_kafka()
    with ApacheKafka(users=USERS) as cluster:
        yield cluster


@pytest.fixture
def secure_cluster(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Any]:
    """A cluster with the users whom `people` names, whose passwords are "secret"."""
    if broker_kind == "apache-kafka":
        yield request.getfixturevalue("secure_apache_kafka")
        return
    with EmbeddedBroker(users=USERS) as own:
        yield own


@pytest.fixture
def people(secure_cluster: Any) -> Unique:
    """An alice and a bob as whom no other test has been throttled on the shared cluster."""
    number = next(_couples) if isinstance(secure_cluster, ApacheKafka) else 0
    return lambda name: f"{name}-{number}"


@pytest.fixture
def talk(cluster: Any) -> Iterator[Talk]:
    """Single requests to a broker of the cluster."""
    with ExitStack() as stack:
        yield Talk(cluster, stack)


@pytest.fixture(autouse=True)
def _patiently_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a second must not make a client begin without knowing its limit."""
    monkeypatch.setattr(limits, "ASK_DEADLINE_MS", 30_000)


@pytest.fixture
def unique() -> Unique:
    """Names that no other test has used on the shared cluster."""
    suffix = named("")
    return lambda name: f"{name}{suffix}"
