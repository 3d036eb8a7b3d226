"""How far long work is: one line on standard error, drawn anew, and only where somebody looks at a terminal.

In a pipe, a file or CI nothing of it is written; results go to standard output as ever.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

CALM_S: Final = 0.5
"""Work that is over sooner has nothing drawn."""
_EVERY_S: Final = 0.25
_CLEARED: Final = "\r\x1b[2K"


class Progress:
    """Of one piece of work.

    Args:
        what: it is, in a few words.
        stream: where it is drawn.
    """

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._words: Callable[[], str] = str
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="kclient-quota-progress", daemon=True)

    def ask(self, words: Callable[[], str]) -> None:
        """Tell what this says, asked a few times a second, in another thread."""
        self._words = words

    def tell(self, done: int, whole: int, unit: str) -> None:
        """So much of so much is done."""
        self._words = f"{done:,} of {whole:,} {unit}".__str__

    def start(self) -> None:
        """Draw from now on."""
        self._thread.start()

    def end(self) -> None:
        """Draw no more, and leave the line as it was found."""
        self._ended.set()
        self._thread.join()

    def _draw(self) -> None:
        is_drawn = False
        pause_s = CALM_S
        while not self._ended.wait(pause_s):
            pause_s = _EVERY_S
            told = [self._what, self._said(), f"{time.monotonic() - self._began:.0f} s"]
            line = ", ".join(filter(None, told))[: shutil.get_terminal_size().columns - 1]
            is_drawn = self._write(f"{_CLEARED}{line}")
        if is_drawn:
            self._write(_CLEARED)

    def _said(self) -> str:
        try:
            return self._words()
        except Exception:  # noqa: BLE001 - what cannot say how far it is goes on all the same
            return ""

    def _write(self, text: str) -> bool:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._ended.set()
            return False
        return True


class Unseen(Progress):
    """Of work that nobody watches: draws nothing."""

    def start(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """Draw how far the work inside is, if standard error is a terminal."""
    stream = sys.stderr
    is_seen = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    drawn = (Progress if is_seen else Unseen)(what, stream)
    drawn.start()
    try:
        yield drawn
    finally:
        drawn.end()
