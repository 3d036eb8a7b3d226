"""What `tests/unit/pacing/test_learnt_share.py` has of smaller quotas."""

import pytest

from tests.unit.pacing.test_learnt_share import (
    DISTURBED,
    QUOTAS,
    alone_the_quota_is_found,
    strangers_come_to_fair_shares,
)


def test_alone_the_quota_is_found_and_used():
    alone_the_quota_is_found(QUOTAS[-1], DISTURBED)


@pytest.mark.parametrize("clients", [2, 8])
def test_strangers_leave_nothing_unused_and_come_to_fair_shares(clients):
    strangers_come_to_fair_shares(QUOTAS[-1], clients)
