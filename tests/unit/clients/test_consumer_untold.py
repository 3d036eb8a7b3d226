"""What a consumer has taken before statistics are heard, and no grant has been told of yet."""

import pytest

from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from tests.unit.clients.test_consumer_core import message
from tests.unit.clients.test_consumer_core_edges import core_of, event


def test_what_no_grant_has_been_told_of_has_come_all_the_same() -> None:
    """A byte of messages seemed to cost fifty of the quota, as nearly nothing had come for what was received."""
    core = core_of()
    core.on_statistics(event(0, received=1_000, queued=(990, 1)), 0)
    core.charge([message()] * 2)
    core.grant(100)
    core.charge([message()] * 143)
    core.on_statistics(event(250, received=145_000), 250)
    assert core._pacer._ratio == pytest.approx(1.0, abs=0.01)
    core.grant(300)
    core.on_statistics(event(500, received=145_000), 500)
    assert core._pacer._ratio == pytest.approx(1.0, abs=0.01)


def test_what_was_taken_of_the_client_before_is_not_of_the_one_that_fetches_now() -> None:
    core = core_of()
    core.on_statistics(event(0), 0)
    core.charge([message()] * 100)
    core.change_sizes(FetchSizes(500_000, 70_000))
    assert core.grant(10)[1] == 0
    assert core._pacer._taken == 0
