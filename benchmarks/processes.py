"""Other processes: modules that are run in them, and their CPU time."""

import subprocess
import sys
from pathlib import Path


def spawned(module: str, *arguments: str) -> "subprocess.Popen[str]":
    """A module with these arguments, whose input and output are ours."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class CpuTime:
    """CPU time of a process, thread by thread in the scheduler's nanoseconds; clock ticks would be too coarse.

    Args:
        pid: the process. A thread that ends keeps what it had when this was last asked.
    """

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._nanoseconds: dict[str, int] = {}

    def seconds(self) -> float:
        """Of all threads together, so far."""
        for thread in self._tasks.iterdir():
            try:
                self._nanoseconds[thread.name] = int((thread / "schedstat").read_text().split()[0])
            except FileNotFoundError:  # a thread that has just ended
                continue
        return sum(self._nanoseconds.values()) / 1e9
