"""A client that nobody holds any more is gone at once, as confluent_kafka's, not with a garbage collection."""

import gc
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
