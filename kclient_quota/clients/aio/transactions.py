"""Transactions of `AIOProducer`. They are aborted only within an await of the application's, never by the pump."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.aio.arguments import fit_time
from kclient_quota.clients.aio.handing import Handing
from kclient_quota.clients.aio.loops import ended
from kclient_quota.clients.aio.pending import fail
from kclient_quota.clients.calls import ends_ms
from kclient_quota.clients.producer.caller.waiting import SLICE_MS
from kclient_quota.clients.producer.transaction import State, Transaction

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable


OFFSETS_AND_GROUP: Final = 2
"""Arguments of `send_offsets_to_transaction` before its timeout."""


class AIOTransactions(Handing):
    """confluent_kafka.aio's AIOProducer, whose transactions mind the quota and messages that wait for it."""

    _transaction: Transaction
    _raises: bool
    _ends: list[int | None]  # the transactions that are being ended
    if TYPE_CHECKING:  # nothing that `typing.get_type_hints()` of a subclass could not resolve
        _aborting: concurrent.futures.Future[KafkaException] | None
    _aborting = None

    async def _deliver(self, deadline_ms: int | None, stop: "Callable[[], bool]") -> int:
        """Deliver until all is, `deadline_ms` or `stop()`; returns what is left."""
        raise NotImplementedError

    def _deadline_ms(self, timeout: float = -1) -> int | None:
        return ends_ms(timeout, self._clock.now_ms())

    async def begin_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; waits first where a transaction begun now would have to be aborted.

        Raises:
            QuotaThrottledError: as `Producer.begin_transaction()`.
        """
        # Until it is begun what others produce is refused by and by, and not to be waited for.
        with self._being_ended():
            await self.flush()
        deadline_ms = self._clock.now_ms() + self._max_block_ms
        while not self._raises and (wait_ms := self._producer.begin_wait_ms()):
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                break
            await self._here().beats.beat()
            await asyncio.sleep(min(wait_ms, left_ms, SLICE_MS) / 1000)
        done = await self._call(self._producer.begin_transaction, *args, **kwargs)
        self._refused = False  # not before: a begin that is refused leaves the transaction that is open as it was
        return done

    async def send_offsets_to_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; delivers first what there is, and keeps the heartbeat going meanwhile.

        Raises:
            KafkaException: as `commit_transaction()`.
        """
        timeout = args[OFFSETS_AND_GROUP:]
        if not kwargs and fit_time(*timeout):  # otherwise librdkafka says what is wrong
            await self._deliver(self._deadline_ms(*timeout), self._producer.silence())
        return await self._call(self._producer.send_offsets_to_transaction, *args, **kwargs)

    async def commit_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; refuses, asking to abort, when the quota has kept a message out.

        Raises:
            KafkaException: with `quota.transaction.timeout=abort`, also when waiting would outlive the transaction's
                timeout. It has been aborted then, within this call, and `abort_transaction()` has nothing left to do.
                Also when a callback, or another task, has ended it meanwhile.
        """
        if kwargs or not fit_time(*args):  # librdkafka says what is wrong
            return await self._call(self._producer.commit_transaction, *args, **kwargs)
        with self._being_ended():
            return await self._commit(*args)

    @contextmanager
    def _being_ended(self) -> Iterator[None]:
        """What other tasks produce from here on is refused: a commit would wait for it, and for all that follows."""
        era = self._transaction.open_era
        with self._buffer.lock:
            self._ends.append(era)
        try:
            yield
        finally:
            with self._buffer.lock:
                self._ends.remove(era)

    @property
    def _is_being_ended(self) -> bool:
        return bool(self._ends) and self._transaction.possible and self._transaction.open_era in self._ends

    async def _commit(self, *args: Any) -> Any:
        era = self._transaction.open_era
        await self._abort_overdue()
        if await self.flush(*args):
            text = "commit_transaction: messages still wait for the quota, or for a broker; try again"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))  # noqa: SLF001 - its name
        await self._abort_overdue()
        await self._insist(era)
        if self._refused:
            text = "commit_transaction: the quota has kept messages out for max.block.ms; abort and try again"
            raise KafkaException(KafkaError(KafkaError.THROTTLING_QUOTA_EXCEEDED, text, txn_requires_abort=True))
        return await self._call(self._producer.commit_transaction, *args)

    async def abort_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent_kafka.aio's; does not wait for the quota: messages that do are dropped, their futures fail."""
        if not kwargs and fit_time(*args) and self._transaction.state is not State.NONE:  # otherwise it will be refused
            self._transaction.era += 1  # what waits in it does so in vain
            self._drop_purged()
        with self._being_ended():
            done = await self._call(self._producer.abort_transaction, *args, **kwargs)
        self._refused = False
        return done

    async def _abort_overdue(self) -> None:
        """Abort a transaction that the quota would have outlive its timeout, if that was asked for, and raise."""
        error = self._producer.overdue
        if error is None:
            return
        with self._buffer.lock:
            aborting = self._aborting  # by another call, of any loop
            if aborting is None:
                if self._producer.overdue is None:  # that has just ended
                    raise error
                self._drop_purged()
                aborting = self._aborting = self.executor.submit(self._abort_in_worker)
        await ended(aborting)
        raise aborting.result()

    def _abort_in_worker(self) -> KafkaException:
        try:
            error = self._producer.abort_overdue()
            self._refused = False
            return error
        finally:
            with self._buffer.lock:
                self._aborting = None

    async def _insist(self, era: int | None) -> None:
        """Raise when the transaction of this `open_era` is over, once the callback has returned that ended it."""
        if era is not None and era != self._transaction.open_era:
            await self._here().beats.idle(self._max_block_ms / 1000)
            self._transaction.insist(era)

    def _drop_purged(self) -> None:
        purged = KafkaException(KafkaError(KafkaError._PURGE_QUEUE))  # noqa: SLF001 - confluent_kafka's name
        self._drop(partial(fail, error=purged))
