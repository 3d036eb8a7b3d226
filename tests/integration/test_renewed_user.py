"""Credentials of another user: that one's quota is asked for at once, and not in up to a minute."""

import time
from collections.abc import Callable

import pytest

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker

DESCRIBE_CLIENT_QUOTAS = 48


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_the_quota_of_another_user_is_asked_for_at_once(client: Callable[..., Producer | Consumer]) -> None:
    with EmbeddedBroker(topics={"t": 1}, users={"old": "secret", "new": "other"}) as cluster:
        for user, rate in (("old", 1_000_000), ("new", 2_000_000)):
            cluster.set_quota(user=user, producer_byte_rate=rate, consumer_byte_rate=rate)
        conf = {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "old",
            "sasl.password": "secret",
            "group.id": "g",
            "log_level": 0,
        }
        if client is Producer:
            del conf["group.id"]
        with client(conf) as made:
            assert limit_of(made, lambda limit: limit is not None) == 1_000_000
            made.set_sasl_credentials("new", "other")
            assert limit_of(made, lambda limit: limit == 2_000_000) == 2_000_000
            asked = sum(seen.api_key == DESCRIBE_CLIENT_QUOTAS for seen in cluster.requests)
            made.set_sasl_credentials("new", "other")
            assert limit_of(made, lambda limit: True) == 2_000_000
            assert sum(seen.api_key == DESCRIBE_CLIENT_QUOTAS for seen in cluster.requests) == asked, "no other user"


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_who_is_let_in_with_a_renewed_password_asks_at_once(client: Callable[..., Producer | Consumer]) -> None:
    """Until then nobody had told it its quota."""
    with EmbeddedBroker(topics={"t": 1}, users={"app": "renewed"}) as cluster:
        cluster.set_quota(user="app", producer_byte_rate=1_000_000, consumer_byte_rate=1_000_000)
        conf = {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "app",
            "sasl.password": "expired",
            **({} if client is Producer else {"group.id": "g"}),
            "log_level": 0,
        }
        with client(conf) as made:
            assert limit_of(made, lambda limit: True) is None
            made.set_sasl_credentials("app", "renewed")
            assert limit_of(made, lambda limit: limit is not None) == 1_000_000


def limit_of(client: Producer | Consumer, is_so: Callable[[float | None], bool]) -> float | None:
    """What it knows, as soon as that is so, or after a while."""
    end = time.monotonic() + 20
    while True:
        found = next((state.limit for state in client.quota_state().values()), None)
        if is_so(found) or time.monotonic() > end:
            return found
        client.poll(0.02)
