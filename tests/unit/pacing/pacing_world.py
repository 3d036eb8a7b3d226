"""Virtual time: paced clients with endless work, and a broker with Kafka's exact window that mutes them."""

import heapq
import random
from dataclasses import dataclass, field

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import throttle_time_ms


@dataclass
class World:
    """One broker quota and the clients under it. `limits` is what clients are told (None: they must learn)."""

    quota: float
    clients: int = 1
    told: bool = True
    message_bytes: int = 1_000
    framing: float = 0.0
    jitter_ms: int = 0
    skew: float = 0.0  # client clocks run faster by this part
    late_ms: int = 0  # callers wake up this late, at most
    first_ms: int = 0  # a client's first request arrives so much later, and those that follow it no earlier
    seed: int = 1
    start_ms: int = 1_000_000
    in_flight: int = 5
    grant: int = 0  # ask for so many messages at once, where they take no more than 400 ms
    window: tuple = (11, 1000)
    demand: object = None  # (client, now) -> may this client send now? None: always
    sent: list = field(default_factory=list)  # (time, client, bytes, throttle)

    def __post_init__(self):
        self.random = random.Random(self.seed)
        samples, window_ms = self.window
        self.rate = SampledRate(samples, window_ms)
        limit = self.quota if self.told else None
        self.pacers = [Pacer(limit, samples=samples, window_ms=window_ms) for _ in range(self.clients)]
        self.muted_until = [0] * self.clients
        self.flying = [0] * self.clients
        self.outstanding = [0] * self.clients
        self.last_arrival = [0] * self.clients
        self.events = []
        self.order = 0
        self.now = self.start_ms

    def at(self, time_ms, action, *args):
        self.order += 1
        heapq.heappush(self.events, (time_ms, self.order, action, args))

    def client_time(self, time_ms):
        return self.start_ms + int((time_ms - self.start_ms) * (1.0 + self.skew))

    def broker_time(self, time_ms):
        return self.start_ms + int((time_ms - self.start_ms) / (1.0 + self.skew) + 0.999)

    def run(self, duration_ms):
        if not self.events:
            for client in range(self.clients):
                self.at(self.now + self.random.randrange(50), self.offer, client)
        end = self.now + duration_ms
        while self.events and self.events[0][0] <= end:
            self.now, _, action, args = heapq.heappop(self.events)
            action(*args)
        self.now = end
        return self

    def offer(self, client):
        """Put as many messages into one request as the pacer admits now."""
        if self.demand is not None and not self.demand(client, self.now - self.start_ms):
            self.at(self.now + 50, self.offer, client)
            return
        if self.flying[client] >= self.in_flight:
            self.at(self.now + 2, self.offer, client)
            return
        pacer = self.pacers[client]
        mine = self.client_time(self.now)
        request = 0
        while request < 1_000_000:
            nbytes = self.asked(pacer)
            ahead = self.outstanding[client] + request
            if ahead and ahead + nbytes > pacer.outstanding_bytes:
                at = mine + 2
                break
            at = pacer.admit_at_ms(nbytes, mine, full_bytes=0 if request else pacer.request_bytes)
            if at > mine:
                break
            pacer.on_sent(nbytes, mine)
            request += nbytes
            at = mine
        if request:
            self.flying[client] += 1
            self.outstanding[client] += request
            arrival = self.now + 1 + self.random.randint(0, self.jitter_ms)
            arrival += 0 if self.last_arrival[client] else self.first_ms
            self.last_arrival[client] = arrival = max(arrival, self.last_arrival[client])
            self.at(arrival, self.arrive, client, request, mine)
        wake = max(self.now + 1, self.broker_time(at)) + self.random.randint(0, self.late_ms)
        self.at(wake, self.offer, client)

    def asked(self, pacer):
        if not self.grant:
            return self.message_bytes
        affordable = int(pacer.rate() * 0.4 / self.message_bytes) if pacer.rate() < 1e12 else self.grant
        return max(pacer.request_bytes // self.message_bytes, 1, min(self.grant, affordable)) * self.message_bytes

    def arrive(self, client, nbytes, sent_at):
        if self.now < self.muted_until[client]:
            self.at(self.muted_until[client], self.arrive, client, nbytes, sent_at)
            return
        counted = round(nbytes * (1.0 + self.framing))
        self.rate.record(counted, self.now)
        window_ms = self.rate.window_size_ms(self.now)
        throttle_ms = throttle_time_ms(self.rate.measure(self.now), self.quota, window_ms)
        self.sent.append((self.now, client, counted, throttle_ms))
        self.muted_until[client] = self.now + throttle_ms
        self.at(self.now + 1, self.answered, client, nbytes, throttle_ms, sent_at)

    def answered(self, client, nbytes, throttle_ms, sent_at):
        self.flying[client] -= 1
        self.outstanding[client] -= nbytes
        self.pacers[client].on_throttle(throttle_ms, self.client_time(self.now))
        self.pacers[client].on_answer(sent_at, self.client_time(self.now))
        self.pacers[client].on_success(nbytes, self.client_time(self.now))

    # What came of it

    def after(self, warm_ms):
        return [row for row in self.sent if row[0] >= self.start_ms + warm_ms]

    def utilisation(self, warm_ms):
        return sum(row[2] for row in self.after(warm_ms)) / (self.quota * (self.now - self.start_ms - warm_ms) / 1000)

    def throttles(self, warm_ms=0):
        return [row[3] for row in self.after(warm_ms) if row[3] > 0]

    def jain(self, warm_ms):
        shares = [0] * self.clients
        for _, client, nbytes, _ in self.after(warm_ms):
            shares[client] += nbytes
        return sum(shares) ** 2 / (self.clients * sum(share * share for share in shares))
