"""The gate of one broker, in virtual time, against a broker that measures as Kafka does."""

import pytest

from kclient_quota.clients.admission import LEAST_MESSAGES, RECORD_BYTES, REQUEST_BYTES, Gate
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import throttle_time_ms

VALUE = 1000
COST = VALUE + RECORD_BYTES


class World:
    """A producer of equal messages and its broker; one request per grant, a round trip of 5 ms."""

    def __init__(self, limit: float | None, actual: float | None = None, cost: int = COST, start_ms: int = 0) -> None:
        self.now_ms = start_ms
        self.jumped_ms = 0
        self.limit = actual or limit
        self.cost = cost
        self.gate = Gate(Pacer(limit), limit)
        self.window = SampledRate()
        self.batch = 0
        self.requests: list[tuple[int, int, int]] = []
        self.waits: list[int] = []

    def produce(self) -> None:
        """One message, waited for."""
        begin_ms = self.now_ms
        while wait_ms := self.gate.admit(self.cost, self.now_ms):
            assert wait_ms > 0
            self._send()
            self.now_ms += min(wait_ms, 100)
        self.waits.append(self.now_ms - begin_ms)
        self.gate.left -= self.cost
        self.batch += 1

    def _send(self) -> None:
        """What has been handed over leaves as one request, is recorded and answered."""
        if not self.batch:
            return
        nbytes = self.batch * (self.cost - 4) + 110
        self.batch = 0
        now_ms = self.now_ms + 5
        broker_ms = now_ms - self.jumped_ms
        self.window.record(nbytes, broker_ms)
        throttle_ms = 0
        if self.limit is not None:
            rate, window_ms = self.window.measure(broker_ms), self.window.window_size_ms(broker_ms)
            throttle_ms = max(0, throttle_time_ms(rate, self.limit, window_ms))
        self.requests.append((broker_ms, nbytes, throttle_ms))
        self.gate.on_wire(nbytes)
        self.gate.settle(self.gate.handed, now_ms)
        if throttle_ms > 0:
            self.gate.on_throttle(throttle_ms, now_ms)

    def run(self, until_ms: int) -> None:
        while self.now_ms < until_ms:
            self.produce()

    def utilisation(self, from_ms: int) -> float:
        counted = [(at, nbytes) for at, nbytes, _ in self.requests if at >= from_ms]
        assert self.limit is not None
        return sum(nbytes for _, nbytes in counted[:-1]) / (self.limit * (counted[-1][0] - counted[0][0]) / 1000)


@pytest.mark.parametrize("limit", [20_000, 51_200, 1_048_576, 50_000_000])
def test_a_saturating_producer_gets_its_quota_and_hardly_a_throttle(limit: int) -> None:
    world = World(limit, cost=COST if limit < 10_000_000 else 50_000)
    world.run(90_000)
    assert 0.97 <= world.utilisation(15_000) <= 1.0
    # What remains is the grain of the broker's window, far below one request's time.
    assert max(throttle for _, _, throttle in world.requests) <= 50


@pytest.mark.parametrize("limit", [20_000, 51_200])
def test_messages_leave_in_groups_so_that_framing_stays_small(limit: int) -> None:
    world = World(limit)
    world.run(60_000)
    sizes = [nbytes for _, nbytes, _ in world.requests]
    assert sum(sizes) / len(sizes) >= (LEAST_MESSAGES - 0.5) * COST
    assert 110 / (sum(sizes) / len(sizes)) < 0.03


def test_no_wait_is_longer_than_half_a_second_once_it_is_steady() -> None:
    world = World(20_000)
    world.run(5_000)
    world.waits.clear()
    world.run(60_000)
    assert max(world.waits) <= 500


def test_an_idle_producer_waits_for_nothing() -> None:
    world = World(20_000)
    for second in range(60):
        world.now_ms = second * 1000
        world.produce()
        world._send()
    assert max(world.waits) == 0


def test_the_first_messages_wait_for_the_first_delivery() -> None:
    gate = Gate(Pacer(51_200), 51_200)
    handed = 0
    while not gate.admit(COST, 0):
        gate.left -= COST
        handed += COST
    assert handed <= 51_200 * 0.25
    assert gate.admit(COST, 2_000) > 0
    gate.settle(gate.handed, 2_000)
    assert gate.admit(COST, 2_000) == 0


def test_a_big_message_after_a_small_one_is_waited_for_once_not_three_times() -> None:
    """9,000 B at 3,000 B/s; what is paid for once, at the start, is two of the small ones."""
    gate = Gate(Pacer(3_000), 3_000)
    now_ms = waited_ms = 0
    for cost in (500, 9_000, 500):
        waited_ms = 0
        while wait_ms := gate.admit(cost, now_ms):
            now_ms += wait_ms
            waited_ms += wait_ms
        gate.left -= cost
        gate.on_wire(cost + 110)
        gate.settle(gate.handed, now_ms)
    assert 3_000 <= waited_ms <= 4_000


def test_outstanding_bytes_stay_below_half_a_second() -> None:
    gate = Gate(Pacer(51_200), 51_200)
    assert gate.admit(COST, 0) == 0
    gate.left = 0
    gate.settle(gate.handed, 0)
    for now_ms in range(10, 20_000, 10):
        if not gate.admit(COST, now_ms):
            gate.left -= COST
        assert gate.outstanding <= 51_200 * 0.5 + COST


def test_without_a_limit_outstanding_bytes_grow_with_deliveries() -> None:
    gate = Gate(Pacer(None), None)
    widths = []
    for now_ms in range(0, 400, 20):
        while not gate.admit(COST, now_ms):
            gate.left -= COST
        widths.append(gate.outstanding)
        gate.settle(gate.handed, now_ms)
    assert widths[0] <= 70_000
    assert widths[-1] > 20 * widths[0]


