"""Scenes that are measured side by side, since they wait rather than work, on clusters that serve nobody else."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from kclient_quota.testing.apache import apache_kafka_unavailable_reason
from tests.measured.hosted import Hosted
from tests.suite.reporting import is_ci

Figures = Mapping[str, Any]
Scene = Callable[[Any], Figures]
REPRESENTATIVE = "apache-kafka" if is_ci() or apache_kafka_unavailable_reason() is None else "embedded"
"""What the README claims is claimed of Apache Kafka; without it the embedded broker stands for it."""
EVEN = "even"
"""The round of files whose scenes wait rather than work, and disturb each other no more than those of one file."""
IN_EVERY_MANNER = "in every manner" if REPRESENTATIVE == "apache-kafka" else EVEN
"""The round of a dozen brokers more; beside Apache Kafka there is no processor left for them at the same time."""


def named(name: str) -> str:
    """A name that nothing else has used on the cluster."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class Played:
    """The scenes of a round once, together; one whose figures are asked for again is played again, alone.

    Args:
        rounds: where each scene is played, round by round; the first scene that is asked for begins its round.
        pool: has a thread for each.
    """

    def __init__(self, rounds: Iterable[Mapping[Scene, Any]], pool: ThreadPoolExecutor) -> None:
        self._waiting = list(rounds)
        self._clusters = {scene: cluster for scenes in self._waiting for scene, cluster in scenes.items()}
        self._pool = pool
        self._running: dict[Scene, Future[Figures]] = {}

    def __call__(self, scene: Scene) -> Figures:
        for scenes in [each for each in self._waiting if scene in each]:
            self._waiting.remove(scenes)
            self._running |= {each: self._pool.submit(each, cluster) for each, cluster in scenes.items()}
        running = self._running.pop(scene, None)
        return scene(self._clusters[scene]) if running is None else running.result()


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Played]:
    """The scenes of the files that are asked for. Files of one `ROUND` are played together, others by themselves.

    `SCENES` of a file share a cluster, `ON_THREE_BROKERS` one of three, and `ON_THEIR_OWN` start what they need.
    """
    with ExitStack() as stack:

        def cluster(fixture: str, brokers: int) -> Any:
            if broker_kind == "apache-kafka":
                return request.getfixturevalue(fixture)
            return stack.enter_context(Hosted(brokers))

        rounds: dict[str, dict[Scene, Any]] = {}
        for module in _modules(request):
            scenes = rounds.setdefault(getattr(module, "ROUND", module.__name__), {})
            if hasattr(module, "SCENES"):
                scenes |= dict.fromkeys(module.SCENES, cluster("apache_kafka", 1))
            if hasattr(module, "ON_THREE_BROKERS"):
                scenes |= dict.fromkeys(module.ON_THREE_BROKERS, cluster("three_apache_brokers", 3))
            scenes |= dict.fromkeys(getattr(module, "ON_THEIR_OWN", ()), None)
        yield Played(rounds.values(), stack.enter_context(ThreadPoolExecutor(sum(map(len, rounds.values())))))


def _modules(request: pytest.FixtureRequest) -> list[ModuleType]:
    """Of the tests that are to run and ask for what was played, each once."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    return list(dict.fromkeys(item.module for item in tests if "played" in item.fixturenames))


def longest_gap_s(came: Sequence[float]) -> float:
    """Between two neighbours of these times."""
    return max(later - earlier for earlier, later in pairwise(came))


def recorded(cluster: Any, kind: str, client_id: str) -> float:
    """Bytes per second, of all brokers, as they hold them against a quota: over the last ten seconds or so."""
    return sum(
        value
        for (_, group, name, tags), value in cluster.metrics().items()
        if group == kind and name == "byte-rate" and f"client-id={client_id}" in tags.split(",")
    )
