"""Each question of certify fails whom it is meant to fail, and passes who does it right."""

from dataclasses import replace

import pytest

from kclient_quota.broker.request.controls import SeenRequest
from kclient_quota.certify import card
from kclient_quota.certify.driver import Event
from kclient_quota.certify.scenes import ALL, administering, connecting, consuming, producing, select, sharing
from kclient_quota.certify.seen import Seen, Sent
from kclient_quota.certify.verdict import Grade, agreed, failed, passed, weak, worst
from kclient_quota.errors import ConfigError

NOTHING = Seen(0, 30_000, None, 0, (), (), "", (), (), ((),))


def request(at_ms: int, api_key: int = 0, *, throttle_ms: int = 0, size: int = 1_000) -> SeenRequest:
    return SeenRequest(at_ms, api_key, 9, "app", "User:ANONYMOUS", 1, size, 100, throttle_ms)


def told(kind: str, *numbers: int, at_ms: int = 5, text: str = "") -> tuple[Event, ...]:
    return tuple(Event(at_ms, kind, number, text) for number in numbers)


def grade(judge, seen: Seen) -> Grade:
    return judge(seen).grade


GOOD = replace(NOTHING, events=told("sent", 0, 1) + told("acknowledged", 0, 1), log=((0, 1),))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(GOOD, log=((0,),)), "not in the log"),
        (replace(GOOD, log=((0, 1), (1,))), "in the log twice"),
        (replace(GOOD, events=told("sent", 0, 1) + told("acknowledged", 0)), "never reported"),
        (replace(GOOD, events=told("sent", 0, 1) + told("acknowledged", 0) + told("failed", 1)), "reported as failed"),
    ],
)
def test_a_message_is_delivered_once_and_reported(seen: Seen, words: str) -> None:
    assert grade(producing.delivered_once, GOOD) is Grade.PASS
    assert grade(producing.delivered_once, seen) is Grade.FAIL
    assert words in producing.delivered_once(seen).why


def test_order_is_per_partition() -> None:
    assert grade(producing.in_order, replace(NOTHING, log=((1, 3), (0, 2)))) is Grade.PASS
    assert grade(producing.in_order, replace(NOTHING, log=((0, 1), (4, 2)))) is Grade.FAIL


def test_silence_is_from_the_answer_to_the_end_of_the_throttle() -> None:
    throttled = replace(NOTHING, requests=(request(1_000, throttle_ms=3_000),))
    assert grade(producing.is_silent_while_muted, throttled) is Grade.PASS
    assert grade(producing.is_silent_while_muted, replace(throttled, sent=(Sent(1_050, 1, 0),))) is Grade.PASS
    assert grade(producing.is_silent_while_muted, replace(throttled, sent=(Sent(2_000, 1, 0),))) is Grade.FAIL
    assert grade(producing.is_silent_while_muted, replace(throttled, sent=(Sent(2_000, 1, 3),))) is Grade.PASS
    assert grade(producing.is_silent_while_muted, NOTHING) is Grade.FAIL


def test_a_new_connection_in_mid_throttle_is_dodging() -> None:
    throttled = replace(NOTHING, requests=(request(1_000, throttle_ms=6_000),), sent=(Sent(900, 1, 0),))
    assert grade(producing.does_not_dodge, throttled) is Grade.PASS
    assert grade(producing.does_not_dodge, replace(throttled, sent=(*throttled.sent, Sent(3_000, 2, 0)))) is Grade.FAIL
    assert grade(producing.does_not_dodge, replace(throttled, sent=(*throttled.sent, Sent(3_000, 1, 0)))) is Grade.PASS
    assert grade(producing.does_not_dodge, replace(throttled, sent=(*throttled.sent, Sent(7_500, 2, 0)))) is Grade.PASS


@pytest.mark.parametrize(("took_ms", "expected"), [(100, Grade.PASS), (12_000, Grade.WEAK), (22_000, Grade.FAIL)])
def test_close_is_prompt(took_ms: int, expected: Grade) -> None:
    seen = replace(NOTHING, told_to_stop_ms=4_000, events=told("closed", -1, at_ms=4_000 + took_ms))
    assert grade(producing.closes, seen) is expected
    assert grade(producing.closes, replace(seen, events=())) is Grade.FAIL
    assert grade(producing.closes, replace(seen, events=(*told("sent", 3), *seen.events))) is Grade.FAIL


