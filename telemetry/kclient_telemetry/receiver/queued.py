"""Writes pushes from a thread of its own, so that a slow disk never keeps a client waiting for its answer."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kclient_telemetry import logger_of
from kclient_telemetry.receiver.fanout import ReceivedPush

log = logger_of(__name__)

QUEUE_BYTES = 64 * 1024 * 1024
TICK_MS = 1_000
_TELL_EVERY = 1_000


class PushWriter(Protocol):
    """Writes pushes somewhere; used by one thread at a time."""

    def write(self, push: ReceivedPush) -> None:
        """Write `push`; may raise, which loses and counts this push."""
        ...

    def tick(self, now_unix_ms: int) -> None:
        """Called about every second, for what is due by time."""
        ...

    def close(self) -> None:
        """Finish what has been begun."""
        ...


@dataclass(slots=True)
class QueuedCounters:
    """Where every push has gone: `received` = `written` + `failed` + `dropped` + what is still queued."""

    received: int = 0
    written: int = 0
    failed: int = 0
    dropped: int = 0


class QueuedSink:
    """A sink that hands pushes to `writer` in a daemon thread.

    Args:
        writer: closed by that thread when the sink closes.
        queue_bytes: about how much memory those that wait may take; what comes on top is dropped and counted.
        is_kept: whether what is written outlives this process, so that what is not is worth a line at its end.
        goes_on: whether it writes what comes after a push that it has lost; otherwise that counts as failed, too.
    """

    def __init__(
        self, writer: PushWriter, *, queue_bytes: int = QUEUE_BYTES, is_kept: bool = True, goes_on: bool = True
    ) -> None:
        self.counters = QueuedCounters()
        self._writer = writer
        self._queue_bytes = queue_bytes
        self._is_kept = is_kept
        self._goes_on = goes_on
        self._has_ended = False
        self._held_bytes = 0
        self._queue: queue.Queue[ReceivedPush | threading.Event | None] = queue.Queue()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._causes: Counter[tuple[type[Exception], int | None]] = Counter()
        self._thread = threading.Thread(target=self._run, name="telemetry-writer", daemon=True)
        self._thread.start()

    @property
    def held_bytes(self) -> int:
        """About how much memory those that wait take."""
        return self._held_bytes

    def accept(self, push: ReceivedPush) -> None:
        """Queue `push`, or drop and count it when there is no room or the sink is closed."""
        with self._lock:
            self.counters.received += 1
            if not self._closing.is_set() and self._held_bytes + push.held_bytes <= self._queue_bytes:
                self._held_bytes += push.held_bytes
                self._queue.put_nowait(push)
                return
            self.counters.dropped += 1
            self._has_ended = not self._goes_on
            first = self.counters.dropped == 1
        if first:
            log.warning("client telemetry is dropped: %d pushes already wait to be written", self._queue.qsize())

    def complete(self, timeout_ms: int) -> None:
        """Have what is queued written, and what has been begun finished; wait for it, `timeout_ms` at most.

        For writers that go on after `close()`, as those of files do: with another file.
        """
        completed = threading.Event()
        self._queue.put_nowait(completed)
        if self._thread.is_alive():
            completed.wait(timeout_ms / 1000)

    def close(self, timeout_ms: int) -> None:
        """Write what is queued, within `timeout_ms`."""
        self._closing.set()
        self._queue.put_nowait(None)  # it may be waiting for the next one
        self._thread.join(timeout_ms / 1000)
        if self._is_kept and self._thread.is_alive():
            done = self.counters
            left = done.received - done.written - done.failed - done.dropped
            left += getattr(self._writer, "unfinished", 0)  # taken by the writer, and not in a whole file yet
            log.warning("%d pushes of client telemetry were not written before closing", left)

    def _run(self) -> None:
        self._safely(self._tick)  # what is written first may have waited: whoever counts ages knows the time before
        while not (self._closing.is_set() and self._queue.empty()):
            try:
                push = self._queue.get(timeout=0.05 if self._closing.is_set() else TICK_MS / 1000)
            except queue.Empty:
                push = None
            if push is None:
                self._safely(self._tick)
            elif isinstance(push, threading.Event):
                self._safely(self._writer.close)
                push.set()
            else:
                written = not self._has_ended and self._safely(partial(self._writer.write, push))
                with self._lock:
                    self._held_bytes -= push.held_bytes
                self.counters.written += written
                self.counters.failed += not written
                self._safely(self._tick)
        self._safely(self._writer.close)

    def _tick(self) -> None:
        self._writer.tick(time.time_ns() // 1_000_000)

    def _safely(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a full disk, or what does not fit, loses a push, not the thread
            self._tell(error)
            self._has_ended = not self._goes_on
            return False
        return True

    def _tell(self, error: Exception) -> None:
        """A line per cause, not per push: a disk that is full stays so for thousands of them."""
        cause = type(error), getattr(error, "errno", None)
        self._causes[cause] += 1
        if self._causes[cause] % _TELL_EVERY != 1:
            return
        is_of_files = isinstance(error, OSError)  # anything else needs its traceback, whoever mends it
        remedy = "; make room, or have it written elsewhere" if is_of_files else ""
        log.warning("client telemetry could not be written: %s%s", error, remedy, exc_info=not is_of_files)
