"""How a producer takes a message: it looks at what `produce()` was given, and puts it into the outbox or waits."""

import asyncio
import contextvars
import logging
import threading
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

from kclient_quota.clients.calls import TEXT, in_bytes, named, undisturbed, whole
from kclient_quota.clients.producer.caller.transacting import TransactingProducer
from kclient_quota.clients.producer.caller.waiting import PRODUCE_IN_C
from kclient_quota.clients.producer.outbox import RECORD_BYTES, Callback, Handed
from kclient_quota.clock import unix_ms
from kclient_quota.errors import QUEUE_FULL, quota_used_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.clients.interceptor import ProducerInterceptors
    from kclient_quota.clients.producer.sorting import Sorting
    from kclient_quota.clients.wait_time import WaitLog
    from kclient_quota.pacing.sending.turns import Waiting

logger = logging.getLogger("kclient_quota")

MOST_PARTITION: Final = 2**31 - 1
MOST_TIMESTAMP: Final = 2**63 - 1
RECORD_OVERHEAD: Final = 36
"""What librdkafka takes a record to need besides key, value and headers when it looks at `message.max.bytes`."""

WAIT_MS: Final = 50
"""How often a call that waits for room serves callbacks."""
LEAST_BLOCK_MS: Final = 20
"""How long the sender may take to say that there is room."""
BLOCK_MS: Final[ContextVar[int | None]] = ContextVar("kclient_quota_block_ms", default=None)
"""Takes the place of `max.block.ms`, where a caller wants so."""
HASTY_S: Final = 0.2
"""How long a call that is not to wait waits for the sender's answer: no time, but on a machine that is busy otherwise.
Unheard the message is taken, so with less a producer there would never say that its quota is used up."""
ANSWER_S: Final = 30
"""The same, once the sender has made up its mind."""


