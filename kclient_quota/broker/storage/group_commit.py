"""Lets many who wait for the disk itself wait for the same sync, while the loop goes on: group commit.

What is written is handed to the operating system on the loop. A round then syncs, in the thread that waits for disks,
all that was written up to its begin; whatever is written meanwhile is for the next round.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kclient_telemetry import logger_of

from kclient_quota.broker.request.promise import Promise

if TYPE_CHECKING:
    from kclient_quota.broker.storage.disk import Later

OnDisk = Promise[OSError | None]
_RETRY_MS = 1_000
"""After how long what could not be synced is tried again, if nobody asks for it before."""
_LOG = logger_of(__name__)


class FromThread(Protocol):
    """The broker's time, also for other threads."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> object:
        """Call back on the loop once it is that time."""
        ...

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Call back on the loop, asked from any thread; nothing once that is closed."""
        ...


class Written(Protocol):
    """Something with files that a round syncs."""

    def begin_sync(self) -> None:
        """On the loop: what is there now is what `sync` is to sync."""
        ...

    def sync(self) -> None:
        """In a thread: wait for the disk."""
        ...

    def end_sync(self, error: OSError | None) -> None:
        """On the loop: the disk has what was there at the begin, or has refused."""
        ...


class GroupCommit:
    """Rounds, one after the other.

    Args:
        later: has a round's syncs done.
    """

    def __init__(self, later: "Later") -> None:
        self._later = later
        self._scheduler: FromThread | None = None
        self._written: dict[Written, None] = {}
        self._next: list[OnDisk] = []
        self._round: list[OnDisk] | None = None
        self._is_asked = False

    def attach(self, scheduler: FromThread) -> None:
        """Go on from now on; what has been written so far comes first."""
        self._scheduler = scheduler
        self._ask()

    def wrote(self, one: Written) -> None:
        """Something has been written that is to be synced with the next round."""
        self._written[one] = None
        self._ask()

    def on_disk(self) -> OnDisk:
        """Resolved once the disk has all that has been written up to now; with an error where it has refused."""
        promise = OnDisk()
        if self._written:
            self._next.append(promise)
        elif self._round is not None:
            self._round.append(promise)
        else:
            promise.resolve(None)
        return promise

    def _ask(self) -> None:
        """Begin a round in the loop's next turn: whatever is written in this one goes with it."""
        scheduler = self._scheduler
        if scheduler is not None and self._written and self._round is None and not self._is_asked:
            self._is_asked = True
            scheduler.call_at(scheduler.now_ms(), self._begin)

    def _begin(self) -> None:
        self._is_asked = False
        if self._round is not None or not self._written:
            return
        files, self._written = list(self._written), {}
        self._round, self._next = self._next, []
        refused: dict[Written, OSError] = {}
        for one in files:
            _try(one.begin_sync, one, refused)

        def work() -> None:
            for one in files:
                if one not in refused:
                    _try(one.sync, one, refused)
            assert self._scheduler is not None
            self._scheduler.call_from_thread(lambda: self._end(files, refused))

        self._later(work)

    def _end(self, files: list[Written], refused: dict[Written, OSError]) -> None:
        waiting, self._round = self._round or [], None
        for one in files:
            one.end_sync(refused.get(one))
        error = next(iter(refused.values()), None)
        if error is not None:
            _LOG.error("what was written could not be synced: %s", error)
            self._written.update(dict.fromkeys(refused))
            assert self._scheduler is not None
            self._scheduler.call_at(self._scheduler.now_ms() + _RETRY_MS, self._begin)
        if set(self._written) - set(refused):
            self._ask()
        for promise in waiting:
            promise.resolve(error)


def _try(call: Callable[[], None], one: Written, refused: dict[Written, OSError]) -> None:
    try:
        call()
    except OSError as error:
        refused[one] = error
