"""What a quota is worth on Apache Kafka: cells that cover every pair of settings, ours beside the peers.

Two dozen cells of {none, lz4, zstd} x {keys over 1, 3, 12, 100 partitions, no keys} x {four kinds of data} x {two
quotas}, such that every two settings that can meet do so in one of them. Clients mostly wait, so many run side by side.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from typing import Any, Final

from benchmarks import cell as children
from benchmarks import java_peer, runner
from benchmarks.payloads import SIZES
from benchmarks.scenes import OURS, ProducerScene
from kclient_quota.simulation.batching import Batching, ideal
from kclient_quota.testing.apache import ApacheKafka

WorthCell = tuple[str, str, int, float]
"""Data, compression, partitions that keys are spread to (0: no keys), quota."""

Keep = Callable[[dict[str, Any]], None]

CLIENTS: Final = ("plain", "plain-tuned", "java", OURS)
SECONDS: Final = 75
WAIT_S: Final = 3
KEYLESS_PARTITIONS: Final = 12
ANCHORS: Final = (("orders", "zstd", 12, 51_200.0), ("orders", "zstd", 3, 51_200.0), ("noise", "none", 3, 51_200.0))
MOST_QUEUED_KBYTES: Final = 200_000
"""What librdkafka may hold: its own hundred thousand messages of 10 kB are a gigabyte for each client."""
MOST_SIDE_BY_SIDE: Final = 12
MOST_PER_S: Final = 24_000.0
"""Messages per second of all that run side by side, as far as their quotas let them."""
_LARGE: Final = 1_000_000.0
_SEED: Final = 714
_TRIES: Final = 60


def pairs(cell: Sequence[object]) -> set[tuple[int, object, int, object]]:
    """Every two settings of a cell."""
    return {(i, cell[i], j, cell[j]) for i, j in combinations(range(len(cell)), 2)}


def covering(cells: Sequence[WorthCell], first: Iterable[WorthCell] = ANCHORS) -> list[WorthCell]:
    """Some of the cells, in which every two settings meet that do so in any of them; greedy, and seeded."""
    chance = random.Random(_SEED)
    open_pairs = set[tuple[int, object, int, object]]().union(*map(pairs, cells))
    chosen = list(first)
    for cell in chosen:
        open_pairs -= pairs(cell)
    while open_pairs:
        tries = chance.sample(cells, min(_TRIES, len(cells)))
        best = max(tries, key=lambda cell: len(pairs(cell) & open_pairs))
        if pairs(best) & open_pairs:
            chosen.append(best)
            open_pairs -= pairs(best)
    return chosen


def scene_of(cell: WorthCell, max_delay_ms: int = 0, seconds: int = SECONDS) -> ProducerScene:
    """A cell as the benchmarks play it."""
    data, compression, partitions, quota = cell
    # short, as names in the field are: every request carries the topic's and the client's
    name = f"{data[0]}{compression[0]}{partitions}{'s' if quota < _LARGE else 'l'}"
    return ProducerScene(
        f"{name}-{max_delay_ms}" if max_delay_ms else name,
        quota=int(quota),
        seconds=seconds,
        size=SIZES[data],
        wait_s=WAIT_S,
        kind=data,
        partitions=partitions,
        compression=compression,
        keyless_partitions=0 if partitions else KEYLESS_PARTITIONS,
        max_delay_ms=max_delay_ms,
        queue_kbytes=MOST_QUEUED_KBYTES if SIZES[data] >= 10_000 else 0,
    )


class Room:
    """Lets so many run side by side as the processors bear; whoever takes little may pass who waits for much."""

    def __init__(self, clients: int = MOST_SIDE_BY_SIDE, per_s: float = MOST_PER_S) -> None:
        self._changed = threading.Condition()
        self._most, self._per_s = clients, per_s
        self._running: list[float] = []

    @contextmanager
    def place(self, per_s: float) -> Iterator[None]:
        """Wait for room for one more that sends so many messages per second, and take it."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._running or (len(self._running) < self._most and sum(self._running) + per_s <= self._per_s)
                )
            )
            self._running.append(per_s)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(per_s)
                self._changed.notify_all()


def ideal_of(cell: WorthCell, max_delay_ms: int, client: str) -> float:
    """The most messages per second that a cell's quota is worth; each request names the client's own topic and id."""
    name = runner.Cell(scene_of(cell, max_delay_ms), client, 1).client_id
    data, compression, partitions, quota = cell
    batching = Batching(data, compression, names_bytes=2 * len(name))
    return ideal(batching, quota, max(partitions, 1), max_delay_ms or 1_000).messages_per_s


def measure(todo: Sequence[tuple[WorthCell, int, str]], seconds: int, keep: Keep, side_by_side: int) -> None:
    """Measure cells with clients, side by side on one Apache Kafka.

    Args:
        todo: cell, `quota.max.delay.ms` (0: as it is) and client.
        seconds: how long each sends.
        keep: given each row when it is there; one that has failed has an `error`.
        side_by_side: how many clients run at a time, at most.
    """
    room, saving = Room(side_by_side), threading.Lock()

    def work(cell: WorthCell, max_delay_ms: int, client: str) -> None:
        best = ideal_of(cell, max_delay_ms, client)
        row = {**_named(cell), "max_delay_ms": max_delay_ms or 1_000, "client": client, "ideal": best}
        with room.place(best):
            row |= _measured(cluster, runner.Cell(scene_of(cell, max_delay_ms, seconds), client, 1))
        with saving:
            keep(row)

    with ApacheKafka() as cluster, ThreadPoolExecutor(max(1, len(todo))) as pool:
        if any(client.startswith("java") for _, _, client in todo):
            java_peer.compiled()
        try:
            for done in [pool.submit(work, *each) for each in todo]:
                done.result()
        except BaseException:
            children.stop_all()
            raise


def _named(cell: WorthCell) -> dict[str, Any]:
    return dict(zip(("data", "compression", "partitions", "quota"), cell, strict=True))


_KEPT: Final = (
    "messages_per_s",
    "steady_p99_ms",
    "latency_max_ms",
    "in_call_p99_ms",
    "bytes_a_message",
    "utilisation",
    "payload_share",
    "duplicated",
    "failed",
    "longest_throttle_ms",
    "cpu_s",
)


def _measured(cluster: ApacheKafka, cell: runner.Cell) -> dict[str, Any]:
    if not isinstance(cell.scene, ProducerScene):
        raise TypeError(f"{cell.scene} is not a producer's")
    try:
        found = runner.produce(cluster, cell, cell.scene)
    except Exception as error:  # noqa: BLE001 - whatever fails must not take the others' figures with it
        return {"error": f"{type(error).__name__}: {error}"}
    return {key: found[key] for key in _KEPT}
