"""What a producer decides: which messages leave now, which wait, who is told to come again. No clock, lock or client.

For each broker there is a `SendQueue`, and before it those that came when it was full, in the order in which they came:
their callers wait. `_wait_ms` decides how long.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final

from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.producer.routes import NO_BROKER, Broker, Brokers, Routes
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.pacing.sending.lanes import DEFAULT_LANE
from kclient_quota.pacing.sending.send_queue import ACCEPTED, NEVER, Grant, SendQueue
from kclient_quota.pacing.sending.turns import Line, Waiting
from kclient_quota.pacing.spare import Spare

if TYPE_CHECKING:
    from kclient_quota.clients.shared_pace import SharedPace

SURE_MS: Final = 15_000
"""So long without a throttle nobody else has wanted much of the quota: longer than a broker's window."""
CALM_MS: Final = 60_000
"""After how long without a throttle a client that no quota is known for is let go again."""
MOST_FREE_BYTES: Final = 1_000_000.0
"""What may come while the sender has not looked."""
TURN_MS: Final = 5  # when to look again while it is somebody else's turn
KEEP_MS: Final = 100  # when to look again at the latest: whose turn it is loses that when it is silent for longer
FIRST_MS: Final = 250
"""So much of the quota may come before the sender has looked for the first time."""
ENOUGH_BYTES: Final = 32_000_000
"""After so many bytes that nobody has throttled, a client that knows of no quota is let go: one that applies all the
same is above 2.5 MB/s, and what librdkafka's own queue holds is through in seconds."""


