"""Puts a client to many scenes, side by side: most of the time they wait."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import current_thread, main_thread
from typing import NamedTuple

from kclient_quota.certify import SIDE_BY_SIDE
from kclient_quota.certify.scene import Scene
from kclient_quota.certify.stage import play
from kclient_quota.certify.verdict import Grade, Verdict, agreed
from kclient_quota.testing.children import Children, as_they_end


class Result(NamedTuple):
    """One client in one scene.

    Attributes:
        scene: which one.
        verdict: what came of it.
        seconds: how long it took.
    """

    scene: Scene
    verdict: Verdict
    seconds: float


def certify(
    scenes: Sequence[Scene],
    command: Sequence[str],
    *,
    side_by_side: int = SIDE_BY_SIDE,
    runs: int = 1,
    say: Callable[[str], object],
) -> list[Result]:
    """Play all scenes, each `runs` times; results in their order. `say` hears of each as it ends.

    Whoever interrupts it waits for nothing: drivers are killed.
    """
    children = Children()
    pool = ThreadPoolExecutor(side_by_side)
    done: dict[str, list[Result]] = {scene.name: [] for scene in scenes}
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and current_thread() is main_thread():
            # in a shell's background; drivers would inherit it, and some scenes interrupt them
            signal.signal(signal.SIGINT, signal.default_int_handler)
        running = {pool.submit(_timed, scene, command, children): scene for _ in range(runs) for scene in scenes}
        for result in _ended(running, say, len(running)):
            done[result.scene.name].append(result)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        children.end()
        raise
    pool.shutdown()
    return [
        Result(
            scene,
            agreed([result.verdict for result in done[scene.name]]),
            max(result.seconds for result in done[scene.name]),
        )
        for scene in scenes
    ]


def _ended(running: Mapping[Future[Result], Scene], say: Callable[[str], object], count: int) -> Iterator[Result]:
    for number, future in enumerate(as_they_end(running), start=1):
        result = future.result()
        say(f"[{number}/{count}] {result.verdict.grade.value:10} {result.scene.name}: {result.verdict.why}")
        yield result


def _timed(scene: Scene, command: Sequence[str], children: Children) -> Result:
    begin = time.monotonic()
    try:
        verdict, _ = play(scene, command, children)
    except Exception as error:  # noqa: BLE001 - one scene's trouble must not take the others' results with it
        verdict = Verdict(Grade.NOT_PLAYED, f"{type(error).__name__}: {error}")
    return Result(scene, verdict, time.monotonic() - begin)
