"""The event loop: clients that wake up, requests that arrive, in virtual time.

A client's gate admits messages (`clients.admission`), librdkafka's linger makes requests of them, the broker's managers
(`quota.managers`) record them and mute the connection, and what the response says reaches the gate half a round trip
later. Two events a request: what a response says is looked at when its client next wakes, with the time it came at.
"""

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, Protocol

from kclient_quota.clients.admission import RECORD_BYTES, Gate
from kclient_quota.clients.routing import Route
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE, ClientQuotaEntity
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.quota.pacing import MOST_REQUEST_BYTES, Pacer
from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.parts import Part

BIN_MS: Final = 1_000
"""What bytes are counted by, in time."""
STATISTICS_MS: Final = 1_000
"""How often librdkafka's statistics tell a gate what a byte takes on the wire."""
RECORD_WIRE_BYTES: Final = 10
"""What a record of format 2 adds to a value of some kB."""
REQUEST_WIRE_BYTES: Final = 125
"""What the header of a produce request and of its batch take."""
PRINCIPAL: Final = "ANONYMOUS"
CLIENT_ID: Final = "simulated"
START_MS: Final = 1_000_000
"""Where virtual time begins."""


class Randomness(Protocol):
    """What is needed of `random.Random`; give a seeded one, and the same comes out every time."""

    def random(self) -> float:
        """Evenly from 0 to below 1."""
        ...


@dataclass(slots=True)
class Outcome:
    """What happened in one part.

    Attributes:
        part: which brokers and clients.
        bytes_by_bin: for each client of the part, bytes that brokers recorded in each BIN_MS.
        throttles: throttle times of responses after the warm-up, in ms, and how many had them; zeros too.
        requests: how many, in all.
        first_throttle_ms: throttle times before the end of the warm-up at most; 0 when there were none.
    """

    part: Part
    bytes_by_bin: list[list[int]]
    throttles: Counter[int] = field(default_factory=Counter)
    requests: int = 0
    first_throttle_ms: int = 0


class _Lane:
    """One client's connection to one broker."""

    __slots__ = (
        "answers",
        "arrived_ms",
        "bins",
        "gate",
        "linger_until_ms",
        "managers",
        "marks",
        "muted_until_ms",
        "requests",
        "statistics_at_ms",
        "wire_bytes",
    )

    def __init__(self, gate: Gate, managers: QuotaManagers, bins: list[int]) -> None:
        self.gate = gate
        self.managers = managers
        self.bins = bins
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
            self.gate.settle(mark, at_ms)
            if throttle_ms > 0:
                self.gate.on_throttle(throttle_ms, at_ms)
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


class World:
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
        self._way_ms = network.round_trip_ms / 2
        self._jitter_ms = network.jitter_ms + 1
        self._linger_ms = network.linger_ms
        self._late_ms = network.wake_ms + 1
        self._keyed = scenario.keyed
        self._warm_ms = START_MS + scenario.warm_up_ms
        self._end_ms = START_MS + scenario.end_ms
        self._order = 0
        self._events: list[tuple[int, int, _Client | None, _Lane | None]] = []
        self.outcome = Outcome(part, [[0] * (scenario.end_ms // BIN_MS) for _ in part.clients])
        managers = {broker: _managers(scenario.quota) for broker in part.brokers}
        spans = scenario.presence()
        for number, bins in zip(part.clients, self.outcome.bytes_by_bin, strict=True):
            client = self._client(scenario, number, managers, bins, spans[number])
            self._push(client.begin_ms, client, None)

    def _client(
        self,
        scenario: Scenario,
        number: int,
        managers: dict[int, QuotaManagers],
        bins: list[int],
        span: tuple[int, int],
    ) -> _Client:
        limit = scenario.quota if scenario.told else None
        leaders = scenario.partitions(number)
        gates = {broker: Gate(Pacer(limit), limit, self._linger_ms) for broker in dict.fromkeys(leaders)}
        lanes = {broker: _Lane(gate, managers[broker], bins) for broker, gate in gates.items()}
        ramp_ms = int(self._random() * scenario.ramp_ms) if number < scenario.clients else 0
        begin_ms = START_MS + span[0] + ramp_ms
        route = Route(leaders, gates.__getitem__, begin_ms)
        per_message_ms = scenario.message_bytes * 1000 / scenario.demand(number)
        return _Client([lanes[broker] for broker in leaders], route, begin_ms, START_MS + span[1], per_message_ms)

    def run(self) -> Outcome:
        """Let all the time pass."""
        events, end_ms = self._events, self._end_ms
        pop = heapq.heappop
        while events:
            now_ms, _, client, lane = pop(events)
            if now_ms >= end_ms:
                break
            if client is not None:
                self._wake(client, now_ms)
            elif lane is not None:
                self._arrive(lane, now_ms)
        return self.outcome

    def _push(self, at_ms: int, client: _Client | None, lane: _Lane | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_ms, self._order, client, lane))

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
                self._push(int(due_ms) + 1, client, None)
                return
            lane = self._lane(client, now_ms)
            gate = lane.gate
            wait_ms = gate.admit(cost, now_ms)
            if wait_ms:
                break
            self._hand(client, lane, now_ms)
        wake_ms = now_ms + wait_ms + int(self._random() * self._late_ms)
        self._push(wake_ms, client, None)

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
            arrival_ms = int(lane.linger_until_ms + self._way_ms + self._random() * self._jitter_ms)
            lane.arrived_ms = max(arrival_ms, lane.arrived_ms)
            self._push(lane.arrived_ms, None, lane)
        lane.wire_bytes += nbytes

    # The broker

    def _arrive(self, lane: _Lane, now_ms: int) -> None:
        """The oldest request of a connection is read, unless it is muted."""
        if now_ms < lane.muted_until_ms:
            self._push(lane.muted_until_ms, None, lane)
            return
        nbytes = lane.requests.popleft()
        mark = lane.marks.popleft()
        throttle_ms = lane.managers.on_produce(PRINCIPAL, CLIENT_ID, nbytes, 0, now_ms, acks=-1).time_ms
        lane.muted_until_ms = now_ms + throttle_ms
        answered_ms = int(now_ms + self._way_ms + self._random() * self._jitter_ms)
        lane.answers.append((answered_ms, mark, throttle_ms))
        lane.bins[(now_ms - START_MS) // BIN_MS] += nbytes
        outcome = self.outcome
        outcome.requests += 1
        if now_ms >= self._warm_ms:
            outcome.throttles[throttle_ms] += 1
        elif throttle_ms > outcome.first_throttle_ms:
            outcome.first_throttle_ms = throttle_ms


def simulate(scenario: Scenario, part: Part, randomness: Randomness) -> Outcome:
    """Play one part of a scenario; the same generator in the same state gives the same outcome.

    Args:
        scenario: what to simulate.
        part: one of `parts(scenario)`.
        randomness: `random.Random(seed)`, or anything like it.
    """
    return World(scenario, part, randomness).run()


def _managers(quota: float) -> QuotaManagers:
    managers = QuotaManagers()
    managers.update_quota(ClientQuotaEntity({"client-id": CLIENT_ID}), PRODUCER_BYTE_RATE, quota)
    return managers