class Lost(Enum):
    """Why a message leaves the queue without being sent."""

    EXPIRED = "it was not worth sending any more"
    DROPPED = "its lane was full"
    REPLACED = "a newer message of its key has come"


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages to hand to librdkafka now.

    Attributes:
        broker: who leads their partition.
        partition: where to; -1 leaves it to librdkafka.
        messages: they, in order.
        wire_bytes: what they are expected to take on the wire.
        fill: how much of the largest batch worth sending they are.
    """

    broker: Broker
    partition: int
    messages: list[Waiting]
    wire_bytes: int
    fill: float


class ProducerCore:
    """Decides for one producer; belongs to its sender.

    Args:
        new_queue: makes a broker's queue.
        routes: where messages go.
        limit: what was found before the producer was made.
        max_delay_ms: `quota.max.delay.ms`: what a throttle that lasts longer has callers wait for.

    Attributes:
        brokers: what each is sent, and which messages are its.
        shared_pace: whose turn it is, of all that share the quota in this process; None for one alone.
        is_free: whether it is known that nothing limits bytes, and no throttle says otherwise.
        is_off: `quota.backoff=off`: whatever is heard, nothing waits.
        is_careful: a transaction is near its end: one message at a time.
        throttled_at_ms: when the latest throttle ends or ended; None before the first.
    """

    def __init__(
        self, new_queue: Callable[[int, Limit], SendQueue], routes: Routes, limit: Limit, max_delay_ms: int
    ) -> None:
        self.brokers = Brokers(lambda number: new_queue(number, self.limit), routes)
        self.limit = limit
        self.is_free = limit.frees_bytes
        self._max_delay_ms = max_delay_ms
        self._delivered_bytes = 0
        self._lost: list[tuple[Waiting, Lost]] = []
        self.shared_pace: SharedPace | None = None
        self.is_off = self.is_careful = False
        self.throttled_at_ms: int | None = None
        self._spare = Spare()
        self._limited_at_ms: int | None = None
        self._granted = 0
        self._passed_by = False  # bytes of callers' own are among those on the wire

    # Messages -----------------------------------------------------------------------------------------------------

    def offer(self, message: Waiting, now_ms: int, *, is_patient: bool = True) -> int:
        """A message has come; one that `is_patient` waits in `before` when the queue does not take it.

        Returns:
            0 when the queue has it; otherwise after how many milliseconds that is expected.
        """
        broker = self.brokers.of(message, now_ms)
        line = message.lane, message.tenant
        before = broker.before.get(line)
        if not before:
            wait_ms = self._wait_ms(broker, message, now_ms)
            if not wait_ms:
                return 0
            if not is_patient:
                return wait_ms
            before = broker.before[line] = Line()
        if is_patient:
            before.append(message)
        return max(1, self._wait_ms(broker, before.first() or message, now_ms, only_ask=True))

    def _wait_ms(self, broker: Broker, message: Waiting, now_ms: int, *, only_ask: bool = False) -> int:
        """How long a producer waits: while the queue is full, or a throttle outlasts what may wait in it."""
        pace = broker.queue.pace
        throttled_ms = pace.blocked_for_ms(now_ms)
        if broker.queue.lane(message.lane).drops:
            return self._offer(broker.queue, message)
        if throttled_ms > self._max_delay_ms:
            return throttled_ms
        if self.is_careful and (len(broker.queue) or pace.outstanding):
            return 10
        if only_ask:
            return pace.room_in_ms(message.raw_bytes, now_ms)
        return TURN_MS if self._has_to_go(broker) else self._offer(broker.queue, message)

    def _has_to_go(self, broker: Broker) -> bool:
        """Whether what waits is to be handed over first: nothing limits bytes any more, and what comes later passes by.

        Callers who never pause would have something wait for ever.
        """
        return self.is_free and len(broker.queue) > 0

    def _offer(self, queue: SendQueue, message: Waiting) -> int:
        offered = queue.offer(message)
        if offered is not ACCEPTED:
            self._lost += [(each, Lost.DROPPED) for each in offered.dropped]
            self._lost += [(each, Lost.REPLACED) for each in offered.replaced]
        return offered.wait_ms

    def admit(
        self, now_ms: int, claim: Callable[[Waiting], bool], give_back: Callable[[Waiting], None]
    ) -> Iterator[Waiting]:
        """Those for whom there is room now, of the ones that waited for it.

        Each is claimed before it is let in: one that is not wanted any more is forgotten, and one for which there is no
        room after all is given back.
        """
        for broker in self.brokers:
            for line, before in list(broker.before.items()):
                while (message := before.first()) is not None:
                    message.queued_at_ms = now_ms
                    if not claim(message):
                        before.pop()
                    elif message.expires_at_ms is not None and message.expires_at_ms <= now_ms:
                        self._lost.append((before.pop(), Lost.EXPIRED))
                        yield message
                    elif self._wait_ms(broker, message, now_ms):
                        give_back(message)
                        break
                    else:
                        before.pop()
                        yield message
                if not before:
                    del broker.before[line]

    def all_before(self) -> list[Waiting]:
        """Those that wait for room in a queue."""
        return [message for broker in self.brokers for message in broker.waiting()]

    def waiting(self) -> list[Waiting]:
        """The same, who leave with that."""
        found = self.all_before()
        for broker in self.brokers:
            broker.before.clear()
        return found

    def sent(self, now_ms: int) -> Iterator[Sent]:
        """What leaves now."""
        for broker in self.brokers:
            broker.wait_ms = NEVER
            while len(broker.queue) and not (self.is_careful and broker.queue.pace.outstanding):
                if self.shared_pace is not None and not self.shared_pace.may_go(self, broker.number, now_ms):
                    broker.wait_ms = TURN_MS
                    break
                grant = broker.queue.next_grant(now_ms)
                if not isinstance(grant, Grant):
                    broker.wait_ms = min(grant, KEEP_MS)
                    break
                if self.shared_pace is not None:
                    self.shared_pace.on_sent(self, broker.number, grant.wire_bytes, waits=len(broker.queue) > 0)
                fill = min(1.0, grant.raw_bytes / max(1, broker.queue.pace.lump_bytes(1)))
                partition = self.brokers.partition_of(broker, grant)
                yield Sent(broker, partition, list(grant.messages), grant.wire_bytes, fill)

    def put_back(self, sent: Sent, rest: Sequence[Waiting], now_ms: int) -> None:
        """Librdkafka has no room for the last ones of what has left: they wait for who leads their partition now."""
        for message in reversed(rest):
            sent.broker.queue.pace.give_back(message.raw_bytes)
            broker = self.brokers.of(message, now_ms, sent.broker)
            if not broker.queue.put_back(message):
                self._lost.append((message, Lost.REPLACED))

    def wait_ms(self, now_ms: int) -> float:
        """After how many milliseconds to look again; infinite when nothing waits."""
        waits = [inf]
        for broker in self.brokers:
            waits.append(broker.wait_ms)
            expiry_ms = broker.queue.next_expiry_ms
            if expiry_ms is not None:
                waits.append(max(0, expiry_ms - now_ms))
            heads = [head for before in broker.before.values() if (head := before.first()) is not None]
            waits += [max(1, head.expires_at_ms - now_ms) for head in heads if head.expires_at_ms is not None]
        return min(waits)

    def lost(self, now_ms: int) -> list[tuple[Waiting, Lost]]:
        """Those that have left the queue without being sent since the last call, or do now."""
        for broker in self.brokers:
            self._lost += [(message, Lost.EXPIRED) for message in broker.queue.expire(now_ms)]
        lost, self._lost = self._lost, []
        return lost

    def purge(self) -> list[Waiting]:
        """Forget all that wait in a queue."""
        return [message for broker in self.brokers for message in broker.queue.purge()]

    def free_bytes(self, now_ms: int, lane: str = DEFAULT_LANE) -> int:
        """So much may come to a lane without asking; 0 when any queue is nearly full."""
        if self.is_careful:
            return 0
        if not len(self.brokers):
            rate = self.limit.byte_rate
            return int(MOST_FREE_BYTES if rate is None else min(rate * FIRST_MS / 1000, MOST_FREE_BYTES))
        return max(0, min(int(self._free(broker, lane, now_ms)) for broker in self.brokers))

    def _free(self, broker: Broker, lane: str, now_ms: int) -> float:
        queue = broker.queue
        if queue.pace.throttled_for_ms(now_ms) > self._max_delay_ms or any(lane == of for of, _ in broker.before):
            return 0.0
        return 0.0 if self._has_to_go(broker) else queue.free_bytes(lane, MOST_FREE_BYTES)

    def spare_bytes(self, now_ms: int, left: float, *, may: bool, wants: bool = True) -> float:
        """So many bytes callers may hand over themselves, of a large quota; see `Spare`."""
        is_calm = self.throttled_at_ms is None or now_ms - self.throttled_at_ms >= CALM_MS
        limit = self.limit.byte_rate if self.limit.known and is_calm and not self.is_careful else None
        if limit is None or self._limited_at_ms is None:
            self._limited_at_ms = now_ms
        is_alone = self.throttled_at_ms is None and now_ms - self._limited_at_ms >= SURE_MS
        members = 1 if self.shared_pace is None else self.shared_pace.join(self)
        self._spare.set_limit(limit, members, is_alone=is_alone)
        granted = sum(broker.queue.pace.granted for broker in self.brokers)
        queued, self._granted = granted - self._granted, granted
        self._passed_by |= left < self._spare.given
        return self._spare.step(now_ms, left, queued, may=may and self.is_empty, wants=wants)

    @property
    def spare_given(self) -> float:
        """The last answer."""
        return self._spare.given

    def wait_no_longer(self) -> None:
        """Nobody has time to wait until the cluster has told the quota."""
        for broker in self.brokers:
            broker.queue.pace.wait_no_longer()

    @property
    def is_spare_due(self) -> bool:
        """Whether they may, as soon as all that came before has been handed over."""
        return self._spare.is_due

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not any(len(broker.queue) or broker.before for broker in self.brokers)

    # What librdkafka and the cluster say --------------------------------------------------------------------------

    def on_delivered(self, broker: Broker, raw_bytes: int, now_ms: int, *, arrived: bool = True) -> None:
        """So much has been delivered, or given up."""
        self._delivered_bytes += raw_bytes
        broker.queue.pace.on_delivered(raw_bytes, now_ms, arrived=arrived)

    def on_wire(self, sent: Iterable[tuple[int, int]], now_ms: int, raw_bytes: int = 0, *, is_own: bool = True) -> None:
        """Librdkafka has sent so many bytes since the last call: of each connection the broker's id and they.

        They carry `raw_bytes` of messages; `is_own`: what was granted is among them.
        """
        found: Counter[Broker] = Counter()
        for number, nbytes in sent:
            broker = self.brokers.known(number)
            if broker is not None:
                found[broker] += nbytes
        for broker, nbytes in found.items():
            if broker.queue.pace.on_wire(nbytes, now_ms, learns=is_own and not self._passed_by):
                self.brokers.doubt_leader(broker.number)
        self._spare.on_sent(raw_bytes, max(found.values(), default=0))
        self._passed_by &= not is_own  # what is told late is of another time

    def on_throttle(self, number: int, throttle_ms: int, now_ms: int) -> None:
        """A broker throttles."""
        pace = self.brokers.get(number).queue.pace
        is_of_requests = self.limit.is_of_requests(throttle_ms, pace.requests_per_s(now_ms))
        pace.on_throttle(throttle_ms, now_ms, for_bytes=not is_of_requests)
        if not is_of_requests:
            self.is_free = False
            self.throttled_at_ms = max(self.throttled_at_ms or 0, now_ms + throttle_ms)
        self._delivered_bytes = 0

    def set_limit(self, limit: Limit, now_ms: int) -> None:
        """Follow another limit."""
        before, self.limit = self.limit, limit
        was_free, self.is_free = self.is_free, limit.frees_bytes
        if self.shared_pace is not None:
            self.shared_pace.follow(limit, now_ms)
        is_let_go = self.is_free and (not was_free or before.only_requests != limit.only_requests)
        if is_let_go:
            self.throttled_at_ms = None  # that was another quota
        is_other = limit.byte_rate is not None and before.request_percentage != limit.request_percentage
        if before.byte_rate != limit.byte_rate or before.known != limit.known or is_let_go or is_other:
            for broker in self.brokers:
                broker.queue.pace.set_limit(limit.byte_rate, now_ms)
                if is_let_go:
                    broker.queue.pace.let_go()

    def is_limited(self, now_ms: int) -> bool:
        """Whether messages must pass here: not while it is known that nothing limits their bytes, or seems so."""
        if self.is_off:
            return False
        if self.limit.byte_rate is not None:
            return True
        throttled_ms = self.throttled_at_ms
        if throttled_ms is not None and now_ms - throttled_ms < CALM_MS:
            return True
        return self.limit == UNKNOWN and self._delivered_bytes < ENOUGH_BYTES

    # What others ask ----------------------------------------------------------------------------------------------

    def throttles_ms(self, now_ms: int, *, busy: bool = False) -> list[int]:
        """For how long each broker throttles; `busy`: those that have yet to report something, if any is known to."""
        brokers = list(self.brokers)
        if busy:
            brokers = [each for each in brokers if each.queue.pace.outstanding or len(each.queue)] or brokers
        return [each.queue.pace.told_for_ms(now_ms) for each in brokers]

    def retry(self, message: Waiting, now_ms: int) -> tuple[int, int | None]:
        """After how long a message that was not taken may come again, and whose quota is used up."""
        broker = self.brokers.of(message, now_ms)
        wait_ms = max(1, self._wait_ms(broker, message, now_ms, only_ask=True))
        return wait_ms, None if broker.number == NO_BROKER else broker.number

    def state(self, only_id: int, now_ms: int) -> dict[int, BrokerQuotaState]:
        """What is known about each broker, by its id; -1 as long as that is not known."""
        if not len(self.brokers):
            self.brokers.get(NO_BROKER)
        found: dict[int, BrokerQuotaState] = {}
        for broker in self.brokers:
            pace = broker.queue.pace
            found[broker.number if self.brokers.is_split else only_id] = BrokerQuotaState(
                limit=self.limit.byte_rate,
                source=str(self.limit.source),
                rate=pace.rate(),
                throttled_until_ms=pace.throttled_for_ms(now_ms),
                admitted=pace.granted,
                outstanding=pace.outstanding,
                lanes=broker.queue.state(now_ms),
            )
        return found
