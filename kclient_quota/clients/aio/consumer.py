"""`AIOConsumer`: confluent_kafka.aio's, with our Consumer inside; a cancelled call loses no message."""

import asyncio
import concurrent.futures
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

import confluent_kafka.aio
from confluent_kafka import Message
from confluent_kafka.aio import _common

from kclient_quota.clients.aio.arguments import configuration, workers
from kclient_quota.clients.aio.turns import CallTurns, Work
from kclient_quota.clients.calls import real
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.consumer.consumer import PacedConsumer
from kclient_quota.clients.consumer.receiving.receiving import MOST_AT_ONCE, SLICE_S
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.telemetry.methods import AIOTelemetryMethods, TelemetryMethods
from kclient_quota.clock import monotonic
from kclient_quota.metrics import MetricName

_REBALANCE_CALLBACKS: Final = ("on_assign", "on_revoke", "on_lost")
_IS_TRACED: Final = Consumer.poll is not PacedConsumer.poll or Consumer.consume is not PacedConsumer.consume
"""Whether a tracing agent looks at what is called by these names."""


class _InnerConsumer(Consumer):
    """Our Consumer that takes messages back which nobody was there to receive; its polls are slices of one of ours."""

    _kq_takes_turns = False  # the asyncio client's do, and what a callback awaits runs in another thread

    def receive(self, count: int | None, within_s: float, began: float, *, is_last: bool) -> list[Message] | None:
        """Up to `count` messages, or None where there are fewer and time is left.

        Args:
            count: messages wanted; None where one is polled for.
            within_s: how long to wait for them now.
            began: when the application has called.
            is_last: whether the application's time is over then.
        """
        self._kq_settle()
        self._kq_store_if_due()
        self._kq_serve_if_due(monotonic())
        wanted = 1 if count is None else count
        there = self._kq_gather(wanted, monotonic() + within_s)
        if not is_last and there < wanted:
            return None
        if not _IS_TRACED:
            return self._kq_hand_over(min(there, wanted), began)
        if count is not None:
            return self.consume(count, 0)
        message = self.poll(0)
        return [] if message is None else [message]

    def take_back(self, messages: list[Message]) -> None:
        """Hold `messages` before everything else that is held, as if they had not been received."""
        self._kq_settle()
        self._kq_held.put_back(messages)


def _may_await(closing: "asyncio.Future[Any]") -> bool:
    return closing.done() or closing.get_loop() is asyncio.get_running_loop()


