# ruff: noqa: SLF001 - what stores for a consumer must not keep it alive, and lives beside it, not in it
"""Which offsets a consumer stores for its next commit: up to what the application has received, and no further.

librdkafka would store what leaves its queue, which is ahead of the application while messages are held. So its own
storing is off. Ours is done within calls, and by `WATCHING`'s thread while the application works without calling, so
that automatic commits go on meanwhile as they do with a plain consumer.
"""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.consumer import settings
from kclient_quota.clients.consumer.receiving.held import Partition, key_of
from kclient_quota.clients.consumer.receiving.receiving import Receiving
from kclient_quota.clients.consumer.receiving.recovering import in_turn
from kclient_quota.clients.consumer.watching import WATCHING
from kclient_quota.config import is_true
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes

NO_OFFSET: Final = 0
"""Offsets below this are librdkafka's signs for none."""
LONGEST_WAIT_S: Final = 1.0
"""Nobody waits longer for another thread that stores, whatever has become of it (a fork forgets threads)."""


class Storing(Receiving):
    """confluent_kafka's Consumer that stores what the application has received."""

    _kq_stores = False
    _kq_storing = reentrant_lock()  # of one whose subclass has forgotten to make it; each has its own

    def _kq_prepare_storing(self, conf: Mapping[str, Any]) -> None:
        """Before confluent_kafka's constructor; `conf` is the user's, without our keys."""
        self._kq_stores = is_true(conf.get(settings.STORE_KEY, True))
        self._kq_commits_by_itself = self._kq_stores and is_true(conf.get("enable.auto.commit", True))
        self._kq_store_every_ms = settings.store_every_ms(conf)
        self._kq_stored: dict[Partition, int] = {}
        self._kq_stored_at_ms = self._kq_clock.now_ms()
        self._kq_stored_of = (0, 0)  # what told of all that was handed over, when it had been stored beside
        # Held by who asks for positions and stores them, so that none is stored late.
        self._kq_storing = reentrant_lock()

    def _kq_store_beside(self) -> None:
        """Store while the application works, from now on."""
        beside = StoringBeside(self)
        self._kq_stop_storing_beside = weakref.finalize(self, WATCHING.remove, beside)
        if self._kq_commits_by_itself:
            WATCHING.add(beside)

    def _kq_end_storing(self) -> None:
        """Store for the last time; nobody asks librdkafka for anything on our behalf afterwards."""
        self._kq_stop_storing_beside()
        with self._kq_alone():
            self._kq_store_received()
            self._kq_commits_by_itself = False

    @in_turn
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last message that the application has received of each partition."""
        found = self._kq_positions(partitions)
        if self._kq_in_doubt and not self._kq_listener.in_callback:
            self._kq_recover()
            found = self._kq_positions(partitions)
        return self._kq_not_held(found)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark offsets for the next commit; confluent_kafka refuses it unless `enable.auto.offset.store` is false."""
        if self._kq_stores and self._kq_is_open:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG,
                    "StoreOffsets failed: Local: Invalid argument or configuration "
                    "(set enable.auto.offset.store to false)",
                )
            )
        super().store_offsets(message, offsets)

    def _kq_not_held(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Positions of librdkafka's, put back to what is held.

        What is assigned while it was assigned before, or no more, keeps its former position for a moment, which is
        ahead of the application by what was held of it then: until something of it has come it has none.
        """
        first = self._kq_held.first_offsets() if self._kq_held else {}
        sought = self._kq_sought
        for part in positions if self._kq_anew else ():
            if key_of(part) in self._kq_anew:
                part.offset = OFFSET_INVALID
        return [
            _at(part, first.get(key) or (sought.get(key) if part.offset < NO_OFFSET else None))
            for part in positions
            for key in (key_of(part),)
        ]

    @in_turn
    def _kq_store_received(self, partitions: list[TopicPartition] | None = None) -> None:
        """Store the position of every assigned partition that has moved, as librdkafka would have done by itself."""
        if not (self._kq_is_open and self._kq_stores):
            return
        with self._kq_alone():
            self._kq_store(Storing.position(self, super().assignment() if partitions is None else partitions))

    def _kq_change_sizes(self, sizes: FetchSizes) -> None:
        with self._kq_alone():
            super()._kq_change_sizes(sizes)

    def _kq_store_if_due(self) -> None:
        """By whoever calls again and again: nothing is stored beside while librdkafka's queue is waited at."""
        if self._kq_clock.now_ms() - self._kq_stored_at_ms >= self._kq_store_every_ms:
            self._kq_store_received()

    def _kq_store_from_beside(self) -> None:
        """What `_store_received` does, from a thread that nothing tells what the application is doing.

        Nothing is stored while messages are being taken out of librdkafka's queue (`_in_doubt`), or if that has begun
        since librdkafka was asked: then its position may be ahead of what is held. The application stores by itself
        then. What is handed over meanwhile only makes the position that is stored an older one.
        """
        of = self._kq_times_doubted, len(self._kq_held)  # another one whenever the application has received something
        if (
            of == self._kq_stored_of
            or not self._kq_takes_nothing_since(of[0])
            or not self._kq_storing.acquire(blocking=False)
        ):
            return
        try:
            if not (self._kq_is_open and self._kq_commits_by_itself):
                return
            positions = self._kq_not_held(self._kq_positions(super().assignment()))
            if self._kq_takes_nothing_since(of[0]):
                self._kq_store(positions)
                self._kq_stored_of = of
        finally:
            self._kq_storing.release()

    def _kq_takes_nothing_since(self, times_doubted: int) -> bool:
        return not self._kq_in_doubt and self._kq_times_doubted == times_doubted

    @contextmanager
    def _kq_alone(self) -> Iterator[None]:
        """Nothing is stored beside meanwhile, and librdkafka's clients are left alone."""
        has_lock = self._kq_storing.acquire(timeout=LONGEST_WAIT_S)
        try:
            yield
        finally:
            if has_lock:
                self._kq_storing.release()

    def _kq_store(self, positions: list[TopicPartition]) -> None:
        moved = [
            part for part in positions if part.offset >= NO_OFFSET and self._kq_stored.get(key_of(part)) != part.offset
        ]
        self._kq_stored_at_ms = self._kq_clock.now_ms()
        if not moved:
            return
        try:
            super().store_offsets(offsets=moved)
        except KafkaException:
            # None of them is assigned any more: there is nothing left to store for.
            return
        self._kq_stored.update({key_of(part): part.offset for part in moved})


class StoringBeside:
    """Has a consumer store while the application works; does not keep it alive."""

    def __init__(self, consumer: Storing) -> None:
        self._consumer = weakref.ref(consumer)
        self._every_ms = consumer._kq_store_every_ms

    def look(self) -> int:
        """Store what has been received since the last time, if anything."""
        consumer = self._consumer()
        if consumer is not None:
            consumer._kq_store_from_beside()
        return self._every_ms


def _at(part: TopicPartition, first: tuple[int, int | None] | None) -> TopicPartition:
    """A position, put back to the first message that is held."""
    if first is None:
        return part
    offset, epoch = first
    return TopicPartition(part.topic, part.partition, offset, leader_epoch=-1 if epoch is None else epoch)
