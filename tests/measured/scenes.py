"""Scenes that are measured side by side, since they wait rather than work, on one cluster that serves nobody else."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

Figures = Mapping[str, float]
Scene = Callable[[Any], Figures]


def named(name: str) -> str:
    """A name that nothing else has used on the cluster."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class Played:
    """Every scene once, together; one whose figures are asked for again is played again, alone.

    Args:
        cluster: where.
        scenes: all of them.
        pool: has a thread for each.
    """

    def __init__(self, cluster: Any, scenes: Sequence[Scene], pool: ThreadPoolExecutor) -> None:
        self._cluster = cluster
        self._running: dict[Scene, Future[Figures]] = {scene: pool.submit(scene, cluster) for scene in scenes}

    def __call__(self, scene: Scene) -> Figures:
        running = self._running.pop(scene, None)
        return scene(self._cluster) if running is None else running.result()


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
