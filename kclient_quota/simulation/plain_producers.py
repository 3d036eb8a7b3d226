"""Plain producers in virtual time: librdkafka 2's, with nothing set, under a quota that they do not know.

librdkafka sends a request of up to 1 MB whenever the sockets take one, whether earlier ones have been answered or not.
The broker does not read a muted connection, so requests wait in the sockets; one that has had no answer for
`socket.timeout.ms` since it was made ends the connection, and all that was under way is sent again on a new one. The
broker still reads what the old sockets hold: one request, whose answer is met by a reset, and the one behind it if all
of it had come by then. What it reads there is recorded twice (without idempotence): duplicates. A message older than
`message.timeout.ms` is given up: lost to the application.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from kclient_quota.pacing.pacer import MOST_REQUEST_BYTES
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.outcome import (
    CLIENT_ID,
    PRINCIPAL,
    REQUEST_WIRE_BYTES,
    Delivery,
    Events,
    Randomness,
    Tally,
    Way,
)

LINGER_MS: Final = 5
"""`linger.ms`, librdkafka's default, as all that follow."""
LEAST_TIMEOUT_MS: Final = 100
"""A request of messages that have timed out already gets so long."""
QUEUE_MESSAGES: Final = 100_000
"""`queue.buffering.max.messages`, for all brokers together."""
RETRY_BACKOFF_MS: Final = 100
RECONNECT_BACKOFF_MS: Final = 100
"""Doubled with every connection that comes soon after the last, up to the next."""
MOST_RECONNECT_BACKOFF_MS: Final = 10_000
SCAN_MS: Final = 1_000
"""How often librdkafka looks for what has timed out."""


@dataclass(slots=True)
class _Request:
    runs: list[list[int]]  # when they were produced, and how many messages: the oldest first
    nbytes: int
    timeout_at_ms: int

    @property
    def messages(self) -> int:
        return sum(count for _, count in self.runs)


class _Connection:
    """What is in the sockets between one producer and one broker."""

    __slots__ = ("is_given_up", "is_read", "is_reset", "muted_until_ms", "requests", "unread_bytes")

    def __init__(self) -> None:
        self.requests: deque[_Request] = deque()
        self.unread_bytes = 0
        self.muted_until_ms = 0
        self.is_read = False  # the broker is going to look at it
        self.is_given_up = False  # by the producer
        self.is_reset = False


class PlainProducers:
    """What all plain producers of a part have in common.

    Args:
        scenario: what is simulated.
        record_bytes: what a message takes in a request.
        events: virtual time.
        randomness: a seeded generator.
        delivery: where to count what became of their messages.
    """

    def __init__(
        self, scenario: Scenario, record_bytes: int, events: Events, randomness: Randomness, delivery: Delivery
    ) -> None:
        network = scenario.network
        self.message_bytes = scenario.message_bytes
        self.record_bytes = record_bytes
        self.most_messages = MOST_REQUEST_BYTES // record_bytes or 1
        self.socket_bytes = network.socket_bytes
        self.received_bytes = network.received_bytes
        self.socket_timeout_ms = scenario.socket_timeout_ms
        self.message_timeout_ms = scenario.message_timeout_ms
        self.push = events.push
        self.delivery = delivery
        self.travel = Way(network, randomness).arrival
        self._random = randomness.random

    def reconnect_after(self, backoff_ms: int) -> int:
        """As librdkafka spreads its back-off."""
        return min(int(backoff_ms * (0.75 + 0.75 * self._random())), MOST_RECONNECT_BACKOFF_MS)


