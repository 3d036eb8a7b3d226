"""Python's cyclic garbage collector in a process that is a broker's own: kept away from what stays.

A full collection looks at every object there is: 0.4 s with 100,000 partitions, in the midst of whatever request
happens to be under way. So what has outlived a young collection is put aside (`gc.freeze`) and not looked at again. It
is freed as ever when nobody refers to it; only cycles that have grown old stay, and these are looked for once there is
much more than there was.
"""

import gc
from typing import Any, Final

_YOUNG, _FULL = 1, 2
_LOOKS: Final = 300
"""So many young collections put some two million objects aside at most."""
_MUCH: Final = 2_000_000


class Collector:
    """Puts aside what stays; `begin` it once, in a process that has nothing else to do."""

    def __init__(self) -> None:
        self._young = 0
        self._most = _MUCH
        self._is_looking = False

    def begin(self) -> None:
        """From now on, and all that is there already."""
        gc.freeze()
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Let the collector be as it was."""
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] < _YOUNG:
            return
        if self._is_looking:
            if info["generation"] == _FULL:
                self._is_looking = False
                gc.freeze()
                self._most = 2 * gc.get_freeze_count() + _MUCH
            return
        gc.freeze()
        self._young += 1
        if self._young >= _LOOKS:
            self._young = 0
            self._is_looking = gc.get_freeze_count() > self._most
            if self._is_looking:
                # the next full collection, which Python does by itself, looks at all of it
                gc.unfreeze()
