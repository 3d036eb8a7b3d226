"""Says before, not after, that a consumer is about to lose its partitions because nobody polls it.

Nothing of ours runs while an application works between two polls, or stays in a rebalance callback. So one daemon
thread for all consumers of a process looks after them, as often as their `max.poll.interval.ms` makes useful.
"""

import logging
import threading
from dataclasses import dataclass
from typing import Final

from kclient_quota.clients.heartbeat import Heartbeat
from kclient_quota.clock import Clock

logger = logging.getLogger("kclient_quota")

LEAST_WAIT_MS: Final = 20


@dataclass(frozen=True, slots=True)
class Watched:
    """A consumer in a group; holds nothing that keeps it alive.

    Attributes:
        client_id: for the log.
        heartbeat: knows when it polled.
        clock: the heartbeat's.
    """

    client_id: str
    heartbeat: Heartbeat
    clock: Clock


class PollWatch:
    """Warns of each stretch without a poll once; its thread lives as long as anything is watched."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[int, Watched] = {}
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        """Look after a consumer from now on; nothing where that is done already."""
        with self._changed:
            self._watched[id(watched.heartbeat)] = watched
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="kclient-quota-polls", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, heartbeat: Heartbeat) -> None:
        """Look after it no longer; may be called from a destructor."""
        with self._changed:
            self._watched.pop(id(heartbeat), None)
            self._changed.notify()

    def check(self) -> int:
        """Warn where it is time to; returns after how many milliseconds to look again."""
        with self._changed:
            everybody = list(self._watched.values())
        wait_ms = 60_000
        for one in everybody:
            now_ms = one.clock.now_ms()
            left_ms = one.heartbeat.near_limit(now_ms)
            if left_ms is not None:
                # Without the lock: a log handler's thread may be the one that forgets a consumer.
                _warn(one, left_ms, now_ms)
            wait_ms = min(wait_ms, one.heartbeat.check_in_ms(now_ms))
        return max(LEAST_WAIT_MS, wait_ms)

    def _run(self) -> None:
        while True:
            wait_ms = self.check()
            with self._changed:
                if not self._watched:
                    self._thread = None
                    return
                self._changed.wait(wait_ms / 1000)


def _warn(one: Watched, left_ms: int, now_ms: int) -> None:
    logger.warning(
        "Client %r has not polled for %d ms, because it is busy between polls or in a callback: in %d ms its "
        "partitions go to others (max.poll.interval.ms=%d). Do less between polls, raise max.poll.interval.ms, or let "
        "keep_alive() or Producer(conf, heartbeat=consumer) keep it in its group",
        one.client_id,
        one.heartbeat.silent_ms(now_ms),
        left_ms,
        one.heartbeat.max_poll_interval_ms,
    )


POLL_WATCH: Final = PollWatch()
"""Of this process."""
