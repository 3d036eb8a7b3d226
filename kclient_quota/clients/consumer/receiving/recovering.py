"""What a consumer knows of messages in flight, so that whatever happens to a batch loses and repeats nothing.

A batch that is taken out of librdkafka's queue may not arrive: a signal ends the call and confluent_kafka destroys what
it has, or its partitions are revoked, sought or paused by a callback that librdkafka calls in the midst of it.
`_in_doubt` is set from before librdkafka is asked for messages until they are held or about to be returned: if it is
still set when the next call comes, what is missing is sought back.
"""

import logging
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Final, TypeVar, cast

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from kclient_quota.clients.consumer.receiving.fetching import Fetching
from kclient_quota.clients.consumer.receiving.held import HeldMessages, Partition, ReceivedOffsets, key_of
from kclient_quota.clients.consumer.receiving.listening import Listener
from kclient_quota.clients.librdkafka.messages import partition_of
from kclient_quota.clock import sleep

logger = logging.getLogger("kclient_quota")

Door = TypeVar("Door", bound=Callable[..., Any])
Received = TypeVar("Received")
TURN_S: Final = 0.001
"""How soon a thread sees that another one has received what it wanted."""


def in_turn(door: Door) -> Door:
    """A door through which an application changes what it receives, from whichever thread."""

    @wraps(door)
    def taking_turns(consumer: Any, *args: Any, **kwargs: Any) -> Any:
        return consumer._kq_in_turn(door, consumer, *args, **kwargs)  # noqa: SLF001 - it stands for its method

    return cast("Door", taking_turns)


