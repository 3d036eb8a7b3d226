"""What is done for consumers while nobody calls them: one daemon thread of the process, for all of them.

Nothing of ours runs while an application works between two polls, or stays in a rebalance callback. Until then what it
has received is to be committed, and it is to hear before, not after, that it is about to lose its partitions.
"""

import logging
import os
import threading
from dataclasses import dataclass
from typing import Final, Protocol

from kclient_quota.clients.calls import Bell, has_started
from kclient_quota.clients.heartbeat import Heartbeat
from kclient_quota.clock import Clock
from kclient_quota.cluster.late_lock import LateLock

logger = logging.getLogger("kclient_quota")

LEAST_WAIT_MS: Final = 20
LONGEST_WAIT_MS: Final = 60_000


class Looking(Protocol):
    """Something that is to be done from time to time; holds nothing that keeps a consumer alive."""

    def look(self) -> int:
        """Do what is due; returns after how many milliseconds to look again."""
        ...


class Watching:
    """Looks when it is time to; its thread lives as long as there is anything to look after."""

    def __init__(self) -> None:
        self._lock = LateLock()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Look after nothing. A forked child calls this: the thread is its parent's, and so are the consumers."""
        self._lock.begin_anew()
        self._watched: dict[int, Looking] = {}
        self._thread: threading.Thread | None = None
        self._changed: Bell | None = None  # made with a thread: gevent may have replaced threading by then

    def add(self, one: Looking) -> None:
        """Look after this from now on; nothing where that is done already."""
        with self._lock:
            self._watched[id(one)] = one
            if self._changed is None or self._thread is None or not self._thread.is_alive():
                self._changed = Bell()
                self._thread = threading.Thread(
                    target=self._run, args=(self._changed,), name="kclient-quota-watch", daemon=True
                )
                has_started(self._thread.start, "see whether a consumer polls in time")
            self._changed.ring()

    def remove(self, one: Looking) -> None:
        """Look after it no longer; may be called from a destructor."""
        with self._lock:
            self._watched.pop(id(one), None)
            if self._changed is not None:
                self._changed.ring()

    def check(self) -> int:
        """Look after everything; returns after how many milliseconds to do so again."""
        with self._lock:
            everything = list(self._watched.values())
        # Without the lock: a log handler's thread may be the one that forgets a consumer.
        return max(LEAST_WAIT_MS, min(map(_looked, everything), default=LONGEST_WAIT_MS))

    def _run(self, changed: Bell) -> None:
        while True:
            wait_ms = self.check()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
            changed.wait(wait_ms / 1000)


def _looked(one: Looking) -> int:
    """One that fails is told of, and takes neither the others nor its own next time with it."""
    try:
        return one.look()
    except Exception:
        logger.exception("Could not do what is due for a consumer that is not polled; it is tried again later")
        return LONGEST_WAIT_MS


@dataclass(frozen=True, slots=True)
class PollWatch:
    """Warns of each stretch without a poll of a consumer in a group, once.

    Attributes:
        client_id: for the log.
        heartbeat: knows when it polled.
        clock: the heartbeat's.
    """

    client_id: str
    heartbeat: Heartbeat
    clock: Clock

    def look(self) -> int:
        """Warn if it is time to; looks as often as `max.poll.interval.ms` makes useful."""
        now_ms = self.clock.now_ms()
        left_ms = self.heartbeat.near_limit(now_ms)
        if left_ms is not None:
            logger.warning(
                "Client %r has not polled for %d ms, because it is busy between polls or in a callback: in %d ms its "
                "partitions go to others (max.poll.interval.ms=%d). Do less between polls, raise "
                "max.poll.interval.ms, or let keep_alive() or Producer(conf, heartbeat=consumer) keep it in its group",
                self.client_id,
                self.heartbeat.silent_ms(now_ms),
                left_ms,
                self.heartbeat.max_poll_interval_ms,
            )
        return min(LONGEST_WAIT_MS, self.heartbeat.check_in_ms(now_ms))


WATCHING: Final = Watching()
"""Of this process."""

os.register_at_fork(after_in_child=WATCHING.begin_anew)
