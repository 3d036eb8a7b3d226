"""The send queue: messages between `produce()` and librdkafka while a quota applies. No clock, thread or lock.

A broker counts bytes after batching and compression, so what a quota is worth depends on which messages leave together
and which leave first. There is one queue for each broker, since quotas are per broker. An adapter does this:

1. `offer(message)`: a message has come. `accepted` says that the queue answers for it; if not, its caller waits
   for `wait_ms` and offers it again, or is told. Whoever is in `dropped` or `replaced` gets a delivery report now.
2. `expire(now_ms)`: those that are not worth sending any more; report them. `next_expiry_ms` is when the next will be.
3. `next_grant(now_ms)`: the messages that leave now, all for one partition, in order, to become one batch: hand all of
   them to librdkafka at once. Or after how many milliseconds to ask again; NEVER when nothing waits. Ask until it is
   not a grant. Those of a topic that may go anywhere (`partition` ANY_PARTITION) are put to one partition of this
   broker together.
4. `put_back(messages)`: librdkafka has refused these, the last ones of a grant.
5. `purge()`: nothing waits any more; report all that did.

What librdkafka then says goes to the `SendPace`: deliveries, throttle times, bytes on the wire, another limit.

Order holds among the messages of one topic, partition, lane and tenant. Strict lanes go first, in the order in which
they are given; the others divide what is left by their weights, tenants of one lane equally, both in bytes on the wire.
"""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from kclient_quota.pacing.fair import Fair
from kclient_quota.pacing.sending.lanes import DEFAULT_LANE, Full, Lane, LaneState, Waits
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.turns import SLACK, Waiting

NEVER: Final = inf
MAX_BYTES: Final = 32 << 20
TENANT_ROOM: Final = 2.0
"""How much all tenants' lines may hold, as a part of what waits for partitions' turns: a line that runs empty whenever
the turns are filled loses its tenant's place."""
LOOK_MS: Final = 100
"""Of several lanes or tenants each has room for so much longer, so that none runs empty, and loses its part to another,
before the adapter looks again."""
ROUND_MS: Final = 20
"""So much of the quota may wait however small its batches are: the adapter looks that often, and a quota of gigabytes a
second would otherwise be used for the microseconds that a batch takes of it."""
LEAST_MESSAGES: Final = 2
"""So many may wait whatever they take, so that one is there when the one before it has gone."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What became of an offer.

    Attributes:
        accepted: whether the queue answers for the message from now on.
        wait_ms: when not, after how many milliseconds there is expected to be room; at least 1.
        dropped: who had to leave for want of room; the offered message itself, maybe.
        replaced: who is not worth sending beside the newer message of its key.
    """

    accepted: bool
    wait_ms: int = 0
    dropped: Sequence[Waiting] = ()
    replaced: Sequence[Waiting] = ()


ACCEPTED: Final = Offered(accepted=True)


@dataclass(frozen=True, slots=True)
class Grant:
    """Messages that leave together.

    Attributes:
        topic: their topic.
        partition: their partition; ANY_PARTITION: one that the adapter chooses for all of them.
        messages: they, in order.
        raw_bytes: of all of them.
        wire_bytes: what they are expected to take on the wire.
        lane: their lane.
    """

    topic: str
    partition: int
    messages: Sequence[Waiting]
    raw_bytes: int
    wire_bytes: int
    lane: str


