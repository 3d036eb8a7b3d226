"""What a share consumer is given to fetch in, and whom it shares an account with."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka._model import Messages

from kclient_quota import ClientQuotaCallback, ShareConsumer
from kclient_quota.clients import shared_pace
from kclient_quota.clients.consumer import share_consumer
from kclient_quota.clients.limits import Limit
from kclient_quota.config import LimitSource
from kclient_quota.pacing.fetching.share_fetch import SharePacer
from kclient_quota.quota.callback import ClientQuotaType

LIMIT = Limit(20_000.0, None, LimitSource.CONFIG)
NONE = Limit(None, None, LimitSource.CLUSTER)


def test_fetches_are_small_under_a_limit_unless_their_size_was_set() -> None:
    small = share_consumer._sizes({"group.id": "g"}, LIMIT, learn=False)
    assert small["fetch.max.bytes"] == small["message.max.bytes"] < 16_000
    assert share_consumer._sizes({"fetch.max.bytes": 7_000}, LIMIT, learn=False) == {"fetch.max.bytes": 7_000}
    assert share_consumer._sizes({"message.max.bytes": 7_000_000, "group.id": "g"}, LIMIT, learn=False) == small
    assert share_consumer._sizes({}, NONE, learn=False) == {}
    assert share_consumer._sizes({}, NONE, learn=True)["fetch.max.bytes"] < 16_000


class Told(ClientQuotaCallback):
    """The cluster, as far as clients ask it."""

    rate = 20_000.0

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        return {}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.rate if quota_type is ClientQuotaType.FETCH else None


@pytest.fixture
def made() -> Iterator[Callable[..., ShareConsumer]]:
    """Makes consumers that have nobody to talk to."""
    consumers = []
    base = {"bootstrap.servers": "localhost:1", "group.id": "g", "client.id": "x", "enable.metrics.push": False}

    def make(**conf: Any) -> ShareConsumer:
        consumers.append(ShareConsumer({**base, **{key.replace("__", "."): value for key, value in conf.items()}}))
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()


def rate(consumer: ShareConsumer) -> float:
    return consumer.quota_state()[-1].rate


def test_whoever_a_broker_counts_together_shares_a_pace(made: Callable[..., ShareConsumer]) -> None:
    one, same = (made(consumer_byte_rate=10_000) for _ in range(2))
    other = made(consumer_byte_rate=5_000_000)
    assert one._kq_pace is same._kq_pace
    assert [rate(each) for each in (one, same, other)] == [10_000, 10_000, 5_000_000]
    users = [made(consumer_byte_rate=10_000, quota__user=user) for user in ("u1", "u2")]
    assert users[0]._kq_pace is not users[1]._kq_pace


@pytest.mark.parametrize("now", [2_000_000.0, 5_000.0], ids=["raised", "lowered"])
def test_whoever_comes_brings_the_limit_of_now(made: Callable[..., ShareConsumer], now: float) -> None:
    cluster = Told()
    first = made(client__quota__callback__class=cluster)
    cluster.rate = now
    second = made(client__quota__callback__class=cluster)
    assert first._kq_pace is second._kq_pace
    assert rate(first) == rate(second) == now
    first.close()
    second._kq_on_limit(second._kq_limit)
    assert rate(second) == now


def test_one_that_is_not_paced_does_not_let_the_others_go(made: Callable[..., ShareConsumer]) -> None:
    cluster = Told()
    first = made(client__quota__callback__class=cluster)
    made(client__quota__callback__class=cluster, quota__backoff="off")
    assert rate(first) == 20_000


def test_a_forked_child_has_accounts_of_its_own() -> None:
    """Somebody else may have held the lock of the parent's when it was forked: nobody would ever let it go."""
    key = shared_pace.PaceKey("one", "id", None, "alice")
    of_parent = shared_pace.shared_accounts(key, SharePacer(1.0))
    assert shared_pace.shared_accounts(key, SharePacer(1.0)) is of_parent
    shared_pace._after_fork()
    assert shared_pace.shared_accounts(key, SharePacer(1.0)) is not of_parent


class OnlyConsumes:
    """All of an interceptor that a share group has a use for: it has no positions to commit."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    def on_consume(self, records: list[Message]) -> list[Message]:
        self.seen += records
        return records[1:]


class Brings(confluent_kafka.ShareConsumer):
    """In place of librdkafka's: two records, and an error between them."""

    def poll(self, timeout: float = -1) -> Messages:
        first, second = (Message(topic="t", partition=0, offset=offset, value=b"v") for offset in range(2))
        return Messages([first, Message(topic="t", error=KafkaError(KafkaError._TRANSPORT)), second])


class Brought(share_consumer.PacedShareConsumer, Brings):
    """A share consumer that they come to."""


def test_interceptors_see_records_and_no_errors() -> None:
    """As those of other consumers; they had to have an `on_commit()` that nobody ever called."""
    interceptor = OnlyConsumes()
    conf = {"bootstrap.servers": "localhost:1", "group.id": "g", "quota.backoff": "off", "enable.metrics.push": False}
    consumer = Brought({**conf, "interceptor.classes": [interceptor]})
    got = list(consumer.poll(1))
    consumer.close()
    assert [message.offset() for message in interceptor.seen] == [0, 1]
    assert [(message.error() is None, message.value()) for message in got] == [(False, None), (True, b"v")]
