"""How quick the machine is that a run has, so that a budget of seconds means the same work on each."""

import time
from collections.abc import Callable

REFERENCE_S = 0.0024
"""What `work` takes on the machine for which the budgets were set, a core of a server's of 2023."""
SLOWEST = 3.0
"""No machine is given more than so many times a budget: what takes longer than that has grown."""


class Speed:
    """The mean of a small piece of work, taken now and then: cores are slow at some moments and not at others.

    Args:
        cpu_s: the seconds of CPU that this process has used.
    """

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._cpu_s = cpu_s
        self._taken_s: list[float] = []

    def take(self) -> None:
        """Do the work once; a few milliseconds."""
        began_s = self._cpu_s()
        work()
        self._taken_s.append(self._cpu_s() - began_s)

    def factor(self) -> float:
        """How many times as long as on the machine of the budgets something takes here, from 1 to `SLOWEST`."""
        if not self._taken_s:
            return 1.0
        mean_s = sum(self._taken_s) / len(self._taken_s)
        return min(max(1.0, mean_s / REFERENCE_S), SLOWEST)


def work() -> int:
    """What every Python does alike: twenty thousand steps of whole numbers."""
    total = 0
    for number in range(20_000):
        total += number * number % 7
    return total
