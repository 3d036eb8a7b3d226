"""Which sizes a consumer fetches in that nobody tells its quota."""

from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.fetching.fetch_sizes import ONE_BATCH, OPEN, sizes_for, sizes_while_learning
from tests.unit.clients.test_consumer_sizing import FAR, NEAR, SECOND, Reader, at

LEARNED = Limit(None, None, LimitSource.LEARNED)


def learner(byte_rate: float, statistics: dict[str, Any]) -> Reader:
    """Who has learnt so much."""
    reader = Reader(sizes_for(None), statistics)
    reader.paces[1] = SimpleNamespace(rate=byte_rate, throttled_until_ms=0)
    return reader


@pytest.mark.parametrize("byte_rate", [100_000.0, 2_000_000.0, 4_000_000.0])
def test_who_has_learnt_a_limit_fetches_one_batch_at_a_time_where_that_keeps_up(byte_rate: float) -> None:
    """Of fetches of 20 ms' worth a tenth and more was cut off, of any rate above 0.8 MB/s."""
    reader = learner(byte_rate, NEAR)
    changes = 0
    for _ in range(20 * SECOND):
        reader.look(*[16_384] * 8)
        changes += reader.other(LEARNED) is not None
    assert reader.sizing.sizes.fetch_bytes == ONE_BATCH
    assert changes == 1


def test_who_has_learnt_a_limit_fetches_larger_pieces_where_one_batch_at_a_time_is_too_little() -> None:
    reader = learner(2_000_000.0, FAR)
    for _ in range(20 * SECOND):
        reader.look(*[16_384] * 3)
        reader.other(LEARNED)
    sizes = reader.sizing.sizes
    assert sizes.queue_bytes == sizes_while_learning(2_000_000.0, 1, 80.0).queue_bytes == 16 * 18_432
    # as who knows the limit
    assert sizes.fetch_bytes == sizes_for(2_000_000.0, 80.0, reader.sizing.batch_bytes).fetch_bytes > 500_000


def test_who_has_learnt_a_limit_stays_with_larger_pieces_where_it_varies() -> None:
    reader = learner(2_000_000.0, FAR)
    changes = 0
    for second in range(80):
        reader.paces[1] = SimpleNamespace(rate=(1_000_000.0, 2_000_000.0)[second // 8 % 2], throttled_until_ms=0)
        for _ in range(SECOND):
            reader.look(*[16_384] * 3)
            changes += reader.other(LEARNED) is not None
    assert changes == 2, "to one batch, and to several"


@pytest.mark.parametrize(("statistics", "round_trips_per_look"), [(FAR, 3), (at(20), 12)])
def test_who_was_never_refused_asks_for_more_until_round_trips_do_not_matter(
    statistics: dict[str, Any], round_trips_per_look: int
) -> None:
    """One batch in 20 ms was 0.8 MB/s, of a quota of 5 and of none at all."""
    reader = Reader(sizes_for(None), statistics)
    reader.paces.clear()
    found = []
    for _ in range(40 * SECOND):
        fetched = max(16_384, reader.sizing.sizes.fetch_bytes)
        reader.look(*[fetched] * round_trips_per_look)
        found += [wanted.fetch_bytes for wanted in [reader.other(LEARNED)] if wanted is not None]
    assert found == [65_536, 262_144, 1_048_576, OPEN.fetch_bytes]
    assert reader.sizing.sizes == OPEN


def test_who_is_never_refused_and_gets_little_of_what_he_asks_for_asks_for_no_more() -> None:
    reader = Reader(sizes_for(None), FAR)
    reader.paces.clear()
    for _ in range(40 * SECOND):
        reader.look(500)
        assert reader.other(LEARNED) is None


def test_a_limit_that_is_learnt_may_grow_a_little_without_another_change() -> None:
    reader = learner(4_000_000.0, NEAR)
    for _ in range(10 * SECOND):
        reader.look(*[16_384] * 8)
        reader.other(LEARNED)
    reader.paces[1] = SimpleNamespace(rate=4_500_000.0, throttled_until_ms=0)
    for _ in range(10 * SECOND):
        reader.look(*[16_384] * 8)
        assert reader.other(LEARNED) is None


@pytest.mark.parametrize("partitions", [12, 100])
def test_who_has_learnt_a_limit_does_not_fetch_small_batches_one_by_one(partitions: int) -> None:
    """Of a hundred partitions each response has 3,760 bytes of framing: of batches of 170 bytes hardly any came."""
    reader = learner(51_200.0, NEAR)
    reader.partitions = partitions
    for _ in range(20 * SECOND):
        reader.look(*[170] * 3)
        reader.other(LEARNED)
    assert reader.sizing.sizes == sizes_while_learning(51_200.0)


def test_who_has_learnt_a_limit_fetches_full_batches_of_many_partitions_one_by_one() -> None:
    reader = learner(51_200.0, NEAR)
    reader.partitions = 100
    for _ in range(20 * SECOND):
        reader.look(*[16_384] * 3)
        reader.other(LEARNED)
    assert reader.sizing.sizes.fetch_bytes == ONE_BATCH