class SendQueue:
    """Messages that wait for one broker.

    Args:
        pace: when, and how many of them together.
        lanes: in the order in which strict ones go first; DEFAULT_LANE is added when it is not among them.
        max_bytes: how many raw bytes may wait in each lane while no quota bounds them.
    """

    def __init__(self, pace: SendPace, lanes: Sequence[Lane] = (), *, max_bytes: int = MAX_BYTES) -> None:
        self.pace = pace
        self._max_bytes = max_bytes
        known = {lane.name: lane for lane in lanes}
        known.setdefault(DEFAULT_LANE, Lane())
        self._lanes = {name: Waits(lane) for name, lane in known.items()}
        self._strict = [waits for waits in self._lanes.values() if waits.lane.strict]
        self._fair: Fair[str] = Fair()
        self._expiries: list[tuple[int, int, Waiting]] = []
        self._count = 0
        self._kept: tuple[int, float, float] | None = None  # a number of places and a rate, and the room there
        self.length = 0
        self.raw_bytes = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Waiting]:
        """All that waits, in order within each partition, lane and tenant."""
        for waits in self._lanes.values():
            yield from waits.turns
        for waits in self._lanes.values():
            for line in waits.tenants.values():
                yield from line

    # Messages come

    def lane(self, name: str) -> Lane:
        """A lane by its name; the one of all messages without a lane where it is not known."""
        return (self._lanes.get(name) or self._lanes[DEFAULT_LANE]).lane

    def free_bytes(self, lane: str, most: float) -> float:
        """How many raw bytes a lane has room for, for the partitions that messages wait for; no more than `most`.

        No more than that may wait where no quota bounds them.
        """
        waits = self._lanes.get(lane) or self._lanes[DEFAULT_LANE]
        room = self._room(waits)
        return min(room - waits.raw_bytes, most if room < self._max_bytes else most - waits.raw_bytes)

    def offer(self, message: Waiting) -> Offered:
        """A message has come, at its `queued_at_ms`; a lane that is not known is DEFAULT_LANE."""
        waits = self._waits_of(message)
        lane = waits.lane
        if lane.deadline_ms is not None and message.expires_at_ms is None:
            message.expires_at_ms = message.queued_at_ms + lane.deadline_ms
        if lane.newest and message.key is not None:
            old = waits.newest.get((message.place, message.key))
            if old is not None and old.tenant == message.tenant:
                self._replace(waits, old, message)
                return Offered(accepted=True, replaced=(old,))
        dropped: list[Waiting] = []
        while not self._has_room(waits, message):
            if lane.full is Full.DROP_NEWEST:
                return Offered(accepted=True, dropped=(message,))
            if lane.full is not Full.DROP_OLDEST:
                return Offered(accepted=False, wait_ms=self.pace.room_in_ms(message.raw_bytes, message.queued_at_ms))
            dropped.append(self._drop_oldest(waits, message.tenant))
        self._append(waits, message)
        return Offered(accepted=True, dropped=dropped) if dropped else ACCEPTED

    def _waits_of(self, message: Waiting) -> Waits:
        return self._lanes.get(message.lane) or self._lanes[DEFAULT_LANE]

    def _room(self, waits: Waits) -> float:
        """How many raw bytes may wait for their partitions' turns in a lane.

        It is asked for with every message, and half of what a message costs here: of a single lane it is reckoned once
        between two looks at what may go, for as many partitions and the same rate.
        """
        places, rate, kept = waits.turns.places, self.pace.rate(), self._kept
        if kept is not None and len(self._lanes) == 1 and kept[0] == places and kept[1] == rate:
            return kept[2]
        self._kept = kept = places, rate, min(self._room_for(waits, places), self._max_bytes)
        return kept[2]

    def _room_for(self, waits: Waits, places: int) -> float:
        room = max(self.pace.room_bytes(places), self.pace.raw_in(ROUND_MS))
        if len(self._lanes) == 1:
            return room
        return (room + self.pace.raw_in(LOOK_MS)) * self._part_of(waits)

    def _part_of(self, waits: Waits) -> float:
        """What part of the quota a lane has, beside those in which messages wait."""
        name = waits.lane.name
        if waits.lane.strict or not self._fair or (len(self._fair) == 1 and name in self._fair):
            return 1.0
        weights = sum(each.lane.weight for each in self._lanes.values() if each.lane.name in self._fair)
        return waits.lane.weight / (weights if name in self._fair else weights + waits.lane.weight)

    def _has_turn(self, waits: Waits, nbytes: int) -> bool:
        """Whether a message of so many bytes may wait for its partition's turn."""
        turns = waits.turns
        return turns.length < LEAST_MESSAGES or turns.raw_bytes + nbytes <= self._room(waits)

    def _has_room(self, waits: Waits, message: Waiting) -> bool:
        if not waits.fair:
            return message.tenant is not None or self._has_turn(waits, message.raw_bytes)
        line = waits.find(message.tenant)
        if line is None or not line.length:
            return True
        room = self._room(waits) + self.pace.raw_in(LOOK_MS)
        return line.raw_bytes + message.raw_bytes <= TENANT_ROOM * room / len(waits.fair)

    def _append(self, waits: Waits, message: Waiting) -> None:
        if not waits.fair and (message.tenant is None or self._has_turn(waits, message.raw_bytes)):
            waits.turns.add(message)
            if message.tenant is not None:
                waits.fair.charge(message.tenant, message.raw_bytes)
        else:
            waits.line_of(message.tenant).append(message)
        self._count_in(waits, message)

    def _count_in(self, waits: Waits, message: Waiting) -> None:
        """It waits in a lane from now on."""
        if not waits.length and not waits.lane.strict:
            self._fair.join(waits.lane.name)
        waits.length += 1
        waits.raw_bytes += message.raw_bytes
        self.length += 1
        self.raw_bytes += message.raw_bytes
        self._remember(waits, message)

    def _remember(self, waits: Waits, message: Waiting) -> None:
        if waits.lane.newest and message.key is not None:
            waits.newest[message.place, message.key] = message
        if message.expires_at_ms is not None:
            self._count += 1
            heapq.heappush(self._expiries, (message.expires_at_ms, self._count, message))

    def _replace(self, waits: Waits, old: Waiting, new: Waiting) -> None:
        if old.home is None:
            raise ValueError(f"{old} does not wait")
        old.home.replace(old, new)
        old.is_gone = True
        waits.raw_bytes += new.raw_bytes - old.raw_bytes
        self.raw_bytes += new.raw_bytes - old.raw_bytes
        self._remember(waits, new)

    # Messages leave

    def next_grant(self, now_ms: int) -> Grant | float:
        """The messages that leave now, or after how many milliseconds to ask again; NEVER when nothing waits."""
        self._kept = None
        waits = self._next_lane()
        if waits is None:
            return NEVER
        self._fill(waits)
        places = waits.turns.places
        most = self.pace.lump_bytes(places)
        wait_ms = self.pace.wait_ms(waits.turns.plan(most), now_ms, None if waits.lane.strict else places)
        if wait_ms > 0:
            return wait_ms
        messages = waits.turns.take(most)
        raw_bytes = sum(message.raw_bytes for message in messages)
        wire_bytes = self.pace.wire_of(raw_bytes)
        first = messages[0]
        self.pace.on_granted(raw_bytes, now_ms, len(messages), first.topic)
        if not waits.lane.strict:
            self._fair.charge(waits.lane.name, wire_bytes / waits.lane.weight)
        for message in messages:
            self._forget(waits, message)
        self._fill(waits)
        return Grant(first.topic, first.partition, messages, raw_bytes, wire_bytes, waits.lane.name)

    def _next_lane(self) -> Waits | None:
        for waits in self._strict:
            if waits.length:
                return waits
        name = self._fair.first()
        return None if name is None else self._lanes[name]

    def _fill(self, waits: Waits) -> None:
        """Let tenants' messages wait for their partitions' turns, as far as there is room."""
        turns, fair = waits.turns, waits.fair
        places, room = -1, 0.0
        while True:
            tenant = fair.first()
            if tenant is None:
                return
            line = waits.tenants[tenant]
            head = line.first()
            if head is None:
                waits.leave(tenant)
                continue
            if turns.length >= LEAST_MESSAGES:
                if turns.places != places:
                    places, room = turns.places, self._room(waits)
                if turns.raw_bytes + head.raw_bytes > room:
                    return
            turns.add(line.pop())
            fair.serve(tenant, head.raw_bytes, is_done=not line.length)
            if not line.length:
                waits.drop(tenant)

    def _forget(self, waits: Waits, message: Waiting) -> None:
        message.home = None
        message.is_gone = True
        waits.forget(message)
        self.length -= 1
        self.raw_bytes -= message.raw_bytes
        if not waits.length and not waits.lane.strict:
            self._fair.leave(waits.lane.name)
        if len(self._expiries) > 2 * self.length + SLACK:
            self._expiries = sorted(each for each in self._expiries if not each[2].is_gone)

    def _lose(self, message: Waiting) -> None:
        """A message that waits somewhere leaves without being sent."""
        if message.home is None:
            raise ValueError(f"{message} does not wait")
        message.home.lose(message)
        self._forget(self._waits_of(message), message)

    def _drop_oldest(self, waits: Waits, tenant: Hashable) -> Waiting:
        """Let the one leave that has waited longest, of the tenant's if there are any beside the turns."""
        line = waits.find(tenant)
        oldest = (line.first() if line is not None else None) or waits.turns.oldest()
        if oldest is None:
            raise ValueError(f"lane {waits.lane.name!r} has no room though nobody waits in it")
        self._lose(oldest)
        return oldest

    def put_back(self, message: Waiting) -> bool:
        """Librdkafka has refused one that was granted: it waits again, before all others.

        Returns:
            whether it does; not beside a newer message of its key, which has come meanwhile.
        """
        waits = self._waits_of(message)
        newer = waits.newest.get((message.place, message.key)) if waits.newest else None
        if newer is not None and newer.tenant == message.tenant:
            return False
        message.is_gone = False
        waits.turns.put_back(message)
        self._count_in(waits, message)
        if newer is not None:
            waits.newest[message.place, message.key] = newer
        return True

    def take_out(self, messages: Sequence[Waiting]) -> None:
        """Forget these, which wait here: they go to another broker."""
        for message in messages:
            self._lose(message)
        if any(message.expires_at_ms is not None for message in messages):
            self._expiries = sorted(each for each in self._expiries if not each[2].is_gone)

    def adopt(self, message: Waiting, partition: int) -> None:
        """Take one that was taken out of another broker's queue, for this partition, whether there is room or not."""
        # A copy: where it waited before it goes on being passed over as one that is gone.
        copy = replace(message, partition=partition, home=None, is_gone=False, heir=None)
        self._append(self._waits_of(copy), copy)

    def expire(self, now_ms: int) -> list[Waiting]:
        """Take out all that are not worth sending any more."""
        expired = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            message = heapq.heappop(self._expiries)[2]
            if not message.is_gone and message.home is not None:
                self._lose(message)
                expired.append(message)
        return expired

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next message is not worth sending any more; None when each is worth any time."""
        expiries = self._expiries
        while expiries and expiries[0][2].is_gone:
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else None

    def purge(self) -> list[Waiting]:
        """Take out all, in order within each partition."""
        purged = list(self)
        for message in purged:
            self._lose(message)
        self._expiries.clear()
        return purged

    def state(self, now_ms: int) -> dict[str, LaneState]:
        """What waits, by lane."""
        found = {}
        for name, waits in self._lanes.items():
            oldest = waits.turns.oldest()
            waited_ms = 0 if oldest is None else max(0, now_ms - oldest.queued_at_ms)
            found[name] = LaneState(waits.length, waits.raw_bytes, waited_ms)
        return found
