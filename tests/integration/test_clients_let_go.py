"""A client that nobody holds any more is gone at once, as confluent_kafka's, not with a garbage collection.

Only one that calls its owner back, who holds it, needs that.
"""

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaException, TopicPartition

import kclient_quota
from kclient_quota.broker import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("only_what_is_new")

CLIENTS = (
    *(kclient_quota.Producer, kclient_quota.Consumer),
    *(kclient_quota.SerializingProducer, kclient_quota.DeserializingConsumer),
)


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Owner:
    """An application's object that has a client, and is called back by it."""

    def __init__(self, cls: Any, servers: str, extra: dict[str, Any]) -> None:
        reports = "on_commit" if "Consumer" in cls.__name__ else "on_delivery"
        conf: dict[str, Any] = dict.fromkeys(("error_cb", "throttle_cb", "stats_cb"), self.hear)
        conf = {"bootstrap.servers": servers, "log_level": 0, **conf, reports: self.hear, **extra}
        conf["statistics.interval.ms"] = 100
        self.client = cls({**conf, "group.id": "g"} if "Consumer" in cls.__name__ else conf)

    def hear(self, *_event: Any) -> None:
        pass


def made(cls: Any, servers: str) -> Any:
    conf: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, "enable.metrics.push": False}
    return cls({**conf, "group.id": "g"} if "Consumer" in cls.__name__ else conf)


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "a..b:1", "127.0.0.1:1,a..b:1"])
@pytest.mark.parametrize("cls", CLIENTS)
def test_a_client_that_has_reached_nobody_is_gone_with_its_last_name(cls: Any, servers: str) -> None:
    client = weakref.ref(made(cls, servers))
    assert client() is None


@pytest.mark.parametrize("cls", CLIENTS)
def test_a_client_that_has_asked_for_its_quota_is_gone_with_its_last_name(cls: Any, broker: EmbeddedBroker) -> None:
    client = weakref.ref(made(cls, broker.bootstrap_servers))
    assert client() is None


@pytest.mark.parametrize("push", [False, True])
@pytest.mark.parametrize("is_away", [True, False])
@pytest.mark.parametrize("cls", CLIENTS)
def test_a_client_that_calls_its_owner_back_is_collected_with_him(
    cls: Any, is_away: bool, push: bool, broker: EmbeddedBroker
) -> None:
    servers = "127.0.0.1:1" if is_away else broker.bootstrap_servers
    owner = Owner(cls, servers, {"enable.metrics.push": push})
    time.sleep(0.5)  # there are events by now that wait for the application
    gone = weakref.ref(owner)
    del owner
    end = time.monotonic() + 10
    while gone() is not None and time.monotonic() < end:  # a thread of ours may be serving it just now
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


@pytest.mark.parametrize("cls", CLIENTS)
def test_a_closed_client_is_gone_with_its_last_name(cls: Any, broker: EmbeddedBroker) -> None:
    client = made(cls, broker.bootstrap_servers)
    client.poll(0)
    client.close()
    gone = weakref.ref(client)
    del client
    assert gone() is None


def test_a_producer_whose_offsets_were_refused_is_gone_with_its_last_name() -> None:
    producer = kclient_quota.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "transactional.id": "t"})
    with pytest.raises(TypeError):
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], None, 0.1)
    producer.close()
    gone = weakref.ref(producer)
    del producer
    assert gone() is None


@pytest.mark.parametrize("name", ["AIOProducer", "AIOConsumer"])
@pytest.mark.parametrize("module", [confluent_kafka.aio, kclient_quota], ids=["plain", "ours"])
async def test_a_client_of_an_event_loop_whose_calls_have_failed_is_gone_with_its_last_name(
    module: Any, name: str
) -> None:
    client = made(getattr(module, name), "127.0.0.1:1")
    calls: tuple[tuple[Any, ...], ...] = (("list_topics", "t", 0.01), ("poll", "x"), ("cluster_id", None))
    for door, *args in calls:
        with pytest.raises((KafkaException, TypeError)):
            await getattr(client, door)(*args)
    await client.close()
    gone = weakref.ref(client)
    del client
    assert gone() is None
