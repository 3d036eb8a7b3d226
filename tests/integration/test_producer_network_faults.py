"""The quickest scenes of `make faults`: an idempotent producer when connections break or a broker restarts."""

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import cut_once, half_open_connections, restart_a_broker
from tests.faults.producing import play


@pytest.mark.parametrize("fault", [cut_once, half_open_connections, restart_a_broker])
def test_nothing_is_lost_doubled_reordered_or_stuck(fault):
    with Proxies(3) as proxies, EmbeddedBroker(brokers=3) as cluster:
        proxies.stand_before(cluster)
        # while nothing is answered librdkafka's threads use all there is of a core each
        ours = play(cluster, proxies, fault, idempotent=True, kinds=["ours"], socket_timeout_ms=2_000)["ours"]
    assert ours.sent > 200
    assert (ours.failed, ours.lost, ours.duplicated, ours.reordered, ours.stuck) == (0, 0, 0, 0, 0), ours
