"""Producers in virtual time: clients that wake up, requests that arrive.

A client's gate admits messages (`clients.admission`), librdkafka's linger makes requests of them, the broker's managers
(`quota.managers`) record them and mute the connection, and what the response says reaches the gate half a round trip
later. Two events a request: what a response says is looked at when its client next wakes, with the time it came at.
Plain producers have a module of their own.
"""

from collections import deque
from typing import Final

from kclient_quota.clients.admission import RECORD_BYTES, Gate
from kclient_quota.clients.routing import Route
from kclient_quota.pacing.pacer import MOST_REQUEST_BYTES, Pacer
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


class _Lane:
    """One client's connection to one broker."""

    __slots__ = (
        "answers",
        "arrived_ms",
        "gate",
        "linger_until_ms",
        "managers",
        "marks",
        "muted_until_ms",
        "requests",
        "statistics_at_ms",
        "tally",
        "wire_bytes",
    )

    def __init__(self, gate: Gate, managers: QuotaManagers, tally: Tally) -> None:
        self.gate = gate
        self.managers = managers
        self.tally = tally
        self.requests: deque[int] = deque()  # bytes of what is on its way, the last may still be lingering
        self.marks: deque[int] = deque()  # what the gate had handed over by the end of each
        self.answers: deque[tuple[int, int, int]] = deque()  # when it came, mark, throttle time
        self.linger_until_ms = 0
        self.arrived_ms = 0
        self.muted_until_ms = 0
        self.wire_bytes = 0
        self.statistics_at_ms = 0

    def hear(self, now_ms: int) -> None:
        """Tell the gate what has come until now."""
        answers = self.answers
        while answers and answers[0][0] <= now_ms:
            at_ms, mark, throttle_ms = answers.popleft()
            if throttle_ms > 0:
                self.gate.on_throttle(throttle_ms, at_ms)
            self.gate.settle(mark, at_ms)
        if now_ms >= self.statistics_at_ms:
            self.statistics_at_ms = now_ms + STATISTICS_MS
            self.gate.on_wire(self.wire_bytes)
            self.wire_bytes = 0


class _Client:
    """A producer with one lane for each partition leader it writes to."""

    __slots__ = ("begin_ms", "end_ms", "lanes", "partitions", "per_message_ms", "route", "sent")

    def __init__(
        self, partitions: list[_Lane], route: Route, begin_ms: int, end_ms: int, per_message_ms: float
    ) -> None:
        self.partitions = partitions
        self.lanes = list(dict.fromkeys(partitions))
        self.route = route
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.per_message_ms = per_message_ms
        self.sent = 0  # messages


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
        self._cost = scenario.message_bytes + RECORD_BYTES
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
        gates = {broker: Gate(Pacer(limit), limit, self._linger_ms) for broker in dict.fromkeys(leaders)}
        lanes = {broker: _Lane(gate, managers[broker], tally) for broker, gate in gates.items()}
        begin_ms, end_ms = span
        route = Route(leaders, gates.__getitem__, begin_ms)
        per_message_ms = scenario.message_bytes * 1000 / scenario.demand(number)
        client = _Client([lanes[broker] for broker in leaders], route, begin_ms, end_ms, per_message_ms)
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
        """Hand over all that the gates take now, and sleep until they take more."""
        if now_ms >= client.end_ms:
            return
        for lane in client.lanes:
            lane.hear(now_ms)
        cost = self._cost
        while True:
            due_ms = client.begin_ms + client.sent * client.per_message_ms
            if due_ms > now_ms:
                self._push(int(due_ms) + 1, self._wake, client)
                return
            lane = self._lane(client, now_ms)
            gate = lane.gate
            wait_ms = gate.admit(cost, now_ms)
            if wait_ms:
                break
            self._hand(client, lane, now_ms)
        wake_ms = now_ms + wait_ms + int(self._random() * self._late_ms)
        self._push(wake_ms, self._wake, client)

    def _lane(self, client: _Client, now_ms: int) -> _Lane:
        """Where the next message goes."""
        partitions = client.partitions
        if len(partitions) == 1:
            return partitions[0]
        if self._keyed:
            return partitions[client.sent % len(partitions)]
        route = client.route
        if route.gates[route.partition].left < self._cost:
            route.steer(self._cost, now_ms)
        return partitions[route.partition]

    def _hand(self, client: _Client, lane: _Lane, now_ms: int) -> None:
        """Give librdkafka as much as has been granted, as far as there is any."""
        gate = lane.gate
        messages = 1 if self._keyed else gate.left // self._cost
        if client.per_message_ms:
            due = int((now_ms - client.begin_ms) / client.per_message_ms) + 1 - client.sent
            messages = max(1, min(messages, due))
        gate.left -= messages * self._cost
        client.sent += messages
        if len(client.partitions) > 1:
            client.route.count(messages * self._cost)
        nbytes = messages * self._record_bytes
        requests = lane.requests
        if now_ms < lane.linger_until_ms and requests[-1] + nbytes <= MOST_REQUEST_BYTES:
            requests[-1] += nbytes
            lane.marks[-1] = gate.handed
        else:
            nbytes += REQUEST_WIRE_BYTES
            requests.append(nbytes)
            lane.marks.append(gate.handed)
            lane.linger_until_ms = now_ms + self._linger_ms
            arrival_ms = self._travel(lane.linger_until_ms)
            lane.arrived_ms = max(arrival_ms, lane.arrived_ms)
            self._push(lane.arrived_ms, self._arrive, lane)
        lane.wire_bytes += nbytes

    # The broker

    def _arrive(self, lane: _Lane, now_ms: int) -> None:
        """The oldest request of a connection is read, unless it is muted."""
        if now_ms < lane.muted_until_ms:
            self._push(lane.muted_until_ms, self._arrive, lane)
            return
        nbytes = lane.requests.popleft()
        mark = lane.marks.popleft()
        throttle_ms = lane.managers.on_produce(PRINCIPAL, CLIENT_ID, nbytes, 0, now_ms, acks=-1).time_ms
        lane.muted_until_ms = now_ms + throttle_ms
        answered_ms = self._travel(now_ms)
        lane.answers.append((answered_ms, mark, throttle_ms))
        lane.tally.note(nbytes, throttle_ms, now_ms)
