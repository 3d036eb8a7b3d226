"""What the asyncio clients have in one event loop. They are used from any: from one after another, or several at once.

No loop waits for what another one is to do: one that runs now may stand still, or be closed, at any moment.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from kclient_quota.clients.aio.heartbeat import Beats

    Report = tuple[Any, KafkaError | None, Message]  # the first is a `pending.Pending`


class Waiter:
    """Somebody who waits in the event loop that runs, and is woken from any thread.

    Attributes:
        loop: where.
    """

    __slots__ = ("_woken", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have it look again."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._woken.set)

    async def wait(self) -> None:
        """Until it is woken."""
        await self._woken.wait()
        self._woken.clear()


async def ended(job: concurrent.futures.Future[Any]) -> None:
    """Wait until a worker's job has ended, in whatever way; others may, too, and cancelling this leaves it alone."""
    waiter = Waiter()
    job.add_done_callback(lambda _: waiter.wake())
    await waiter.wait()


class InThisThread(concurrent.futures.Executor):
    """Has jobs done at once by who submits them: once the interpreter ends workers begin nothing more."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Do it."""
        job: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            job.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            job.set_exception(error)
        return job


class InLoop:
    """What an `AIOProducer` has in one event loop: only that loop touches it, reports aside.

    Attributes:
        loop: this one.
        reports: of messages that were taken here: those that their futures have not been told of.
        wanting: how many wait for room.
        has_news: whether there is anything new for the pump to hand over.
        timer: starts the pump.
        pump: hands messages over, all loops' that wait.
        poller: looks for reports, all loops'.
        closing: closes the producer.
        beats: keep a consumer in its group.
    """

    __slots__ = ("_heir", "beats", "closing", "has_news", "loop", "poller", "pump", "reports", "timer", "wanting")

    def __init__(self, loop: asyncio.AbstractEventLoop, beats: "Beats") -> None:
        self.loop = loop
        self.beats = beats
        self.reports: deque[Report] = deque()
        self.wanting = 0
        self.has_news = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        self.pump: asyncio.Task[None] | None = None
        self.poller: asyncio.Task[None] | None = None
        self.closing: asyncio.Task[None] | None = None
        self._heir: InLoop | None = None

    @property
    def is_left(self) -> bool:
        """Whether its close was cancelled with all other tasks: it ends, and a task that begins now never would."""
        return self.closing is not None and self.closing.cancelled()

    def hear(self, report: "Report") -> None:
        """A report has come, in a worker."""
        self.reports.append(report)
        if self._heir is not None:
            self.leave_to(self._heir)

    def leave_to(self, heir: "InLoop") -> None:
        """This loop is closed: that one hears what comes for it."""
        self._heir = heir  # first: who hears of one meanwhile sees it, or is seen below
        with suppress(IndexError):
            while True:
                heir.hear(self.reports.popleft())
