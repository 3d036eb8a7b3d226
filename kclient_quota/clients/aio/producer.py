"""`AIOProducer`: confluent_kafka.aio's, with our Producer inside; whoever waits for the quota waits in the event loop.

Messages are taken into a buffer, which one task, the pump, hands over as fast as the quota allows, none behind those of
another lane or tenant that wait; another polls for delivery reports while any is due. Blocking calls run in workers,
for a tenth of a second at most, and what they bring is kept where every loop finds it: so every await may be cancelled,
and every loop may end.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import confluent_kafka.aio
from confluent_kafka import KafkaException

from kclient_quota.clients.aio.arguments import configuration, fit_time, workers
from kclient_quota.clients.aio.buffer import Buffer
from kclient_quota.clients.aio.loops import InLoop, InThisThread, ended
from kclient_quota.clients.aio.pending import InnerProducer, Pending, message_of, never_blocking
from kclient_quota.clients.aio.transactions import AIOTransactions
from kclient_quota.clients.calls import TEXT
from kclient_quota.clients.producer.caller.waiting import SLICE_MS
from kclient_quota.clients.producer.transaction import not_taken
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.telemetry.methods import AIOTelemetryMethods, TelemetryMethods
from kclient_quota.config import Backoff, split
from kclient_quota.errors import quota_used_up
from kclient_quota.metrics import MetricName

if TYPE_CHECKING:
    from kclient_quota.clients.producer.sorting import Place

logger = logging.getLogger("kclient_quota")


class AIOProducer(AIOTransactions, AIOTelemetryMethods):
    """confluent_kafka.aio's AIOProducer under a quota.

    `await produce(...)` takes a message and returns a future of its delivery. It waits while `batch_size` messages
    are waiting for the quota already, up to `max.block.ms`; cancelled while it waits, it has not taken the message.
    With `quota.backoff=raise` it hands the message over at once or raises `QuotaThrottledError`. Headers, partition,
    timestamp and `on_delivery`, a plain function, are taken as `confluent_kafka.Producer.produce` takes them.

    It may be used in any event loop, and in several at once: futures and `on_delivery` are of the loop that has called,
    callbacks in the configuration of the one that it was made in, which has to run for them.

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
        ours = split(conf := configuration(asyncio.get_running_loop(), producer_conf))[1]
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
        self._clock, self._transaction = self._producer.clock, self._producer.transaction
        self._batch_size = max(1, batch_size)
        self._buffer_timeout = buffer_timeout if buffer_timeout > 0 else None
        self._heartbeat = heartbeat
        self._loops: dict[asyncio.AbstractEventLoop, InLoop] = {}
        self._buffer = Buffer(self._batch_size, self._producer.lanes)
        self._in_hand: list[Pending] = []
        self._ends: list[int | None] = []
        self._full: Mapping[Place, BufferError] = {}  # those that the pump had no room for
        self._closer: asyncio.Task[None] | None = None  # the one of those that close whose turn it is
        self._ending: concurrent.futures.Future[None] | None = None  # the worker that closes

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
        here = self._loops.get(asyncio.get_running_loop()) or self._joined()
        era = self._transaction.open_era
        if era is not None:  # elsewhere there is nothing to look for, which would cost as much as the message
            await self._abort_overdue()
        if not (isinstance(value, TEXT) and isinstance(key, TEXT)):
            value, key = self._producer.in_bytes(topic, value, key)
        pending = message_of(here, topic, value, key, *args, **kwargs)
        if self._raises:
            if self._is_being_ended:
                raise not_taken()
            self._hand_now(pending)
            await self._abort_overdue()
            return pending.delivered
        pending.place = self._producer.place_of(pending)
        while True:
            if not self._buffer.claim(pending):
                await self._wait_for_slot(here, pending)
            if era is None or (self._producer.overdue is None and era == self._transaction.open_era):
                break
            self._buffer.release(pending)  # before all that is awaited: who has a slot has a message there, too
            await self._abort_overdue()
            await self._insist(era)
        if not self._keep(here, pending):
            pending.fail(not_taken())
            await asyncio.sleep(0)  # who produces without a pause must not keep the loop from ending the transaction
        return pending.delivered

    async def _wait_for_slot(self, here: InLoop, pending: Pending) -> None:
        here.wanting += 1
        try:
            self._start_pump()
            await self._buffer.wait_for_slot(pending, self._max_block_ms / 1000)
        except TimeoutError:
            raise quota_used_up(self._retry_after_ms) from None
        finally:
            here.wanting -= 1

    def _keep(self, here: InLoop, pending: Pending) -> bool:
        """A message waits from now on, until there are enough to hand over or the first has waited long enough.

        Returns:
            False if it does not: its transaction is being ended.
        """
        pending.taken_at_ms = self._clock.now_ms()
        with self._buffer.lock:
            if self._is_closed:  # meanwhile
                self._buffer.release(pending)
                self._refuse_closed()
            if self._is_being_ended:
                self._buffer.release(pending)
                return False
            self._buffer.append(pending)
        if pending.place not in self._full:
            here.has_news.set()
        if len(self._buffer) >= self._batch_size:
            self._start_pump()
        elif here.timer is None and self._buffer_timeout is not None:
            here.timer = here.loop.call_later(self._buffer_timeout, self._start_pump)
        return True

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
        return await self._deliver(self._deadline_ms(*args, **kwargs))

    async def _deliver(self, deadline_ms: int | None, stop: Callable[[], bool] = bool) -> int:
        era = self._transaction.open_era
        if deadline_ms is not None:
            await self._call(self._producer.flush_ends_in, (deadline_ms - self._clock.now_ms()) / 1000)
        left = await self._flush(deadline_ms, stop)
        await self._insist(era)
        self._producer.raise_kept()
        return left

    async def _flush(self, deadline_ms: int | None, stop: Callable[[], bool] = bool) -> int:
        here = self._here()
        while True:
            slice_ms = self._slice_ms(deadline_ms)
            self._start_pump()
            await self._call(self._producer.deliver, slice_ms / 1000)
            if here.pump is not None and slice_ms:
                await asyncio.wait([here.pump], timeout=self._slice_ms(deadline_ms) / 1000)
            left = self._waiting() + len(self._producer)
            if not left or not slice_ms or (stop() and not self._waiting()):
                self._settle()
                if len(self._loops) > 1:
                    await asyncio.sleep(0)  # hear what another loop's pump has told
                return left
            await here.beats.beat()

    async def purge(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; futures of messages that waited here are cancelled, the others fail."""
        self._drop(lambda delivered: delivered.cancel())
        self._start_pump()  # which may have been cancelled, and tells those that a worker has
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
        here = self._here()
        if here.closing is None or here.closing.cancelled():  # the latter with all other tasks of a loop
            with self._buffer.lock:
                self._is_closed = True
            here.closing = asyncio.create_task(self._close_anyway(here))
        await asyncio.shield(here.closing)

    async def _close_anyway(self, here: InLoop) -> None:
        try:
            await self._close(here)
        except asyncio.CancelledError:
            # With all other tasks: its loop ends, and so may the process, which waits for its workers. What librdkafka
            # has is not delivered yet, either; and nobody else is to be at it, whose executor would be another then.
            is_left = self._waiting() or len(self._producer)
            if is_left and self._ending is None and self._may_close():
                self._closer = None  # the worker is, unless another loop comes first
                with suppress(RuntimeError):  # they have ended
                    self.executor.submit(lambda: asyncio.run(self._close_in_worker()))
            raise

    async def _close_in_worker(self) -> None:
        """In an event loop of its own: deliver what there is and close, though no other loop runs."""
        if not self._may_close():
            return  # another loop has begun to by now, and may wait for this worker
        for job in (self._handing, self._polling):
            if job is not None:
                job.cancel()  # one that waits for this worker
        self.executor, self._owns_executor = InThisThread(), False
        await self._close(self._here())

    async def _close(self, here: InLoop) -> None:
        while not self._may_close():  # noqa: ASYNC110 - another loop does, or may stand still and tell nobody
            await asyncio.sleep(SLICE_MS / 1000)
        deadline_ms = self._clock.now_ms() + self._max_block_ms
        while self._waiting() and self._clock.now_ms() < deadline_ms and not self._producer.outlasts(deadline_ms):
            await self._flush(self._deadline_ms(SLICE_MS / 1000))
        error = quota_used_up(self._retry_after_ms)
        if left := self._waiting():
            logger.warning("Producer closes with %d messages that its broker did not take: they are purged", left)
        self._drop(lambda delivered: delivered.set_exception(error))
        self._start_pump()  # which may have been cancelled, and tells those that a worker has
        if here.pump is not None:
            await asyncio.wait([here.pump])
        if self._polling is not None:
            await ended(self._polling)  # which must not meet a producer that is closed
        try:
            if self._ending is None or self._ending.cancelled():
                left_ms = max(0, deadline_ms - self._clock.now_ms())
                self._ending = self.executor.submit(self._served, self._producer.close_within, left_ms)
            await ended(self._ending)
            self._ending.result()
        except KafkaException:
            await self._abort_overdue()
            raise
        finally:
            for each in list(self._loops.values()):
                each.beats.cease()
            await here.beats.end()
            self._settle()
            if self._owns_executor:
                await here.loop.run_in_executor(None, self.executor.shutdown, True)

    def _may_close(self) -> bool:
        me = asyncio.current_task()
        with self._buffer.lock:
            other = self._closer
            if other not in {None, me} and not other.done() and other.get_loop().is_running():
                return False
            self._closer = me
            return True

    # Small parts --------------------------------------------------------------------------------------------------

    async def _call(self, blocking_task: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._here()
        try:
            return await super()._call(self._served, blocking_task, *args, **kwargs)
        except KafkaException:
            await self._abort_overdue()
            raise
        finally:
            self._settle()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")

    def _slice_ms(self, deadline_ms: int | None) -> int:
        return SLICE_MS if deadline_ms is None else min(SLICE_MS, max(0, deadline_ms - self._clock.now_ms()))
