"""A batch's bytes on the wire, against least squares over everything that was observed, and at every bound."""

from collections.abc import Sequence

import pytest

from kclient_quota.pacing.sending.batch_cost import BatchCost

Seen = tuple[int, int, int, float, int]
"""Batches, raw bytes, bytes on the wire, bytes of a message, worth."""


def fitted(seen: Sequence[Seen], *, compressed: bool, names: float = 60.0) -> tuple[float, float]:
    """Overhead and part by the definition: every observation with its weight, nothing carried along."""
    framing = 90.0 + names
    weights = [0.875 ** sum(later[4] for later in seen[index + 1 :]) for index in range(len(seen))]
    batches, raw, wire = (sum(w * one[which] for w, one in zip(weights, seen, strict=True)) for which in range(3))
    xs = [one[0] / one[1] for one in seen]
    ys = [(one[2] - framing * one[0]) / one[1] for one in seen]
    count = sum(weights)
    x = sum(w * each for w, each in zip(weights, xs, strict=True)) / count
    y = sum(w * each for w, each in zip(weights, ys, strict=True)) / count
    spread = sum(w * (each - x) ** 2 for w, each in zip(weights, xs, strict=True))
    both = sum(w * (one - x) * (two - y) for w, one, two in zip(weights, xs, ys, strict=True))
    doubt = 0.01 * x * x
    first = (both + doubt * min(140.0, seen[-1][3])) / (spread + doubt)
    saves = compressed and (wire - framing * batches) / raw < 0.9375
    overhead = min(framing + (max(first, 60.0 - framing) if saves else 0.0), 0.9 * wire / batches, 4_000.0)
    return overhead, min(max((wire - overhead * batches) / raw, 0.005), 1.5)


SIMILAR = [(10, 10_000, 6_000, 1_000, 1), (5, 9_000, 5_000, 800, 1), (20, 4_000, 6_000, 300, 1)]
SMALL = [(1, 300, 300, 30, 1), (1, 900, 500, 30, 1), (2, 500, 560, 30, 1), (3, 5_000, 2_600, 60, 1)]
FEW_SAVED = [(1, 10_000, 9_350, 40, 1), (1, 2_000, 2_150, 40, 1)]
TWO_SIZES = [(1, 1_000, 2_010, 900, 1), (1, 10_000, 5_600, 900, 1)]
FIRST = [(10, 10_000, 6_000, 1_000, 1)]
LARGER_IS_WORSE = [(1, 3_000, 1_000, 1_000, 1), (1, 30_000, 16_000, 1_000, 1)]
HUGE = [(1, 20_000, 7_000, 15_000, 1), (1, 200_000, 25_000, 15_000, 1)]
WIRE_BOUND = [(10, 4_000, 2_000, 300, 1)]
ALL_SAVED = [(1, 1_000_000, 2_000, 1_000, 1)]
NOTHING_SAVED = [(1, 1_000, 3_000, 100, 1)]


@pytest.mark.parametrize("names", [60.0, 20.0, 0.0])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    "seen",
    [
        FIRST, SIMILAR, SMALL, FEW_SAVED, TWO_SIZES, LARGER_IS_WORSE, HUGE, WIRE_BOUND, ALL_SAVED, NOTHING_SAVED,
        [(*one[:4], 3) for one in SIMILAR],
        [(*one[:4], 2) for one in SMALL],
    ],
)  # fmt: skip
def test_what_is_learnt_is_the_line_through_all_that_was_seen(
    seen: Sequence[Seen], compressed: bool, names: float
) -> None:
    cost = BatchCost(compressed=compressed)
    cost.names_bytes = names
    for number, (batches, raw, wire, message, worth) in enumerate(seen, 1):
        cost.observe(batches, raw, wire, message, worth=worth)
        assert (cost.overhead, cost.part) == pytest.approx(
            fitted(seen[:number], compressed=compressed, names=names), rel=1e-9
        )


def test_each_of_the_bounds_is_reached() -> None:
    """Otherwise the comparison above would say nothing of them."""

    def learnt(seen: Sequence[Seen]) -> tuple[float, float]:
        cost = BatchCost(compressed=True)
        for batches, raw, wire, message, worth in seen:
            cost.observe(batches, raw, wire, message, worth=worth)
        return cost.overhead, cost.part

    assert learnt(LARGER_IS_WORSE)[0] == 60.0
    assert learnt(HUGE)[0] == 4_000.0
    assert learnt(WIRE_BOUND) == pytest.approx((180.0, 0.05))
    assert learnt(ALL_SAVED)[1] == 0.005
    assert learnt(NOTHING_SAVED) == (150.0, 1.5)


