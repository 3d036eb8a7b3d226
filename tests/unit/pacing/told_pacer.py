"""What says what it is told to, and notes what it hears: a pacer, its share, a batch's cost, a send pace."""

from dataclasses import dataclass, field

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.lump_size import LumpTerms, lump_ms
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import ACCEPTED
from kclient_quota.pacing.sending.turns import Waiting

T0 = 1_000_000


@dataclass
class ToldPacer:
    """Stands for a `Pacer`."""

    byte_rate: float = 100_000.0
    usual: float | None = None
    limit: float | None = 100_000.0
    request_bytes: int = 10_000
    outstanding_bytes: float = 10_000.0
    every_ms: float = 0.0
    least_window_ms: int = 10_000
    banked_bytes: float = 0.0
    throttled_until_ms: int = 0
    at_ms: int = 0
    owed: int = 0
    heard: list = field(default_factory=list)

    def rate(self):
        return self.byte_rate

    def usual_rate(self):
        return self.byte_rate if self.usual is None else self.usual

    def owed_ms(self, now_ms):
        self.heard.append(("owed", now_ms))
        return self.owed

    def admit_at_ms(self, nbytes, now_ms, *, full_bytes=0.0):
        self.heard.append(("admit", nbytes, now_ms, full_bytes))
        return self.at_ms

    def __getattr__(self, name):
        if not name.startswith(("on_", "set_")):
            raise AttributeError(name)
        return lambda *told: self.heard.append((name, *told))


class NotedCost(BatchCost):
    """Learns nothing; notes what it could learn from."""

    def __init__(self, *, compressed=False, overhead=150.0, part=1.0, is_learnt=False):
        self.is_told_learnt = is_learnt
        self.noted = []
        super().__init__(compressed=compressed)
        self.overhead, self.part = overhead, part
        self.noted.clear()

    @property
    def is_learnt(self):
        return self.is_told_learnt

    def forget(self):
        self.noted.append("forget")
        super().forget()

    def is_dear(self, wire_bytes, raw_bytes, batches):
        self.noted.append(("dear?", wire_bytes, raw_bytes, batches))
        return super().is_dear(wire_bytes, raw_bytes, batches)

    def observe(self, batches, raw_bytes, wire_bytes, message_bytes=0.0, *, worth=1):
        self.noted.append((batches, raw_bytes, wire_bytes, message_bytes, worth))


def pace_of(limit=100_000.0, *, cost=None, linger_ms=0, max_delay_ms=1_000, in_flight=5, client_bytes=None, **told):
    """A pace of 150 bytes a batch and nothing compressed, and its pacer."""
    pacer = ToldPacer(limit=limit, **told)
    cost = NotedCost() if cost is None else cost
    pace = SendPace(
        pacer,
        cost,
        limit,
        linger_ms=linger_ms,
        max_delay_ms=max_delay_ms,
        in_flight=in_flight,
        client_bytes=client_bytes,
    )
    return pace, pacer


def terms_of(pace, places):
    """All that the size of its lumps depends on."""
    return LumpTerms._make(pace._terms(places))


def lump_ms_of(pace, places):
    """How much time's worth it has leave at once."""
    return lump_ms(terms_of(pace, places))


def come_and_gone(pace, way_ms, now_ms, raw_bytes=1_000):
    """A batch that has the way to itself."""
    pace.on_granted(raw_bytes, now_ms)
    pace.on_delivered(raw_bytes, now_ms + way_ms)


class ToldShare:
    """Stands for the share of a limit."""

    def __init__(self, rate=100_000.0, limit=100_000.0, *, is_whole=True, every_ms=0.0, request_ms=100.0, learnt=None):
        self.rate, self.limit, self.is_whole, self.learnt = rate, limit, is_whole, learnt
        self.every_ms, self.request_ms = every_ms, request_ms
        self.heard = []

    def grow(self, now_ms, *, busy):
        self.heard.append(("grow", now_ms, busy))

    def __getattr__(self, name):
        return lambda *told: self.heard.append((name, *told))


def still(limit=100_000.0, **state):
    """A pacer in the middle of its life that is not reviewed: a request is 10,000 bytes, a millisecond 100."""
    pacer = Pacer(limit)
    pacer._share = ToldShare(limit=limit)
    told = {
        "pace": 100.0,
        "usual_pace": 100.0,
        "quantum": 10_000.0,
        "lump": 10_000.0,
        "ceiling": 13_000.0,
        "bank": 0.0,
        "waits": True,
        "at_ms": T0,
        "review_at_ms": T0 + 10**9,
    }
    for name, value in {**told, **state}.items():
        setattr(pacer, f"_{name}", value)
    return pacer


@dataclass
class ToldPace:
    """Stands for a `SendPace`: a batch takes 100 bytes beside its messages."""

    room: float = 1_000.0
    room_each: float = 0.0
    per_ms: float = 0.0
    lump: int = 10_000
    wait: int = 0
    heard: list = field(default_factory=list)

    def rate(self):
        return self.room  # so that what is told anew is reckoned anew

    def room_bytes(self, places):
        return self.room + self.room_each * places

    def raw_in(self, time_ms):
        return self.per_ms * time_ms

    def lump_bytes(self, places):
        self.heard.append(("lump", places))
        return self.lump

    def wait_ms(self, raw_bytes, now_ms, places):
        self.heard.append(("wait", raw_bytes, now_ms, places))
        return self.wait

    def wire_of(self, raw_bytes):
        return raw_bytes + 100

    def room_in_ms(self, raw_bytes, now_ms):
        self.heard.append(("room in", raw_bytes, now_ms))
        return 77

    def on_granted(self, *told):
        self.heard.append(("granted", *told))

    def give_back(self, raw_bytes):
        self.heard.append(("give back", raw_bytes))


def message(payload=0, raw_bytes=100, at_ms=T0, partition=0, **more):
    return Waiting("t", partition, raw_bytes, at_ms, payload, **more)


def payloads(messages):
    return [each.payload for each in messages]


def offered(queue, *messages):
    """All of them, accepted without any consequence."""
    for each in messages:
        assert queue.offer(each) is ACCEPTED, each
    return messages


def counted(queue):
    """What the queue says it holds is what it holds."""
    every = list(queue)
    assert (len(queue), queue.length, queue.raw_bytes) == (
        len(every),
        len(every),
        sum(each.raw_bytes for each in every),
    )
    states = queue.state(T0).values()
    assert (sum(each.messages for each in states), sum(each.raw_bytes for each in states)) == (
        queue.length,
        queue.raw_bytes,
    )
    return payloads(every)
