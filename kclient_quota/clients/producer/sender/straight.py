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

from kclient_quota.clients.librdkafka.messages import partition_of
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.outbox import Callback, Outbox, Report
from kclient_quota.clients.producer.sender.answers import put_report
from kclient_quota.clients.producer.sender.lines import PartitionLines
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Partition

if TYPE_CHECKING:
    from kclient_quota.clients.producer.caller.waiting import WaitingProducer

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
        self._accepted = 0
        self._since_ms = self._until_ms = self._calls = 0

    def give(self, now_ms: int, *, may: bool) -> None:
        """Say how much of a large quota callers may use themselves now; `may`: nothing could be overtaken by it."""
        outbox, left = self._outbox, self._outbox.spare
        (set.add if outbox.is_behind else set.discard)(outbox.spare_bars, "late")
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
        """Whether there are reports that wait for others."""
        return any(self._outbox.late.values())

    def reported(self, callback: Callback | None, *, is_seen: bool) -> Callback | None:
        """What librdkafka is to call where nothing limits.

        As long as messages come seldom, it may be served in another thread as well.

        `is_seen`: an agent looks at it, and is to see the application's own.
        """
        self._calls += 1
        is_many = self._calls > SELDOM
        if is_seen or (is_many and not self._outbox.is_behind):
            self._outbox.end_lull()
            return callback
        # Two threads that serve it have a batch in turns; and nobody is to empty it for who never polls.
        self._outbox.is_mixed |= is_many or bool(self._outbox.in_flight) or self.is_late
        return partial(self._report, callback, self._lines.handed)

    def in_order(self, callback: Callback | None) -> Callback | None:
        """What librdkafka is to call of what is to spare."""
        if callback is None or not self._outbox.is_behind:
            return callback
        return partial(self._report, callback, self._lines.handed)

    def _report(self, callback: Callback | None, handed: int, error: KafkaError | None, message: Message) -> None:
        """What librdkafka calls; `handed`: so many messages the sender had handed over before."""
        outbox, place = self._outbox, partition_of(message)
        if outbox.late.get(place) or self._lines.has_before(place, handed):
            lates = outbox.late.setdefault(place, deque())
            lates.append((handed, callback, error, message))
            if len(lates) == 1:  # the sender may have looked just before
                outbox.wake()
        elif threading.get_ident() == outbox.sender:
            put_report(outbox, callback, error, message)
        else:
            if outbox.reports:
                outbox.serve_all()  # just now, while librdkafka is polled: what comes next it may call past us
            if callback is not None:
                callback(error, message)

    def report(
        self, place: Partition, number: int, callback: Callback | None, error: KafkaError | None, message: Message
    ) -> None:
        """What has become of a message that the sender has handed over, as `number`. It alone does this."""
        if place[1] == ANY_PARTITION:
            place = partition_of(message)
        if lates := self._outbox.late.get(place):
            self._tell(place, lates)
        if (lates and lates[0][0] <= number) or self._lines.has_before(place, number):
            lates = self._outbox.late.setdefault(place, deque())
            before = sum(late[0] <= number for late in list(lates))
            lates.insert(before, (number, callback, error, message))
        else:
            put_report(self._outbox, callback, error, message)

    def report_late(self, *, all_of_them: bool = False) -> None:
        """Those that came late, and need not wait any more. The sender alone does this."""
        for place, lates in list(self._outbox.late.items()):
            self._tell(place, lates, all_of_them=all_of_them)

    def _tell(self, place: Partition, lates: "deque[Report]", *, all_of_them: bool = False) -> None:
        while lates and (all_of_them or not self._lines.has_before(place, lates[0][0])):
            put_report(self._outbox, *lates[0][1:])
            lates.popleft()  # last: who looks finds it in one of the two

    def serve_what_nobody_polls_for(self, producer: "WaitingProducer") -> None:
        """Hear of events here, where nothing limits and nobody sends."""
        if not self._outbox.is_mixed and producer.with_librdkafka() > MANY:
            producer.serve_librdkafka(0)
