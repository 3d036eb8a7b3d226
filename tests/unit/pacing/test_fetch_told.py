"""What statistics, throttles and other limits make of a consumer's pacer, number by number."""

from math import inf
from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch import LEAST_RATIO, MOST_RATIO, FetchPacer
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.fetching.fetch_sizes import OPEN, FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from tests.unit.pacing.test_fetch_edges import LIMIT, SIZES, facts, pacer_of


def seen(
    at_ms: int = 0,
    received: dict[int, tuple[int, int]] | None = None,
    queued: tuple[int, int] = (0, 0),
    leaders: tuple[int, ...] = (1,),
) -> FetchStatistics:
    return FetchStatistics(at_ms, *queued, received or {}, {("t", number): node for number, node in enumerate(leaders)})


class Heard(BrokerPace):
    """Notes what it is told."""

    calls: list[tuple[Any, ...]]

    def on_throttle(
        self, throttle_ms: int, now_ms: int, *, trusted: bool = True, most_bytes: float = 0.0, untold: float = 0.0
    ) -> None:
        self.calls.append((throttle_ms, now_ms, trusted))
        self.most_bytes, self.untold = most_bytes, untold

    def on_received(self, total: int, responses: int, at_ms: int) -> None:
        self.calls.append((total, responses, at_ms))

    def pay_prefetch(self, queue_bytes: float) -> None:
        self.calls.append((queue_bytes,))


def heard(pacer: FetchPacer) -> dict[int, list[tuple[Any, ...]]]:
    """What its paces are told from now on."""
    for pace in pacer.paces.values():
        pace.__class__ = Heard
        pace.calls = []  # type: ignore[attr-defined]
    return {node: pace.calls for node, pace in pacer.paces.items()}  # type: ignore[attr-defined]


# Brokers


def test_the_first_broker_goes_on_with_what_was_there_and_others_begin_when_they_are_seen() -> None:
    pacer = FetchPacer(LIMIT, SIZES, 0)
    first = pacer.paces[-1]
    pacer.on_statistics(seen(70, leaders=(3, 4)))
    assert pacer.leaders == {("t", 0): 3, ("t", 1): 4}
    assert set(pacer.paces) == {3, 4}
    (heir,) = (node for node, pace in pacer.paces.items() if pace is first)
    other = pacer.paces[7 - heir]
    assert (first._at_ms, other._at_ms) == (0, 70)
    assert (first.received_bytes, other.received_bytes) == (0, None)
    assert other.share.limit == LIMIT
    assert pacer._dealt_at_ms == 70 - 500


def test_a_broker_that_leads_nothing_any_more_is_forgotten_but_not_all_of_them() -> None:
    pacer = pacer_of(brokers=2)
    first, second = pacer.paces[1], pacer.paces[2]
    pacer.on_statistics(seen(10, leaders=(2, 5)))
    assert set(pacer.paces) == {2, 5}
    assert pacer.paces[2] is second
    pacer.on_statistics(seen(20, leaders=()))
    assert set(pacer.paces) == {2, 5}
    assert pacer.leaders == {}
    pacer.on_statistics(seen(30, leaders=(1,)))
    assert set(pacer.paces) == {1}
    assert pacer.paces[1] is not first
    dealt = pacer._dealt_at_ms
    pacer.on_statistics(seen(40, leaders=(1,)))
    assert pacer._dealt_at_ms == dealt == 30 - 500


def test_as_long_as_nobody_leads_anything_there_is_one_account() -> None:
    pacer = pacer_of()
    pacer.on_statistics(seen(10, leaders=()))
    assert list(pacer.paces) == [-1]
    assert pacer._dealt_at_ms == -500


