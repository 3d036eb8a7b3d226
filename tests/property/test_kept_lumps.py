"""What a producer decides is the same, to the bit, whether the size of a lump is kept or reckoned for every message."""

import random
from math import inf, sqrt

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.lanes import Lane
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.turns import Waiting

T0 = 1_000_000


class Forgetful(SendPace):
    """Reckons everything anew whenever it is asked, from whatever is there now."""

    __slots__ = ()

    def _lump_bytes(self, places):
        pacer, cost, rate = self._pacer, self._cost, self._pacer.rate()
        if rate == inf:
            return min(pacer.request_bytes, int(pacer.outstanding_bytes / 2)) if self._settled else 1
        return max(1, int((self._lump_ms(places) * rate / 1000 - cost.overhead) / cost.part))

    def _lump_ms(self, places):
        pacer, cost, rate = self._pacer, self._cost, self._pacer.rate()
        least = 0.0 if pacer.limit is not None else pacer.request_bytes / rate
        if not self._max_delay_ms:
            return 1000.0 * least
        alone = cost.overhead / rate
        most = self._most_ms() / 1000 / max(places, 1.0)
        best = min(sqrt(11 * alone), most)
        price = best / 11 + alone / best
        messages = max(best * rate / (cost.part * self._message_raw), 1.0) if self._message_raw else inf
        price += 0.008 * (1.0 - 1.0 / sqrt(messages)) * max(1.0 - price, 0.0)
        lump = 11 / 2 * (price - sqrt(max(price * price - 4 * alone / 11, 0.0)))
        every_ms = max(self._way.ms / self._in_flight, pacer.every_ms)
        return max(1000.0 * min(lump, most), 1000.0 * least, every_ms)

    def _most_ms(self):
        allowed_ms = self._max_delay_ms
        if not self._message_raw or self._cost.compresses:
            return allowed_ms
        framing = self._cost.overhead / self._cost.wire(self._message_raw)
        return min(allowed_ms, 2.5 * framing * max(allowed_ms, 1_000))


class Sending:
    """Two producers of one process that share a pacer, and what the first one decides."""

    def __init__(self, kind, *, limit, lanes, max_delay_ms, compressed):
        self.pacer = Pacer(limit)
        self.costs = [BatchCost(compressed=compressed), BatchCost(compressed=compressed)]
        paces = [
            kind(self.pacer, cost, limit, linger_ms=5, max_delay_ms=max_delay_ms, client_bytes=7) for cost in self.costs
        ]
        self.queues = [SendQueue(pace, lanes, max_bytes=500_000) for pace in paces]
        self.flying = [[], []]
        self.heard = [0, 0]
        self.now_ms = T0
        self.said = []

    def offer(self, copies, partition, nbytes, lane, who):
        """Messages come until there is no room."""
        queue = self.queues[who]
        for _ in range(copies):
            offered = queue.offer(Waiting("orders", partition, nbytes, self.now_ms, lane=lane))
            self.said.append((offered.accepted, offered.wait_ms, queue.free_bytes(lane, inf)))
            if not offered.accepted:
                break

    def send(self, who):
        """What may go does, with how large it might have been and for how long the rest waits."""
        queue = self.queues[who]
        for _ in range(20):
            grant = queue.next_grant(self.now_ms)
            lumps = [queue.pace.lump_bytes(places) for places in (1, 5)]
            if not isinstance(grant, Grant):
                self.said.append((grant, *lumps))
                return
            self.said.append((grant.partition, grant.raw_bytes, grant.wire_bytes, len(grant.messages), *lumps))
            self.flying[who].append(grant.raw_bytes)

    def deliver(self, most, throttle_ms, who):
        """Answers come."""
        pace = self.queues[who].pace
        for _ in range(min(most, len(self.flying[who]))):
            if throttle_ms:
                pace.on_throttle(throttle_ms, self.now_ms)
            pace.on_delivered(self.flying[who].pop(0), self.now_ms)

    def step(self, elapsed_ms):
        self.now_ms += elapsed_ms

    def limit(self, limit):
        for queue in self.queues:
            queue.pace.set_limit(limit, self.now_ms)

    def wire(self, part, who):
        """Statistics: what was granted since the last ones took so many tenths of its bytes."""
        pace = self.queues[who].pace
        granted, self.heard[who] = pace.granted - self.heard[who], pace.granted
        pace.on_wire(int(part * granted / 10), self.now_ms)

    def state(self):
        """What the pacer has come to."""
        return self.pacer.rate(), self.pacer.usual_rate(), self.pacer._bank


LIMITS = (None, 5_000, 60_000, 500_000, 2_000_000, 10**8)
LANES = ((), (), (Lane("fast", weight=3),), (Lane("fast", strict=True),))
SIZES = (20, 20, 100, 300, 1_000, 1_000, 10_000)


def history(chance, moves):
    """A day in the life of two producers; most of the time messages come, leave and arrive."""
    many, delivers = chance.choice((3, 60)), chance.choice((1, 1, 0))
    size = chance.choice(SIZES)
    for _ in range(moves):
        who, lot = chance.choice((0, 0, 0, 1)), chance.random()
        if lot < 0.35:
            nbytes = size if chance.random() < 0.8 else chance.choice(SIZES)
            lane = chance.choice(("", "", "fast"))
            yield "offer", chance.randint(1, many), chance.choice((0, 0, 0, 1, 2, 3)), nbytes, lane, who
        elif lot < 0.6:
            yield "send", who
        elif lot < 0.8:
            yield "step", chance.choice((0, 1, 2, 5, 20, 50, chance.randint(0, 50)))
        elif lot < 0.95:
            yield "deliver", chance.randint(delivers, 5), chance.choice((0,) * 30 + (7, 40, 300, 2_000)), who
        elif lot < 0.99:
            yield "wire", chance.choice((1, 2, 3, 9, 10, 11)), who
        elif lot < 0.993:
            yield "limit", chance.choice(LIMITS)
        else:
            yield "step", chance.choice((900, 12_000))


SEEDS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_decisions_are_those_of_one_that_keeps_nothing(seed):
    """Others: `tests/grids/test_sending_grid.py`."""
    decisions_are_those_of_one_that_keeps_nothing(seed)


def decisions_are_those_of_one_that_keeps_nothing(seed):
    chance = random.Random(seed)
    made = {
        "limit": chance.choice(LIMITS),
        "lanes": chance.choice(LANES),
        "max_delay_ms": chance.choice((0, 40, 1_000, 1_000, 1_000)),
        "compressed": chance.random() < 0.5,
    }
    keeps, forgets = Sending(SendPace, **made), Sending(Forgetful, **made)
    for verb, *told in history(chance, 1_500):
        getattr(keeps, verb)(*told)
        getattr(forgets, verb)(*told)
        assert keeps.said == forgets.said
        assert keeps.state() == forgets.state()
        keeps.said.clear()
        forgets.said.clear()
