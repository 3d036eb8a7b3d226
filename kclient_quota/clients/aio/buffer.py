"""Messages that wait for the pump, by lane and tenant: an urgent one does not stand behind others' that wait.

Each lane, and each tenant in it, has a line of its own, with room for as many messages, of all event loops.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.aio.loops import Waiter
from kclient_quota.clients.aio.pending import InnerProducer, Pending
from kclient_quota.clients.producer.sorting import Place
from kclient_quota.errors import is_full
from kclient_quota.pacing.sending.lanes import Lane

MOST_REFUSED: Final = 16
"""After so many lines of a lane that the quota has no room for, a worker asks for no other of that lane: the next
worker begins behind them."""


class PlaceLine:
    """Messages of one lane and tenant.

    Attributes:
        free: slots that nobody has; who waits has none until it takes one itself, in a loop that runs.
        waiters: those who wait for one, in their order.
        claims: how many hold a slot or wait for one.
        waiting: messages in order.
        progress_at_ms: when one was handed over last.
    """

    __slots__ = ("claims", "free", "progress_at_ms", "waiters", "waiting")

    def __init__(self, size: int) -> None:
        self.free = size  # a number: asking a semaphore costs as much as the rest of `produce()`
        self.waiters: deque[Waiter] = deque()
        self.claims = 0
        self.waiting: deque[Pending] = deque()
        self.progress_at_ms = 0

    def served(self) -> Iterator[Waiter]:
        """Those there is a slot for: who waits in a loop that does not run is passed over."""
        # A copy: who is collected as garbage meanwhile leaves.
        running = (waiter for waiter in list(self.waiters) if waiter.loop.is_running())
        return islice(running, self.free)


class Buffer:
    """What `produce()` has taken and the pump has not handed over.

    Args:
        size: how many messages may wait in each line.
        lanes: in the order of `quota.lanes`.

    Attributes:
        lock: of any thread that uses it, held for as long as it takes to put in messages, or to see to those of a
            worker. Slots take it themselves.
    """

    def __init__(self, size: int, lanes: Sequence[Lane]) -> None:
        self._size = size
        # strict lanes in their order; the others have no order among themselves
        self._ranks = {lane.name: number if lane.strict else len(lanes) for number, lane in enumerate(lanes)}
        self._lines: dict[Place, PlaceLine] = {}
        self._length = 0
        self.lock = reentrant_lock()  # a task that is collected as garbage meanwhile leaves its line in this thread

    def __len__(self) -> int:
        return self._length

    # Room ---------------------------------------------------------------------------------------------------------

    def claim(self, pending: Pending) -> bool:
        """Claim a slot for a message; False where one has to be waited for, with `wait_for_slot()`."""
        with self.lock:
            line = self._lines.get(pending.place)
            if line is None:
                line = self._lines[pending.place] = PlaceLine(self._size)
            pending.line = line
            line.claims += 1
            if line.free and not line.waiters:
                line.free -= 1
                return True
            return False

    async def wait_for_slot(self, pending: Pending, within_s: float) -> None:
        """Wait for the slot that was claimed.

        Raises:
            TimeoutError: there was none.
        """
        line, waiter = pending.line, Waiter()
        with self.lock:
            line.waiters.append(waiter)
        try:
            async with asyncio.timeout(within_s):
                while not self._is_served(line, waiter):
                    await waiter.wait()
        except BaseException:
            with self.lock:
                line.waiters.remove(waiter)
                self._unclaim(pending.place, line)
                self._wake(line)
            raise

    def _is_served(self, line: PlaceLine, waiter: Waiter) -> bool:
        with self.lock:
            if waiter not in line.served():
                return False
            line.waiters.remove(waiter)
            line.free -= 1
            return True

    def release(self, pending: Pending) -> None:
        """Give a message's slot back."""
        with self.lock:
            self._release(pending)
            self._wake(pending.line)

    def wake(self) -> None:
        """Have those look again whom there is a slot for."""
        with self.lock:
            for line in list(self._lines.values()):
                self._wake(line)

    def _wake(self, line: PlaceLine) -> None:
        for waiter in line.served():
            waiter.wake()

    def _release(self, pending: Pending) -> None:
        pending.line.free += 1
        self._unclaim(pending.place, pending.line)

    def _unclaim(self, place: Place, line: PlaceLine) -> None:
        line.claims -= 1
        if not line.claims:
            del self._lines[place]

    # Messages -----------------------------------------------------------------------------------------------------

    def append(self, pending: Pending) -> None:
        """A message whose slot has been taken waits."""
        pending.line.waiting.append(pending)
        self._length += 1

    def take(self, most: int) -> list[Pending]:
        """Messages to hand over: strict lanes' first, of the others as many of each line, from line to line."""
        filled = [place for place, line in self._lines.items() if line.waiting]
        filled.sort(key=lambda place: self._ranks[place[0]])
        each = max(1, most // max(1, len(filled)))
        taken: list[Pending] = []
        for place in filled:
            if len(taken) >= most:
                break
            line = self._lines[place] = self._lines.pop(place)  # behind the others the next time
            taken += [line.waiting.popleft() for _ in range(min(len(line.waiting), each))]
        self._length -= len(taken)
        return taken

    def put_back(self, rest: Sequence[Pending], refused: Iterable[Place] = ()) -> None:
        """These could not be handed over: lines that were refused are behind those that nobody has asked for."""
        for pending in reversed(rest):
            self._lines[pending.place].waiting.appendleft(pending)
        self._length += len(rest)
        for place in refused:
            self._lines[place] = self._lines.pop(place)

    def handed(self, pending: Pending, now_ms: int) -> None:
        """It has been handed over."""
        pending.line.progress_at_ms = now_ms
        self._release(pending)

    def overdue(self, refused: Mapping[Place, BufferError], now_ms: int, most_ms: int) -> Iterator[Pending]:
        """Give up messages of lines that have been refused and for `most_ms` have moved no further."""
        for place in refused:
            line = self._lines.get(place)
            while line is not None and line.waiting:
                if now_ms - max(line.waiting[0].taken_at_ms, line.progress_at_ms) < most_ms:
                    break
                yield self._pop(line)

    def clear(self) -> list[Pending]:
        """Take out all."""
        return [self._pop(line) for line in list(self._lines.values()) for _ in range(len(line.waiting))]

    def _pop(self, line: PlaceLine) -> Pending:
        pending = line.waiting.popleft()
        self._length -= 1
        self._release(pending)
        return pending


def hand_over(producer: InnerProducer, batch: Iterable[Pending]) -> dict[Place, BufferError]:
    """In a worker: hand messages over until librdkafka or the quota says no; `handed` and `error` tell which.

    Returns:
        who says no, by lane and tenant: of others there may be room.
    """
    refused: dict[Place, BufferError] = {}
    lanes: Counter[str] = Counter()
    for pending in batch:
        # Before anybody has said no there is nothing to look for.
        if refused and (pending.place in refused or lanes[pending.place[0]] >= MOST_REFUSED):
            continue
        topic, value, key, partition, timestamp, headers = pending.message
        heard = pending.heard
        try:
            producer.produce(topic, value, key, partition, on_delivery=heard, timestamp=timestamp, headers=headers)
        except BaseException as error:  # noqa: BLE001 - what is wrong with one message is told by its future
            # All that the application's functions raise: what ended this worker would end what hands over all others.
            if is_full(error) and not producer.never_fits(pending):
                refused[pending.place] = error
                lanes[pending.place[0]] += 1
                continue
            pending.error = (
                KafkaException(KafkaError(KafkaError._QUEUE_FULL)) if is_full(error) else error  # noqa: SLF001 - its name
            )
        pending.handed = True
    return refused