def test_each_broker_is_told_what_came_from_it_and_what_its_part_of_the_queue_is() -> None:
    pacer = pacer_of(brokers=2)
    told = heard(pacer)
    pacer.on_statistics(seen(250, {1: (500, 3), 2: (700, 4), 9: (900, 5)}, leaders=(1, 2)))
    assert told == {1: [(500, 3, 250), (5_000,)], 2: [(700, 4, 250), (5_000,)]}
    pacer._sizes = FetchSizes(1, 1_048_576 * 16)
    assert not pacer.fits
    told = heard(pacer)
    pacer.on_statistics(seen(500, {1: (500, 3)}, leaders=(1, 2)))
    assert told == {1: [(500, 3, 500)], 2: []}


# The queue


@pytest.mark.parametrize(
    ("queued", "ratio", "message", "holds"),
    [
        ((0, 0), 1.0, 10.0, 0.0),
        ((990, 1), 1.0, 1_000.0, 1_000.0),
        ((1_980, 2), 0.5, 500.0, 1_000.0),
        ((100, 4), 2.0, 70.0, 280.0),
        ((5, 0), 2.0, 10.0, 10.0),
    ],
)
def test_the_queue_is_what_messages_and_their_records_take_on_the_wire(
    queued: tuple[int, int], ratio: float, message: float, holds: float
) -> None:
    pacer = pacer_of(brokers=1, _ratio=ratio)
    pacer.on_statistics(seen(250, queued=queued))
    assert (pacer._message, pacer._queued) == (message, holds)


def test_the_next_fetch_goes_out_as_soon_as_the_queue_has_room() -> None:
    for nbytes, fetching, after in (
        (9_990, True, False),
        (9_991, True, False),
        (9_989, True, True),
        (9_989, False, True),
    ):
        pacer = pacer_of(brokers=1, _fetching=fetching)
        pacer.paces[1].batch = 80_000.0
        pacer.on_statistics(seen(250, queued=(nbytes, 1)))
        assert pacer._fetching is after
        assert pacer.paces[1].window.expected == ((250, 80_000) if after and not fetching else None)


# The ratio of bytes on the wire to bytes of messages


def test_what_came_and_what_was_received_for_it_teach_the_ratio() -> None:
    pacer = pacer_of()
    pacer.on_statistics(seen(0, {1: (1_000, 1)}))
    assert (pacer._wire_seen, pacer._ratio, pacer._followed) == ({1: 1_000}, 1.0, True)
    pacer.grant(100, {1: 5_000})
    pacer.on_statistics(seen(250, {1: (3_500, 2), 9: (77_777, 2)}, (990, 1)))
    assert pacer._ratio == pytest.approx(2_500 / 6_000)
    assert pacer._queued == pytest.approx(1_000 * 2_500 / 6_000)
    assert pacer._message == 1_000
    assert (pacer._taken, pacer._queued_before) == (0, 1_000)
    pacer.on_statistics(seen(500, {1: (5_000, 3)}))
    assert pacer._ratio == pytest.approx(4_000 / 5_000)
    pacer.grant(600, {1: 100})
    pacer.grant(600, {1: 400})
    pacer.on_statistics(seen(750, {1: (5_000, 3)}, (290, 1)))
    assert pacer._ratio == pytest.approx(4_000 / 5_800)


def test_of_several_brokers_all_is_added() -> None:
    pacer = pacer_of(brokers=2)
    pacer.on_statistics(seen(0, {1: (1_000, 1), 2: (5_000, 1)}, leaders=(1, 2)))
    pacer.grant(100, {1: 500, 2: 1_500})
    pacer.on_statistics(seen(250, {1: (1_300, 1), 2: (6_000, 1)}, leaders=(1, 2)))
    assert pacer._ratio == 1_300 / 2_000


def test_what_a_broker_sent_before_it_led_nothing_is_not_new_when_it_leads_again() -> None:
    pacer = pacer_of(brokers=2)
    pacer.on_statistics(seen(0, {1: (1_000, 1), 2: (900_000, 9)}, leaders=(1, 2)))
    pacer.on_statistics(seen(250, {1: (1_000, 1), 2: (900_000, 9)}, leaders=(1,)))
    pacer.grant(300, {1: 500, 2: 500})
    pacer.on_statistics(seen(500, {1: (1_500, 2), 2: (900_500, 10)}, leaders=(1, 2)))
    assert pacer._ratio == 1.0