def test_the_quota_is_used_evenly() -> None:
    judge = producing.uses(10_000)
    even = replace(NOTHING, requests=tuple(request(at_ms) for at_ms in range(0, 30_000, 100)))
    assert grade(judge, even) is Grade.PASS
    assert grade(judge, replace(even, requests=even.requests[::3])) is Grade.FAIL
    assert grade(judge, replace(even, requests=even.requests[::60])) is Grade.WEAK
    assert grade(judge, replace(even, requests=(*even.requests, request(29_999, throttle_ms=9_000)))) is Grade.WEAK


def test_everything_is_received_once() -> None:
    judge = consuming.receives(2)
    assert grade(judge, replace(NOTHING, events=told("received", 0, 1))) is Grade.PASS
    assert grade(judge, replace(NOTHING, events=told("received", 0))) is Grade.FAIL
    assert grade(judge, replace(NOTHING, events=told("received", 0, 1, 1))) is Grade.FAIL


def test_who_has_to_join_again_was_thrown_out() -> None:
    once = replace(NOTHING, requests=(request(1, 11), request(2, 11)), events=told("received", 0, at_ms=5_000))
    assert grade(consuming.stays_in_its_group, once) is Grade.PASS
    assert grade(consuming.stays_in_its_group, replace(once, requests=(request(9_000, 11),))) is Grade.FAIL
    beats = tuple(request(at_ms, 68) for at_ms in (0, 5_000, 10_000))
    assert grade(consuming.stays_in_its_group, replace(once, requests=beats)) is Grade.PASS
    assert grade(consuming.stays_in_its_group, replace(once, requests=(*beats, request(19_000, 68)))) is Grade.FAIL


def test_a_stall_is_said() -> None:
    assert grade(consuming.says_that_it_cannot, NOTHING) is Grade.FAIL
    assert grade(consuming.says_that_it_cannot, replace(NOTHING, words="over the QUOTA")) is Grade.WEAK
    assert grade(consuming.says_that_it_cannot, replace(NOTHING, events=told("said", -1, text="never"))) is Grade.PASS


def test_pushes_keep_their_interval_and_the_last_says_so() -> None:
    asked = (request(0, 71),)
    good = replace(NOTHING, requests=asked, pushes=((900, False, "a"), (1_900, False, "a"), (2_100, True, "a")))
    assert grade(administering.pushes_in_time, good) is Grade.PASS
    assert grade(administering.pushes_last, good) is Grade.PASS
    assert grade(administering.one_instance, good) is Grade.PASS
    assert (
        grade(administering.pushes_in_time, replace(good, pushes=((900, False, "a"), (1_100, False, "a"))))
        is Grade.FAIL
    )
    assert grade(administering.pushes_in_time, replace(good, pushes=((9_000, False, "a"),))) is Grade.WEAK
    assert grade(administering.pushes_last, replace(good, pushes=good.pushes[:2])) is Grade.FAIL
    assert grade(administering.pushes_last, replace(good, pushes=good.pushes[::-1])) is Grade.FAIL
    assert grade(administering.one_instance, replace(good, pushes=(*good.pushes, (3_000, False, "b")))) is Grade.FAIL
    assert grade(administering.pushes_in_time, NOTHING) is Grade.FAIL
    telemetry = next(scene for scene in ALL if scene.name == "telemetry-interval")
    assert grade(telemetry.judge, NOTHING) is Grade.ABSENT


def test_telemetry_lives_while_data_is_throttled() -> None:
    throttled = replace(NOTHING, requests=(request(1_000, throttle_ms=6_000),))
    assert grade(administering.alive_while_throttled, throttled) is Grade.FAIL
    assert grade(administering.alive_while_throttled, replace(throttled, pushes=((4_000, False, "a"),))) is Grade.PASS


def test_of_a_transaction_all_is_seen_or_nothing() -> None:
    whole = replace(NOTHING, events=told("acknowledged", *range(10)), log=(tuple(range(20)),))
    assert grade(producing.whole_transactions, whole) is Grade.PASS
    assert grade(producing.whole_transactions, NOTHING) is Grade.PASS
    for log in (tuple(range(15)), (*range(20), 3), tuple(range(10, 20))):
        assert grade(producing.whole_transactions, replace(whole, log=(log,))) is Grade.FAIL


