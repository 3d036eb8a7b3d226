"""Scenes that wait rather than work, side by side on one cluster; they name what they use themselves."""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Scene = Callable[[Any], None]


def named(name: str) -> str:
    """A name that nothing else has used on the cluster."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class Scenes:
    """What waits rather than works, begun at once on one cluster: together as long as the longest of it.

    To call it with a scene is to wait for its end. A scene is played once.
    """

    def __init__(self, cluster: Any, scenes: Sequence[Scene], pool: ThreadPoolExecutor) -> None:
        self._running = {scene: pool.submit(scene, cluster) for scene in scenes}

    def __call__(self, scene: Scene) -> None:
        self._running[scene].result()