def test_before_anything_is_known() -> None:
    plain, compressed = BatchCost(), BatchCost(compressed=True)
    assert (plain.overhead, plain.part, plain.names_bytes) == (150.0, 1.0, 60.0)
    assert (compressed.overhead, compressed.part, compressed.names_bytes) == (290.0, 1.0, 60.0)
    assert (plain.compresses, compressed.compresses) == (False, True)
    assert not plain.is_learnt


def test_what_batches_take() -> None:
    cost = BatchCost()
    assert (cost.wire(100), cost.wire(100, 3), cost.wire(0)) == (250.0, 550.0, 150.0)
    cost.overhead, cost.part = 200.0, 0.25
    assert (cost.wire(1_000), cost.wire(1_000, 2)) == (450.0, 650.0)


def test_more_than_twice_of_what_was_foretold_is_dear() -> None:
    cost = BatchCost()
    assert not cost.is_dear(800, 100, 2)
    assert cost.is_dear(800.001, 100, 2)
    cost.overhead, cost.part = 100.0, 0.25
    assert not cost.is_dear(700, 1_000, 1)
    assert cost.is_dear(701, 1_000, 1)


def test_less_than_half_of_the_least_framing_is_nothing_of_what_was_granted() -> None:
    cost = BatchCost(compressed=True)
    assert cost.is_none(29, 1)
    assert not cost.is_none(30, 1)
    assert cost.is_none(299, 10)
    assert not cost.is_none(0, 0), "nothing has gone anywhere"
    assert not cost.is_none(0, -1)


def test_less_than_half_of_what_the_messages_alone_were_to_take_is_cheap_once_anything_is_known() -> None:
    cost = BatchCost(compressed=True)
    assert not cost.is_cheap(1, 1_000)
    cost.observe(1, 100_000, 50_290)
    cost.part = 0.5
    assert not cost.is_cheap(250, 1_000)
    assert cost.is_cheap(249, 1_000)
    assert not cost.is_cheap(0, 0)


@pytest.mark.parametrize(
    ("batches", "raw", "wire"), [(0, 100, 100), (-1, 100, 100), (1, 0, 100), (1, -1, 100), (1, 100, 0), (1, 100, -1)]
)
def test_what_is_none_teaches_nothing(batches: int, raw: int, wire: int) -> None:
    cost = BatchCost(compressed=True)
    cost.observe(batches, raw, wire)
    assert (cost.overhead, cost.part, cost.is_learnt) == (290.0, 1.0, False)


def test_one_batch_of_one_byte_teaches() -> None:
    cost = BatchCost()
    cost.observe(1, 1, 1)
    assert cost.is_learnt
    assert (cost.overhead, cost.part) == pytest.approx((0.9, 0.1))


def test_without_a_word_a_message_has_140_bytes_and_an_observation_is_one() -> None:
    silent, told = BatchCost(compressed=True), BatchCost(compressed=True)
    for batches, raw, wire, *_ in SIMILAR:
        silent.observe(batches, raw, wire)
        told.observe(batches, raw, wire, 140.0, worth=1)
    assert (silent.overhead, silent.part) == (told.overhead, told.part)
    assert silent.overhead == pytest.approx(fitted([(*one[:3], 140.0, 1) for one in SIMILAR], compressed=True)[0])


def test_what_takes_fifteen_parts_in_sixteen_beside_its_framing_does_not_compress() -> None:
    for wire, compresses in ((1_650, False), (1_649, True), (1_651, False)):
        cost = BatchCost(compressed=True)
        cost.observe(1, 1_600, wire, 50)
        assert cost.compresses is compresses


def test_what_is_forgotten_counts_for_nothing() -> None:
    fresh, forgetful = BatchCost(compressed=True), BatchCost(compressed=True)
    for batches, raw, wire, message, _ in TWO_SIZES:
        forgetful.observe(batches, raw, wire, message)
    before = forgetful.overhead, forgetful.part
    forgetful.forget()
    assert (forgetful.overhead, forgetful.part) == before
    assert not forgetful.is_learnt
    assert forgetful.compresses
    for cost in (fresh, forgetful):
        for batches, raw, wire, message, _ in SMALL:
            cost.observe(batches, raw, wire, message)
    assert (fresh.overhead, fresh.part) == (forgetful.overhead, forgetful.part)


def test_an_exact_line_is_found_exactly_once_much_of_it_was_seen() -> None:
    """150 of framing, 130 for the first message, 0.4 for each byte."""
    cost = BatchCost(compressed=True)
    for number in range(200):
        raw = (1_000, 30_000)[number % 2]
        cost.observe(1, raw, round(280 + 0.4 * raw), 500)
    assert cost.overhead == pytest.approx(280, abs=1)
    assert cost.part == pytest.approx(0.4, rel=1e-3)
