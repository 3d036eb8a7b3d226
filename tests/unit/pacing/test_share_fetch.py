"""When a share consumer may ask, against Kafka's own window in virtual time."""

from itertools import cycle, pairwise
from random import Random

import pytest

from kclient_quota.pacing.fetching.share_fetch import ANY_BROKER, SharePacer, wire_bytes
from kclient_quota.quota.rate import SampledRate

BEGIN_MS = 1_700_000_000_000
STEP_MS = 20
NAP_MS = 100
"""A share consumer that waits looks again after so long at the latest."""


class Broker:
    """Acquires one batch for every request and refuses what exceeds the quota, as Kafka 4.3.1 does."""

    def __init__(self, byte_rate: float) -> None:
        self.byte_rate = byte_rate
        self.window = SampledRate()
        self.refused = 0
        self.sent = 0

    def fetch(self, nbytes: int, now_ms: int) -> int:
        """The throttle time; 0 when the batch was sent."""
        self.window.record(nbytes, now_ms)
        rate = self.window.measure(now_ms)
        if rate <= self.byte_rate:
            self.sent += nbytes
            return 0
        self.window.record(-nbytes, now_ms)
        self.refused += 1
        return round((rate - self.byte_rate) / self.byte_rate * self.window.window_size_ms(now_ms))


def _run(broker: Broker, pacers: list[SharePacer], batches: list[int], seconds: int) -> int:
    """All ask one broker whenever they may; when the last batch was sent."""
    return _ask([broker], pacers, batches, seconds)


def _ask(leaders: list[Broker], pacers: list[SharePacer], batches: list[int], seconds: int) -> int:
    """As `_run`, of the leaders of partitions in turn, as librdkafka does."""
    turns, numbers = cycle(leaders), {id(broker): number for number, broker in enumerate(leaders)}
    now_ms = BEGIN_MS
    left = list(batches)
    while left and now_ms < BEGIN_MS + seconds * 1_000:
        idle_ms = NAP_MS
        for pacer in pacers:
            wait_ms = pacer.wait_ms(now_ms) if left else None
            if wait_ms is not None:
                idle_ms = min(idle_ms, max(wait_ms, STEP_MS))
            if wait_ms == 0:
                pacer.asks()
                broker = next(turns)
                throttle_ms = broker.fetch(left[0], now_ms + 2)
                if throttle_ms:
                    pacer.answered({}, now_ms, now_ms + 4)
                    pacer.on_throttle(numbers[id(broker)], throttle_ms, now_ms + 4)
                else:
                    pacer.answered({numbers[id(broker)]: left.pop(0)}, now_ms, now_ms + 4)
        now_ms += idle_ms
    return now_ms


