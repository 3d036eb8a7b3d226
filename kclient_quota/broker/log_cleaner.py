"""Compacts logs when they are due, in turns with whatever else there is to do: Kafka's `LogCleaner`."""

from typing import TYPE_CHECKING, Final

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.log.compacted import WAITING
from kclient_quota.broker.log.compaction import compact, is_due

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient_quota.broker.log.partition_log import PartitionLog
    from kclient_quota.broker.request.context import Cancellable, Scheduler

_BACKOFF_KEY: Final = "log.cleaner.backoff.ms"
_BACKOFF_MS: Final = 15_000
_BYTES_A_TURN: Final = 64 * 1024
_LOOKS_AT_DISK_MS: Final = 2
_LEAST_BYTES: Final = 100
"""What a step counts for, however little it has looked at: a turn has some hundred steps, a few milliseconds."""


class LogCleaner:
    """Looks every `log.cleaner.backoff.ms` for logs that are due.

    Args:
        cluster: whose logs.
        scheduler: time and turns.
    """

    def __init__(self, cluster: ClusterState, scheduler: "Scheduler") -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._logs: Iterator[PartitionLog] = iter(())
        self._under_way: Iterator[int] = iter(())
        self._backoff_ms = _BACKOFF_MS
        self._next_look: Cancellable | None = None
        cluster.on_config.append(self._follow)

    def _follow(self, resource_type: int, _name: str) -> None:
        """A backoff that was changed holds from now on."""
        if resource_type != BROKER or self._next_look is None:
            return
        if self._backoff() != self._backoff_ms:
            self._next_look.cancel()
            self._wait()

    def _backoff(self) -> int:
        """Of all brokers' the shortest: their logs are one."""
        found = [self._cluster.config(BROKER, str(broker_id), _BACKOFF_KEY) for broker_id in self._cluster.brokers]
        return min(_BACKOFF_MS if value is None else int(value) for value in found)

    def _wait(self) -> None:
        self._backoff_ms = self._backoff()
        self._next_look = self._scheduler.call_at(self._scheduler.now_ms() + max(1, self._backoff_ms), self.look)

    def look(self) -> None:
        """Look at one log after the other, compact those that are due, and look again later."""
        self._next_look = None
        self._logs = self._all_logs()
        self._work()

    def _all_logs(self) -> "Iterator[PartitionLog]":
        for topic in list(self._cluster.topics.values()):
            yield from (partition.log for partition in list(topic.partitions))

    def _work(self) -> None:
        now_ms, left = self._scheduler.now_ms(), _BYTES_A_TURN
        while left > 0:
            looked_at = next(self._under_way, None)
            if looked_at is None:
                log = next(self._logs, None)
                if log is None:
                    self._wait()
                    return
                looked_at = len(log.stored.segments)
                if is_due(log, now_ms):
                    self._under_way = compact(log, now_ms)
            elif looked_at == WAITING:
                now_ms += _LOOKS_AT_DISK_MS
                break
            left -= max(looked_at, _LEAST_BYTES)
        self._scheduler.call_at(now_ms, self._work)
