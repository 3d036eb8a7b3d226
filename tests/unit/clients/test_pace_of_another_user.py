"""Credentials of another user: from then on that one's quota is shared, and the other one's is left to others."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kclient_quota import Consumer, Producer, ShareConsumer
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource

BASE = {
    "bootstrap.servers": "localhost:1",
    "client.id": "app",
    "enable.metrics.push": False,
    "log_level": 0,
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.password": "secret",
    "quota.limit.source": "learned",
}
Make = Callable[..., Any]


@pytest.fixture
def made() -> Iterator[Make]:
    """Makes clients of a user, that have nobody to talk to."""
    clients: list[Any] = []

    def make(client: Callable[..., Any], user: str, **more: Any) -> Any:
        group = {} if client is Producer else {"group.id": "g"}
        clients.append(client({**BASE, **group, "sasl.username": user, **more}))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def pacer(producer: Producer, broker: int = 1) -> Any:
    return producer._kq_sender.core.brokers.get(broker).queue.pace._pacer


def test_a_producer_has_the_pace_of_the_user_that_it_logs_in_as(made: Make) -> None:
    """It went on with that of the one before, with whom a broker does not count it any more."""
    moving, old, new = (made(Producer, user) for user in ("u1", "u1", "u2"))
    assert pacer(moving) is pacer(old) is not pacer(new)
    moving.set_sasl_credentials("u2", "secret")
    assert pacer(moving) is pacer(new) is not pacer(old)
    assert pacer(moving, 2) is pacer(new, 2) is not pacer(old, 2)
    assert moving._kq_sender.core.shared_pace is new._kq_sender.core.shared_pace
    assert moving._kq_sender.lock is moving._kq_sender.core.shared_pace.lock
    moving.set_sasl_credentials("u1", "secret")
    assert pacer(moving) is pacer(old)


def test_what_it_hears_of_its_quota_leaves_the_others_alone(made: Make) -> None:
    moving, old, new = (made(Producer, user) for user in ("u1", "u1", "u2"))
    before = pacer(old).rate()
    moving.set_sasl_credentials("u2", "secret")
    moving._kq_hearing.on_limit(Limit(5_000.0, None, LimitSource.CLUSTER))
    assert moving._kq_tell_sender(lambda _sender: None)  # it has heard what came before this
    assert pacer(new).limit == 5_000
    assert pacer(old).limit is None
    assert pacer(old).rate() == before
    assert new._kq_hearing.is_followed(Limit(5_000.0, None, LimitSource.CLUSTER))


def test_a_consumer_shares_the_limit_of_the_user_that_it_logs_in_as(made: Make) -> None:
    moving, old, new = (made(Consumer, user) for user in ("u1", "u1", "u2"))
    pacers = [each._kq_core._pacer for each in (moving, old, new)]
    assert pacers[0].neighbours is pacers[1].neighbours is not pacers[2].neighbours
    moving.set_sasl_credentials("u2", "secret")
    assert pacers[0].neighbours is pacers[2].neighbours is not pacers[1].neighbours
    moving.set_sasl_credentials("u2", "other")
    assert pacers[0].neighbours is pacers[2].neighbours


def test_a_share_consumer_has_the_account_of_the_user_that_it_logs_in_as(made: Make) -> None:
    """What it has asked for before is answered where it was told of."""
    moving, old, new = (made(ShareConsumer, user) for user in ("u1", "u1", "u2"))
    assert moving._kq_pace is old._kq_pace is not new._kq_pace
    moving.subscribe(["t"])
    moving.poll(0.01)
    assert old._kq_pace.pacer._asking == 1
    moving.set_sasl_credentials("u2", "secret")
    assert moving._kq_pace is new._kq_pace
    assert (old._kq_pace.pacer._asking, new._kq_pace.pacer._asking) == (1, 0)
    moving.close()
    assert (old._kq_pace.pacer._asking, new._kq_pace.pacer._asking) == (0, 0)
