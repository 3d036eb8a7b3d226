"""What a producer's core lets through, says and forgets just below, at and above its bounds."""

from math import inf

import pytest

from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.producer.core import CALM_MS, ENOUGH_BYTES, FIRST_MS, MOST_FREE_BYTES, TURN_MS, ProducerCore
from kclient_quota.clients.producer.routes import NO_BROKER
from kclient_quota.config import LimitSource
from tests.unit.clients.producer_world import LIMITED, NONE, core_of, message


def told(rate: float | None) -> Limit:
    return Limit(rate, None, LimitSource.CLUSTER)


@pytest.mark.parametrize(
    ("rate", "free"),
    [(None, 1_000_000), (4.0, 1), (4_000, 1_000), (3_999_996, 999_999), (4_000_000, 1_000_000), (8e6, 1_000_000)],
)
def test_a_quarter_second_of_the_quota_may_come_before_there_is_a_queue(rate: float | None, free: int) -> None:
    assert (FIRST_MS, MOST_FREE_BYTES) == (250, 1_000_000)
    core = core_of(told(rate))
    assert core.free_bytes(0) == free
    core.is_careful = True
    assert core.free_bytes(0) == 0


def test_nothing_more_comes_unasked_while_a_throttle_lasts_longer_than_what_may_wait() -> None:
    core = core_of(LIMITED, max_delay_ms=1_000)
    core.on_throttle(1, 3_000, 0)
    assert core.free_bytes(1_999) == 0
    assert core.free_bytes(2_000) > 0
    assert core.offer(message(10, 1_999), 1_999, is_patient=False) == 1_001
    assert core.offer(message(10, 2_000), 2_000, is_patient=False) == 0


def test_who_was_throttled_is_limited_until_it_was_calm_for_a_minute() -> None:
    assert CALM_MS == 60_000
    core = core_of(NONE)
    assert not core.is_limited(0)
    core.on_throttle(1, 100, 50)
    assert core.throttled_at_ms == 150
    assert core.is_limited(60_149)
    assert not core.is_limited(60_150)
    core.on_throttle(2, 10, 60)
    assert core.throttled_at_ms == 150  # the latest end counts
    core.on_throttle(2, 100, 60)
    assert core.throttled_at_ms == 160


def test_who_knows_of_no_quota_is_limited_until_enough_went_through_unthrottled() -> None:
    core = core_of(UNKNOWN)
    broker = core.brokers.get(NO_BROKER)
    core.on_delivered(broker, ENOUGH_BYTES - 1, 0)
    assert core.is_limited(0)
    core.on_delivered(broker, 1, 0)
    assert not core.is_limited(0)
    core.on_throttle(NO_BROKER, 10, 0)
    core.on_delivered(broker, ENOUGH_BYTES - 1, 100_000)
    assert core.is_limited(100_000)
    core.on_delivered(broker, 1, 100_000)
    assert not core.is_limited(100_000)


def throttled(busy: int | None = None) -> ProducerCore:
    core = core_of(LIMITED)
    core.brokers.is_split = True
    for number, throttle_ms in ((1, 100), (2, 200), (3, 300)):
        core.on_throttle(number, throttle_ms, 0)
    if busy is not None:
        core.brokers.get(busy).queue.offer(message(10, 0, partition=0))
    return core


def test_throttles_of_all_brokers_or_of_those_that_have_something_to_do() -> None:
    assert throttled().throttles_ms(10) == [90, 190, 290]
    assert throttled().throttles_ms(10, busy=True) == [90, 190, 290]  # nobody is, so that it may be any
    assert throttled(busy=2).throttles_ms(10) == [90, 190, 290]
    assert throttled(busy=2).throttles_ms(10, busy=True) == [190]
    assert throttled().throttles_ms(150) == [0, 50, 150]


def test_bytes_of_a_broker_that_nobody_knows_are_passed_over() -> None:
    core = core_of(LIMITED)
    core.brokers.is_split = True
    core.on_wire([(7, 1_000)], 0)
    assert core.brokers.known(7) is None
    assert len(core.brokers) == 0


BY_REQUESTS = Limit(None, 5.0, LimitSource.CLUSTER)


class _Pace:
    def __init__(self) -> None:
        self.limits: list[tuple[float | None, int]] = []
        self.is_let_go = False

    def set_limit(self, limit: float | None, now_ms: int) -> None:
        self.limits.append((limit, now_ms))

    def let_go(self) -> None:
        self.is_let_go = True


