"""What `AIOProducer` is made of: a message between the application and librdkafka, and the producer inside."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kclient_quota.clients.agents import AsGiven, CProducer, place_behind
from kclient_quota.clients.aio.loops import InLoop
from kclient_quota.clients.calls import in_bytes
from kclient_quota.clients.interceptor import ProducerRecord
from kclient_quota.clients.producer.caller.taking import utf8_bytes
from kclient_quota.clients.producer.outbox import Callback
from kclient_quota.clients.producer.producer import PacedProducer
from kclient_quota.clients.producer.sender.answers import code_of
from kclient_quota.clients.producer.sorting import NO_PLACE, Place
from kclient_quota.clients.producer.transaction import Transaction
from kclient_quota.clock import Clock

if TYPE_CHECKING:
    from kclient_quota.pacing.sending.lanes import Lane

WORKERS_ASK_S: Final = 2.0
PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 - confluent_kafka's names


@dataclass(slots=True, eq=False)
class Pending:
    """A message that was taken.

    Attributes:
        message: topic, value, key, partition, timestamp and headers.
        home: the event loop that has taken it.
        delivered: the application's future, of that loop.
        callback: the application's own `on_delivery`.
        place: its lane and tenant.
        taken_at_ms: since when it waits.
        handed: whether it need not wait any more: librdkafka has it, or refused it for good.
        error: why librdkafka refused it for good.
        dropped: what to tell the future when it turns out not to have been handed over.
        line: in which it has a slot, of `aio.buffer`.
    """

    message: tuple[str, Any, Any, int, int, Any]
    home: InLoop
    delivered: "asyncio.Future[Any]"
    callback: Callback | None
    place: Place = NO_PLACE
    taken_at_ms: int = 0
    handed: bool = False
    error: BaseException | None = None
    dropped: "Callable[[asyncio.Future[Any]], object] | None" = None
    line: Any = None

    def heard(self, error: KafkaError | None, message: Message) -> None:
        """A callback for librdkafka, which comes in a worker."""
        self.home.hear((self, error, message))

    def tell(self, how: "Callable[[asyncio.Future[Any]], object]") -> None:
        """Tell its future, in the loop that this belongs to, unless nobody looks at it any more."""
        if self.home.loop is asyncio.get_running_loop():
            self._tell(how)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self.home.loop.call_soon_threadsafe(self._tell, how)

    def _tell(self, how: "Callable[[asyncio.Future[Any]], object]") -> None:
        if not self.delivered.done():
            how(self.delivered)

    def fail(self, error: BaseException | None) -> None:
        """Tell the application that this message will not be delivered, unless it looks no more."""
        if error is not None:
            self.tell(partial(fail, error=error))

    def drop(self) -> None:
        """It was dropped while a worker had it, which has not handed it over."""
        if self.dropped is not None:
            self.tell(self.dropped)


def fail(delivered: "asyncio.Future[Any]", error: BaseException) -> None:
    """Tell a future that its message was not delivered."""
    if isinstance(error, StopIteration):  # a `next()` in the application's function: no future takes one
        cause, error = error, RuntimeError("StopIteration was raised while the message was handed over")
        error.__cause__ = cause
    delivered.set_exception(error)
    if code_of(error) in PURGED:
        # asyncio logs what nobody has asked a future for. Who aborts a transaction, or purges, knows this of each.
        delivered.exception()


def message_of(
    home: InLoop,
    topic: str,
    value: Any,
    key: Any,
    partition: int = -1,
    callback: Callback | None = None,
    on_delivery: Callback | None = None,
    timestamp: int | None = 0,
    headers: Any = None,
) -> Pending:
    """A message from the arguments of `confluent_kafka.Producer.produce`; None for a time as confluent_kafka.aio."""
    if headers and isinstance(headers, dict | list):
        headers = headers.copy()  # the caller may go on with them while it waits
    message = topic, value, key, partition, 0 if timestamp is None else timestamp, headers
    return Pending(message, home, home.loop.create_future(), on_delivery if callback is None else callback)


def never_blocking(lanes: Mapping[str, Any]) -> dict[str, Any]:
    """The same lanes, none of which has a worker wait: that is done in the event loop."""
    return {
        name: {**lane, "full": "raise"} if isinstance(lane, Mapping) and lane.get("full") == "block" else lane
        for name, lane in lanes.items()
    }


if TYPE_CHECKING:
    _Calling = PacedProducer
else:
    # A worker comes again with what the quota has no room for: an agent sees each message when it leaves instead.
    class _Calling(*place_behind(confluent_kafka.Producer, CProducer, PacedProducer, (PacedProducer, AsGiven))):
        pass


class InnerProducer(_Calling):
    """Our Producer, as `AIOProducer` uses it from its workers."""

    _kq_overdue: tuple[int | None, KafkaException] | None = None
    _kq_flushes_in_slices = True

    def ask_from_workers(self) -> None:
        """Only workers produce, not the event loop: they may wait for what the sender of a busy machine answers.

        Left to the sender, a message that the quota has no room for would wait beyond `max.block.ms`.
        """
        self._kq_hasty_s = WORKERS_ASK_S
        self._kq_sorting.waits_apart = True

    @property
    def clock(self) -> Clock:
        """The clock it waits by."""
        return self._kq_clock

    @property
    def lanes(self) -> "tuple[Lane, ...]":
        """Its lanes, in their order."""
        return self._kq_sorting.lanes

    def place_of(self, pending: Pending) -> Place:
        """A message's lane and tenant; where the application's functions fail at that, `produce()` says so."""
        if not self._kq_sorting.has_places:
            return NO_PLACE
        try:
            return self._kq_sorting.place_of(ProducerRecord(*pending.message))
        except Exception:  # noqa: BLE001 - whatever theirs raise is raised once more where it is told
            return NO_PLACE

    def in_bytes(self, topic: Any, value: Any, key: Any) -> tuple[Any, Any]:
        """What C takes for bytes, which the caller may go on with while it waits."""
        return in_bytes(partial(self._kq_is_parsed, topic), value, key)

    def never_fits(self, pending: Pending) -> bool:
        """Whether librdkafka's queue has no room for a message even when it is empty."""
        return utf8_bytes(pending.message[1]) > self._kq_most_value_bytes

    def note_wait(self, waited_ms: int) -> None:
        """Messages have waited for the quota, in the event loop."""
        self._kq_hearing.waited.add(waited_ms, self._kq_clock.now_ms())

    def keep_alive(self) -> None:
        """Keep the consumer in its group that this producer was given."""
        if self._kq_heartbeat is not None:
            self._kq_heartbeat()

    def deliver(self, timeout: float) -> int:
        """`flush()`, but what callbacks raise is left for the end of all of it."""
        return self.flush(timeout) if self._kq_closed else self._kq_deliver(self._kq_deadline_ms(timeout))

    def flush_ends_in(self, timeout: float) -> None:
        """What `deliver()` is called for again and again ends after so many seconds."""
        self._kq_sender.flush_ends_in(timeout * 1000)

    def silence(self) -> Callable[[], bool]:
        """What says whether nothing has been answered for a while from now on, of what librdkafka has."""
        return self._kq_silence()

    def serve(self, timeout: float) -> int:
        """`poll()`, for those who look for reports only: the same."""
        return self.poll(timeout) if self._kq_closed else self._kq_serve(timeout * 1000, all_of_them=True)

    def raise_kept(self) -> None:
        """Raise the last of that."""
        self._kq_outbox.raise_kept()

    def _kq_say_once_in_loop(self) -> None:
        """Nothing: what may be waited for in the event loop is some milliseconds."""

    def _kq_end_overdue(self) -> KafkaException:
        """Leave the abort to the application's own next call: workers also act while it awaits nothing."""
        error = self._kq_transaction.refuse(aborted=False)
        self._kq_overdue = self._kq_transaction.open_era, error
        return error

    @property
    def overdue(self) -> KafkaException | None:
        """Why the transaction has to be aborted now, where that was asked for."""
        if self._kq_overdue is None or self._kq_overdue[0] != self._kq_transaction.open_era:
            return None
        return self._kq_overdue[1]

    @property
    def transaction(self) -> Transaction:
        """What it knows of its transaction."""
        return self._kq_transaction

    def begin_wait_ms(self) -> int:
        """For how long a transaction had better not be begun."""
        return self._kq_begin_wait_ms()

    def _kq_deliver(self, deadline_ms: int | None, stop: Callable[[], bool] = bool) -> int:
        """As ever; `AIOProducer` looks itself for whether the transaction is still the same."""
        return self._kq_deliver_in_time(deadline_ms, stop)

    def abort_overdue(self) -> KafkaException:
        """Abort it within what is left of its time, or try to; returns what to raise."""
        return super()._kq_end_overdue()

    def outlasts(self, deadline_ms: int) -> bool:
        """Whether the throttle lasts until after `deadline_ms`."""
        return self._kq_holds_up(deadline_ms, min)

    def close_within(self, block_ms: int) -> None:
        """Close, delivering for no longer than `block_ms`."""
        self._kq_max_block_ms = block_ms
        self.close()
