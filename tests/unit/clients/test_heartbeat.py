"""When a waiting consumer touches librdkafka's timer, and when it must poll."""

import itertools

from kclient_quota.clients.heartbeat import Beat, Heartbeat


def test_the_queue_is_never_left_unpolled_for_over_a_third_of_the_interval() -> None:
    heartbeat = Heartbeat(6_000, 0)
    polls = [now_ms for now_ms in range(0, 60_000, 50) if heartbeat.due(now_ms) is Beat.POLL]
    assert len(polls) > 20
    assert max(b - a for a, b in itertools.pairwise(polls)) <= 2_050


def test_a_long_interval_does_not_make_rebalances_wait() -> None:
    heartbeat = Heartbeat(300_000, 0)
    polls = [now_ms for now_ms in range(0, 60_000, 100) if heartbeat.due(now_ms) is Beat.POLL]
    assert max(b - a for a, b in itertools.pairwise(polls)) <= 5_000


def test_what_a_poll_may_take_says_how_often_that_is_and_the_interval_how_seldom_it_may_be() -> None:
    heartbeat = Heartbeat(6_000, 0)
    heartbeat.poll_every(1_000)
    assert [now_ms for now_ms in range(0, 3_500, 50) if heartbeat.due(now_ms) is Beat.POLL] == [1_000, 2_000, 3_000]
    heartbeat.poll_every(5_000)
    assert [now_ms for now_ms in range(3_500, 9_000, 50) if heartbeat.due(now_ms) is Beat.POLL] == [5_000, 7_000]


def test_between_polls_the_timer_is_touched_and_not_more_often_than_useful() -> None:
    heartbeat = Heartbeat(300_000, 0)
    beats = [heartbeat.due(now_ms) for now_ms in range(1_000, 4_000, 10)]
    assert Beat.POLL not in beats
    assert 10 <= beats.count(Beat.TOUCH) <= 16


def test_a_real_poll_counts() -> None:
    heartbeat = Heartbeat(6_000, 0)
    heartbeat.on_poll(1_900)
    assert heartbeat.due(1_950) is Beat.NOTHING
    assert heartbeat.due(2_500) is Beat.TOUCH
    assert heartbeat.unpolled_ms(2_500) == 600
    assert heartbeat.headroom_ms(3_500) == 5_000
    assert heartbeat.headroom_ms(1_000) == 6_000


def test_the_end_of_the_interval_is_told_once_before_it_comes() -> None:
    heartbeat = Heartbeat(6_000, 0)
    told = {now_ms: left for now_ms in range(0, 9_000, 100) if (left := heartbeat.near_limit(now_ms)) is not None}
    assert told == {4_800: 1_200}
    heartbeat.on_poll(9_000)
    assert heartbeat.near_limit(13_700) is None
    assert heartbeat.near_limit(13_900) == 1_100


def test_who_polls_in_time_is_told_nothing() -> None:
    heartbeat = Heartbeat(6_000, 0)
    for now_ms in range(0, 60_000, 100):
        assert heartbeat.near_limit(now_ms) is None
        if not now_ms % 4_000:
            heartbeat.on_poll(now_ms)


def test_when_to_look_again() -> None:
    heartbeat = Heartbeat(6_000, 0)
    assert heartbeat.check_in_ms(1_000) == 3_800
    assert heartbeat.check_in_ms(5_000) == 0
    heartbeat.near_limit(5_000)
    assert heartbeat.check_in_ms(5_000) == 4_800
