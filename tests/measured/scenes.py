"""Scenes that are measured side by side, since they wait rather than work, on clusters that serve nobody else."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker

Figures = Mapping[str, float]
Scene = Callable[[Any], Figures]


def named(name: str) -> str:
    """A name that nothing else has used on the cluster."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class Played:
    """Every scene once, together; one whose figures are asked for again is played again, alone.

    Args:
        clusters: where, by scene.
        pool: has a thread for each.
    """

    def __init__(self, clusters: Mapping[Scene, Any], pool: ThreadPoolExecutor) -> None:
        self._clusters = clusters
        self._running: dict[Scene, Future[Figures]] = {
            scene: pool.submit(scene, cluster) for scene, cluster in clusters.items()
        }

    def __call__(self, scene: Scene) -> Figures:
        running = self._running.pop(scene, None)
        return scene(self._clusters[scene]) if running is None else running.result()


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[Played]:
    """The figures of the module's `SCENES`, and of `ON_THREE_BROKERS`, which are played side by side."""
    with ExitStack() as stack:

        def cluster(fixture: str, brokers: int) -> Any:
            if broker_kind == "apache-kafka":
                return request.getfixturevalue(fixture)
            return stack.enter_context(EmbeddedBroker(brokers=brokers))

        clusters = dict.fromkeys(request.module.SCENES, cluster("apache_kafka", 1))
        on_three = getattr(request.module, "ON_THREE_BROKERS", ())
        if on_three:
            clusters |= dict.fromkeys(on_three, cluster("three_apache_brokers", 3))
        yield Played(clusters, stack.enter_context(ThreadPoolExecutor(len(clusters))))


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
