"""Which sizes a consumer fetches in, as it learns how far its brokers are and how large batches are."""

from typing import Any

from kclient_quota.clients.consumer.sizing import LOOKS, Sizing
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.fetch_broker import BrokerPace
from kclient_quota.pacing.fetch_sizes import OPEN, sizes_for
from kclient_quota.pacing.fetch_window import FetchWindow

QUOTA = 200_000.0
LIMIT = Limit(QUOTA, None, LimitSource.CLUSTER)
FAR: dict[str, Any] = {"brokers": {"one": {"nodeid": 1, "rtt": {"min": 80_000}}}}


def paces(batch: float = 0.0) -> dict[int, BrokerPace]:
    pace = BrokerPace(QUOTA, FetchWindow(), 0)
    pace.batch = batch
    return {1: pace}


def looked(sizing: Sizing, batch: float, times: int) -> Sizing:
    for _ in range(times):
        sizing.look(FAR, paces(batch), 0, 250)
    return sizing


def test_a_distant_brokers_batches_are_looked_at_before_fetches_are_made_larger() -> None:
    """Fetches of several assumed batches would cut the last of those that there are, which are larger: a third."""
    sizing = looked(Sizing(sizes_for(QUOTA), 0), 0.0, 5)
    assert sizing.other(LIMIT, paces().values(), 1_000) is None
    looked(sizing, 100_000, LOOKS)
    wanted = sizing.other(LIMIT, paces(100_000).values(), 2_000)
    assert wanted is not None
    assert wanted.fetch_bytes <= 50_000
    assert wanted.queue_bytes >= QUOTA * 0.08
    assert looked(sizing, 100_000, 10).other(LIMIT, paces(100_000).values(), 20_000) is None


def test_a_quota_that_comes_late_and_far_away_begins_with_fetches_that_show_how_large_batches_are() -> None:
    sizing = looked(Sizing(OPEN, 0), 1_000_000, 20)
    assert sizing.other(LIMIT, paces(1_000_000).values(), 10_000) == sizes_for(QUOTA)
    looked(sizing, 16_500, LOOKS)
    assert sizing.other(LIMIT, paces(16_500).values(), 20_000) == sizes_for(QUOTA, 80, 16_500)


def test_where_fetches_must_be_of_several_batches_anyway_the_distance_counts_at_once() -> None:
    limit = Limit(20_000_000.0, None, LimitSource.CLUSTER)
    sizing = looked(Sizing(sizes_for(limit.byte_rate), 0), 0.0, 1)
    assert sizing.other(limit, paces().values(), 1_000) == sizes_for(limit.byte_rate, 80)