@pytest.mark.parametrize(
    ("byte_rate", "batch", "least"),
    [
        (20_000, 15_300, 0.95),
        (20_000, 5_000, 0.95),
        (20_000, 30_000, 0.93),
        (100_000, 15_300, 0.95),
        (1_000_000, 153_000, 0.95),
        (100_000, 191_700, 0.82),
    ],
)
def test_whoever_knows_its_limit_is_never_refused_and_gets_it(byte_rate: int, batch: int, least: float) -> None:
    broker = Broker(byte_rate)
    pacer = SharePacer(byte_rate)
    seconds = 120
    _run(broker, [pacer], [batch] * (2 * byte_rate * seconds // batch), seconds)
    assert broker.refused == 0
    assert broker.sent / seconds / byte_rate >= least


@pytest.mark.parametrize(
    ("byte_rate", "batch", "partitions", "least"),
    [
        (20_000, 15_300, (0, 1, 2), 2.5),
        (100_000, 15_300, (0, 1, 2), 2.8),
        (100_000, 191_700, (0, 1, 2), 2.3),
        # two thirds of the records are the first one's: what it is let through is what all of them are
        (20_000, 15_300, (0, 0, 1), 1.3),
        (100_000, 15_300, (0, 1, 0, 0), 1.2),
        (100_000, 15_300, (0, 0, 0), 0.95),
    ],
)
def test_each_broker_has_an_account_and_none_refuses(
    byte_rate: int, batch: int, partitions: tuple[int, ...], least: float
) -> None:
    brokers = [Broker(byte_rate) for _ in range(3)]
    seconds = 60
    leaders = [brokers[number] for number in partitions]
    _ask(leaders, [SharePacer(byte_rate)], [batch] * (6 * byte_rate * seconds // batch), seconds)
    assert sum(broker.refused for broker in brokers) == 0
    assert sum(broker.sent for broker in brokers) / seconds / byte_rate >= least


def test_what_one_broker_throttles_is_its_own_account() -> None:
    pacer = SharePacer(100_000)
    pacer.asks()
    pacer.answered({1: 15_000, 2: 15_000}, BEGIN_MS, BEGIN_MS)
    pacer.on_throttle(2, 3_000, BEGIN_MS)
    states = pacer.states(BEGIN_MS)
    assert {broker: state.throttled_ms for broker, state in states.items()} == {1: 0, 2: 3_000}
    assert {broker: state.received_bytes for broker, state in states.items()} == {1: 15_000, 2: 15_000}
    assert pacer.wait_ms(BEGIN_MS) == 3_000  # it may be the next one that librdkafka asks


def test_a_throttle_goes_to_the_account_of_all_while_nobody_tells_who_leads() -> None:
    pacer = SharePacer(100_000)
    pacer.asks()
    pacer.answered({ANY_BROKER: 15_000}, BEGIN_MS, BEGIN_MS)
    pacer.on_throttle(2, 3_000, BEGIN_MS)
    assert list(pacer.states(BEGIN_MS)) == [ANY_BROKER]


def test_more_is_had_by_taking_a_window_at_once_and_then_nothing() -> None:
    broker, now_ms, took_ms = Broker(20_000), BEGIN_MS, [BEGIN_MS]
    while now_ms < BEGIN_MS + 165_000:
        if broker.fetch(15_300, now_ms) == 0:
            took_ms.append(now_ms)
        now_ms += STEP_MS
    assert broker.sent / 165 / broker.byte_rate >= 0.97
    assert max(later - earlier for earlier, later in pairwise(took_ms)) >= 8_000


@pytest.mark.parametrize("batch", [2_000, 5_000])
def test_batches_that_are_small_from_now_on_use_the_quota_again(batch: int) -> None:
    """They were waited for as for the large ones of before."""
    broker = Broker(40_000)
    ended_ms = _run(broker, [SharePacer(40_000)], [100_000] * 12 + [batch] * (3_600_000 // batch), 600)
    assert broker.sent * 1_000 / (ended_ms - BEGIN_MS) >= 0.9 * 40_000


def test_batches_of_changing_size_are_refused_once_for_each_growth_at_most() -> None:
    broker = Broker(50_000)
    batches = [4_000, 16_000, 60_000, 8_000, 250_000, 2_000] * 2
    _run(broker, [SharePacer(50_000)], batches, 300)
    assert broker.sent == sum(batches)
    assert broker.refused <= len(batches) // 3


def test_two_of_one_process_share_an_account() -> None:
    broker = Broker(100_000)
    pacer = SharePacer(100_000)
    _run(broker, [pacer, pacer], [15_300] * 500, 60)
    assert broker.refused == 0


@pytest.mark.parametrize(("byte_rate", "batch"), [(20_000, 15_300), (50_000, 15_300), (100_000, 95_000)])
def test_records_that_come_again_come_with_their_whole_batches(byte_rate: int, batch: int) -> None:
    """Of every second answer one record is new to nobody, and the rest of its batch is settled."""
    broker, pacer = Broker(byte_rate), SharePacer(byte_rate)
    now_ms, answers = BEGIN_MS, 0
    while now_ms < BEGIN_MS + 300_000:
        wait_ms = pacer.wait_ms(now_ms)
        if wait_ms:
            now_ms += min(wait_ms, NAP_MS)
            continue
        pacer.asks()
        answers += 1
        again = answers % 2 == 0
        throttle_ms = broker.fetch(batch, now_ms + 2)
        if throttle_ms:
            pacer.answered({}, now_ms, now_ms + 4)
            pacer.on_throttle(1, throttle_ms, now_ms + 4)
        else:
            pacer.answered({1: 1_200 if again else batch}, now_ms, now_ms + 4, again=again)
        now_ms += 4
    assert broker.refused == 0
    assert broker.sent / 300 / byte_rate >= 0.8


def test_windows_that_are_set_otherwise_are_filled_as_well() -> None:
    """Who keeps windows of a second all the same is refused 18 times; of ten: `tests/grids/test_fetch_grid.py`."""
    other_windows_are_filled_as_well(3_000)


def other_windows_are_filled_as_well(window_ms: int) -> None:
    broker, pacer = Broker(20_000), SharePacer(20_000, samples=11, window_ms=window_ms)
    broker.window = SampledRate(11, window_ms)
    _run(broker, [pacer], [15_300] * 1_000, 300)
    assert broker.refused == 0
    assert broker.sent / 300 / broker.byte_rate >= 0.97


@pytest.mark.parametrize("batch", [3_000, 15_300, 26_000, 38_000], ids=lambda batch: f"{batch} B")
@pytest.mark.parametrize("seed", range(3))
def test_on_a_busy_machine_nothing_is_refused(batch: int, seed: int) -> None:
    """Every third request and answer are late by up to 150 ms, and applications by up to a second."""
    random, broker, pacer = Random(seed), Broker(20_000), SharePacer(20_000)

    def late_ms() -> int:
        return random.randint(0, 150 if random.random() < 0.3 else 3)

    now_ms = BEGIN_MS
    while now_ms < BEGIN_MS + 300_000:
        wait_ms = pacer.wait_ms(now_ms)
        if wait_ms:
            now_ms += min(wait_ms, 100) + random.randint(0, 5)
            continue
        pacer.asks()
        asked_ms, recorded_ms = now_ms, now_ms + late_ms()
        now_ms = recorded_ms + late_ms()
        assert broker.fetch(batch, recorded_ms) == 0
        pacer.answered({1: batch}, asked_ms, now_ms)
        now_ms += random.randint(0, 1_000)
    assert broker.sent / 300 / broker.byte_rate >= min(0.8, batch / 26_000)


def test_lumps_come_back_after_a_slow_answer() -> None:
    broker, pacer = Broker(20_000), SharePacer(20_000)
    now_ms, answers, sent = BEGIN_MS, 0, 0
    while now_ms < BEGIN_MS + 240_000:
        wait_ms = pacer.wait_ms(now_ms)
        if wait_ms:
            now_ms += min(wait_ms, 100)
            continue
        pacer.asks()
        answers += 1
        late_ms = {1: 6_000, 4: 140}.get(answers, 2)
        assert broker.fetch(15_281, now_ms + 2) == 0
        pacer.answered({1: 15_281}, now_ms, now_ms + 2 + late_ms)
        now_ms += 2 + late_ms
        sent += 15_281 * (now_ms > BEGIN_MS + 60_000)
    assert sent / 180 / broker.byte_rate >= 0.95


def test_after_empty_answers_a_window_is_taken_for_as_short_as_it_may_be() -> None:
    """An answer that took long may follow empty ones, each of which may have opened a sample of the window."""
    broker, pacer = Broker(20_000), SharePacer(20_000)
    now_ms = BEGIN_MS
    while now_ms < BEGIN_MS + 60_000:
        wait_ms = pacer.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        pacer.asks()
        broker.fetch(23, now_ms + 450)  # nothing for it yet
        assert broker.fetch(15_300, now_ms + 900) == 0
        pacer.answered({1: 15_300}, now_ms, now_ms + 900)
        now_ms += 900
    assert broker.sent / 60 / broker.byte_rate >= 0.6


def test_an_hour_by_which_a_clock_goes_back_is_not_waited_for() -> None:
    pacer, now_ms = SharePacer(1_000_000.0), 10_000_000
    for _ in range(200):
        while not pacer.wait_ms(now_ms):
            pacer.asks()
            pacer.answered({1: 16_000}, now_ms, now_ms + 5)
            now_ms += 5
        now_ms += 100
    while not pacer.wait_ms(now_ms):
        pacer.asks()
        pacer.answered({1: 16_000}, now_ms, now_ms)
    assert (pacer.wait_ms(now_ms - 3_600_000) or 0) <= 1_000


def test_what_is_under_way_is_reckoned_with() -> None:
    pacer = SharePacer(20_000)
    pacer.asks()
    pacer.answered({1: 110_000}, BEGIN_MS, BEGIN_MS)  # more than half a window
    assert pacer.wait_ms(BEGIN_MS + 11_500) == 0
    pacer.asks()
    assert pacer.wait_ms(BEGIN_MS + 11_500) != 0


def test_a_batch_that_fits_no_window_is_asked_for_once_and_told_until_the_limit_changes() -> None:
    broker = Broker(10_000)
    pacer = SharePacer(10_000)
    _run(broker, [pacer], [400_000], 300)
    assert broker.refused == 1
    assert pacer.too_large == pytest.approx(300_000, rel=0.05)
    assert pacer.wait_ms(BEGIN_MS + 400_000) is None
    pacer.set_limit(100_000)
    assert pacer.wait_ms(BEGIN_MS + 400_000) == 0


def test_a_throttle_is_waited_out() -> None:
    pacer = SharePacer(100_000)
    pacer.on_throttle(1, 3_000, BEGIN_MS)
    assert pacer.wait_ms(BEGIN_MS + 100) == 2_900


def test_nothing_is_paced_before_anything_limits() -> None:
    pacer = SharePacer(None)
    for _ in range(100):
        pacer.asks()
        pacer.answered({1: 1_000_000}, BEGIN_MS, BEGIN_MS)
    assert pacer.wait_ms(BEGIN_MS) == 0


def test_records_are_reckoned_with_what_they_cost_on_the_wire() -> None:
    assert wire_bytes(0, 0, 8_192) == 0
    assert wire_bytes(15, 15_000, 8_192) == pytest.approx(15_320, abs=100)
    # records of 100 B in batches of their own, as many as fill an answer, and those at the log's end
    assert wire_bytes(45, 4_500, 8_192) == pytest.approx(45 * 171, rel=0.05)
    assert wire_bytes(5, 500, 8_192) == pytest.approx(5 * 171, abs=150)
    # a batch of 4 kB beside which another had no room
    assert wire_bytes(40, 4_000, 8_192) == pytest.approx(4_800, abs=150)


def test_strangers_are_met_by_who_works_between_what_it_asks_for() -> None:
    """All that it had ever had counted as its own in the window: it took nobody for there, and yielded to nobody."""
    broker, pacer = Broker(20_000), SharePacer(20_000)
    for now_ms in range(BEGIN_MS, BEGIN_MS + 120_000, STEP_MS):
        if now_ms >= BEGIN_MS + 40_000 and now_ms % 1_000 == 0:
            broker.fetch(12_000, now_ms)
        if now_ms % 2_000 < 300 and pacer.wait_ms(now_ms) == 0:
            _run_once(broker, pacer, 15_300, now_ms)
    assert pacer.states(now_ms)[0].rate < 12_000


def _run_once(broker: Broker, pacer: SharePacer, batch: int, now_ms: int) -> None:
    pacer.asks()
    throttle_ms = broker.fetch(batch, now_ms)
    pacer.answered({} if throttle_ms else {0: batch}, now_ms, now_ms)
    pacer.on_throttle(0, throttle_ms, now_ms)
