"""Whom a client is measured with once a level's last limit is gone: Kafka 4.1 remembers the level, 4.3 does not."""

import pytest

from kclient_quota.quota.resolution import QuotaLevels, QuotaTypesEnabled


@pytest.mark.parametrize(("sticky", "tags"), [(False, ("", "app")), (True, ("alice", ""))])
def test_a_removed_level_stays_enabled_where_types_are_sticky(sticky, tags):
    levels = QuotaLevels(sticky_types=sticky)
    levels.set(("alice", None), 5.0)
    levels.remove(("alice", None))
    assert levels.tags("alice", "app") == tags


@pytest.mark.parametrize("sticky", [False, True])
def test_a_removal_of_nothing_enables_a_level_only_where_types_are_sticky(sticky):
    levels = QuotaLevels(sticky_types=sticky)
    levels.remove(("alice", None))
    assert (levels.types_enabled == QuotaTypesEnabled.NO_QUOTAS) is not sticky


def test_a_level_stays_as_long_as_one_of_its_limits():
    levels = QuotaLevels()
    for name in ("alice", "bob"):
        levels.set((name, None), 5.0)
        levels.set((name, None), 6.0)
    levels.remove(("alice", None))
    assert levels.tags("bob", "app") == ("bob", "")
    levels.remove(("bob", None))
    assert levels.tags("bob", "app") == ("", "app")