class TakingProducer(TransactingProducer):
    """What `produce()` does while the quota applies."""

    if TYPE_CHECKING:  # nothing that `typing.get_type_hints()` of a subclass could not resolve
        _kq_chain: ProducerInterceptors
        _kq_sorting: Sorting
        _kq_new_waiting: Callable[[str, int, Handed, int], Waiting]
        _kq_wait_log: WaitLog
    _kq_default_callback: Callback | None
    _kq_client_id: str
    _kq_most_bytes: int
    _kq_most_value_bytes: int
    _kq_said: set[str]
    _kq_waiting: dict[int, Handed]
    _kq_hasty_s = HASTY_S

    def _kq_produce_watched(
        self, topic: str, value: Any, key: Any, partition: int, callback: Callback | None, timestamp: int, headers: Any
    ) -> None:
        """With interceptors."""
        from kclient_quota.clients.interceptor import ProducerRecord  # noqa: PLC0415 - loaded with the first producer

        if isinstance(headers, (dict, list)):
            headers = headers.copy()  # the caller may go on with them
        record = self._kq_chain.on_send(ProducerRecord(topic, value, key, partition, timestamp, headers))
        args = record.topic, record.value, record.key, record.partition
        callback = partial(
            _acknowledged, self._kq_chain, record.headers, self._kq_default_callback if callback is None else callback
        )
        try:
            self._kq_take(*args, callback, record.timestamp, record.headers)
        except Exception as error:
            self._kq_chain.on_send_error(record, error)
            raise

    def _kq_take(
        self, topic: str, value: Any, key: Any, partition: int, callback: Callback | None, timestamp: int, headers: Any
    ) -> None:
        """Straight to librdkafka where nothing limits it, or little of a large quota is used; into the queue."""
        if self._kq_transaction.ending:
            self._kq_insist_on_taking()
        if self._kq_outbox.is_open and not self._kq_outbox.closing:
            if self._kq_outbox.is_lull:
                callback = self._kq_default_callback if callback is None else callback
                callback = self._kq_sender.straight.reported(callback, is_seen=self._kq_asks_produce)
            self._kq_pass_on(topic, value, key, partition, callback, timestamp, headers)
        elif self._kq_outbox.has_spare:
            self._kq_hand_over(topic, value, key, partition, callback, timestamp, headers)
        else:
            self._kq_produce(topic, value, key, partition, callback, timestamp, headers)

    def _kq_produce(
        self, topic: Any, value: Any, key: Any, partition: int, callback: Callback | None, timestamp: int, headers: Any
    ) -> None:
        """Put a message into the queue, or wait for room there."""
        outbox = self._kq_outbox
        if outbox.is_forked:
            self._kq_lose()
            return
        partition, timestamp = whole(partition), whole(timestamp)
        is_fine = self._kq_is_fine(topic, value, key, partition, callback, timestamp, headers)
        if not is_fine:
            (value, key), headers = in_bytes(partial(self._kq_is_parsed, topic), value, key), named(headers)
            is_fine = self._kq_is_fine(topic, value, key, partition, callback, timestamp, headers)
        if not is_fine:
            # Whatever confluent_kafka would not take at once, it says what is wrong with. Or it takes it.
            outbox.is_mixed = True
            if isinstance(topic, str) and self._kq_clock.now_ms() >= outbox.no_topics.get(topic, inf):
                outbox.no_topics.pop(topic, None)  # the sender, who has the next one, asks whether there is by now
            self._kq_pass_on(topic, value, key, partition, callback, timestamp, headers)
            outbox.no_topics.pop(topic, None)  # librdkafka has taken one
            return
        if len(outbox.reports) >= self._kq_most_messages:
            raise BufferError(QUEUE_FULL)
        if headers:
            headers = headers.copy()  # the caller may go on with them
        handed = Handed(
            value,
            key,
            partition,
            self._kq_default_callback if callback is None else callback,
            timestamp or unix_ms(),
            headers,
        )
        if self._kq_asks_produce:
            handed.context = contextvars.copy_context()
        message = self._kq_new_waiting(topic, partition, handed, self._kq_clock.now_ms())
        if not self._kq_put(message, handed):
            self._kq_hand_over(topic, value, key, partition, callback, timestamp, headers)

    def _kq_put(self, message: "Waiting", handed: Handed) -> bool:
        """Put a message into the queue, or wait for room there; False: it is its caller's to hand over."""
        outbox = self._kq_outbox
        lane = self._kq_sorting.sort(message)
        if outbox.is_mixed and not (lane.drops or outbox.is_calling()):
            self._kq_await_polled(0 if lane.raises else self._kq_most_block_ms())
        free = outbox.free_bytes
        is_free = free[lane.name] >= message.raw_bytes and not self._kq_transaction.is_late(message.queued_at_ms)
        if is_free or lane.drops or outbox.is_calling():
            free[lane.name] -= message.raw_bytes
            return self._kq_put_in_time(message)
        self._kq_say_once_in_loop()
        handed.waits, handed.is_hasty = True, lane.raises
        handed.answered = threading.Lock()
        handed.answered.acquire()
        if not self._kq_put_in_time(message):
            return False
        if handed.is_hasty:
            self._kq_ask_once(handed)
        else:
            self._kq_wait_until_taken(handed)
        return True

    def _kq_most_block_ms(self) -> int:
        """For how long this call may wait."""
        most_ms = BLOCK_MS.get()
        return max(self._kq_max_block_ms if most_ms is None else most_ms, LEAST_BLOCK_MS)

    def _kq_wait_until_taken(self, handed: Handed) -> None:
        """Wait until the sender has decided about a message.

        Raises:
            QuotaThrottledError: it was not taken.
            KafkaException: the transaction in which it waited is over, or about to be.
        """
        era, began_ms = self._kq_transaction.open_era, self._kq_clock.now_ms()
        deadline_ms = began_ms + self._kq_most_block_ms()
        ident = threading.get_ident()
        self._kq_waiting[ident] = handed
        try:
            if not self._kq_wait_for_answer(handed, began_ms, deadline_ms, era):
                self._kq_expect_anew(handed)
                handed.is_refused = self._kq_outbox.give_up(handed)
                handed.waits = False
        except BaseException:
            self._kq_outbox.give_up(handed)
            raise
        finally:
            self._kq_waiting.pop(ident, None)
            now_ms = self._kq_clock.now_ms()
            self._kq_hearing.waited.add(now_ms - began_ms, now_ms)
            self._kq_wait_log.on_end(now_ms - began_ms)
        if handed.is_refused:
            self._kq_transaction.insist(era)
            missed = self._kq_transaction.miss() if handed.is_over else None
            raise missed or quota_used_up(handed.retry_after_ms, handed.broker_id)

    def _kq_wait_for_answer(self, handed: Handed, began_ms: int, deadline_ms: int, era: int | None) -> bool:
        """Let time pass until the sender has answered; whether it has before `deadline_ms`."""
        left_ms = deadline_ms - began_ms
        while not handed.answered.acquire(timeout=min(left_ms, WAIT_MS) / 1000):
            now_ms = self._kq_clock.now_ms()
            left_ms = deadline_ms - now_ms
            if left_ms <= 0 or self._kq_outbox.stops:
                return False
            if self._kq_transaction.possible:
                self._kq_expect_anew(handed)
            self._kq_mind_transaction(now_ms + handed.retry_after_ms)
            self._kq_wait_log.on_wait(now_ms - began_ms, now_ms)
            self._kq_let_pass(0)
            if self._kq_outbox.is_forked:  # just now, by a callback: this child has no sender that would answer
                self._kq_lose()
                return True
            self._kq_transaction.insist(era)
        return True

    def _kq_expect_anew(self, handed: Handed) -> None:
        """When there is room for a message that waits: time has passed, and limits may have changed, since it came."""
        undisturbed(self._kq_sender.lock, self._kq_sender.expect_anew, handed)

    def _kq_ask_once(self, handed: Handed) -> None:
        """Hear the sender's answer; where it takes its time, the message is left to it.

        Raises:
            QuotaThrottledError: it was not taken.
        """
        if not handed.answered.acquire(timeout=self._kq_hasty_s):
            # In this order: a sender that claims it from now on does not refuse it, nor say that nobody heard of it.
            handed.waits = handed.is_hasty = False
            if handed.claim:
                return
            for _ in range(ANSWER_S):
                # It has decided, and on a busy machine says so by and by.
                if handed.answered.acquire(timeout=1) or not self._kq_outbox.is_running:
                    break
        if handed.is_refused:
            self._kq_mind_transaction(self._kq_clock.now_ms() + handed.retry_after_ms)
            raise quota_used_up(handed.retry_after_ms, handed.broker_id)

    def _kq_hand_over(
        self, topic: str, value: Any, key: Any, partition: int, callback: Callback | None, timestamp: int, headers: Any
    ) -> None:
        """As plain confluent_kafka does, while some of the quota is to spare; what it has no room for waits."""
        outbox = self._kq_outbox
        outbox.is_mixed, told = True, callback
        if not self._kq_asks_produce:  # an agent is to see the application's own
            told = self._kq_sender.straight.in_order(self._kq_default_callback if callback is None else callback)
        try:
            self._kq_pass_on(topic, value, key, partition, told, timestamp, headers)
        except BufferError:
            if outbox.is_open:
                raise  # no quota applies any more, and so nothing waits for room
            outbox.is_spare = False
            self._kq_produce(topic, value, key, partition, callback, timestamp, headers)
        else:
            size = raw_bytes(value, key, headers)
            outbox.spare -= size  # no call here, in which another thread might take from it, too
            outbox.is_mixed = True  # again, as in `produce()`

    def _kq_is_parsed(self, topic: Any, value: Any, key: Any) -> bool:
        """Whether C takes these: asked with a partition that there cannot be, which it looks at when it has them."""
        try:
            PRODUCE_IN_C(self, topic, value, key, MOST_PARTITION + 1)
        except OverflowError:
            return True
        except Exception:  # noqa: BLE001 - it is raised when they are passed on
            return False
        return False

    def _kq_is_fine(
        self, topic: Any, value: Any, key: Any, partition: Any, callback: Any, timestamp: Any, headers: Any
    ) -> bool:
        """Whether confluent_kafka's `produce` would take this now, for all that can be known.

        Raises:
            UnicodeEncodeError: a text is none of UTF-8's, as confluent_kafka says it.
        """
        if not (isinstance(topic, str) and isinstance(value, TEXT) and isinstance(key, TEXT)):
            return False
        if type(partition) is not int or type(timestamp) is not int or not (callback is None or callable(callback)):
            return False
        if partition > MOST_PARTITION or not -MOST_TIMESTAMP <= timestamp <= MOST_TIMESTAMP:
            return False
        if headers is not None and not are_headers(headers):
            return False
        if not topic.isascii():
            topic.encode()
        value_bytes = utf8_bytes(value)
        partitions = self._kq_sender.core.brokers.routes.partitions.get(topic, partition + 1)
        return (
            -1 <= partition < max(partitions, 1)
            and bool(topic)
            and topic not in self._kq_outbox.no_topics
            and "\0" not in topic
            and value_bytes <= self._kq_most_value_bytes
            and RECORD_OVERHEAD + value_bytes + utf8_bytes(key) + header_bytes(headers) <= self._kq_most_bytes
            and not (
                self._kq_closed
                or self._kq_outbox.is_broken
                or (self._kq_transaction.possible and not self._kq_transaction.is_open)
            )
        )

    def _kq_lose(self) -> None:
        """Count a message that a child process does not send, and say so once.

        librdkafka is left alone: its threads are the parent's, and its locks are as they were when the process was
        forked, one of them held now and then. A call into it may wait for ever.
        """
        if self._kq_outbox.accepted >= self._kq_most_messages:
            raise BufferError(QUEUE_FULL)
        self._kq_outbox.accepted += 1
        if "fork" not in self._kq_said:
            self._kq_said.add("fork")
            logger.warning(
                "The producer of client %r was made before this process was forked: what the child produces with it is "
                "never sent. Make a producer in each process",
                self._kq_client_id,
                extra={"client_id": self._kq_client_id},
            )

    def _kq_say_once_in_loop(self) -> None:
        """Say once that waiting here stops an event loop."""
        if "loop" in self._kq_said:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._kq_said.add("loop")
        logger.warning(
            "produce() of client %r waits for the quota inside a running event loop, which stands still meanwhile: use "
            "kclient_quota.AIOProducer there, or quota.backoff=raise",
            self._kq_client_id,
            extra={"client_id": self._kq_client_id},
        )


