"""Turns by what everybody has had, against a model that forgets nothing, and what is carried along for them."""

import random

import pytest

from kclient_quota.pacing.fair import Fair


class Model:
    """Everybody's virtual time, for ever."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times: dict[int, float] = {}
        self.waiting: set[int] = set()

    def begins(self, who: int) -> float:
        return max(self.times.get(who, 0.0), self.now)

    def join(self, who: int) -> None:
        if who not in self.waiting:
            self.waiting.add(who)
            self.times[who] = self.begins(who)

    def leave(self, who: int) -> None:
        self.waiting.discard(who)

    def first(self) -> set[int | None]:
        """All who may be."""
        least = min((self.times[who] for who in self.waiting), default=0.0)
        return {who for who in self.waiting if self.times[who] == least} or {None}

    def charge(self, who: int, cost: float) -> None:
        at = self.begins(who)
        if who in self.waiting:
            self.now = at
        self.times[who] = at + cost

    def serve(self, who: int, cost: float, *, is_done: bool) -> None:
        self.now = self.times[who]
        self.times[who] = self.now + cost
        if is_done:
            self.leave(who)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("many", [3, 12])
def test_whatever_happens_it_is_the_turn_of_who_has_had_least(seed: int, many: int) -> None:
    chance = random.Random(seed)
    fair: Fair[int] = Fair()
    model = Model()
    for _ in range(60):
        who, cost = chance.randrange(many), chance.choice((0.0, 0.5, 1.0, 2.0, 7.0))
        match chance.randrange(6):
            case 0 | 1:
                fair.join(who)
                model.join(who)
            case 2:
                fair.leave(who)
                model.leave(who)
            case 3:
                fair.charge(who, cost)
                model.charge(who, cost)
            case _:
                served = fair.first()
                if served is not None:
                    is_done = chance.random() < 0.3
                    fair.serve(served, cost, is_done=is_done)
                    model.serve(served, cost, is_done=is_done)
        assert fair.first() in model.first()
        assert len(fair) == len(model.waiting)
        assert [who in fair for who in range(many)] == [who in model.waiting for who in range(many)]


def test_nobody_waits_at_first_and_who_joins_twice_waits_once() -> None:
    fair: Fair[str] = Fair()
    assert fair.first() is None
    assert len(fair) == 0
    fair.join("a")
    fair.join("b")
    fair.join("a")
    assert (len(fair), fair.first()) == (2, "a")
    fair.leave("a")
    assert (len(fair), fair.first(), "a" in fair, "b" in fair) == (1, "b", False, True)


@pytest.mark.parametrize("served", [0, 1, 2])
def test_of_those_who_have_had_the_same_it_is_the_turn_of_who_came_first(served: int) -> None:
    fair: Fair[str] = Fair()
    for who in ("c", "a", "b"):
        fair.join(who)
    order = []
    for turn in range(6):
        who = fair.first() or ""
        order.append(who)
        if turn % 2 < served:
            fair.serve(who, 1.0, is_done=False)
        else:
            fair.charge(who, 1.0)
    assert order == ["c", "a", "b"] * 2


def test_who_was_charged_alone_is_not_in_debt_to_one_who_comes_later() -> None:
    fair: Fair[str] = Fair()
    fair.join("a")
    for _ in range(5):
        fair.charge("a", 1.0)
    fair.join("b")
    assert fair.first() == "b"
    fair.charge("b", 1.0)  # a had four when it was served last, so that b begins there
    assert fair.first() == "a"
    fair.charge("a", 1.0)
    assert fair.first() == "b"


def test_who_is_ahead_stays_ahead_when_he_leaves_and_comes_again() -> None:
    fair: Fair[str] = Fair()
    fair.join("a")
    fair.charge("a", 10.0)
    fair.leave("a")
    fair.join("b")
    fair.join("a")
    for _ in range(10):
        assert fair.first() == "b"
        fair.charge("b", 1.0)
    assert fair.first() == "a"


def test_who_leaves_without_being_ahead_is_forgotten() -> None:
    fair: Fair[str] = Fair()
    fair.join("a")
    fair.leave("a")
    assert fair._times == {}
    fair.leave("nobody")
    fair.join("a")
    fair.charge("a", 1.0)
    fair.leave("a")
    assert fair._times == {"a": 1.0}
    fair.join("b")
    fair.charge("b", 1.0)
    fair.charge("b", 1.0)
    fair.leave("a")
    assert fair._times == {"b": 2.0}


def test_what_is_out_of_date_is_swept_out_when_it_is_more_than_all_that_wait_twice_and_sixty_four() -> None:
    for waiting in (1, 3, 40):
        fair: Fair[int] = Fair()
        for who in range(waiting):
            fair.join(who)
        lengths = []
        for _ in range(200):
            fair.charge(0, 0.0)
            lengths.append(len(fair._heap))
        most = 2 * waiting + 64
        assert lengths[: most - waiting] == list(range(waiting + 1, most + 1))
        assert lengths[most - waiting] == waiting
        assert lengths[most - waiting + 1] == waiting + 1
        assert max(lengths) == most


def test_after_what_is_out_of_date_was_swept_out_turns_are_as_before() -> None:
    fair: Fair[int] = Fair()
    for who, cost in enumerate((3.0, 1.0, 2.0)):
        fair.join(who)
        fair.charge(who, cost)
    for _ in range(66):
        fair.charge(0, 0.0)
    assert len(fair._heap) < 20
    order = []
    while (served := fair.first()) is not None:
        order.append(served)
        fair.leave(served)
    assert order == [1, 2, 0]


@pytest.mark.parametrize("by_serving", [True, False])
def test_times_of_those_who_are_gone_are_swept_out_when_they_are_more_than_twice_those_left_and_sixty_four(
    by_serving: bool,
) -> None:
    fair: Fair[int] = Fair()

    def come_and_go(who: int, cost: float) -> int:
        fair.join(who)
        assert fair.first() == who
        if by_serving:
            fair.serve(who, cost, is_done=True)
        else:
            fair.charge(who, cost)
            fair.leave(who)
        return len(fair._times)

    # served at 0, and ahead of it: nobody is swept out, but it is looked for them at 65, and then at twice that and 65
    assert [come_and_go(who, 1.0) for who in range(65)] == list(range(1, 66))
    assert fair._swept == 65
    assert [come_and_go(65 + who, 1.0) for who in range(129)] == list(range(66, 195))
    assert fair._swept == 65
    assert come_and_go(194, 1.0) == 195
    assert fair._swept == 195
    fair._swept = 40
    fair._times.clear()
    assert [(come_and_go(who, 1.0), fair._swept) for who in range(145)][-2:] == [(144, 40), (145, 145)]
    # one who comes at 1 or later leaves all of them behind
    fair.join(0)
    assert fair._times[0] == 1.0
    fair.serve(0, 1.0, is_done=False)
    fair._swept = 0
    fair.leave(1)
    assert fair._times == {0: 2.0}
    assert fair._swept == 1


def test_who_waits_keeps_his_time_when_others_are_swept_out() -> None:
    fair: Fair[int] = Fair()
    fair.join(-1)
    fair.join(-2)
    fair.charge(-2, 5.0)
    for who in range(70):
        fair.charge(who, 1.0)
    fair.charge(-1, 4.0)
    fair.charge(-2, 0.0)  # the time is five now
    fair.leave(0)
    assert fair._times == {-1: 4.0, -2: 5.0}
    assert fair.first() == -1
