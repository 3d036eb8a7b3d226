"""What a share consumer is given to fetch in, and whom it shares an account with."""

from kclient_quota.clients import share_consumer
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource

LIMIT = Limit(20_000.0, None, LimitSource.CONFIG)
NONE = Limit(None, None, LimitSource.CLUSTER)


def test_fetches_are_small_under_a_limit_unless_their_size_was_set() -> None:
    small = share_consumer._sizes({"group.id": "g"}, LIMIT, learn=False)
    assert small["fetch.max.bytes"] == small["message.max.bytes"] < 16_000
    assert share_consumer._sizes({"fetch.max.bytes": 7_000}, LIMIT, learn=False) == {"fetch.max.bytes": 7_000}
    assert share_consumer._sizes({}, NONE, learn=False) == {}
    assert share_consumer._sizes({}, NONE, learn=True)["fetch.max.bytes"] < 16_000


def test_whoever_a_broker_counts_together_shares_a_pace() -> None:
    first = share_consumer._pace_of("one", LIMIT)
    assert share_consumer._pace_of("one", LIMIT) is first
    assert share_consumer._pace_of("other", LIMIT) is not first
