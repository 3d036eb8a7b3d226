"""Half of a large quota may be used without passing the queue, and no more than that however callers hurry."""

import pytest

from kclient_quota.pacing.spare import LEAST_RATE, Spare

RATE = 40_000_000.0
HALF = RATE / 2


def spare_of(rate: float | None, members: int = 1) -> Spare:
    spare = Spare()
    spare.set_limit(rate, members)
    return spare


@pytest.mark.parametrize("limit", [None, LEAST_RATE - 1])
def test_small_quotas_are_left_to_the_queue(limit: float | None) -> None:
    assert spare_of(limit).step(0, 0, 0, may=True) == 0


def test_half_a_second_of_the_quota_at_once_and_half_of_it_in_the_long_run() -> None:
    spare, used = spare_of(RATE), 0.0
    for now_ms in range(0, 20_001, 10):
        free = spare.step(now_ms, 0, 0, may=True)
        used += free
    assert used == pytest.approx(HALF * 1 + HALF * 20, rel=0.05)


def test_what_is_not_used_does_not_pile_up() -> None:
    spare = spare_of(RATE)
    left = spare.step(0, 0, 0, may=True)
    assert spare.step(600_000, left, 0, may=True) == HALF


def test_who_has_used_it_up_passes_the_queue_until_half_of_it_is_there_again() -> None:
    spare = spare_of(RATE)
    spare.step(0, 0, 0, may=True)
    assert spare.step(10, -1_000_000, 0, may=True) == 0
    assert spare.step(400, 0, 0, may=True) == 0
    assert spare.step(600, 0, 0, may=True) >= HALF / 2


def test_what_passes_the_queue_is_taken_from_it() -> None:
    spare = spare_of(RATE)
    spare.step(0, 0, 0, may=False)
    answers = [spare.step(now_ms, 0, int(RATE / 10), may=False) for now_ms in range(100, 5_000, 100)]
    assert not any(answers)
    assert spare.step(5_000, 0, 0, may=True) == 0


def test_while_something_could_be_overtaken_nothing_is_given() -> None:
    spare = spare_of(RATE)
    assert spare.step(0, 0, 0, may=False) == 0
    assert spare.step(10, 0, 0, may=True) == HALF


def test_producers_of_one_quota_share_it() -> None:
    assert spare_of(RATE, 4).step(0, 0, 0, may=True) == HALF / 4