@pytest.mark.parametrize(
    ("wire", "taken", "ratio"),
    [
        (19, 1_000, 0.02),
        (20, 1_000, 0.02),
        (21, 1_000, 0.021),
        (49_900, 1_000, 49.9),
        (50_000, 1_000, 50.0),
        (51_000, 1_000, 50.0),
        (1, 1, 1.0),
        (0, 1_000, 3.0),
        (1_000, 0, 3.0),
    ],
)
def test_a_ratio_is_between_a_fiftieth_and_fifty(wire: int, taken: int, ratio: float) -> None:
    pacer = pacer_of(brokers=1, _ratio=3.0)
    pacer.on_statistics(seen(0, {1: (1_000, 1)}))
    pacer._taken = taken
    pacer.on_statistics(seen(250, {1: (1_000 + wire, 2)}))
    assert pacer._ratio == pytest.approx(ratio)


def test_a_half_is_forgotten_after_two_windows_worth() -> None:
    for wire, halved in ((999_999, False), (1_000_000, False), (1_000_001, True)):
        pacer = pacer_of(brokers=2)
        for node, rate in ((1, 50_000.0), (2, 5.0)):
            pacer.paces[node].share._share.rate = rate
        pacer.on_statistics(seen(0, {1: (1_000, 1)}, leaders=(1, 2)))
        pacer._taken = 500_000
        pacer.on_statistics(seen(250, {1: (1_000 + wire, 2)}, leaders=(1, 2)))
        assert pacer._ratio == wire / 500_000
        assert (pacer._wire, pacer._learnt_from) == ((wire / 2, 250_000) if halved else (wire, 500_000))


def test_a_count_that_goes_back_teaches_nothing_and_the_next_ones_do() -> None:
    pacer = pacer_of(brokers=1)
    pacer.on_statistics(seen(0, {1: (1_000, 1)}))
    pacer._taken = 400
    pacer.on_statistics(seen(250, {1: (999, 1)}))
    assert (pacer._wire, pacer._learnt_from, pacer._taken, pacer._wire_seen) == (0, 0, 0, {1: 999})
    pacer._taken = 400
    pacer.on_statistics(seen(500, {1: (1_199, 1)}))
    assert (pacer._wire, pacer._learnt_from, pacer._ratio) == (200, 400, 0.5)


def test_what_came_before_anything_was_paced_teaches_nothing() -> None:
    pacer = pacer_of(None, brokers=1)
    pacer.on_statistics(seen(100, {1: (1_000, 1)}))
    assert (pacer._followed, pacer._blind_at_ms) == (False, 100)
    pacer.set_limit(LIMIT)
    pacer._taken = 10
    pacer.on_statistics(seen(250, {1: (2_000, 1)}))
    assert (pacer._followed, pacer._blind_at_ms, pacer._wire) == (True, 100, 0)
    pacer._taken = 10
    pacer.on_statistics(seen(500, {1: (2_100, 1)}))
    assert (pacer._wire, pacer._learnt_from) == (100, 10)
    pacer._sizes = FetchSizes(1, 1_048_576 * 16)
    pacer._taken = 10
    pacer.on_statistics(seen(750, {1: (2_200, 1)}))
    assert (pacer._followed, pacer._blind_at_ms, pacer._wire) == (False, 750, 100)


# Throttles


def test_a_throttle_is_its_brokers_or_as_long_as_none_is_known_anybodys() -> None:
    pacer = pacer_of(None, brokers=2)
    told = heard(pacer)
    for node, throttle_ms in ((1, 0), (1, -1), (1, 1), (2, 70), (9, 80), (-1, 80)):
        pacer.on_throttle(node, throttle_ms, 5)
    assert told == {1: [(1, 5, True)], 2: [(70, 5, True)]}
    pacer = pacer_of(None)
    told = heard(pacer)
    pacer.on_throttle(9, 80, 7)
    assert told == {-1: [(80, 7, True)]}


