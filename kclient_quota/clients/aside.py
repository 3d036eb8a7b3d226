"""Stepping aside: while no quota applies, a producer's doors are confluent_kafka's own.

A mere Python override of `produce` costs a tenth of its rate and more. So a producer that need not wait changes its
class to one whose doors are the C methods, and back when a quota appears: always from one of our callbacks, in a poll.

Callbacks run inside poll() and flush(), and confluent_kafka aborts the process when one of them polls again. So a gated
door that would poll must know whether a callback has called it. Gated polls are marked. Those that began while the
producer stood aside are not; the one that served the callback in which it stepped in is recognized by the frame it was
called from, and threads that may be inside another one wait without polling until they have polled for themselves.
"""

import sys
import threading
from enum import Enum
from types import FrameType
from typing import Final

DOORS: Final = ("produce", "produce_batch", "poll", "flush")
"""What is confluent_kafka's own while no quota applies."""

_get_ident = threading.get_ident


class Where(Enum):
    """Where a thread is, as far as one producer's callbacks go."""

    OUTSIDE = "outside"
    INSIDE = "inside"
    UNSURE = "unsure"


class CallbackGuard:
    """Knows which threads are inside a callback of one producer; entered around everything that serves callbacks."""

    def __init__(self) -> None:
        self._polling: set[int] = set()
        self._sure: set[int] | None = None
        self._caller = (0, 0, 0)
        self._old_poll = (0, 0, 0)

    def __enter__(self) -> None:
        ident = _get_ident()
        if ident in self._polling:
            raise RuntimeError("a callback cannot poll, flush or close its own producer")
        if self._sure is not None:
            self._sure.add(ident)
        self._polling.add(ident)

    def __exit__(self, *_: object) -> None:
        self._polling.discard(_get_ident())

    def called_from(self, frame: FrameType) -> None:
        """A callback of ours runs; `frame` is that of its caller, which polls."""
        self._caller = (_get_ident(), id(frame), frame.f_lasti)

    def stepped_in(self) -> None:
        """Polls have been unmarked until now, the one that serves the current callback among them."""
        self._old_poll = self._caller
        self._sure = set()

    def where(self) -> Where:
        """Whether the calling thread is inside a callback."""
        ident = _get_ident()
        if ident in self._polling:
            return Where.INSIDE
        if self._sure is None or ident in self._sure:
            return Where.OUTSIDE
        poller, frame_id, instruction = self._old_poll
        if ident != poller:
            return Where.UNSURE
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - CPython's own way to a stack; there is no public name
        while frame is not None:
            if id(frame) == frame_id and frame.f_lasti == instruction:
                return Where.INSIDE
            frame = frame.f_back
        return Where.OUTSIDE
