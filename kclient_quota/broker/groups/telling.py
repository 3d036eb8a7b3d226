"""Tells of groups in `__consumer_offsets`: small changes at once, large ones no more often than they are worth."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from kclient_telemetry import logger_of

from kclient_quota.broker.groups.coordinator_record import CoordinatorRecord
from kclient_quota.broker.groups.timers import Timers
from kclient_quota.broker.internal_topics import InternalTopic
from kclient_quota.broker.request.context import Alarm, Scheduler

_LOG = logger_of(__name__)
_SMALL_BYTES: Final = 16_384
_AT_ONCE_BYTES: Final = 100_000
"""What is told of a group in one turn, and a record more: a few milliseconds."""
_BYTES_PER_MS: Final = 500
"""A group of which 500 kB were told is not told of again within a second: what it has become by then is told."""


class Telling:
    """Writes what has changed of groups, of large ones some at a time.

    What is left is not kept: when its turn comes, it is asked for anew. So a group that has changed meanwhile is told
    as it is then, and one that is no more is not told to its end. Only what is made in steps goes on in the
    next turn; who has changed meanwhile is told of anew after it.

    Args:
        topic: where to.
        scheduler: time.
        changes: what has changed of a group since this was called last, or that it is no more; as far as it is taken
            it is told. None among it: others have their turn before it goes on.
        forget: called with a group of which could not be told: `changes` begins anew.
    """

    def __init__(
        self,
        topic: InternalTopic,
        scheduler: Scheduler,
        changes: Callable[[str], Iterable[CoordinatorRecord | None]],
        forget: Callable[[str], None],
    ) -> None:
        self._topic = topic
        self._scheduler = scheduler
        self._changes = changes
        self._forget = forget
        self._resting: Timers[str] = Timers()
        self._waiting: dict[str, None] = {}
        self._begun: dict[str, Iterator[CoordinatorRecord | None]] = {}
        self._alarm = Alarm(scheduler, self._tick)

    def tell(self, group_ids: Iterable[str]) -> None:
        """Tell of groups, now or a little later."""
        for group_id in group_ids:
            if self._resting.deadline_ms(group_id) is None:
                self._tell(group_id)
            else:
                self._waiting[group_id] = None

    def tell_now(self, group_id: str) -> None:
        """Tell of a group that is no more before another of its name is told of."""
        self._waiting.pop(group_id, None)
        self._begun.pop(group_id, None)
        self._tell(group_id, inf)

    def _tell(self, group_id: str, most: float = _AT_ONCE_BYTES) -> None:
        begun = self._begun.pop(group_id, None)
        if not self._topic.is_told:
            return
        said = iter(self._changes(group_id)) if begun is None else begun
        records, size = [], 0
        for record in said:
            if record is not None:
                records.append(record)
                size += len(record[0]) + len(record[1] or b"")
            elif most < inf:
                self._begun[group_id] = said
                break
            if size >= most:
                self._waiting[group_id] = None
                break
        if records:
            self._append(group_id, records)
        if size > _SMALL_BYTES or group_id in self._begun or group_id in self._waiting:
            self._resting.schedule(group_id, self._scheduler.now_ms() + size // _BYTES_PER_MS)
            self._alarm.set(self._resting.next_deadline_ms())

    def _append(self, group_id: str, records: list[CoordinatorRecord]) -> None:
        try:
            self._topic.append_all(group_id, records)
        except OSError as error:
            # who is in a group is not read back: the group itself is none the worse
            _LOG.error("who is in group %s is not told: %s", group_id, error)
            self._begun.pop(group_id, None)
            self._forget(group_id)

    def _tick(self) -> None:
        group_id = self._resting.pop_due(self._scheduler.now_ms())
        # of another one in the loop's next turn
        if group_id is not None and (group_id in self._begun or group_id in self._waiting):
            if group_id not in self._begun:
                del self._waiting[group_id]
            self._tell(group_id)
        self._alarm.set(self._resting.next_deadline_ms())
