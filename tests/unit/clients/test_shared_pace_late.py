"""Producers of one process that share a quota, each of which is served late: in virtual time."""

import heapq
import random
from collections.abc import Callable

import pytest

from kclient_quota.clients.shared_pace import SharedPace
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.turns import Waiting

T0 = 1_000_000
QUOTA = 524_288


class Client:
    """One producer: its queue, and what it has sent since the start."""

    def __init__(self, shared: SharedPace, pacer: Pacer, quota: int) -> None:
        self.queue = SendQueue(SendPace(pacer, BatchCost(), quota, linger_ms=5, common=shared.common))
        self.sent_bytes = 0
        shared.join(self)

    def fill(self, now_ms: int) -> None:
        """With as much as there is room for."""
        while self.queue.offer(Waiting("t", 0, 1_000, now_ms, None)).accepted:
            pass

    def send(self, pace: SharedPace, now_ms: int) -> None:
        """What may go, as a producer's core does."""
        while len(self.queue) and pace.may_go(self, 1, now_ms):
            grant = self.queue.next_grant(now_ms)
            if not isinstance(grant, Grant):
                break
            pace.on_sent(self, 1, grant.wire_bytes, waits=len(self.queue) > 0)
            self.queue.pace.on_delivered(grant.raw_bytes, now_ms)
            self.sent_bytes += grant.wire_bytes


class World:
    """Clients of one process under one quota, each of which is served every so many milliseconds on average."""

    def __init__(self, count: int, late_ms: int, quota: int = QUOTA) -> None:
        self.random = random.Random(1)
        self.pace = SharedPace()
        pacer = self.pace.pacer(1, lambda: Pacer(quota))
        self.clients = [Client(self.pace, pacer, quota) for _ in range(count)]
        self.late_ms = late_ms
        self.events = [(T0, number) for number in range(count)]

    def play(self, until_ms: int, *fills: Callable[[Client, int], None]) -> list[int]:
        """Serve all until then; returns what each has sent meanwhile."""
        before = [client.sent_bytes for client in self.clients]
        while self.events[0][0] < T0 + until_ms:
            now_ms, number = heapq.heappop(self.events)
            client = self.clients[number]
            fills[number % len(fills)](client, now_ms)
            client.send(self.pace, now_ms)
            heapq.heappush(self.events, (now_ms + max(1, int(self.random.expovariate(1 / self.late_ms))), number))
        return [client.sent_bytes - had for client, had in zip(self.clients, before, strict=True)]


def now_and_then(client: Client, now_ms: int) -> None:
    """A short message whenever nothing waits."""
    if not len(client.queue):
        client.queue.offer(Waiting("t", 0, 100, now_ms, None))


@pytest.mark.parametrize(("late_ms", "quota", "count"), [(5, 10 * QUOTA, 2), (40, QUOTA, 2), (40, QUOTA, 4)])
def test_who_is_slow_to_take_its_turn_leaves_nothing_unused(late_ms: int, quota: int, count: int) -> None:
    slow_ones_leave_nothing_unused(late_ms, quota, count)


def slow_ones_leave_nothing_unused(late_ms: int, quota: int, count: int) -> None:
    """With one batch for each turn it was 0.6 of 512 KB/s at 40 ms, and 0.6 of 5 MB/s at 5 ms."""
    world = World(count, late_ms, quota)
    world.play(10_000, Client.fill)
    sent = world.play(20_000, Client.fill)
    assert 0.96 < sum(sent) / (10 * quota) < 1.01
    assert min(sent) > 0.9 * max(sent)


@pytest.mark.parametrize("late_ms", [2, 10, 50])
def test_nobody_waits_for_one_that_has_sent_all_it_had(late_ms: int) -> None:
    """One that sent a short message every 50 ms left the other a twentieth of the quota."""
    world = World(2, late_ms)
    world.play(5_000, Client.fill, now_and_then)
    sent = world.play(15_000, Client.fill, now_and_then)
    assert sent[0] > 0.9 * 10 * QUOTA


def test_who_has_sent_little_for_long_has_nothing_to_make_up_for() -> None:
    world = World(2, 10)
    world.play(20_000, Client.fill, now_and_then)
    sent = world.play(25_000, Client.fill)
    assert min(sent) > 0.7 * max(sent)


@pytest.mark.parametrize("count", [1, 2, 16])
def test_what_has_been_saved_up_is_taken_once_and_not_by_each_of_them(count: int) -> None:
    """Of 16 each took it all: after a pause one call waited for 8 s, in place of 0.6."""
    world = World(count, 5)
    for client in world.clients:
        client.queue.offer(Waiting("t", 0, 100, T0, None))
        client.send(world.pace, T0)
    now_ms = T0 + 15_000
    for client in world.clients:
        client.queue.offer(Waiting("t", 0, 100, now_ms, None))
        client.send(world.pace, now_ms)
    for client in world.clients:
        client.fill(now_ms)
    waiting = sum(client.queue.raw_bytes for client in world.clients)
    few = sum(client.queue.pace.lump_bytes(1) * 3 for client in world.clients)  # UNEVEN
    assert 0.25 * QUOTA < waiting < 0.6 * QUOTA + few


def test_who_is_gone_leaves_its_part_of_what_has_been_saved_up_to_the_others() -> None:
    world = World(2, 5)
    (stays, leaves), world.clients = world.clients, []
    stays.queue.pace.on_granted(100, T0)
    stays.queue.pace.wait_ms(100, T0 + 5_000, 1)
    shared = stays.queue.pace.room_bytes(1)
    del leaves
    assert stays.queue.pace.room_bytes(1) > 1.5 * shared