def test_a_throttle_holds_everything_back_and_is_told() -> None:
    world = World(51_200)
    world.run(2_000)
    world.gate.left = 0
    now_ms = world.now_ms
    world.gate.on_throttle(43_200_000, now_ms)
    assert world.gate.admit(COST, now_ms) >= 43_200_000 - 1
    assert world.gate.throttled_for_ms(now_ms) == 43_200_000
    assert world.gate.state(51_200, "config", now_ms).throttled_until_ms == 43_200_000
    world.gate.on_throttle(10, now_ms + 5)
    assert world.gate.throttled_for_ms(now_ms + 5) == 43_200_000 - 5


def test_a_throttle_shorter_than_a_request_costs_no_rate() -> None:
    world = World(51_200)
    world.run(20_000)
    before = world.gate.state(51_200, "config", world.now_ms).rate
    world.gate.on_throttle(60, world.now_ms)
    assert world.gate.state(51_200, "config", world.now_ms).rate == before
    assert world.gate.throttled_for_ms(world.now_ms) == 60


def test_compression_is_learnt_from_what_goes_over_the_wire() -> None:
    gate = Gate(Pacer(100_000), 100_000)
    handed = 0
    now_ms = 0
    while now_ms < 60_000:
        wait_ms = gate.admit(COST, now_ms)
        if wait_ms:
            now_ms += wait_ms
        else:
            gate.left -= COST
            handed += COST
        if gate.left < COST:
            gate.settle(gate.handed, now_ms)
            gate.on_wire((gate.handed - gate._seen) // 4)
    assert 3.5 < handed / (100_000 * 0.98 * 60) < 4.3


def test_a_raised_limit_is_used_and_a_lowered_one_is_kept() -> None:
    world = World(51_200)
    world.run(30_000)
    world.limit = 204_800
    world.gate.set_limit(204_800, world.now_ms)
    world.run(60_000)
    assert world.utilisation(45_000) >= 0.97
    world.limit = 102_400
    world.gate.set_limit(102_400, world.now_ms)
    world.run(120_000)
    assert world.utilisation(90_000) >= 0.97
    assert max(throttle for at, _, throttle in world.requests if at > 90_000) <= 100


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_jump_neither_stops_nor_unleashes(jump_ms: int) -> None:
    world = World(51_200, start_ms=10_000_000)
    world.run(10_020_000)
    before = world.gate.handed
    world.jumped_ms = jump_ms
    world.now_ms += jump_ms
    begin_ms = world.now_ms
    world.run(begin_ms + 10_000)
    # A jump forwards is an idle hour to the gate: a second's worth more may go at once.
    assert 0.9 * 512_000 <= world.gate.handed - before <= 1.15 * 512_000 + 51_200


def test_a_message_larger_than_the_window_goes_soon_and_is_paid_back() -> None:
    gate = Gate(Pacer(1_000), 1_000)
    wait_ms = gate.admit(50_000, 0)
    assert wait_ms <= 500
    assert gate.admit(50_000, wait_ms) == 0
    gate.left -= 50_000
    gate.settle(gate.handed, wait_ms)
    assert gate.admit(100, 1_000) > 0
    assert gate.admit(100, 120_000) == 0


def test_asking_grants_nothing() -> None:
    gate = Gate(Pacer(51_200), 51_200)
    assert gate.wait_ms(COST, 0) == 0
    assert gate.left == 0
    assert gate.handed == 0


def test_framing_is_supposed_before_it_is_measured() -> None:
    gate = Gate(Pacer(51_200), 51_200)
    assert gate._ratio(COST) == pytest.approx((5 * COST + REQUEST_BYTES) / (5 * COST))


def test_the_very_first_message_waits_for_nothing() -> None:
    gate = Gate(Pacer(10_000), 10_000)
    assert gate.admit(1_020, 7) == 0
    gate.left -= 1_020
    assert gate.admit(1_020, 7) > 0


def test_the_very_first_message_waits_for_a_throttle_that_is_known_of() -> None:
    gate = Gate(Pacer(10_000), 10_000)
    gate.on_throttle(5_000, 7)
    assert gate.admit(1_020, 7) == 5_000


def test_while_nothing_is_known_and_nothing_arrives_librdkafkas_queue_is_the_place_to_wait() -> None:
    gate = Gate(Pacer(None), None)
    while not gate.admit(COST, 0):
        gate.left -= COST
    assert gate.waits_for_deliveries
    assert gate.admit(COST, 1_900) > 0
    for _ in range(10_000):
        assert gate.admit(COST, 2_100) == 0
        gate.left -= COST
    gate.settle(gate.handed // 2, 3_000)
    gate.left = 0
    assert gate.admit(COST, 3_001) > 0


def test_with_a_known_limit_a_broker_that_is_away_gets_no_pile() -> None:
    gate = Gate(Pacer(51_200), 51_200)
    handed = 0
    for now_ms in range(0, 60_000, 10):
        if not gate.admit(COST, now_ms):
            gate.left -= COST
            handed += COST
    assert handed <= 51_200 / 2


def test_what_lingers_in_librdkafka_comes_on_top_of_what_is_on_its_way() -> None:
    gate = Gate(Pacer(51_200), 51_200, linger_ms=2_000)
    assert gate.admit(COST, 0) == 0
    gate.left = 0
    gate.settle(gate.handed, 0)
    for now_ms in range(10, 20_000, 10):
        if not gate.admit(COST, now_ms):
            gate.left -= COST
    assert 51_200 * 1.8 <= gate.outstanding <= 51_200 * 2.5
