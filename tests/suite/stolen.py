"""How much of its processors a machine lends to somebody else: figures taken meanwhile say nothing of the code."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

MUCH: Final = 0.05
"""So great a part of the processors' time, with others, disturbs a figure by as much as its bound allows."""
LEAST_TICKS: Final = 50
"""Half a second of one processor: what is shorter says nothing."""
LOOK_S: Final = 1.0
PATIENCE_S: Final = 60.0


def processors() -> tuple[int, int]:
    """Ticks that the processors have had since the machine began, those with others included, and these alone."""
    try:
        with Path("/proc/stat").open() as stat:
            ticks = [int(each) for each in stat.readline().split()[1:9]]
    except (OSError, ValueError):  # no Linux: it is not known
        return 0, 0
    return sum(ticks), ticks[7] if len(ticks) > 7 else 0  # "steal"


class Stolen:
    """What others have of the processors, from when it is made.

    Args:
        read: as `processors`.
        sleep: waits for so many seconds.
    """

    def __init__(
        self, read: Callable[[], tuple[int, int]] = processors, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._read = read
        self._sleep = sleep
        self._before = read()

    def part(self) -> float:
        """What part of their time others have had since the last call; 0 where that is not known, or too short."""
        before, self._before = self._before, self._read()
        total, others = (now - then for now, then in zip(self._before, before, strict=True))
        return others / total if total >= LEAST_TICKS else 0.0

    def await_calm(self) -> None:
        """Until others have little for a second, but no more than a minute."""
        self.part()
        for _ in range(int(PATIENCE_S / LOOK_S)):
            self._sleep(LOOK_S)
            if self.part() <= MUCH:
                return
