"""How `AIOProducer` keeps a consumer in its group while messages wait for the quota."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, Final

import confluent_kafka.aio

from kclient_quota.clients.heartbeat import CLOSED

LAST_BEAT_S: Final = 2.0
"""How long closing waits for a beat, whose callback may be what closes."""


class Beats:
    """One beat at a time; belongs to one event loop.

    A beat may run rebalance callbacks, and these may flush: so nothing that a flush waits for may wait for a beat.

    Args:
        consumer: of asyncio or not; None beats nothing.
        executor: where a consumer not of asyncio is called.
        keep_alive: calls that one.
    """

    def __init__(self, consumer: Any, executor: concurrent.futures.Executor, keep_alive: Callable[[], None]) -> None:
        self._consumer = consumer
        self._executor = executor
        self._keep_alive = keep_alive
        self._beating = False
        self._task: asyncio.Task[None] | None = None

    async def beat(self) -> None:
        """Keep the consumer alive, unless that is being done."""
        if self._consumer is None or self._beating:
            return
        self._beating = True
        try:
            await self._reach()
        except RuntimeError as error:
            if str(error) != CLOSED and self._has_workers():
                raise  # a rebalance callback's
            self._consumer = None
        finally:
            self._beating = False

    def start(self) -> None:
        """The same, without waiting for it."""
        if self._consumer is not None and not self._beating and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.beat())
            self._task.add_done_callback(self._ended)

    def cease(self) -> None:
        """Begin no other beat; from any thread."""
        self._consumer = None

    async def end(self) -> None:
        """Beat no more."""
        self.cease()
        await self.idle(LAST_BEAT_S)

    async def idle(self, within_s: float) -> None:
        """Wait for a beat that nobody waits for, and the callbacks that run in it."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    def _has_workers(self) -> bool:
        """Whether those who are to beat still take work; a callback may say the same of its own workers."""
        is_of_asyncio = isinstance(self._consumer, confluent_kafka.aio.AIOConsumer)
        workers = getattr(self._consumer, "executor", self._executor) if is_of_asyncio else self._executor
        try:
            workers.submit(int)
        except RuntimeError:
            return False
        return True

    async def _reach(self) -> None:
        consumer = self._consumer
        if isinstance(consumer, confluent_kafka.aio.AIOConsumer):
            ours = getattr(consumer, "keep_alive", None)
            await (consumer.consume(0, 0) if ours is None else ours())
        else:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._keep_alive)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text = "A callback failed while messages waited for the quota"
            task.get_loop().call_exception_handler({"message": text, "exception": error, "task": task})