def test_who_is_refused_does_not_come_again_in_a_hurry() -> None:
    judge = connecting.connects_calmly(10_000)
    calm = replace(NOTHING, sent=tuple(Sent(at_ms, at_ms // 200, 18) for at_ms in range(0, 20_000, 100)))
    assert grade(judge, calm) is Grade.PASS
    assert (
        grade(judge, replace(calm, sent=tuple(Sent(at_ms, at_ms, 18) for at_ms in range(0, 5_000, 20)))) is Grade.WEAK
    )


def test_a_refused_push_is_not_repeated_in_a_hurry_and_does_not_end_telemetry() -> None:
    judge = administering.goes_on_after(0)
    good = replace(
        NOTHING,
        requests=tuple(request(at_ms, 72) for at_ms in (900, 1_900, 2_900, 3_000)),
        pushes=((1_900, False, "a"), (2_900, False, "a"), (3_000, True, "a")),
    )
    assert grade(judge, good) is Grade.PASS
    assert grade(judge, replace(good, pushes=())) is Grade.FAIL
    assert grade(judge, NOTHING) is Grade.FAIL
    hurried = replace(good, requests=(request(1_000, 72), *good.requests))
    assert grade(judge, hurried) is Grade.FAIL
    assert grade(administering.goes_on_after(1), hurried) is Grade.PASS


def test_deliveries_that_nobody_saw_are_used_up() -> None:
    judge = sharing.nothing_is_used_up(2)
    good = replace(NOTHING, events=tuple(Event(5, "received", number, delivery=1) for number in (0, 1)))
    assert grade(judge, good) is Grade.PASS
    assert grade(judge, replace(good, events=(*good.events, Event(6, "received", 1, delivery=2)))) is Grade.WEAK
    assert grade(judge, replace(good, events=good.events[:1])) is Grade.FAIL


def test_a_second_member_has_its_share_soon_and_both_together_miss_nothing() -> None:
    second = told("received", 1, at_ms=9_000)
    joined = replace(NOTHING, events=told("received", 0), second=second, second_started_ms=2_000)
    judge = consuming.second_has_its_share(10)
    assert grade(judge, joined) is Grade.PASS
    assert grade(judge, replace(joined, second_started_ms=-9_000)) is Grade.WEAK
    assert grade(judge, replace(joined, second=())) is Grade.FAIL
    assert grade(judge, NOTHING) is Grade.FAIL
    assert grade(consuming.all_come(2), joined) is Grade.PASS
    assert grade(consuming.all_come(3), joined) is Grade.FAIL


def test_who_joins_by_the_classic_protocol_does_not_answer_for_the_other_one() -> None:
    judge = consuming.by_kip_848(consuming.receives(1))
    assert grade(judge, NOTHING) is Grade.FAIL
    assert grade(judge, replace(NOTHING, requests=(request(1, 11),))) is Grade.ABSENT
    assert grade(judge, replace(NOTHING, requests=(request(1, 68),))) is Grade.FAIL
    assert grade(judge, replace(NOTHING, requests=(request(1, 68),), events=told("received", 0))) is Grade.PASS


def test_who_is_starved_of_time_joins_once() -> None:
    joins = (request(1, 11), request(2, 11))
    assert grade(consuming.joins_once, replace(NOTHING, requests=(*joins, request(5, 12)))) is Grade.PASS
    assert grade(consuming.joins_once, replace(NOTHING, requests=(request(5, 68),))) is Grade.PASS
    assert grade(consuming.joins_once, replace(NOTHING, requests=joins)) is Grade.FAIL
    assert grade(consuming.joins_once, replace(NOTHING, requests=(*joins, *joins, request(5, 12)))) is Grade.FAIL


def test_the_worst_counts() -> None:
    assert worst(passed("a"), weak("b"), failed("c"), failed("d")).why == "c"
    assert worst(passed("a"), weak("b")).why == "b"


def test_names_are_unique_and_wrong_ones_are_named() -> None:
    assert len({scene.name for scene in ALL}) == len(ALL)
    assert all(scene.expects.endswith(".") and scene.source for scene in ALL)
    assert [scene.name for scene in select(["telemetry-interval"])] == ["telemetry-interval"]
    with pytest.raises(ConfigError, match="no scene 'nonsense'; known: produce-answered-then-muted"):
        select(["nonsense"])


def test_a_card_is_text_page_and_badge() -> None:
    rows = [("produce-backlog", "pass", "5 <b>", 1.0), ("produce-order-by-key", "fail", "out of order", 2.0)]
    made = card.card("a & b", rows, "1.0")
    assert card.score(made) == "1 of 2 pass, 1 fail"
    assert "fail       produce-order-by-key  out of order" in card.text(made)
    assert "a &amp; b" in card.page([made])
    assert "5 &lt;b&gt;" in card.page([made])
    assert ">1/2<" in card.badge(made)


def test_runs_that_do_not_agree_are_weak_and_say_so() -> None:
    assert agreed([passed("a"), passed("b")]) == passed("a")
    assert agreed([failed("a")] * 5).grade is Grade.FAIL
    mixed = agreed([passed("fine"), failed("lost 3"), passed("fine")])
    assert mixed == weak("not the same in 3 runs (2 pass, 1 fail); the worst: lost 3")
