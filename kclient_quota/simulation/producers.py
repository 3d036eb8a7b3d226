"""Producers in virtual time: clients that wake up, requests that arrive.

A client's messages wait for each broker as in its send queue, as far as that has room; all are alike here, so that they
are only counted. As its pace (`pacing.sending.send_pace`) allows, a batch of them goes: librdkafka's linger makes a
request of it, the broker's managers (`quota.managers`) record it and mute the connection, and what the response says
reaches the client half a round trip later. Two events a request: what a response says is looked at when its client next
wakes, with the time it came at. Plain producers have a module of their own.
"""

from collections import deque
from math import inf
from typing import Final

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import LEAST_MESSAGES
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.outcome import (
    CLIENT_ID,
    PRINCIPAL,
    RECORD_WIRE_BYTES,
    REQUEST_WIRE_BYTES,
    START_MS,
    Delivery,
    Events,
    Gap,
    Outcome,
    Randomness,
    Tally,
    Way,
    bins_for,
    managers_of,
)
from kclient_quota.simulation.parts import Part
from kclient_quota.simulation.plain_producers import QUEUE_MESSAGES, PlainLane, PlainProducers

STATISTICS_MS: Final = 1_000
"""How often librdkafka's statistics tell a gate what a byte takes on the wire."""
LONGEST_SLEEP_MS: Final = 1_000
MOST_WAITING: Final = 10_000
"""Messages, while no quota bounds them."""


class _Lane:
    """One client's connection to one broker."""

    __slots__ = (
        "answers",
        "arrived_ms",
        "managers",
        "muted_until_ms",
        "pace",
        "places",
        "requests",
        "statistics_at_ms",
        "tally",
        "waiting",
        "wire_bytes",
    )

    def __init__(self, pace: SendPace, places: int, managers: QuotaManagers, tally: Tally) -> None:
        self.pace = pace
        self.places = places  # partitions whose messages wait apart
        self.waiting = 0  # messages
        self.managers = managers
        self.tally = tally
        self.requests: deque[tuple[int, int]] = deque()  # bytes of what is on its way, on the wire and raw
        self.answers: deque[tuple[int, int, int]] = deque()  # when it came, raw bytes, throttle time
        self.arrived_ms = 0
        self.muted_until_ms = 0
        self.wire_bytes = 0
        self.statistics_at_ms = 0

    def hear(self, now_ms: int) -> None:
        """Tell the pace what has come until now."""
        answers = self.answers
        while answers and answers[0][0] <= now_ms:
            at_ms, raw_bytes, throttle_ms = answers.popleft()
            if throttle_ms > 0:
                self.pace.on_throttle(throttle_ms, at_ms)
            self.pace.on_delivered(raw_bytes, at_ms)
        if now_ms >= self.statistics_at_ms:
            self.statistics_at_ms = now_ms + STATISTICS_MS
            self.pace.on_wire(self.wire_bytes, now_ms)
            self.wire_bytes = 0


class _Client:
    """A producer with one lane for each partition leader it writes to."""

    __slots__ = ("begin_ms", "end_ms", "lanes", "offered", "partitions", "per_message_ms")

    def __init__(self, partitions: list[_Lane], begin_ms: int, end_ms: int, per_message_ms: float) -> None:
        self.partitions = partitions
        self.lanes = list(dict.fromkeys(partitions))
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.per_message_ms = per_message_ms
        self.offered = 0  # messages