class PlainLane:
    """A plain producer and one broker: its share of the messages, of librdkafka's queue, and the connection.

    Args:
        common: of all plain producers.
        managers: the broker's.
        tally: where to count what the broker records.
        begin_ms: when the application begins.
        per_message_ms: how often it produces a message; 0: whenever the queue has room.
        queue_messages: this broker's part of librdkafka's queue.
    """

    def __init__(
        self,
        common: PlainProducers,
        managers: QuotaManagers,
        tally: Tally,
        begin_ms: int,
        per_message_ms: float,
        queue_messages: int,
    ) -> None:
        self._common = common
        self._managers = managers
        self._tally = tally
        self._begin_ms = begin_ms
        self._per_message_ms = per_message_ms
        self._room = queue_messages
        self._produced = 0
        self._queue: deque[list[int]] = deque()  # as _Request.runs
        self._queued = 0
        self._in_flight: deque[_Request] = deque()
        self._made: _Request | None = None  # not sent yet
        self._connection = _Connection()
        self._resume_at_ms = begin_ms
        self._reconnect_at_ms = begin_ms
        self._backoff_ms = RECONNECT_BACKOFF_MS
        self._again_at_ms: float = inf
        self._go_on_at(begin_ms)
        common.push(begin_ms + SCAN_MS, self._scan, None)

    # The application and librdkafka

    def _go_on_at(self, at_ms: int) -> None:
        if at_ms < self._again_at_ms:
            self._again_at_ms = at_ms
            self._common.push(at_ms, self._go_on_again, at_ms)

    def _go_on_again(self, due_ms: int, now_ms: int) -> None:
        if due_ms == self._again_at_ms:
            self._again_at_ms = inf
            self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """Produce what is due, and send what the sockets take."""
        self._produce(now_ms)
        connection = self._connection
        while now_ms >= self._resume_at_ms:
            self._made = self._made or self._make(now_ms)
            if self._made is None or connection.unread_bytes >= self._common.socket_bytes:
                return
            request, self._made = self._made, None
            self._in_flight.append(request)
            connection.requests.append(request)
            connection.unread_bytes += request.nbytes
            self._look_at(connection, self._common.travel(now_ms))

    def _produce(self, now_ms: int) -> None:
        due: float = inf
        if self._per_message_ms:
            due = int((now_ms - self._begin_ms) / self._per_message_ms) + 1 - self._produced
        count = int(min(self._room, due))
        if count > 0:
            self._queue.append([now_ms, count])
            self._queued += count
            self._produced += count
            self._room -= count

    def _make(self, now_ms: int) -> _Request | None:
        """The next request; None when there is none yet: then this is tried again when there may be."""
        common = self._common
        if not self._queued:
            if self._per_message_ms and self._room:
                due_ms = self._begin_ms + self._produced * self._per_message_ms
                self._go_on_at(max(int(due_ms), now_ms) + 1)
            return None
        messages = min(self._queued, common.most_messages)
        ready_ms = self._queue[0][0] + LINGER_MS
        if messages < common.most_messages and now_ms < ready_ms:
            self._go_on_at(ready_ms)
            return None
        runs = self._take(messages)
        left_ms = max(runs[0][0] + common.message_timeout_ms - now_ms, LEAST_TIMEOUT_MS)
        nbytes = messages * common.record_bytes + REQUEST_WIRE_BYTES
        return _Request(runs, nbytes, now_ms + min(left_ms, common.socket_timeout_ms))

    def _take(self, messages: int) -> list[list[int]]:
        """So many of the queue, the oldest."""
        self._queued -= messages
        runs: list[list[int]] = []
        while messages > 0:
            produced_ms, count = self._queue[0]
            taken = min(count, messages)
            runs.append([produced_ms, taken])
            messages -= taken
            if taken == count:
                self._queue.popleft()
            else:
                self._queue[0][1] -= taken
        return runs

    def _answered(self, answer: tuple[_Connection, _Request], now_ms: int) -> None:
        connection, request = answer
        if connection.is_given_up:
            self._common.delivery.duplicates += request.messages
            return
        self._in_flight.popleft()
        self._room += request.messages
        self._common.delivery.note(now_ms, request.messages * self._common.message_bytes)
        self._go_on(now_ms)

    def _scan(self, _: None, now_ms: int) -> None:
        """Look for requests and messages that have timed out."""
        common = self._common
        common.push(now_ms + SCAN_MS, self._scan, None)
        under_way = [*self._in_flight, *([self._made] if self._made else [])]
        if under_way and under_way[0].timeout_at_ms <= now_ms:
            self._start_again(under_way, now_ms)
        while self._queue and self._queue[0][0] + common.message_timeout_ms <= now_ms:
            count = self._queue.popleft()[1]
            self._queued -= count
            self._room += count
            common.delivery.expired += count
        self._go_on(now_ms)

    def _start_again(self, under_way: list[_Request], now_ms: int) -> None:
        """Give the connection up; what was under way goes back to the queue."""
        self._common.delivery.timeouts += 1
        self._connection.is_given_up = True
        self._connection = _Connection()
        for request in reversed(under_way):
            self._queue.extendleft(reversed(request.runs))
            self._queued += request.messages
        self._in_flight.clear()
        self._made = None
        self._resume_at_ms = max(now_ms + RETRY_BACKOFF_MS, self._reconnect_at_ms)
        self._back_off(self._resume_at_ms)
        self._go_on_at(self._resume_at_ms)

    def _back_off(self, now_ms: int) -> None:
        """Decide when the connection after the one that is made now may be made."""
        if self._reconnect_at_ms + MOST_RECONNECT_BACKOFF_MS < now_ms:
            self._backoff_ms = RECONNECT_BACKOFF_MS
        self._reconnect_at_ms = now_ms + self._common.reconnect_after(self._backoff_ms)
        self._backoff_ms = min(self._backoff_ms * 2, MOST_RECONNECT_BACKOFF_MS)

    # The broker

    def _look_at(self, connection: _Connection, now_ms: int) -> None:
        """The broker sees that there is something, as soon as the connection is not muted."""
        if connection.requests and not connection.is_read:
            connection.is_read = True
            self._common.push(max(now_ms, connection.muted_until_ms), self._read, connection)

    def _read(self, connection: _Connection, now_ms: int) -> None:
        """The oldest request is read, and answered at once; then the connection is muted."""
        common = self._common
        request = connection.requests.popleft()
        connection.unread_bytes -= request.nbytes
        throttle_ms = self._managers.on_produce(PRINCIPAL, CLIENT_ID, request.nbytes, 0, now_ms, acks=-1).time_ms
        self._tally.note(request.nbytes, throttle_ms, now_ms)
        connection.muted_until_ms = now_ms + throttle_ms
        connection.is_read = False
        if not connection.is_given_up:
            answered_ms = common.travel(now_ms)
            common.push(answered_ms, self._answered, (connection, request))
            self._look_at(connection, answered_ms)
            return
        common.delivery.duplicates += request.messages
        if not connection.is_reset:
            connection.is_reset = True
            if connection.requests and connection.requests[0].nbytes <= common.received_bytes:
                self._look_at(connection, now_ms)