@pytest.mark.parametrize(
    ("sizes", "leaders", "most_bytes"),
    [
        (FetchSizes(1_000, 1_000), [1, 1, 2], 1_000),
        (FetchSizes(1_000, 1_000, by_hand=True), [1, 1, 2], 2_000),
        (OPEN, [1, 1, 2], 2 * 1_048_576),
        (OPEN, [], 52_428_800),
        (OPEN, [1] * 100, 52_428_800),
    ],
)
def test_what_was_refused_may_have_been_all_that_was_asked_for(
    sizes: FetchSizes, leaders: list[int], most_bytes: int
) -> None:
    pacer = FetchPacer(None, sizes, 0)
    pacer.on_statistics(seen(0, {}, leaders=leaders))
    heard(pacer)
    pacer.on_throttle(1, 80, 7)
    assert pacer._paces[1 if leaders else -1].most_bytes == most_bytes


@pytest.mark.parametrize(
    ("followed", "blind_at_ms", "now_ms", "trusted"),
    [
        (False, None, 50_000, False),
        (True, None, 50_000, True),
        (True, 39_000, 50_000, True),
        (True, 39_001, 50_000, False),
        (True, 38_999, 50_000, True),
        (False, 0, 50_000, False),
    ],
)
def test_a_throttle_is_trusted_once_a_whole_window_was_received_at_our_pace(
    followed: bool, blind_at_ms: int | None, now_ms: int, trusted: bool
) -> None:
    for limit in (LIMIT, None):
        pacer = pacer_of(limit, brokers=1, _followed=followed, _blind_at_ms=blind_at_ms)
        told = heard(pacer)
        pacer.on_throttle(1, 80, now_ms)
        assert told == {1: [(80, now_ms, trusted or limit is None)]}


def test_how_long_a_window_is_is_the_brokers_to_say() -> None:
    for now_ms, trusted in ((1_999, False), (2_000, True)):
        pacer = FetchPacer(LIMIT, SIZES, 0, samples=4, window_ms=250)
        pacer._followed, pacer._blind_at_ms = True, 1_000
        told = heard(pacer)
        pacer.on_throttle(1, 80, now_ms)
        assert told == {-1: [(80, now_ms, trusted)]}


# Other sizes, another limit


def test_with_other_sizes_the_queue_is_empty_and_batches_are_unknown() -> None:
    pacer = pacer_of(
        brokers=2, _queued=7.0, _queued_before=8.0, _taken=9.0, _wire_seen=10.0, _fetching=False, _ratio=0.5
    )
    for pace in pacer.paces.values():
        pace.batch, pace._level = 5_000.0, -3.0
    before = facts(pacer)
    sizes = FetchSizes(5, 20_480)
    pacer.set_sizes(sizes, 1.0)
    anew = {"_queued": 0.0, "_queued_before": 0.0, "_taken": 0.0, "_wire_seen": None, "_fetching": True}
    assert facts(pacer) == before | anew
    assert pacer._sizes is sizes
    assert [(pace.batch, pace._level) for pace in pacer.paces.values()] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("factor", "ratio"), [(0.1, 2.0), (1.0, 20.0), (4.0, MOST_RATIO), (0.0, LEAST_RATIO)])
def test_with_other_sizes_messages_cost_as_much_more_or_less_until_that_is_learnt_anew(
    factor: float, ratio: float
) -> None:
    pacer = pacer_of(_ratio=20.0, _wire=500_000.0, _learnt_from=25_000.0)
    pacer.set_sizes(SIZES, factor)
    assert (pacer._ratio, pacer._wire, pacer._learnt_from) == (ratio, 0.0, 0.0)


def test_another_limit_is_every_brokers_and_that_of_those_to_come() -> None:
    pacer = pacer_of(brokers=2)
    pacer.set_limit(50_000.0)
    assert [pace.share.limit for pace in pacer.paces.values()] == [50_000, 50_000]
    pacer.on_statistics(seen(10, leaders=(3,)))
    assert pacer.paces[3].share.limit == 50_000
    pacer.set_limit(None)
    assert pacer.paces[3].rate == inf