class ProducerWorld:
    """One part of a scenario.

    Args:
        scenario: what to simulate.
        part: which part of it.
        randomness: a seeded generator.
    """

    def __init__(self, scenario: Scenario, part: Part, randomness: Randomness) -> None:
        network = scenario.network
        self._random = randomness.random
        self._raw_bytes = scenario.message_bytes + RECORD_WIRE_BYTES
        self._record_bytes = scenario.message_bytes + RECORD_WIRE_BYTES
        self._travel = Way(network, randomness).arrival
        self._linger_ms = network.linger_ms
        self._late_ms = network.wake_ms + 1
        self._keyed = scenario.keyed
        self._warm_ms = START_MS + scenario.warm_up_ms
        self._end_ms = START_MS + scenario.end_ms
        self._events = Events()
        self._push = self._events.push
        rows = [bins_for(scenario.end_ms) for _ in part.clients]
        self._outcome = Outcome(part, rows)
        delivery = Delivery(bins_for(scenario.end_ms))
        self._outcome.delivery = delivery
        self._plain = PlainProducers(scenario, self._record_bytes, self._events, randomness, delivery)
        self._gaps: list[tuple[Gap, int]] = []
        managers = {broker: managers_of(scenario.quota, PRODUCER_BYTE_RATE) for broker in part.brokers}
        spans = scenario.presence()
        for number, bins in zip(part.clients, rows, strict=True):
            came_ms, went_ms = spans[number]
            begin_ms = START_MS + came_ms + (0 if came_ms else int(self._random() * scenario.ramp_ms))
            gap = Gap(max(begin_ms, self._warm_ms))
            self._gaps.append((gap, START_MS + went_ms))
            tally = Tally(self._outcome, scenario.kind(number), bins, gap, self._warm_ms)
            if scenario.is_plain(number):
                self._add_plain(scenario, number, managers, tally, begin_ms)
            else:
                self._add_client(scenario, number, managers, tally, (begin_ms, START_MS + went_ms))

    def _add_client(
        self,
        scenario: Scenario,
        number: int,
        managers: dict[int, QuotaManagers],
        tally: Tally,
        span: tuple[int, int],
    ) -> None:
        limit = None if scenario.learns(number) else scenario.quota
        leaders = scenario.partitions(number)
        lanes = {}
        for broker in dict.fromkeys(leaders):
            pace = SendPace(Pacer(limit), None, limit, linger_ms=self._linger_ms)
            places = leaders.count(broker) if self._keyed else 1
            lanes[broker] = _Lane(pace, places, managers[broker], tally)
        begin_ms, end_ms = span
        per_message_ms = scenario.message_bytes * 1000 / scenario.demand(number)
        client = _Client([lanes[broker] for broker in leaders], begin_ms, end_ms, per_message_ms)
        self._push(begin_ms, self._wake, client)

    def _add_plain(
        self,
        scenario: Scenario,
        number: int,
        managers: dict[int, QuotaManagers],
        tally: Tally,
        begin_ms: int,
    ) -> None:
        brokers = dict.fromkeys(scenario.partitions(number))
        per_message_ms = scenario.message_bytes * 1000 * len(brokers) / scenario.demand(number)
        room = QUEUE_MESSAGES // len(brokers)
        for broker in brokers:
            PlainLane(self._plain, managers[broker], tally, begin_ms, per_message_ms, room)

    def run(self) -> Outcome:
        """Let all the time pass."""
        self._events.run(self._end_ms)
        for gap, end_ms in self._gaps:
            gap.note(min(self._end_ms, end_ms))
        self._outcome.longest_gap_ms = [gap.longest_ms for gap, _ in self._gaps]
        return self._outcome

    # The client

    def _wake(self, client: _Client, now_ms: int) -> None:
        """Send all that may go now, and sleep until more may."""
        if now_ms >= client.end_ms:
            return
        for lane in client.lanes:
            lane.hear(now_ms)
        due_ms: float = now_ms
        sent = True
        while sent and due_ms <= now_ms:  # what went has made room
            due_ms = self._offer(client, now_ms)
            sent = False
            wait_ms: float = LONGEST_SLEEP_MS
            for lane in client.lanes:
                while lane.waiting:
                    batch = max(1, min(lane.pace.lump_bytes(lane.places) // self._raw_bytes, lane.waiting))
                    lane_wait_ms = lane.pace.wait_ms(batch * self._raw_bytes, now_ms)
                    if lane_wait_ms:
                        wait_ms = min(wait_ms, lane_wait_ms)
                        break
                    self._hand(lane, batch, now_ms)
                    sent = True
        if due_ms > now_ms:
            wait_ms = min(wait_ms, int(due_ms) + 1 - now_ms)
        self._push(now_ms + max(1, int(wait_ms)) + int(self._random() * self._late_ms), self._wake, client)

    def _offer(self, client: _Client, now_ms: int) -> float:
        """Offer what there is; returns when the next message is there: now or earlier when there is no room for it."""
        per_message_ms = client.per_message_ms
        rooms: dict[_Lane, int] = {}  # nothing that they follow from changes while messages come
        while True:
            due_ms = client.begin_ms + client.offered * per_message_ms
            if due_ms > now_ms:
                return due_ms
            if self._keyed:
                lane = client.partitions[client.offered % len(client.partitions)]
            else:  # to whoever has least to send
                lane = min(client.lanes, key=lambda lane: lane.waiting)
            if lane not in rooms:
                rooms[lane] = self._room(lane)
            room = rooms[lane] - lane.waiting
            if room <= 0:
                return due_ms
            messages = 1
            if len(client.lanes) == 1:
                there = (
                    int((now_ms - client.begin_ms) / per_message_ms) + 1 - client.offered if per_message_ms else room
                )
                messages = max(1, min(room, there))
            lane.waiting += messages
            client.offered += messages

    def _room(self, lane: _Lane) -> int:
        """How many messages may wait."""
        room = lane.pace.room_bytes(lane.places)
        most = MOST_WAITING if room == inf else int(room / self._raw_bytes)
        return max(most, LEAST_MESSAGES)

    def _hand(self, lane: _Lane, messages: int, now_ms: int) -> None:
        """Librdkafka makes one request of a grant."""
        raw_bytes = messages * self._raw_bytes
        lane.pace.on_granted(raw_bytes, now_ms, messages)
        lane.waiting -= messages
        nbytes = messages * self._record_bytes + REQUEST_WIRE_BYTES
        lane.requests.append((nbytes, raw_bytes))
        lane.wire_bytes += nbytes
        lane.arrived_ms = max(self._travel(now_ms + self._linger_ms), lane.arrived_ms)
        self._push(lane.arrived_ms, self._arrive, lane)

    # The broker

    def _arrive(self, lane: _Lane, now_ms: int) -> None:
        """The oldest request of a connection is read, unless it is muted."""
        if now_ms < lane.muted_until_ms:
            self._push(lane.muted_until_ms, self._arrive, lane)
            return
        nbytes, raw_bytes = lane.requests.popleft()
        throttle_ms = lane.managers.on_produce(PRINCIPAL, CLIENT_ID, nbytes, 0, now_ms, acks=-1).time_ms
        lane.muted_until_ms = now_ms + throttle_ms
        answered_ms = self._travel(now_ms)
        lane.answers.append((answered_ms, raw_bytes, throttle_ms))
        lane.tally.note(nbytes, throttle_ms, now_ms)
