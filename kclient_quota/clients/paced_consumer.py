"""The receiving half of `Consumer`: messages at the pace of the gate, and those held while the queue is served."""

from typing import Final

import confluent_kafka
from confluent_kafka import Message, TopicPartition

from kclient_quota.clients.consumer_gate import ConsumerGate
from kclient_quota.clients.heartbeat import Beat
from kclient_quota.clients.held import HeldMessages, Partition
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.poll_idle import PollIdle
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.pacing.fetch import RECORD_BYTES

SLICE_MS: Final = 100
"""Longest sleep of a waiting call: how soon Ctrl-C is noticed."""
MOST_AT_ONCE: Final = 1_000_000
"""What confluent_kafka's `consume` takes at most."""

_Plain = confluent_kafka.Consumer
DOORS: Final = ("poll", "consume")
"""What is confluent_kafka's own again while nothing is to be paced."""
_poll = _Plain.poll
_consume = _Plain.consume


class PacedConsumer(_Plain):
    """confluent_kafka's Consumer behind a gate; belongs to the thread that polls."""

    _gate: ConsumerGate
    _interceptors: ConsumerInterceptors

    def _prepare(self, gate: ConsumerGate, interceptors: ConsumerInterceptors) -> None:
        """Before confluent_kafka's constructor, which may call back."""
        self._gate = gate
        self._interceptors = interceptors
        self._clock = gate.clock
        self._idle = PollIdle()
        self._waited = WaitTime()
        self._held = HeldMessages()
        self._paused: set[Partition] = set()
        self._paused_by_us: list[TopicPartition] = []
        self._gated = True
        self._closed = False
        # Bytes that `poll` may take without further ado; 0 where every call needs a closer look.
        self._quick = 0.0

    # Receiving ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """As confluent_kafka's; waits at most `timeout` seconds for the quota, too."""
        if self._quick > 0.0:
            message = _poll(self, timeout)
            if message is not None:
                self._quick -= len(message) + RECORD_BYTES
            return message
        messages = self._timed(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As confluent_kafka's; waits at most `timeout` seconds for the quota, too."""
        if not 0 < num_messages <= MOST_AT_ONCE or self._closed:
            return _consume(self, num_messages, timeout)
        return self._timed(num_messages, timeout)

    def keep_alive(self) -> None:
        """Stay in the group without receiving anything: for an application that waits for something else.

        Cheap; call it a few times a second. Rebalances are served every few seconds, which takes messages out of
        librdkafka's queue; they are held until the application receives them.
        """
        if self._closed or self._gate.in_callback:
            # Within a callback confluent_kafka takes no other poll of the same consumer, not even an empty one.
            return
        self._settle_quick()
        beat = self._gate.heartbeat.due(self._clock.now_ms())
        if beat is Beat.TOUCH:
            _consume(self, 0, 0)
        elif beat is Beat.POLL:
            self._poll_ahead()

    def _timed(self, count: int, timeout: float) -> list[Message]:
        """Receive, and note how long that took."""
        idle, clock = self._idle, self._clock
        idle.began(clock.now_ms())
        try:
            return self._receive(count, timeout)
        finally:
            wanted = idle.wanted
            idle.ended(clock.now_ms())
            if self._quick > 0.0:
                idle.forget()
            if wanted and not idle.wanted:
                self._gate.review()

    def _sample(self) -> None:
        """Have the next polls timed, whoever serves them now."""
        self._settle_quick()
        self._idle.sample()
        self._gate.review()

    def _receive(self, count: int, timeout: float) -> list[Message]:
        gate = self._gate
        clock = self._clock
        now_ms = clock.now_ms()
        self._settle_quick()
        deadline_ms = None if timeout < 0 else now_ms + int(timeout * 1000)
        while True:
            if self._held:
                messages = self._held.take(count, self._paused)
                if messages:
                    self._after_held()
                    return self._deliver(messages)
            wait_ms = gate.ask()
            remaining_ms = SLICE_MS if deadline_ms is None else max(0, deadline_ms - clock.now_ms())
            if not wait_ms:
                messages = _consume(self, gate.most_messages(count), min(remaining_ms, SLICE_MS) / 1000)
                gate.heartbeat.on_poll(now_ms)
                if messages:
                    gate.charge(messages)
                    self._lend_quick(count)
                    return self._deliver(messages)
            else:
                self.keep_alive()
                clock.sleep_ms(min(wait_ms, remaining_ms, SLICE_MS))
                self._waited.add(clock.now_ms() - now_ms)
            now_ms = clock.now_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                return []

    def _lend_quick(self, count: int) -> None:
        """Let the next calls of `poll` use up the grant by themselves."""
        gate = self._gate
        if count == 1 and gate.lends and not (self._held or self._interceptors or self._idle.wanted):
            self._quick, gate.left = gate.left, 0.0

    def _settle_quick(self) -> None:
        """Give back what `poll` has not used up."""
        self._gate.left += self._quick
        self._quick = 0.0

    def _poll_ahead(self) -> None:
        """Serve callbacks and rebalances; what comes out of the queue is held."""
        messages = _consume(self, 1, 0)
        if not messages:
            return
        self._gate.charge(messages)
        self._held.add(messages)
        if self._held.full and not self._paused_by_us:
            mine = [part for part in super().assignment() if (part.topic, part.partition) not in self._paused]
            super().pause(mine)
            self._paused_by_us = mine
        self._gate.review()

    def _after_held(self) -> None:
        """Some of what was held has been handed over."""
        if self._paused_by_us and not self._held.full:
            mine, self._paused_by_us = self._paused_by_us, []
            super().resume([part for part in mine if (part.topic, part.partition) not in self._paused])
        if not self._held:
            self._gate.review()

    def _deliver(self, messages: list[Message]) -> list[Message]:
        if not self._interceptors:
            return messages
        errors = [message for message in messages if message.error() is not None]
        if len(errors) == len(messages):
            return messages
        return errors + self._interceptors.on_consume([message for message in messages if message.error() is None])

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's; what is held of them is handed over after `resume()`."""
        super().pause(partitions)
        self._paused.update((part.topic, part.partition) for part in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """As confluent_kafka's."""
        self._paused.difference_update((part.topic, part.partition) for part in partitions)
        ours = {(part.topic, part.partition) for part in self._paused_by_us}
        super().resume([part for part in partitions if (part.topic, part.partition) not in ours])
