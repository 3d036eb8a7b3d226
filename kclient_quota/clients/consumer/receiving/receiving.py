"""The receiving half of `Consumer`: `poll()`, `consume()` and `keep_alive()`.

Messages are taken out of librdkafka's queue in batches, as many as the quota grants and the application has asked for;
`poll()` takes a few more while it is called in quick succession. They are held until they are handed over: position,
commit, revocation and close speak of what the application has received.

A signal may end any line here. Two rules keep messages safe: what was taken and is not held yet is sought back, see
`recovering`; and nothing is called between taking messages out of `_held` and returning them, as Python looks for
signals after calls.
"""

from math import ceil
from threading import get_ident
from typing import Final

from confluent_kafka import KafkaError, Message

from kclient_quota.clients.agents import CConsumer
from kclient_quota.clients.calls import interruptible, seconds, whole
from kclient_quota.clients.consumer.core import ENDLESS
from kclient_quota.clients.consumer.receiving.fetching import was_not_told
from kclient_quota.clients.consumer.receiving.held import key_of
from kclient_quota.clients.consumer.receiving.listening import Listener
from kclient_quota.clients.consumer.receiving.pausing import Pausing
from kclient_quota.clients.consumer.receiving.poll_idle import PollIdle
from kclient_quota.clients.heartbeat import Beat
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.clock import monotonic
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes

SLICE_S: Final = 0.1
"""Longest time that nothing of ours is heard in; as often confluent_kafka looks for signals, twice."""
LEAST_WAIT_MS: Final = 5
"""What is waited for is what so much time is worth, of many small messages several: each wait costs as much as one."""
MOST_AT_ONCE: Final = 1_000_000
"""What confluent_kafka's `consume` takes at most."""
DRAIN_MESSAGES: Final = 100_000
DRAIN_BATCHES: Final = 10
"""More than librdkafka's own queue has room for; it may be filled as fast as it is emptied."""
AHEAD_S: Final = 0.01
"""Callbacks and rebalances are served that often, while messages are taken ahead of what `poll` is asked for."""
MOST_AHEAD: Final = 256
MAKE_AGAIN_MS: Final = 60_000
"""A client that cannot be made, for want of a token for one, holds `poll` up for up to ten seconds each time."""

_plain_consume: Final = CConsumer.consume


