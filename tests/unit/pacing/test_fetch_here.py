"""What has come of a long batch is handed over at once: what is owed holds back the next fetch, and nothing else."""

from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch import FetchPacer
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from tests.unit.pacing.fetch_world import STATISTICS_MS, Broker, Quota, World

LIMIT = 100_000.0
BATCH = 300_000
MESSAGE = 1_010
QUEUE = 1_024
SETTLED_MS = 45_000


@pytest.mark.parametrize(("byte_rate", "least"), [(100_000, 0.80), (50_000, 0.75)])
def test_all_but_the_last_few_messages_of_a_long_batch_wait_for_nothing_but_the_news_of_them(
    byte_rate: float, least: float
) -> None:
    """A shorter batch: `tests/grids/test_fetch_grid.py`, as what else there are cells of here."""
    all_but_the_last_few_wait_for_the_news(byte_rate, 470_000, least)


def all_but_the_last_few_wait_for_the_news(byte_rate: float, batch: int, least: float) -> None:
    """Taken evenly each would wait for half the time that its batch is worth, and a rebalance would throw it away."""
    quota = Quota(byte_rate)
    world = World([Broker(1, quota, batch, 1_000)], byte_rate)
    world.run(125_000)
    waits = [
        taken - came for came, taken in zip(world.came_at_ms, world.taken_at_ms, strict=False) if came > SETTLED_MS
    ]
    batches = len(waits) * 1_000 / batch
    # one for each poll in the ten seconds that a fetch may be refused for, and three that hold it back
    assert sum(ms > STATISTICS_MS + 50 for ms in waits) <= 14 * batches
    # the next fetch goes out no sooner for that
    assert least <= quota.utilisation(20_000, world.now_ms) <= 1.0
    assert not [at for at, _ in world.brokers[0].throttles if at > SETTLED_MS]
    assert world.longest_gap_ms(SETTLED_MS) <= 1_200 * batch / byte_rate


def holding(queued: int, *, batch: int = BATCH, by_hand: bool = False) -> FetchPacer:
    """One batch has come, and `queued` messages of it are in librdkafka's queue, at 1,000 ms; all of it is owed."""
    pacer = FetchPacer(LIMIT, FetchSizes(1, QUEUE, by_hand=by_hand), 0)
    tell(pacer, 500, 0, received=0)
    tell(pacer, 750, batch // MESSAGE, received=batch)
    pacer.grant(750, {1: batch - queued * MESSAGE})
    tell(pacer, 1_000, queued, received=batch)
    return pacer


def tell(pacer: FetchPacer, at_ms: int, queued: int, received: int, **known: Any) -> None:
    count = int(received > 0)
    leaders = known.get("leaders", {("t", 0): 1})
    pacer.on_statistics(FetchStatistics(at_ms, queued * 1_000, queued, {1: (received, count)}, leaders))


def test_what_keeps_the_next_fetch_back_stays_where_it_is() -> None:
    pacer = holding(100)
    granted, wait_ms = pacer.grant(1_000, {})
    assert wait_ms == 0
    left = 100 * MESSAGE - granted
    # more than lets a fetch out, after the polls of ten seconds, in which rebalances are heard of
    assert QUEUE + 10 * MESSAGE < left <= 14 * MESSAGE
    granted, wait_ms = pacer.grant(1_000, {1: int(granted)})
    assert (granted, wait_ms > 1_000) == (0.0, True)


@pytest.mark.parametrize(("batch", "by_hand"), [(50_000, False), (BATCH, True)])
def test_short_batches_and_those_of_sizes_set_by_hand_are_taken_evenly(batch: int, *, by_hand: bool) -> None:
    granted, _ = holding(40, batch=batch, by_hand=by_hand).grant(1_000, {})
    assert granted <= LIMIT / 10


def emptied() -> FetchPacer:
    """All was taken, and the next batch is fetched though nothing may be taken for seconds."""
    pacer = holding(1)
    pacer.grant(1_000, {1: MESSAGE})
    return pacer


def test_whoever_may_take_nothing_looks_whether_a_batch_has_come() -> None:
    """Only what is taken brings that news; it would wait for what is owed, or five seconds, otherwise."""
    pacer = emptied()
    assert pacer.grant(1_100, {}) == (1.0, 0)
    assert pacer.grant(1_150, {})[0] == 0.0
    assert pacer.grant(1_200, {}) == (1.0, 0)


def test_until_it_is_told_a_batch_is_taken_for_half_as_long_as_the_last_one() -> None:
    pacer = emptied()
    granted, _ = pacer.grant(1_100, {1: MESSAGE})
    assert 0.4 * BATCH < granted < 0.5 * BATCH
    assert pacer.grant(1_110, {1: int(granted)})[0] <= 1.0
    tell(pacer, 1_250, 140, received=2 * BATCH)
    granted, _ = pacer.grant(1_250, {})
    assert granted > 125 * MESSAGE


def test_after_a_rebalance_it_looks_at_once_and_a_throttle_is_no_strangers() -> None:
    pacer = holding(4)
    assert pacer.grant(1_050, {})[0] == 0.0
    pacer.forget_queue()
    assert pacer.grant(1_200, {}) == (1.0, 0)
    before = pacer.paces[1].share.rate
    pacer.on_throttle(1, 3_000, 1_210)
    tell(pacer, 1_250, 0, received=BATCH)
    pacer.on_throttle(1, 3_000, 1_300)
    assert pacer.paces[1].share.rate == before
    pacer.on_throttle(1, 3_000, 13_000)
    assert pacer.paces[1].share.rate < before


def test_who_is_throttled_wants_more_as_well_as_who_waits() -> None:
    pacer = holding(6)
    pace = pacer.paces[1]
    assert not pace.need(9_000).waits
    pacer.on_throttle(1, 4_000, 8_000)
    assert [pace.need(at_ms).waits for at_ms in (9_000, 11_999, 12_000)] == [True, True, False]


def test_what_librdkafka_has_to_tell_is_no_message() -> None:
    """Twenty events in its queue made a message seem to have some tens of bytes, and one too many was taken."""
    pacer = holding(6)
    pacer.on_messages(MESSAGE, 1)
    pacer.on_statistics(FetchStatistics(6_000, 2_000, 22, {1: (BATCH, 1)}, {("t", 0): 1}))
    assert pacer.message_bytes == pytest.approx(MESSAGE, rel=0.02)


class Polled(World):
    """Polled while it waits, as consumers are."""

    polled_at_ms = 0

    def _serve(self) -> None:
        super()._serve()
        self.polled_at_ms = self.now_ms

    def next_ms(self) -> int:
        return min(super().next_ms(), self.polled_at_ms + min(self.pacer.unpolled_ms, self.most_unpolled_ms))

    def _take(self) -> None:
        if self.now_ms - self.polled_at_ms >= min(self.pacer.unpolled_ms, self.most_unpolled_ms):
            self._serve()
            self._take_one()
        super()._take()


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message", "by_hand"),
    [(100_000, 400_000, 5_000, False), (50_000, 100_000, 1_000, False)],
)
def test_what_polls_take_lets_no_fetch_out_before_its_batch_fits(
    byte_rate: float, batch: int, message: int, by_hand: bool
) -> None:
    polls_let_no_fetch_out_too_early(byte_rate, batch, message, by_hand=by_hand)


