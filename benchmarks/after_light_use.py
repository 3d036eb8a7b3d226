"""What a producer gets when it wants everything after it has wanted little: `python -m benchmarks.after_light_use`.

In virtual time: for twelve seconds a part of the quota, one message at a time, a pause or none, and from then on all
there is to be had. Of every span of 15 s that follows the least is printed, as a part of the quota, and beside it what
the same spans have at least where everything was wanted from the start: Kafka's window has room for the whole quota
after less than the quota was used, so that no span need have less.
"""

import random
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import inf
from typing import Final, NamedTuple

from kclient_quota.simulation.batching import Batching
from kclient_quota.simulation.sending import Cell, SendingWorld, Source

QUOTA: Final = 51_200
LIGHT_MS: Final = 12_000
SECONDS: Final = 60
SPAN_MS: Final = 15_000
SETTLED_MS: Final = 100
"""An application that wants everything again is heard within so long."""
DATA: Final = (("orders", "zstd"), ("orders", "lz4"), ("noise", "none"))
PARTITIONS: Final = (1, 12)
USES: Final = ((0.3, 0), (0.3, 1_500), (0.79, 0))
"""Part of the quota that is wanted at first, and the pause after that."""


class Light(NamedTuple):
    """One cell.

    Attributes:
        data: sent.
        compression: of it.
        partitions: that it goes to.
        part: of the quota that is wanted for `LIGHT_MS`.
        pause_ms: in which nothing is wanted.
    """

    data: str
    compression: str
    partitions: int
    part: float
    pause_ms: int

    @property
    def from_ms(self) -> int:
        """When everything is wanted."""
        return LIGHT_MS + self.pause_ms

    def played(self, *, lightly: bool = True, seed: int = 1) -> tuple[float, int]:
        """The least part of the quota that 15 s have, and the longest throttle; all is always wanted if not lightly."""
        batching = Batching(self.data, self.compression)
        per_s = self.part * QUOTA / batching.request_bytes(1)

        def demand(at_ms: int) -> float:
            if not lightly or at_ms >= self.from_ms:
                return inf
            return per_s if at_ms < LIGHT_MS else 0.0

        cell = Cell(batching, self.partitions, QUOTA, sources=(Source(demand),), seconds=SECONDS, warm_up_s=0)
        sent = SendingWorld(cell, random.Random(seed)).run()
        begins = range(self.from_ms + SETTLED_MS, SECONDS * 1000 - SPAN_MS, 1_000)
        spans = [sum(size for at_ms, size in sent.records if begin <= at_ms < begin + SPAN_MS) for begin in begins]
        throttles_ms = [throttle_ms for at_ms, throttle_ms in sent.throttles if at_ms >= self.from_ms]
        return min(spans) / (QUOTA * SPAN_MS / 1000), max(throttles_ms, default=0)


CELLS: Final = tuple(Light(*kind, partitions, *use) for kind, partitions, use in product(DATA, PARTITIONS, USES))


def _row(cell: Light) -> str:
    least, throttle_ms = cell.played()
    steady, _ = cell.played(lightly=False)
    where = f"{cell.data:<7} {cell.compression:<5} {cell.partitions:>10} {cell.part:>8.2f} {cell.pause_ms:>9}"
    return f"{where} {least:>14.3f} {steady:>8.3f} {throttle_ms:>12}"


def main() -> None:
    """Prints the table."""
    print("data    codec partitions  used of  pause ms   least of 15 s   steady  throttle ms")
    with ProcessPoolExecutor() as pool:
        for row in pool.map(_row, CELLS):
            print(row, flush=True)


if __name__ == "__main__":
    main()