class Recovering(Fetching):
    """confluent_kafka's Consumer that reads again what was taken and not received."""

    _kq_held: HeldMessages = HeldMessages()  # of one that was never made: always empty
    _kq_listener: Listener
    _kq_takes_turns = True  # whether its calls are not of one that sees to that
    _kq_turn_of = 0  # the thread that receives, or changes what is received
    _kq_depth = 0  # how many calls of it are within each other
    _kq_is_wanted = False  # whether another thread waits for its turn
    _kq_in_doubt = 0
    _kq_times_doubted = 0
    _kq_was_silent = False  # for so long that the group takes what is assigned away
    _kq_last: list[Message]
    _kq_sought: dict[Partition, tuple[int, int | None]]

    def _kq_prepare_recovering(self) -> None:
        self._kq_held = HeldMessages()
        self._kq_received = ReceivedOffsets()
        self._kq_last = []  # what `consume` has returned last
        self._kq_sought = {}  # where an interrupted call has made us seek back to

    # One thread at a time: confluent_kafka's calls wait for each other as well. Not by a lock: to let go of one is a
    # call, after which a signal would take what is about to be returned.

    def _kq_in_turn(self, change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Change what is received while no other thread does; callbacks, and signals' handlers, may within it."""
        me = get_ident()
        if self._kq_is_within(me):
            self._kq_may_differ = True
            return change(*args, **kwargs)
        self._kq_await_turn(me)
        try:
            self._kq_begin_turn()
            self._kq_may_differ = True
            return change(*args, **kwargs)
        finally:
            self._kq_depth = self._kq_turn_of = 0

    def _kq_receive_in_turn(self, receive: Callable[[int, float], Received], count: int, timeout: float) -> Received:
        """The same for what returns messages.

        After a call by `*args` Python would look for signals, and what was received would be lost.
        """
        me = get_ident()
        is_inner = self._kq_is_within(me)
        if not is_inner:
            self._kq_await_turn(me)
        try:
            if is_inner:
                self._kq_depth += 1
            else:
                self._kq_begin_turn()
            return receive(count, timeout)
        finally:
            if is_inner:
                self._kq_depth -= 1
            else:
                self._kq_depth = self._kq_turn_of = 0

    def _kq_is_within(self, me: int) -> bool:
        """Whether this thread has the turn, or is in a callback, for which confluent_kafka has whoever has it wait."""
        if not self._kq_turn_of:
            return not self._kq_takes_turns
        return (self._kq_turn_of == me and self._kq_depth > 0) or self._kq_listener.callback_thread == me

    def _kq_await_turn(self, me: int) -> None:
        while self._kq_turn_of not in {0, me}:
            self._kq_is_wanted = True
            sleep(TURN_S)
        # Nothing is called since it was free, so that no other thread comes in between.
        self._kq_turn_of = me

    def _kq_begin_turn(self) -> None:
        self._kq_depth = 1
        self._kq_held.ready = 0  # what is handed over without asking for a turn

    def _kq_let_others(self) -> None:
        """Whoever receives has others do what they want to in between: they need not wait until its time is over."""
        if not self._kq_is_wanted or self._kq_depth != 1:
            return
        me, self._kq_is_wanted = self._kq_turn_of, False  # who still waits says so again
        self._kq_depth = self._kq_turn_of = 0
        sleep(2 * TURN_S)
        self._kq_await_turn(me)
        self._kq_begin_turn()

    def _kq_note_handed(self) -> None:
        """Note what was returned, before anything else is done with its partitions."""
        held = self._kq_held
        if held.first > held.noted:
            self._kq_received.note(held.handed())
            held.forget_handed()
        if self._kq_last:
            self._kq_received.note(self._kq_last)
            self._kq_last = []

    def _kq_doubt(self, most: int) -> None:
        """Up to so many messages are about to be taken."""
        self._kq_held.gone.clear()
        self._kq_in_doubt = most
        self._kq_times_doubted += 1

    def _kq_no_more_of(self, partitions: list[TopicPartition]) -> None:
        """The application has said something of these: what is being taken of them right now came before that."""
        if self._kq_in_doubt:
            self._kq_held.gone.update(map(key_of, partitions))

    def _kq_hold(self, messages: list[Message]) -> None:
        """Hold what was taken, but for partitions that went away, or were begun anew, while it was being taken.

        librdkafka calls back in the midst of a batch, and gives what it had put into it before all the same. But the
        position of such a partition was stored before those, and the next member of the group begins there.
        """
        messages = self._kq_received.without_ends_again(messages)
        if messages:
            self._kq_come(messages)
            if self._kq_paused:
                self._kq_note_running(messages)
            dropped = self._kq_held.add_unless_gone(messages)
            if dropped:
                self._kq_read_anew(dropped, messages)
            # Where partitions came and went meanwhile, nothing is held any more of what was there before.
            if self._kq_held.there > len(messages) and not self._kq_held.gone:
                self._kq_note_silence(messages)
        if self._kq_was_silent:
            # It still counts for positions, which are the application's.
            self._kq_held.set_aside(set(map(key_of, super().assignment())))
        self._kq_in_doubt = 0

    def _kq_come(self, messages: list[Message]) -> None:
        """These have come, so that librdkafka's positions are of what they were assigned for."""
        if self._kq_anew:
            came = {partition_of(message) for message in messages if message.error() is None}
            self._kq_anew -= came - self._kq_held.gone

    def _kq_note_silence(self, events: list[Message]) -> None:
        """See whether librdkafka says that the application has not polled for `max.poll.interval.ms`.

        Others may have what is held by then, and have begun it. A plain client forgets what it has fetched; ours hands
        over nothing of it until the group has taken it away, which makes it forget it, too.
        """
        errors = (error for event in events if (error := event.error()) is not None)
        if any(error.code() == KafkaError._MAX_POLL_EXCEEDED for error in errors):  # noqa: SLF001 - its name
            self._kq_was_silent = True

    def _kq_note_running(self, messages: list[Message]) -> None:
        """What librdkafka gives is not paused: it passes over a pause of partitions that it has never had assigned.

        What was paused while these were being taken was so after them; the next ones tell.
        """
        given = {partition_of(message) for message in messages if message.error() is None}
        running = (given & self._kq_paused) - self._kq_held.gone
        if running:
            self._kq_held.bring_back(running)
            self._kq_paused -= running

    def _kq_recover(self) -> None:
        """Seek back to what a call that was interrupted has taken out of librdkafka's queue and lost."""
        self._kq_note_handed()
        expected = {**self._kq_received.offsets(), **self._kq_held.next_offsets()}
        for part in self._kq_positions(super().assignment()):
            if part.offset < 0:
                # Nothing has come of it since it was begun.
                continue
            offset = expected.get(key_of(part))
            if offset is None:
                offset = self._kq_first_offset(part)
                if offset < 0 and offset != OFFSET_BEGINNING:
                    offset = max(0, part.offset - self._kq_in_doubt)
            elif part.offset > offset:
                self._kq_sought[key_of(part)] = offset, None
            if part.offset > offset:
                self._kq_seek_back(part, offset)
        self._kq_in_doubt = 0

    def _kq_read_anew(self, dropped: set[Partition], messages: list[Message]) -> None:
        """Begin partitions that are assigned once more where they were begun while messages were being taken.

        Nobody knows which of these came after that, and librdkafka's position may be behind those that came before.
        """
        # Of what was paused, what is held is handed over once it is resumed.
        expected = {**self._kq_received.offsets(), **self._kq_held.next_offsets()}
        for part in super().assignment():
            key = key_of(part)
            if key not in dropped:
                continue
            offset = expected.get(key)
            if offset is None:
                offset = self._kq_first_offset(part)
                if offset < 0 and offset != OFFSET_BEGINNING and key not in self._kq_starts:
                    offset = min(message.offset() or 0 for message in messages if partition_of(message) == key)
            elif self._kq_starts.get(key) != offset:
                self._kq_sought[key] = offset, None
            self._kq_seek_back(part, offset)

    def _kq_seek_back(self, part: TopicPartition, offset: int) -> None:
        self._kq_rest_no_more(key_of(part))
        try:
            self._kq_seek_in_source(TopicPartition(part.topic, part.partition, offset))
        except KafkaException as error:
            # It is being taken away; whoever gets it reads on from what is committed.
            logger.debug("%s [%d] could not be read again: %s", part.topic, part.partition, error)