def polls_let_no_fetch_out_too_early(byte_rate: float, batch: int, message: int, *, by_hand: bool) -> None:
    quota = Quota(byte_rate)
    sizes = FetchSizes(1, QUEUE, by_hand=True) if by_hand else None
    world = Polled([Broker(1, quota, batch, message)], byte_rate, sizes=sizes)
    world.run(125_000)
    assert not [at for at, _ in world.brokers[0].throttles if at > SETTLED_MS]
    assert quota.utilisation(20_000, world.now_ms) > 0.72


@pytest.mark.parametrize(
    ("batch", "message", "by_hand"), [(400_000, 20_000, True), (400_000, 20_000, False), (500_000, 10_000, False)]
)
def test_nor_what_polls_take_that_a_short_poll_interval_wants_more_often(
    batch: int, message: int, by_hand: bool
) -> None:
    short_poll_interval_lets_no_fetch_out_too_early(batch, message, by_hand=by_hand)


def short_poll_interval_lets_no_fetch_out_too_early(batch: int, message: int, *, by_hand: bool) -> None:
    """`max.poll.interval.ms` of 3 s: polled every second, whatever that takes."""
    quota = Quota(100_000)
    sizes = FetchSizes(1, QUEUE, by_hand=True) if by_hand else None
    world = Polled([Broker(1, quota, batch, message)], 100_000, sizes=sizes, most_unpolled_ms=1_000)
    world.run(125_000)
    assert not [at for at, _ in world.brokers[0].throttles if at > SETTLED_MS]
    assert quota.utilisation(20_000, world.now_ms) > 0.72


@pytest.mark.parametrize(
    ("size", "queued", "every_ms"),
    [(1_000, 200, 1_000), (1_900, 100, 1_000), (4_000, 50, 2_000), (20_000, 10, 5_000)],
)
def test_whoever_waits_is_polled_every_second_unless_that_takes_more_than_a_fiftieth_of_the_quota(
    size: int, queued: int, every_ms: int
) -> None:
    """A rebalance waits behind the messages that hold back the next fetch."""
    pacer = FetchPacer(LIMIT, FetchSizes(1, QUEUE), 0)
    assert pacer.unpolled_ms == 1_000
    pacer.on_statistics(FetchStatistics(750, queued * size, queued, {1: (queued * size, 1)}, {("t", 0): 1}))
    assert every_ms <= pacer.unpolled_ms <= 1.02 * every_ms


def test_whoever_waits_for_no_quota_is_polled_every_five_seconds() -> None:
    """Where a producer waits for its own, what each poll takes has to be held."""
    assert FetchPacer(None, FetchSizes(1, QUEUE), 0).unpolled_ms == 5_000