def _acknowledged(
    chain: "ProducerInterceptors", headers: Any, callback: Callback | None, error: KafkaError | None, message: Any
) -> None:
    chain.on_acknowledgement(message, error, headers)
    if callback is not None:
        callback(error, message)


def only_errors(callback: Callback | None) -> Callback | None:
    """A callback that hears of messages that are not delivered."""
    return None if callback is None else partial(_told_of_error, callback)


def _told_of_error(callback: Callback, error: KafkaError | None, message: Any) -> None:
    if error is not None:
        callback(error, message)


def raw_bytes(value: Any, key: Any, headers: Any) -> int:
    """Bytes of a message as the quota's reckoning has them: before compression, without its batch."""
    size = RECORD_BYTES + (len(value) if type(value) is bytes else utf8_bytes(value))  # mostly
    if key is not None:
        size += utf8_bytes(key)
    return size + header_bytes(headers) if headers else size


def utf8_bytes(text: Any) -> int:
    """Bytes that a text or value takes."""
    if isinstance(text, bytes):
        return len(text)
    if isinstance(text, str):
        return len(text) if text.isascii() else len(text.encode())
    if text is None:
        return 0
    try:  # what else confluent_kafka takes (a structure of ctypes, an array of numpy) may have no length, nor a truth
        return len(b"".join((text,)))
    except TypeError:
        return len(str(text).encode())  # a header's name


def header_bytes(headers: Any) -> int:
    """Bytes that headers take in a record, but for their number."""
    if not headers:
        return 0
    sizes = (utf8_bytes(each) for pair in (headers.items() if isinstance(headers, dict) else headers) for each in pair)
    return sum(size + _varint(size) for size in sizes)


def _varint(size: int) -> int:
    """Bytes of a length in a record: seven bits each, of its double."""
    return max(1, ((2 * size).bit_length() + 6) // 7)


def are_headers(headers: Any) -> bool:
    """Whether C takes these, with names that are texts."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    return isinstance(pairs, list) and all(
        isinstance(pair, tuple)
        and len(pair) == 2  # noqa: PLR2004 - a pair
        and isinstance(pair[0], str)
        and isinstance(pair[1], TEXT)
        for pair in pairs
    )
