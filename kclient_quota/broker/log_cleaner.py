"""Compacts logs when they are due, in turns with whatever else there is to do: Kafka's `LogCleaner`."""

from collections import deque
from typing import TYPE_CHECKING, Final

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.log.compaction import compact, is_due

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient_quota.broker.log.partition_log import PartitionLog
    from kclient_quota.broker.request.context import Cancellable, Scheduler

_BACKOFF_KEY: Final = "log.cleaner.backoff.ms"
_BACKOFF_MS: Final = 15_000
_BYTES_A_TURN: Final = 64 * 1024
"""Some milliseconds of reading records."""


class LogCleaner:
    """Looks every `log.cleaner.backoff.ms` for logs that are due.

    Args:
        cluster: whose logs.
        scheduler: time and turns.
    """

    def __init__(self, cluster: ClusterState, scheduler: "Scheduler") -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._due: deque[PartitionLog] = deque()
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
        """Begin with the logs that are due now, and look again later."""
        self._next_look = None
        now_ms = self._scheduler.now_ms()
        self._due.extend(log for log in self._compacted_logs() if is_due(log, now_ms))
        self._work()

    def _compacted_logs(self) -> "Iterator[PartitionLog]":
        for topic in self._cluster.topics.values():
            if topic.partitions and topic.partitions[0].log.config.is_compacted:
                yield from (partition.log for partition in topic.partitions)

    def _work(self) -> None:
        now_ms, left = self._scheduler.now_ms(), _BYTES_A_TURN
        while left > 0:
            looked_at = next(self._under_way, None)
            if looked_at is not None:
                left -= looked_at
            elif self._due:
                self._under_way = compact(self._due.popleft(), now_ms)
            else:
                self._wait()
                return
        self._scheduler.call_at(now_ms, self._work)
