"""Certificates that are renewed on the disk while clients run: the quota is asked for with the new ones."""

from pathlib import Path

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.wire.messages import MetadataRequest
from tests.certificates import self_signed


@pytest.fixture(name="served")
def _served(tmp_path):
    """A broker, a configuration of which the authorities' file knows another one's certificate, and the broker's."""
    other, _ = self_signed()
    certificate, key = self_signed()
    (tmp_path / "broker.pem").write_bytes(key + certificate)
    (tmp_path / "ca.pem").write_bytes(other)
    with EmbeddedBroker(topics={"t": 1}, tls_pem=tmp_path / "broker.pem") as broker:
        broker.set_quota(client_id="orders", producer_byte_rate=1_000_000)
        conf = {
            "bootstrap.servers": broker.tls_bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "client.id": "orders",
            "log_level": 0,
        }
        yield conf, Path(tmp_path / "ca.pem"), certificate


def test_who_is_made_anew_asks_with_the_new_ones_though_an_older_client_lives(served):
    conf, authorities, renewed = served
    with Producer(conf) as older:
        assert [state.limit for state in older.quota_state().values()] == [None]
        authorities.write_bytes(renewed)
        with Producer(conf) as newer:
            assert [state.limit for state in newer.quota_state().values()] == [1_000_000]


def test_the_next_connection_has_the_new_ones_and_the_old_ones_where_they_are_gone(served):
    conf, authorities, renewed = served
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        with pytest.raises(ClusterError, match="certificate verify failed"):
            client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
        authorities.write_bytes(renewed)
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
        client.close()
        authorities.unlink()
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