def _look_away(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for what this fails with, which asyncio logs otherwise."""
    if not future.cancelled():
        future.exception()


class AIOConsumer(confluent_kafka.aio.AIOConsumer, AIOTelemetryMethods):
    """confluent_kafka.aio's AIOConsumer under a quota.

    Calls wait for the quota, as for anything else, in a worker, never in the event loop; one at a time, except those
    made within a callback of another. A call may be cancelled at any await, and its loop may end: what it would have
    received is received by the next one, and its worker is free within a tenth of a second. It may be used in any event
    loop, and in several at once; callbacks run in the one that has subscribed, or made it, which has to run for them.

    Args:
        consumer_conf: confluent_kafka's configuration and, all optional, our keys. Callbacks in it are coroutine
            functions, as confluent_kafka.aio wants them; interceptors are not, and run in the workers.
        max_workers: of the executor, where none is given; two at least, if callbacks call this consumer.
        executor: where to make blocking calls; it stays open when the consumer is closed.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
        ValueError: `max_workers` is less than 1.
    """

    # Not called: confluent_kafka's own __init__, which would build a plain Consumer.
    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        self._owns_executor = executor is None
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self.executor = workers(executor, max_workers)
        conf = configuration(asyncio.get_running_loop(), consumer_conf, "on_commit")
        self._closed = False
        self._closing: asyncio.Future[Any] | None = None
        self._turns = CallTurns()
        self._consumer: _InnerConsumer = _InnerConsumer(conf)

    async def poll(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's: `poll(timeout=-1)`, in seconds."""
        self._refuse_closed()
        messages = await self._receive(*_poll_arguments(*args, **kwargs))
        return messages[0] if messages else None

    async def consume(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's: `consume(num_messages=1, timeout=-1)`, in seconds."""
        self._refuse_closed()
        return await self._receive(*_consume_arguments(*args, **kwargs))

    async def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; callbacks are coroutine functions, given by position or by name."""
        loop, edit = asyncio.get_running_loop(), self._edit_rebalance_callbacks_args
        for position, name in enumerate(_REBALANCE_CALLBACKS, 1):
            if name not in kwargs:
                continue
            if kwargs[name] is None and len(args) <= position:
                del kwargs[name]  # which confluent_kafka takes in its asyncio clients, by name, only
            else:  # what cannot be called is told when it is called
                kwargs[name] = self._wrap_callback(loop, kwargs[name], edit)
        by_position = (self._wrap_callback(loop, call, edit) if callable(call) else call for call in args[1:])
        return await self._call(self._consumer.subscribe, *args[:1], *by_position, **kwargs)

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; goes on when it is cancelled, and may be awaited again."""
        closing = self._closing
        # Cancelled with all other tasks of a loop; and nobody waits for what another loop has yet to do.
        if closing is None or (closing.cancelled() and not self._closed) or not _may_await(closing):
            closing = self._closing = asyncio.ensure_future(self._close(*args, **kwargs))
        return await asyncio.shield(closing)

    async def keep_alive(self) -> None:
        """Stay in the group without receiving anything, while the application waits for something else.

        Cheap; call it a few times a second. Does nothing while another call is polling, or once closed.
        """
        if not self._closed and not self._turns.are_taken():
            await self._call(self._consumer.keep_alive)

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times and polling by Kafka's names, in milliseconds."""
        return self._consumer.metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by broker id; `stall` says why nothing comes."""
        return self._consumer.quota_state()

    def _inner(self) -> TelemetryMethods:
        return self._consumer

    async def client_instance_id(self, timeout: float) -> UUID | None:  # noqa: ASYNC109 - as our Consumer's
        """The id this client's telemetry goes by; waits for it up to `timeout` seconds."""
        ask = self._consumer.client_instance_id
        return await asyncio.get_running_loop().run_in_executor(self.executor, ask, timeout)

    async def _receive(self, count: int | None, within_s: float) -> list[Message]:
        began = monotonic()
        while True:
            left_s = max(0.0, began + within_s - monotonic()) if within_s >= 0 else SLICE_S
            is_last = within_s >= 0 and left_s <= SLICE_S
            messages = await self._run(self._take, self._unreceived, count, min(left_s, SLICE_S), began, is_last)
            if messages is not None:
                return list(messages)

    def _take(self, count: int | None, within_s: float, began: float, is_last: bool) -> list[Message] | None:
        if count is not None and not 0 < count <= MOST_AT_ONCE:
            return self._consumer.consume(count, within_s)
        return self._consumer.receive(count, within_s, began, is_last=is_last)

    def _unreceived(self, messages: list[Message] | None) -> None:
        if messages:
            self._consumer.take_back(messages)

    async def _close(self, *args: Any, **kwargs: Any) -> Any:
        is_over = False

        def close() -> Any:
            nonlocal is_over
            try:
                return self._consumer.close(*args, **kwargs)
            finally:
                is_over = True

        try:
            return await self._call(close)
        except RuntimeError:
            if is_over or not self._closed:  # not closed by another loop's call
                raise
            return None
        finally:
            if is_over:  # not where this was cancelled before; a CancelledError may be a callback's as well
                self._closed = True
                if self._owns_executor:
                    await asyncio.get_running_loop().run_in_executor(None, self.executor.shutdown, True)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    async def _call(self, blocking_task: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._run(blocking_task, None, *args, **kwargs)

    async def _run(
        self, blocking: Callable[..., Any], unreceived: Callable[[Any], None] | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Run `blocking` in a worker when it is its turn; its result goes to `unreceived` when nobody waits for it."""
        context = _common.ReentryContext
        identity = context.get_or_generate_id()
        # Calls within one callback take turns among themselves; the call that led to the callback has the other turn.
        within = context.current_lock()
        work = Work(asyncio.get_running_loop(), unreceived)
        left: Work | None = None

        def do() -> Any:
            if left is not None:
                left.give_back()
            with context.active(identity):
                return work.end(blocking(*args, **kwargs))

        end: Callable[[], None]
        if within is None:
            left = await self._turns.take(work)
            end = partial(self._turns.end, work)
        else:
            await within.acquire()
            end = within.release
        try:
            self._refuse_closed()
            work.job = self.executor.submit(do)
            future = asyncio.wrap_future(work.job)
        except BaseException:
            end()
            raise
        # A worker cannot be cancelled. Its turn lasts until it is done, so that nothing else uses the consumer.
        # No shield(): from Python 3.14 on it logs what the call fails with after its task was cancelled.
        try:
            await asyncio.wait((future,))
            result = future.result()
        except (asyncio.CancelledError, GeneratorExit):  # the latter where the loop has ended without a word
            work.abandon()
            if future.done():  # a loop that has ended calls nobody back
                _look_away(future)
            else:
                future.add_done_callback(_look_away)
            work.then(end)
            raise
        except BaseException:
            end()
            del work, end, do  # as below
            raise
        finally:
            del future  # which has its error, whose traceback has this frame: they would stay until a collection
        end()
        return None if work.is_lost and unreceived is not None else result


def _poll_arguments(timeout: float = -1) -> tuple[None, float]:
    return None, real(timeout)


def _consume_arguments(num_messages: int = 1, timeout: float = -1) -> tuple[int, float]:
    return operator.index(num_messages), real(timeout)
