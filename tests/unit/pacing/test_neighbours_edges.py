"""What each of several consumers may have, in exact numbers."""

import pytest

from kclient_quota.pacing.neighbours import Need, Neighbours, Part

LIMIT = 120_000.0


class Who:
    """A consumer."""


def part(*others: Need, broker: int | None = 1, at_ms: int = 0) -> Part:
    """What one that waits for broker 1 may have beside these."""
    neighbours, every = Neighbours(), [Who() for _ in others]
    for who, need in zip(every, others, strict=True):
        neighbours.part(who, broker, need, LIMIT)
    return neighbours.part(Who(), 1, Need(True, 0.0, at_ms), LIMIT)


@pytest.mark.parametrize(
    ("others", "byte_rate", "sharers"),
    [
        ((), 120_000.0, 1),
        ((Need(True, 70_000.0, 0),), 60_000.0, 2),
        ((Need(False, 20_000.0, 0),), 100_000.0, 1),
        ((Need(False, 60_000.0, 0),), 60_000.0, 1),
        ((Need(False, 60_001.0, 0),), 60_000.0, 1),
        ((Need(False, 59_999.0, 0),), 60_001.0, 1),
        ((Need(False, 20_000.0, 0), Need(True, 1.0, 0), Need(True, 2.0, 0)), 100_000.0 / 3, 3),
        ((Need(False, 20_000.0, 0), Need(False, 30_000.0, 0), Need(True, 2.0, 0)), 35_000.0, 2),
        ((Need(False, 50_000.0, 0), Need(False, 30_000.0, 0), Need(True, 2.0, 0)), 30_000.0, 2),
        ((Need(False, 500_000.0, 0), Need(True, 2.0, 0)), 40_000.0, 2),
    ],
)
def test_what_others_leave_is_divided_and_nobody_has_less_than_an_equal_part(
    others: tuple[Need, ...], byte_rate: float, sharers: int
) -> None:
    assert part(*others) == Part(byte_rate, sharers)


@pytest.mark.parametrize(("at_ms", "sharers"), [(2_999, 2), (3_000, 1), (-2_999, 2), (-3_000, 1), (0, 2)])
def test_a_need_goes_on_for_three_seconds(at_ms: int, sharers: int) -> None:
    assert part(Need(True, 0.0, 5_000), at_ms=5_000 + at_ms).sharers == sharers


@pytest.mark.parametrize(("broker", "sharers"), [(1, 2), (2, 1), (None, 2)])
def test_only_needs_of_the_same_broker_or_of_any_count(broker: int | None, sharers: int) -> None:
    assert part(Need(True, 0.0, 0), broker=broker).sharers == sharers


def test_what_is_needed_of_several_brokers_is_known_of_each() -> None:
    neighbours, first, second = Neighbours(), Who(), Who()
    neighbours.part(first, None, Need(True, 0.0, 0), LIMIT)
    neighbours.part(first, 1, Need(False, 30_000.0, 0), LIMIT)
    neighbours.part(first, 2, Need(False, 10_000.0, 0), LIMIT)
    assert neighbours.part(second, 1, Need(True, 0.0, 0), LIMIT) == Part(90_000.0, 1)
    assert neighbours.part(second, 2, Need(True, 0.0, 0), LIMIT) == Part(110_000.0, 1)
    assert neighbours.part(second, 3, Need(True, 0.0, 0), LIMIT) == Part(LIMIT, 1)
    neighbours.part(first, None, Need(True, 0.0, 0), LIMIT)
    assert neighbours.part(second, 3, Need(True, 0.0, 0), LIMIT) == Part(LIMIT / 2, 2)
    assert neighbours.part(second, 1, Need(True, 0.0, 0), LIMIT) == Part(90_000.0, 1)
