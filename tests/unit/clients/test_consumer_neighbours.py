"""Consumers of one process: who of them has a part of the limit, and until when."""

import pytest

from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.shared_pace import SharedLimit
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.pacing.fetching.fetch_sizes import sizes_for
from kclient_quota.pacing.neighbours import Need

LIMIT = 100_000


def core_of(shared: SharedLimit, backoff: Backoff = Backoff.BLOCK, limit: float | None = LIMIT) -> ConsumerCore:
    found = Limit(limit, None, LimitSource.CLUSTER)
    return ConsumerCore(backoff, "app", found, sizes_for(limit), 300_000, 0, shared)


def sharers(shared: SharedLimit) -> int:
    """How many have a part, besides the one that asks."""
    return shared.part(sharers, 1, Need(True, 0, 0), LIMIT).sharers - 1


def test_each_has_a_part_from_its_making_until_it_is_closed() -> None:
    shared = SharedLimit()
    first, second = core_of(shared), core_of(shared)
    assert sharers(shared) == 2
    first.leave()
    assert sharers(shared) == 1
    second.leave()
    second.leave()
    assert sharers(shared) == 0


@pytest.mark.parametrize(("backoff", "limit"), [(Backoff.OFF, LIMIT), (Backoff.BLOCK, None)], ids=["off", "unknown"])
def test_who_is_not_paced_has_none(backoff: Backoff, limit: float | None) -> None:
    shared = SharedLimit()
    core = core_of(shared, backoff, limit)
    core.grant(1)
    assert sharers(shared) == 0
    core.leave()


def test_one_whose_limit_comes_later_has_one_from_then_on() -> None:
    shared = SharedLimit()
    late = core_of(shared, limit=None)
    late.on_limit(Limit(LIMIT, None, LimitSource.CLUSTER))
    late.grant(1_000)
    assert sharers(shared) == 1
