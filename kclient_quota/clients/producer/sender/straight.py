"""What callers hand to librdkafka themselves: how much they may, and what it keeps for who polls no more.

It calls their callbacks itself, in whatever thread serves it, so the sender leaves it to their own calls as long as it
may have any. While nobody polls it keeps all its events, and `len()` counts them as messages: statistics come once in a
second or five, and are of 12 kB with 12 partitions, of 200 kB with 300. So those who come seldom give it none of
theirs: nothing limits, and they are reported by way of us, or they pass the queue, which costs them nothing.

So are those that go straight while the sender has yet to report what it handed over before: callbacks of a partition
come in the order of its messages.
"""

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, Message

from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.outbox import Callback, Outbox
from kclient_quota.clients.producer.sender.answers import put_report
from kclient_quota.clients.producer.sender.lines import PartitionLines
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Partition

if TYPE_CHECKING:
    from kclient_quota.clients.producer.caller.waiting import WaitingProducer

Late = tuple[int, Callback | None, KafkaError | None, Message]
"""What librdkafka has called for a message: the number of those that the sender had handed over before, and that."""

SELDOM: Final = 100
"""Messages a minute: to have more of them reported by way of us would cost a tenth of what they may be."""
MANY: Final = 4
"""Whoever polls at all leaves no more events; he is left alone."""
SPAN_MS: Final = 1_000
"""In which more than `SELDOM` messages are a rush under a quota."""
RUSH_MS: Final = 2_000
"""For so long it goes on after that, or after what was given has been used."""


class Straight:
    """Of one producer."""

    def __init__(self, outbox: Outbox, core: ProducerCore, lines: PartitionLines) -> None:
        self._outbox = outbox
        self._core = core
        self._lines = lines
        self._late: dict[Partition, deque[Late]] = {}
        self._accepted = 0
        self._since_ms = self._until_ms = self._calls = 0

    def give(self, now_ms: int, *, may: bool) -> None:
        """Say how much of a large quota callers may use themselves now; `may`: nothing could be overtaken by it."""
        outbox, left = self._outbox, self._outbox.spare
        (set.add if self.is_late or outbox.reports else set.discard)(outbox.spare_bars, "late")
        given = self._core.spare_bytes(now_ms, left, may=may, wants=self._is_rush(now_ms))
        outbox.spare += given - left  # callers may have taken from it meanwhile
        outbox.is_spare = outbox.spare > 0

    def _is_rush(self, now_ms: int) -> bool:
        """Whether so many messages come that passing the queue costs something."""
        is_used = self._outbox.is_mixed and self._outbox.spare < self._core.spare_given
        if is_used or self._outbox.accepted - self._accepted > SELDOM:
            self._until_ms = now_ms + RUSH_MS
        if abs(now_ms - self._since_ms) >= SPAN_MS:
            self._since_ms, self._accepted = now_ms, self._outbox.accepted
        return 0 < self._until_ms - now_ms <= RUSH_MS

    def begin_lull(self) -> None:
        """Whoever comes from now on is taken to come seldom."""
        self._outbox.is_lull, self._calls = True, 0

    def note_left(self, count: int) -> None:
        """Librdkafka has so many messages and events: without any it has none of the application's callbacks.

        Not while callers may give it some without a word. Of what is to spare they say so before and afterwards.
        """
        if count <= 0 and (self._outbox.is_lull or not self._outbox.is_open):
            self._outbox.is_mixed = False

    @property
    def is_late(self) -> bool:
        """Whether there are reports to come of what the sender has handed over, or that wait for those."""
        return bool(self._outbox.in_flight or self._outbox.late or self._late)  # the way that they go

    def reported(self, callback: Callback | None, *, is_seen: bool) -> Callback | None:
        """What librdkafka is to call where nothing limits.

        As long as messages come seldom, it may be served in another thread as well.

        `is_seen`: an agent looks at it, and is to see the application's own.
        """
        self._calls += 1
        if is_seen or (self._calls > SELDOM and not self.is_late):
            self._outbox.end_lull()
            return callback
        self._outbox.is_mixed |= self.is_late  # two threads that serve it have a batch in turns
        return partial(self._report, callback, self._lines.handed)

    def in_order(self, callback: Callback | None) -> Callback | None:
        """What librdkafka is to call of what is to spare."""
        is_late = "late" in self._outbox.spare_bars
        return partial(self._report, callback, self._lines.handed) if is_late and callback is not None else callback

    def _report(self, callback: Callback | None, handed: int, error: KafkaError | None, message: Message) -> None:
        """What librdkafka calls; `handed`: so many messages the sender had handed over before."""
        outbox, place = self._outbox, partition_of(message)
        if outbox.late or place in self._late or self._lines.has_before(place, handed):
            outbox.late.append((handed, callback, error, message))
            if not outbox.is_running:
                outbox.wake()
        elif outbox.reports or threading.get_ident() == outbox.sender:
            put_report(outbox, callback, error, message)
        elif callback is not None:
            callback(error, message)

    def report_late(self) -> None:
        """Those that came late, and need not wait any more. The sender alone does this."""
        outbox = self._outbox
        for _ in range(len(outbox.late)):
            late = outbox.late[0]
            self._late.setdefault(partition_of(late[-1]), deque()).append(late)
            outbox.held += 1
            outbox.late.popleft()  # last: who looks finds it in one of the two
        for place, lates in list(self._late.items()):
            while lates and not self._lines.has_before(place, lates[0][0]):
                put_report(outbox, *lates[0][1:])
                lates.popleft()
                outbox.held -= 1
            if not lates:
                del self._late[place]

    def serve_what_nobody_polls_for(self, producer: "WaitingProducer") -> None:
        """Hear of events here, where nothing limits and nobody sends."""
        if not self._outbox.is_mixed and producer.with_librdkafka() > MANY:
            producer.serve_librdkafka(0)


def partition_of(message: Message) -> Partition:
    """Where it went, or was to go."""
    partition = message.partition()
    return message.topic() or "", ANY_PARTITION if partition is None else partition