class Receiving(Pausing):
    """confluent_kafka's Consumer at the pace of its quota; belongs to the thread that polls."""

    _kq_reads_ahead = True
    _kq_serve_at = 0.0  # until then held messages are handed over one by one

    def _kq_prepare(self, listener: Listener, interceptors: ConsumerInterceptors) -> None:
        """Before confluent_kafka's constructor, which may call back."""
        self._kq_listener = listener
        self._kq_core = listener.core
        self._kq_clock = listener.clock
        self._kq_events = listener.events
        self._kq_interceptors = interceptors
        self._kq_idle = PollIdle()
        self._kq_waited = WaitTime()
        self._kq_prepare_recovering()
        self._kq_goes_round = bool(interceptors)  # no call goes straight on to confluent_kafka's `consume`
        self._kq_credit = 0.0  # bytes that may be taken; endless while nothing limits
        self._kq_ahead = 1
        self._kq_other_sizes: FetchSizes | None = None  # to fetch in, as soon as it can be done
        self._kq_make_at_ms = 0

    # Receiving ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, or None after `timeout` seconds, the wait for the quota included; -1: wait for one.

        Serves callbacks, and keeps the consumer in its group. Look at `message.error()` first.
        """
        if monotonic() < self._kq_serve_at:
            # Nothing is called from here on: neither another thread nor a signal comes in between.
            held = self._kq_held
            index = held.first
            if index < held.ready:
                held.first = index + 1
                return held.messages[index]
        return self._kq_receive_in_turn(self._kq_poll, 1, timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to `num_messages` messages, those that came within `timeout` seconds, the wait for the quota included."""
        return self._kq_receive_in_turn(self._kq_consume_up_to, num_messages, timeout)

    def _kq_consume_up_to(self, num_messages: int, timeout: float) -> list[Message]:
        num_messages, timeout = whole(num_messages), seconds(timeout)
        if not self._kq_is_open or not _is_sane(num_messages, timeout):
            return super().consume(num_messages, timeout)
        began = monotonic()
        self._kq_let_others()
        self._kq_settle()
        self._kq_store_if_due()
        if self._kq_credit != ENDLESS or self._kq_held or self._kq_events or self._kq_in_doubt or self._kq_goes_round:
            return self._kq_receive(num_messages, timeout, began)
        self._kq_doubt(num_messages)
        within = min(timeout, SLICE_S) if timeout >= 0.0 else SLICE_S
        within = within if self._kq_waits_in_batches() else 0.0
        messages = self._kq_consume(num_messages, within)
        if (len(messages) < num_messages and within != timeout) or self._kq_held.gone:
            self._kq_hold(messages)
            return self._kq_receive(num_messages, timeout, began)
        self._kq_idle.polled(began, monotonic())
        self._kq_come(messages)
        self._kq_last = messages[:]
        self._kq_in_doubt = 0
        return messages

    def keep_alive(self) -> None:
        """Stay in the group without receiving anything: for an application that waits for something else.

        Cheap; call it a few times a second. Rebalances are served every few seconds, which takes messages out of
        librdkafka's queue; they are held until the application receives them.
        """
        if not self._kq_is_open or self._kq_listener.in_callback:
            # Within a callback confluent_kafka takes no other poll of the same consumer, not even an empty one.
            return
        if self._kq_turn_of in {0, get_ident()}:  # another thread that receives keeps it alive, too
            self._kq_in_turn(self._kq_beat)

    def _kq_beat(self) -> None:
        beat = self._kq_core.heartbeat.due(self._kq_clock.now_ms())
        if beat is Beat.TOUCH:
            interruptible(_plain_consume, self, 0, 0)
        elif beat is Beat.POLL:
            self._kq_note_handed()
            self._kq_take(1, 0.0)
            if self._kq_held.full and not self._kq_paused_by_us:
                mine = [part for part in super().assignment() if (part.topic, part.partition) not in self._kq_paused]
                self._kq_pause_source(mine, is_paused=True)
                self._kq_paused_by_us = mine
            self._kq_hear()

    def _kq_serve_before_close(self) -> None:
        """Serve a rebalance that came after the last poll, so that librdkafka's close finds none.

        It says at once that it leaves the group then, and calls back for the rebalance meanwhile. If the broker's
        answer comes in the very moment in which the callback ends, nobody answers the callback's `assign()` any more:
        the process waits for ever, with Python's lock held (librdkafka's issue 4884).
        """
        if not self._kq_listener.in_callback:
            self._kq_take(1, 0.0)

    def _kq_poll(self, count: int, timeout: float) -> Message | None:
        timeout = seconds(timeout)
        if not self._kq_is_open or not _is_sane(count, timeout):
            return super().poll(timeout)
        began = monotonic()
        self._kq_settle()
        self._kq_store_if_due()
        self._kq_serve_if_due(began)
        quick = began < self._kq_serve_at and not self._kq_held.there
        self._kq_ahead = min(2 * self._kq_ahead, MOST_AHEAD) if quick and self._kq_reads_ahead else 1
        there = self._kq_gather(count, began + timeout if timeout >= 0 else ENDLESS, self._kq_ahead)
        if not there or self._kq_interceptors:
            messages = self._kq_hand_over(there and count, began)
            return messages[0] if messages else None
        now = monotonic()
        self._kq_idle.polled(began, now)
        self._kq_resume_ours()
        held = self._kq_held
        held.ready = len(held.messages)
        self._kq_serve_at = now + AHEAD_S
        # Nothing is called from here on.
        index = held.first
        held.first = index + 1
        return held.messages[index]

    def _kq_receive(self, count: int, timeout: float, began: float) -> list[Message]:
        """Wait for the quota and for messages.

        Args:
            count: messages wanted; fewer are returned when the time is over.
            timeout: in seconds, endless below 0.
            began: when the application has called.
        """
        self._kq_serve_if_due(began)
        there = self._kq_gather(count, began + timeout if timeout >= 0 else ENDLESS)
        return self._kq_hand_over(min(there, count), began)

    def _kq_gather(self, count: int, deadline: float, ahead: int = 0) -> int:
        """Hold messages until there are `count` or the time is over; how many there are.

        Args:
            count: how many are wanted.
            deadline: until when, of `monotonic()`.
            ahead: how many to take at once if they are there anyway.
        """
        is_first = True
        while True:
            self._kq_let_others()
            self._kq_hear()
            # Whole milliseconds, as librdkafka waits for: whoever asks it for less asks again and again.
            left_ms = ceil(max(0.0, min(deadline - monotonic(), SLICE_S)) * 1000)
            there = self._kq_held.there
            if there >= count or not (left_ms or is_first):
                return there
            is_first = False
            wait_ms = self._kq_ask()
            if wait_ms:
                self._kq_wait(min(max(wait_ms, LEAST_WAIT_MS), left_ms))
            else:
                self._kq_take(count - there, left_ms / 1000, ahead)

    def _kq_ask(self) -> int:
        """0 when something may be taken now, else how many milliseconds to wait for the quota."""
        if self._kq_credit > 0.0:
            return 0
        self._kq_credit, wait_ms = self._kq_core.grant(self._kq_clock.now_ms())
        return wait_ms

    def _kq_wait(self, wait_ms: int) -> None:
        began_ms = self._kq_clock.now_ms()
        Receiving.keep_alive(self)
        self._kq_clock.sleep_ms(wait_ms)
        self._kq_waited.add(self._kq_clock.now_ms() - began_ms)

    def _kq_take(self, count: int, timeout_s: float, ahead: int = 0) -> None:
        """Hold librdkafka's next messages, as many as there is credit for."""
        if self._kq_in_doubt:
            self._kq_recover()
        if self._kq_fetcher is not None:
            self._kq_serve_member()
        most = self._kq_core.most_messages(max(count, ahead), self._kq_credit)
        self._kq_doubt(most)
        waits = not ahead and self._kq_waits_in_batches()
        messages = self._kq_pull(most, timeout_s if waits else 0.0) if waits or most > 1 else []
        if not (messages or waits):
            message = self._kq_pull_one(timeout_s)
            messages = [] if message is None else [message]
        self._kq_hold(messages)
        self._kq_charge(messages)
        now_ms = self._kq_clock.now_ms()
        if not self._kq_turns <= self._kq_resting and self._kq_core.lets_fetch_out(now_ms):
            self._kq_begin_turns()
        self._kq_core.heartbeat.on_poll(now_ms)

    def _kq_waits_in_batches(self) -> bool:
        """Whether `consume()` waits within librdkafka's: where nothing throttles, or an agent below looks at it.

        What a signal's handler raises while librdkafka waits comes out of its next callback, a throttle's say. Where
        that ends a batch, librdkafka forgets a message, and its close waits for that for ever; its poll does not.
        """
        return not (self._kq_listener.is_throttled and self._kq_reads_ahead)

    def _kq_serve_member(self) -> None:
        """The consumer's own client fetches nothing: it has callbacks, rebalances and errors to tell.

        But for partitions that cannot be begun: the client that fetches begins them as well, and says so, too. That a
        topic is gone only this one says: the group takes it from the other one, which may not have heard of it yet.
        """
        event = self._kq_within(super().poll, 0.0)
        error = None if event is None else event.error()
        if error is not None and error.code() != KafkaError._AUTO_OFFSET_RESET and not was_not_told(event):  # noqa: SLF001
            self._kq_held.add([event])
            self._kq_note_silence([event])
        if self._kq_may_differ:  # to see that it does not waits for librdkafka's thread, twice
            self._kq_follow_assignment()

    def _kq_charge(self, messages: list[Message]) -> None:
        if self._kq_credit == ENDLESS or not messages:
            return
        cost = self._kq_core.charge(messages)
        self._kq_credit = 0.0 if self._kq_core.grants_one else self._kq_credit - cost

    def _kq_serve_if_due(self, now: float) -> None:
        """Held messages are no reason to let callbacks and rebalances wait; takes another one when there is one."""
        if self._kq_held.there and now >= self._kq_serve_at:
            if self._kq_ask() == 0:
                self._kq_take(1, 0.0)
            else:
                Receiving.keep_alive(self)
            self._kq_serve_at = monotonic() + AHEAD_S

    def _kq_hand_over(self, count: int, began: float) -> list[Message]:
        """`count` messages that are held."""
        self._kq_idle.polled(began, monotonic())
        self._kq_resume_ours()
        intercepted = self._kq_intercept(self._kq_held.peek(count)) if self._kq_interceptors else None
        messages = self._kq_held.take(count)
        # Nothing is called from here on.
        self._kq_last = messages[:]
        return messages if intercepted is None else intercepted

    def _kq_intercept(self, messages: list[Message]) -> list[Message]:
        errors = [message for message in messages if message.error() is not None]
        if len(errors) == len(messages):
            return messages
        return errors + self._kq_interceptors.on_consume([message for message in messages if message.error() is None])

    def _kq_settle(self) -> None:
        """What was returned has been received."""
        self._kq_note_handed()
        if self._kq_received.is_due:
            if self._kq_held or self._kq_in_doubt or self._kq_tells_ends:
                self._kq_received.offsets()
            else:
                mine = [part for part in super().assignment() if key_of(part) not in self._kq_anew]
                self._kq_received.replace(self._kq_positions(mine))

    def _kq_store_if_due(self) -> None:
        """Store what has been received, when it is time to."""
        raise NotImplementedError

    # What happens beside ------------------------------------------------------------------------------------------

    def _kq_hear(self) -> None:
        """Attend to what callbacks have noted, and see whether a quota applies that did not, or none any more."""
        if self._kq_events or self._kq_listener.fetcher_events:
            if self._kq_listener.hear():
                self._kq_idle.flush(self._kq_clock.now_ms())
                self._kq_may_differ = True  # a signal may have ended a rebalance's callback before it said so
                self._kq_store_if_due()
                self._kq_ask_again(self._kq_listener.told)
                # What a signal has ended is done the next time.
                self._kq_other_sizes = self._kq_core.other_sizes(self._kq_clock.now_ms()) or self._kq_other_sizes
                if self._kq_other_sizes is not None:
                    self._kq_change_sizes(self._kq_other_sizes)
                    self._kq_other_sizes = None
                self._kq_take_turns()
            self._kq_review()

    def _kq_change_sizes(self, sizes: FetchSizes) -> None:
        """Have fetches of these sizes from now on, if it can be done; what is prefetched already is held."""
        fetcher, now_ms = None, self._kq_clock.now_ms()
        if now_ms >= self._kq_make_at_ms:
            fetcher = self._kq_made_to_fetch(sizes)
            self._kq_make_at_ms = now_ms + MAKE_AGAIN_MS if fetcher is None else now_ms
        if fetcher is None:
            return
        self._kq_drain()
        expected = {**self._kq_received.offsets(), **self._kq_held.next_offsets()}
        # The other client knows no position before it has handed something over, be that after all that is held.
        self._kq_sought.update({key: (at, None) for key, at in expected.items() if self._kq_starts.get(key) != at})
        self._kq_received.ends_come_again(self._kq_held.ends() if self._kq_tells_ends else {})
        self._kq_fetch_by(fetcher, expected, self._kq_listener.told)
        self._kq_core.change_sizes(sizes)
        self._kq_listener.on_other_fetcher()
        self._kq_goes_round = True

    def _kq_drain(self) -> list[Message]:
        """Hold all that is prefetched."""
        self._kq_note_handed()
        if self._kq_in_doubt:
            self._kq_recover()
        drained: list[Message] = []
        for _ in range(DRAIN_BATCHES):
            # Each is held before the next one is asked for, in the midst of which its partitions may go.
            self._kq_doubt(DRAIN_MESSAGES)
            messages = self._kq_pull(DRAIN_MESSAGES, 0.0)
            self._kq_hold(messages)
            drained += messages
            if len(messages) < DRAIN_MESSAGES:
                break
        return drained

    def _kq_take_turns(self) -> None:
        """See whose turn it is to be fetched."""
        turns = frozenset(self._kq_core.resting(self._kq_paused, self._kq_turns, self._kq_clock.now_ms()))
        self._kq_rest(self._kq_resting & turns)  # to go on takes nothing away, and need not wait
        self._kq_turns = turns

    def _kq_begin_turns(self) -> None:
        """Some have been read for long while others wait; what is prefetched of them librdkafka would forget."""
        self._kq_charge(self._kq_drain())
        self._kq_rest(self._kq_turns.intersection(map(key_of, super().assignment())))  # of now, after that

    def _kq_review(self) -> None:
        """Give credit that fits: endless without a quota, and none left over from before there was one."""
        if not self._kq_core.paced:
            self._kq_credit = ENDLESS
        elif self._kq_credit == ENDLESS:
            self._kq_credit = 0.0


def _is_sane(count: object, timeout: object) -> bool:
    """Whether these are arguments that confluent_kafka takes; otherwise its own error is wanted."""
    return isinstance(count, int) and 0 < count <= MOST_AT_ONCE and isinstance(timeout, int | float)
