"""When a consumer's pacer asks for its part of a limit that several share, and what it makes of it."""

from typing import Any

from kclient_quota.pacing.fetching.fetch import FetchPacer
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from kclient_quota.pacing.neighbours import Need, Part
from tests.unit.pacing.test_fetch_edges import LIMIT, SIZES, pacer_of


class Dealer:
    """Deals half of everything, and notes who asks for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, Need, float]] = []
        self.left: list[Any] = []
        self.sharers = 2

    def part(self, who: Any, broker: int | None, need: Need, limit: float) -> Part:
        self.asked.append((broker, need, limit))
        return Part(limit / 2, self.sharers)

    def leave(self, who: Any) -> None:
        self.left.append(who)


def asked(dealer: Dealer) -> list[tuple[int | None, int]]:
    found = [(broker, need.at_ms) for broker, need, _ in dealer.asked]
    dealer.asked.clear()
    return found


def test_who_shares_a_limit_asks_at_once_with_its_first_grant_and_every_half_a_second() -> None:
    dealer = Dealer()
    pacer = FetchPacer(LIMIT, SIZES, 1_000, neighbours=dealer)
    assert dealer.asked == [(None, Need(waits=True, byte_rate=0.0, at_ms=1_000), LIMIT)]
    dealer.asked.clear()
    found = []
    for now_ms in (1_000, 1_499, 1_500, 1_501, 1_001, 1_000, 999):
        pacer.grant(now_ms, {})
        found.append(asked(dealer))
    assert found == [[(None, 1_000)], [], [(None, 1_500)], [], [], [(None, 1_000)], []]
    assert pacer.paces[-1].share.limit == 50_000
    assert pacer.paces[-1]._part == 0.5


def test_each_broker_is_asked_for_as_soon_as_it_is_known() -> None:
    dealer = Dealer()
    pacer = FetchPacer(LIMIT, SIZES, 0, neighbours=dealer)
    pacer.grant(0, {})
    dealer.asked.clear()
    pacer.on_statistics(FetchStatistics(10, 0, 0, {}, {("t", 0): 0, ("t", 1): 1}))
    pacer.grant(11, {})
    assert asked(dealer) == [(0, 11), (1, 11)]
    assert [pace.share.limit for pace in pacer.paces.values()] == [50_000, 50_000]
    pacer.grant(510, {})
    assert asked(dealer) == []
    pacer.grant(511, {})
    assert asked(dealer) == [(0, 511), (1, 511)]


def test_without_a_limit_or_neighbours_nobody_is_asked() -> None:
    dealer = Dealer()
    pacer = FetchPacer(None, SIZES, 0, neighbours=dealer)
    pacer.grant(0, {})
    assert dealer.asked == []
    pacer.leave()
    assert dealer.left == [pacer]
    pacer_of().leave()


def test_when_more_come_than_ever_throttles_say_nothing_for_a_while() -> None:
    dealer = Dealer()
    dealer.sharers = 1
    pacer = FetchPacer(LIMIT, SIZES, 0, neighbours=dealer)
    found = []
    for now_ms, sharers in ((0, 1), (500, 2), (1_000, 2), (1_500, 1), (2_000, 2), (2_500, 3)):
        dealer.sharers = sharers
        pacer.grant(now_ms, {})
        found.append((pacer._most_sharers, pacer._blind_at_ms))
    assert found == [(1, None), (2, 500), (2, 500), (2, 500), (2, 500), (3, 2_500)]
