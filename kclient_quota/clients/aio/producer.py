"""`AIOProducer`: confluent_kafka.aio's, with our Producer inside; whoever waits for the quota waits in the event loop.

Messages are taken into a buffer, which one task, the pump, hands over as fast as the quota allows, none behind those of
another lane or tenant that wait; another polls for delivery reports while any is due. Blocking calls run in workers,
for a tenth of a second at most, and all state belongs to the event loop: so every await may be cancelled.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import confluent_kafka.aio
from confluent_kafka import KafkaException

from kclient_quota.clients.aio.arguments import configuration, fit_time, workers
from kclient_quota.clients.aio.buffer import Buffer, hand_over
from kclient_quota.clients.aio.heartbeat import Beats
from kclient_quota.clients.aio.pending import InnerProducer, Pending, Report, message_of, never_blocking
from kclient_quota.clients.aio.transactions import AIOTransactions
from kclient_quota.clients.calls import real
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.telemetry import AIOTelemetryMethods, TelemetryMethods
from kclient_quota.config import Backoff, split
from kclient_quota.errors import quota_used_up
from kclient_quota.metrics import MetricName

if TYPE_CHECKING:
    from kclient_quota.clients.producer.sorting import Place

SLICE_MS: Final = 100
"""Longest time a worker polls on, and longest sleep: how soon a cancellation or a raised quota is noticed."""
MOST_AT_ONCE: Final = 1_000
"""Messages one worker hands over before the event loop hears of it."""


class AIOProducer(AIOTransactions, AIOTelemetryMethods):
    """confluent_kafka.aio's AIOProducer under a quota.

    `await produce(...)` takes a message and returns a future of its delivery. It waits while `batch_size` messages
    are waiting for the quota already, up to `max.block.ms`; cancelled while it waits, it has not taken the message.
    With `quota.backoff=raise` it hands the message over at once or raises `QuotaThrottledError`. Headers, partition,
    timestamp and `on_delivery`, a plain function, are taken as `confluent_kafka.Producer.produce` takes them.

    Args:
        producer_conf: confluent_kafka's configuration and, all optional, our keys. Callbacks in it are coroutine
            functions, as confluent_kafka.aio wants them.
        max_workers: of the executor, where none is given.
        executor: where to make blocking calls; it stays open when the producer is closed.
        batch_size: how many messages of each lane and tenant may wait here; they are handed over when there are so
            many ...
        buffer_timeout: ... or when the first of them has waited this many seconds; 0 leaves it to `flush()`.
        heartbeat: a consumer, of asyncio or not, to keep in its group while messages wait for the quota.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """

    # Not called: confluent_kafka's own __init__, which would build a plain Producer.
    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: concurrent.futures.Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
        *,
        heartbeat: Any = None,
    ) -> None:
        self._owns_executor = executor is None
        self.executor = workers(executor, max_workers)
        self._loop = asyncio.get_running_loop()
        ours = split(conf := configuration(self._loop, producer_conf))[1]
        self._raises = ours.backoff is Backoff.RAISE
        self._max_block_ms = ours.max_block_ms
        if ours.backoff is Backoff.BLOCK:
            conf["quota.backoff"] = str(Backoff.RAISE)  # the waiting is done here
        if ours.lanes:
            conf["quota.lanes"] = never_blocking(ours.lanes)
        plain = None if isinstance(heartbeat, confluent_kafka.aio.AIOConsumer) else heartbeat
        self._producer: InnerProducer = InnerProducer(conf, heartbeat=plain)
        if not self._raises:
            self._producer.ask_from_workers()
        self._clock = self._producer.clock
        self._batch_size = max(1, batch_size)
        self._buffer_timeout = buffer_timeout if buffer_timeout > 0 else None
        self._beats = Beats(heartbeat, self.executor, self._producer.keep_alive)
        self._buffer = Buffer(self._batch_size, self._producer.lanes)
        self._in_hand: list[Pending] = []
        self._reports: deque[Report] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._retry_after_ms = 0
        self._full: Mapping[Place, BufferError] = {}  # those that the pump had no room for
        self._has_news, self._abort_turn = asyncio.Event(), asyncio.Lock()
        self._refused = self._purged = self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Messages that wait here, and those with librdkafka; 0 once closed."""
        return 0 if self._is_closed else self._waiting() + len(self._producer)

    # Producing ----------------------------------------------------------------------------------------------------

    async def produce(
        self, topic: str, value: Any | None = None, key: Any | None = None, *args: Any, **kwargs: Any
    ) -> "asyncio.Future[Any]":
        """Take a message; see the class.

        Returns:
            a future of the delivered `Message`. It fails with `KafkaException`, or `QuotaThrottledError` when nothing
            was admitted for `max.block.ms`. Cancelling it does not take the message back.

        Raises:
            QuotaThrottledError: no room after `max.block.ms`; at once with `quota.backoff=raise`.
            KafkaException: within a transaction, as `commit_transaction()`.
            RuntimeError: the producer was closed.
        """
        self._refuse_closed()
        self._join_loop()
        era = self._producer.open_era
        await self._abort_overdue()
        pending = message_of(self._loop, topic, value, key, *args, **kwargs)
        if self._raises:
            self._hand_now(pending)
            await self._abort_overdue()
            return pending.delivered
        place = pending.place = self._producer.place_of(pending)
        if self._buffer.is_full(place):
            self._start_pump()
        try:
            await self._buffer.acquire(place, self._max_block_ms / 1000)
        except TimeoutError:
            raise quota_used_up(self._retry_after_ms) from None
        if self._is_closed:
            self._buffer.release(place)
            self._refuse_closed()
        try:
            await self._abort_overdue()
            await self._insist(era)
        except BaseException:
            self._buffer.release(place)
            raise
        pending.taken_at_ms = self._clock.now_ms()
        self._buffer.append(pending)
        if place not in self._full:
            self._has_news.set()
        if len(self._buffer) >= self._batch_size:
            self._start_pump()
        elif self._timer is None and self._buffer_timeout is not None:
            self._timer = self._loop.call_later(self._buffer_timeout, self._start_pump)
        return pending.delivered

    async def poll(self, timeout: float = 0, *args: Any, **kwargs: Any) -> int:  # noqa: ASYNC109 - confluent_kafka's
        """As confluent_kafka.aio's. Not needed: reports are waited for in the background."""
        if not fit_time(timeout, *args, **kwargs):  # librdkafka says what is wrong
            return cast("int", await self._call(self._producer.poll, timeout, *args, **kwargs))
        deadline_ms = self._deadline_ms(timeout)
        while True:
            slice_ms = self._slice_ms(deadline_ms)
            served = cast("int", await self._call(self._producer.poll, slice_ms / 1000))
            if served or not slice_ms:
                return served

    async def flush(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's: `flush(timeout=-1)`, in seconds; returns how many are not delivered yet.

        Raises:
            KafkaException: within a transaction, as `commit_transaction()`.
        """
        if not fit_time(*args, **kwargs):  # librdkafka says what is wrong
            return await self._call(self._producer.flush, *args, **kwargs)
        self._join_loop()
        era = self._producer.open_era
        left = await self._flush(self._deadline_ms(*args, **kwargs))
        await self._insist(era)
        return left

    async def _flush(self, deadline_ms: int | None) -> int:
        while True:
            slice_ms = self._slice_ms(deadline_ms)
            self._start_pump()
            await self._call(self._producer.flush, slice_ms / 1000)
            if self._pump is not None and slice_ms:
                await asyncio.wait([self._pump], timeout=self._slice_ms(deadline_ms) / 1000)
            left = self._waiting() + len(self._producer)
            if not left or not slice_ms:
                self._settle()
                return left
            await self._beats.beat()

    async def purge(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; futures of messages that waited here are cancelled, the others fail."""
        self._drop(lambda delivered: delivered.cancel())
        done = await self._call(self._producer.purge, *args, **kwargs)
        self._start_poller()
        return done

    # Being seen and ending ----------------------------------------------------------------------------------------

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times by Kafka's names, in ms: per client, and per broker with the tag `node-id`."""
        return self._producer.metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by its id; -1 as long as that is not known."""
        return self._producer.quota_state()

    def _inner(self) -> TelemetryMethods:
        return self._producer

    async def client_instance_id(self, timeout: float) -> UUID | None:  # noqa: ASYNC109 - as our Producer's
        """The id this client's telemetry goes by; waits for it up to `timeout` seconds."""
        return cast("UUID | None", await self._call(self._producer.client_instance_id, timeout))

    async def close(self) -> None:
        """Deliver what there is and close; takes little more than `max.block.ms`.

        What cannot be delivered by then fails: each message's future is done afterwards. Goes on when it is cancelled,
        and may be awaited again.
        """
        self._join_loop()
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        deadline_ms = self._clock.now_ms() + self._max_block_ms
        while self._waiting() and self._clock.now_ms() < deadline_ms and not self._producer.outlasts(deadline_ms):
            await self._flush(self._deadline_ms(SLICE_MS / 1000))
        error = quota_used_up(self._retry_after_ms)
        self._drop(lambda delivered: delivered.set_exception(error))
        await self._idle(self._pump)
        await self._idle(self._poller)  # which must not meet a producer that is closed
        await self._call(self._producer.close_within, max(0, deadline_ms - self._clock.now_ms()))
        await self._beats.end()
        self._settle()
        if self._owns_executor:
            await self._loop.run_in_executor(None, self.executor.shutdown, True)

    # Handing over -------------------------------------------------------------------------------------------------

    def _hand_now(self, pending: Pending) -> None:
        """Hand one message over or raise, without an await: a call that is cancelled has not sent anything.

        It takes microseconds, and up to 20 ms where the sender has to be asked whether there is room.
        """
        error = hand_over(self._producer.produce, [pending], self._reports).get(pending.place) or pending.error
        self._start_poller()
        if error is not None and self._producer.overdue is None:
            raise error

    def _start_pump(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._buffer and self._pump is None:
            self._pump = self._loop.create_task(self._run_pump())

    async def _run_pump(self) -> None:
        me = asyncio.current_task()
        try:
            while self._buffer:
                wait_ms = await self._pump_once()
                if wait_ms:
                    began_ms = self._clock.now_ms()
                    self._beats.start()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._has_news.wait(), min(wait_ms, SLICE_MS) / 1000)
                    self._producer.note_wait(self._clock.now_ms() - began_ms)
        except BaseException:
            # The loop ends, or the executor was shut down, and nobody hands these over; not a pump of a loop before.
            if self._pump is me:
                self._drop(lambda delivered: delivered.cancel())
                for pending in self._in_hand:
                    pending.drop()
                self._in_hand = []
            raise
        finally:
            if self._pump is me:
                self._pump = None

    async def _pump_once(self) -> int:
        """Hand over what may go; returns after how many milliseconds to try again."""
        self._purged = False
        self._has_news.clear()
        batch = self._in_hand = self._buffer.take(MOST_AT_ONCE)
        args = self._producer.produce, batch, self._reports
        refused = await self._loop.run_in_executor(self.executor, hand_over, *args)
        self._in_hand = []
        now_ms = self._clock.now_ms()
        rest = [pending for pending in batch if not pending.handed]
        for pending in batch:
            if pending.handed:
                self._buffer.handed(pending, now_ms)
                pending.fail(pending.error)
        if len(rest) < len(batch):
            self._start_poller()
        if self._purged:
            for pending in rest:
                self._buffer.release(pending.place)
                pending.drop()
            return 0
        self._buffer.put_back(rest, refused)
        self._full = refused
        if not refused:
            return 0
        self._retry_after_ms = min(getattr(error, "retry_after_ms", SLICE_MS) for error in refused.values())
        # Those that have waited for `max.block.ms` while none of their line was admitted are given up.
        for pending in self._buffer.overdue(refused, now_ms, self._max_block_ms):
            self._refused = True
            pending.fail(refused[pending.place])
        return max(1, self._retry_after_ms)

    def _drop(self, tell: "Callable[[asyncio.Future[Any]], object]") -> None:
        """Forget what waits here, including what a worker was given but the quota sends back."""
        self._purged = True
        for pending in self._in_hand:
            pending.dropped = tell
        for pending in self._buffer.clear():
            if pending.is_expected:
                tell(pending.delivered)

    # Hearing ------------------------------------------------------------------------------------------------------

    def _start_poller(self) -> None:
        if self._poller is None:
            self._poller = self._loop.create_task(self._run_poller())

    async def _run_poller(self) -> None:
        me = asyncio.current_task()
        try:
            while len(self._producer) and self._closing is None:
                await self._loop.run_in_executor(self.executor, self._served, self._producer.poll, SLICE_MS / 1000)
                self._settle()
        finally:
            if self._poller is me:
                self._poller = None

    def _served(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In a worker: what reports it brings are told of, also where nobody waits for the worker any more.

        A message is not counted any more once a worker has its report, which it tells of a little later: by then
        whoever waited for messages that are counted may have gone, and the loop may be another one.
        """
        try:
            return work(*args, **kwargs)
        finally:
            with suppress(RuntimeError):  # the loop is closed: the next one settles when it begins
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Resolve the futures of messages whose reports have come."""
        while self._reports:
            pending, error, message = self._reports.popleft()
            if pending.callback is not None:
                self._loop.call_soon(pending.callback, error, message)
            if error is not None:
                pending.fail(KafkaException(error))
            elif pending.is_expected:
                pending.delivered.set_result(message)

    def _join_loop(self) -> None:
        """Go on in the loop that runs, when the one before it is closed: tasks and waits ended with it.

        Messages that were taken and have not been handed over still are; nobody awaits their futures any more.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop or not self._loop.is_closed():
            return
        self._loop = loop
        self._timer = self._pump = self._poller = self._closing = None
        self._in_hand, self._full = [], {}
        self._has_news, self._abort_turn = asyncio.Event(), asyncio.Lock()
        self._buffer.join_loop()
        self._beats.join_loop()
        loop.call_soon(self._settle)
        self._start_poller()

    # Small parts --------------------------------------------------------------------------------------------------

    async def _call(self, blocking_task: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._join_loop()
        try:
            return await super()._call(self._served, blocking_task, *args, **kwargs)
        except KafkaException:
            await self._abort_overdue()
            raise
        finally:
            self._settle()

    def _waiting(self) -> int:
        return len(self._buffer) + len(self._in_hand)

    async def _idle(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            await asyncio.wait([task])

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")

    def _deadline_ms(self, timeout: float = -1) -> int | None:
        return self._clock.now_ms() + round(timeout * 1000) if 0 <= real(timeout) < inf else None

    def _slice_ms(self, deadline_ms: int | None) -> int:
        return SLICE_MS if deadline_ms is None else min(SLICE_MS, max(0, deadline_ms - self._clock.now_ms()))