@pytest.mark.parametrize(
    ("before", "after", "follows", "lets_go"),
    [
        (told(10.0), told(10.0), False, False),
        (told(10.0), told(20.0), True, False),
        (told(20.0), told(10.0), True, False),
        (told(None), told(10.0), True, False),
        (told(10.0), told(None), True, True),
        (told(None), UNKNOWN, True, False),  # that nothing limits is something else than that nothing is known
        (UNKNOWN, told(None), True, True),
        (Limit(10.0, None, LimitSource.CLUSTER), Limit(10.0, 5.0, LimitSource.CLUSTER), True, False),
        (told(10.0), BY_REQUESTS, True, True),
        (told(None), BY_REQUESTS, True, True),  # throttles that seemed to be of bytes were of requests
        (BY_REQUESTS, Limit(None, 6.0, LimitSource.CLUSTER), False, False),
    ],
)
def test_a_limit_is_followed_when_it_has_changed(
    before: Limit, after: Limit, follows: bool, lets_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(before)
    pace = _Pace()
    monkeypatch.setattr(core.brokers.get(1).queue, "pace", pace)
    core.throttled_at_ms = 3
    core.set_limit(after, 5)
    assert core.limit == after
    assert pace.limits == ([(after.byte_rate, 5)] if follows else [])
    assert pace.is_let_go is lets_go
    assert core.throttled_at_ms == (None if lets_go else 3), "a throttle was another quota's"


class _Turns:
    """Whose turn it is as the test says."""

    def __init__(self, sharers: int = 1) -> None:
        self.open = False
        self.told: list[int] = []
        self.waits = True
        self.sharers = sharers

    def may_go(self, who: object, broker: int, now_ms: int) -> bool:
        return self.open

    def on_sent(self, who: object, broker: int, nbytes: int, *, waits: bool) -> None:
        self.told.append(nbytes)
        self.waits = waits

    def join(self, who: object) -> int:
        return self.sharers


def test_who_has_no_turn_looks_again_soon_and_tells_the_others_what_it_sent() -> None:
    core, turns = core_of(LIMITED), _Turns()
    core.shared_pace = turns
    assert core.wait_ms(0) == inf
    assert core.offer(message(100, 0), 0) == 0
    assert list(core.sent(0)) == []
    assert core.wait_ms(0) == TURN_MS == 5
    turns.open = True
    (sent,) = core.sent(5)
    assert turns.told == [sent.wire_bytes]
    assert not turns.waits
    assert 0.0 < sent.fill <= 1.0


def test_a_careful_producer_has_one_message_under_way() -> None:
    core = core_of(NONE)
    core.is_careful = True
    assert core.offer(message(100, 0), 0, is_patient=False) == 0
    assert core.offer(message(100, 0), 0, is_patient=False) == 10
    (sent,) = core.sent(0)
    assert core.offer(message(100, 0), 0, is_patient=False) == 10
    core.on_delivered(sent.broker, 100, 1)
    assert core.offer(message(100, 1), 1, is_patient=False) == 0


def test_what_expires_is_looked_for_in_time() -> None:
    core = core_of(LIMITED)
    one = message(100, 0)
    one.expires_at_ms = 700
    core.shared_pace = _Turns()
    assert core.offer(one, 0) == 0
    list(core.sent(0))
    core.shared_pace = None
    core.brokers.get(NO_BROKER).wait_ms = inf
    assert (core.wait_ms(0), core.wait_ms(699), core.wait_ms(700), core.wait_ms(900)) == (700, 1, 0, 0)
    assert core.lost(699) == []
    assert [each for each, _ in core.lost(700)] == [one]
    assert core.lost(700) == []


def test_the_state_of_the_only_broker_has_the_number_that_is_given() -> None:
    core = core_of(LIMITED)
    (state,) = core.state(9, 0).values()
    assert list(core.state(9, 0)) == [9]
    assert (state.limit, state.source, state.throttled_until_ms) == (50_000, str(LimitSource.CLUSTER), 0)
    core = core_of(LIMITED)
    core.brokers.is_split = True
    core.on_throttle(4, 100, 0)
    assert {number: each.throttled_until_ms for number, each in core.state(9, 40).items()} == {4: 60}


@pytest.mark.parametrize(
    ("limit", "throttled_at_ms", "careful", "spare"),
    [
        (told(80_000_000), None, False, True),
        (told(80_000_000), 1_000, False, False),
        (told(80_000_000), -50_100, False, True),  # calm for a minute at the last step
        (told(80_000_000), -50_099, False, False),
        (told(80_000_000), None, True, False),
        (told(None), None, False, False),
        (UNKNOWN, None, False, False),
    ],
)
def test_who_may_hand_over_themselves_what_is_left_of_a_quota(
    limit: Limit, throttled_at_ms: int | None, careful: bool, spare: bool
) -> None:
    core = core_of(limit)
    core.throttled_at_ms, core.is_careful = throttled_at_ms, careful
    given = 0.0
    for now_ms in range(0, 10_000, 100):
        given = core.spare_bytes(now_ms, given, may=True)
    assert (given > 0) == spare
