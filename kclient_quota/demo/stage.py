"""Where a demo plays: the embedded broker by default, or a cluster of the user's."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaAlterationOp
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.clients import KafkaException, PlainConsumer, PlainProducer, TopicPartition
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.messages import CreateTopicsRequest, DeleteTopicsRequest

# The demo's own reading and loading tells nobody anything, and says nothing between the tables.
QUIET = {"enable.metrics.push": False}
READER = {
    "client.id": "kclient-quota-demo-reader",
    "enable.auto.commit": False,
    "group.id": "kclient-quota-demo-reader",
    **QUIET,
}
_CALL_S = 10.0


class QuotaSetter(Protocol):
    """Sets or, with None, removes one quota of one client-id."""

    def __call__(self, client_id: str, key: str, value: float | None) -> None:
        """Do it, or raise ClusterError."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster that scenes may use.

    Attributes:
        bootstrap_servers: its address.
        name: what a report calls it.
        set_quota: how quotas are set on it.
        create_topic: how topics are made on it: name and number of partitions.
    """

    bootstrap_servers: str
    name: str
    set_quota: QuotaSetter
    create_topic: Any

    def preload(self, topic: str, messages: int, message_bytes: int, per_batch: int) -> None:
        """Fill a topic, `per_batch` messages to a batch, under a client-id without a quota.

        Raises:
            ClusterError: not every message was acknowledged in time.
        """
        producer = PlainProducer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": "kclient-quota-demo-loader",
                **QUIET,
                "linger.ms": 1000,
                "batch.num.messages": per_batch,
                "batch.size": per_batch * (message_bytes + 100) + 200,
            }
        )
        for number in range(messages):
            payload = f"{number:012d}".encode().ljust(message_bytes, b".")
            producer.produce(topic, payload, key=str(number), partition=0)
            if (number + 1) % per_batch == 0:
                # One flush per batch makes batches of exactly the size that the scene speaks of.
                producer.flush(_CALL_S)
        if producer.flush(_CALL_S):
            raise ClusterError(f"{self.bootstrap_servers} did not acknowledge the demo's own messages in {_CALL_S:g} s")

    def stored_ids(self, topic: str) -> Counter[int]:
        """Read a topic from beginning to end and count each message id."""
        consumer = PlainConsumer({"bootstrap.servers": self.bootstrap_servers, **READER})
        try:
            return _count_ids(consumer, topic)
        except KafkaException as error:
            raise ClusterError(f"{topic} cannot be read back: {error}") from error
        finally:
            consumer.close()


def _count_ids(consumer: Any, topic: str) -> Counter[int]:
    counted: Counter[int] = Counter()
    partitions = consumer.list_topics(topic, timeout=_CALL_S).topics[topic].partitions
    ends = {}
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_CALL_S)
        if high > low:
            ends[number] = high
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    while ends:
        messages = consumer.consume(1000, 2.0)
        if not messages:
            break
        for message in messages:
            counted[int(message.key())] += 1
            if message.offset() + 1 >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
    return counted


@contextlib.contextmanager
def embedded() -> Iterator[Stage]:
    """The embedded broker, for as long as the context lasts."""
    from kclient_quota.broker import EmbeddedBroker  # noqa: PLC0415 - a demo on a real cluster needs no broker

    with EmbeddedBroker() as cluster:

        def set_quota(client_id: str, key: str, value: float | None) -> None:
            limits: dict[str, Any] = {key: value}
            cluster.set_quota(client_id=client_id, **limits)

        def create_topic(name: str, partitions: int) -> None:
            cluster.create_topic(name, partitions)

        yield Stage(cluster.bootstrap_servers, "the embedded broker", set_quota, create_topic)


@contextlib.contextmanager
def real(bootstrap_servers: str) -> Iterator[Stage]:
    """A cluster of the user's; quotas and topics that the demo made are taken away at the end.

    Raises:
        ClusterError: it cannot be reached, or refuses.
    """
    conf = {"bootstrap.servers": bootstrap_servers}
    topics: list[str] = []
    quotas: set[tuple[str, str]] = set()
    with QuotaAdmin(conf) as admin, ClusterClient(conf, SYSTEM_CLOCK) as client:

        def set_quota(client_id: str, key: str, value: float | None) -> None:
            entity = ClientQuotaEntity.of(client_id=client_id)
            alteration = ClientQuotaAlteration(entity, (ClientQuotaAlterationOp(key, value),))
            admin.alter_client_quotas([alteration])[entity].result()
            quotas.add((client_id, key))

        def create_topic(name: str, partitions: int) -> None:
            topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=round(_CALL_S * 1000))
            (result,) = client.ask_controller(request).topics
            if result.error_code:
                raise ClusterError(
                    f"topic {name} cannot be created: {result.error_message}", error_code=result.error_code
                )
            topics.append(name)

        try:
            yield Stage(bootstrap_servers, bootstrap_servers, set_quota, create_topic)
        finally:
            for client_id, key in tuple(quotas):
                set_quota(client_id, key, None)
            client.ask_controller(DeleteTopicsRequest(topic_names=topics, topics=_named(topics), timeout_ms=30_000))


def _named(topics: list[str]) -> list[DeleteTopicsRequest.DeleteTopicState]:
    return [DeleteTopicsRequest.DeleteTopicState(name=name) for name in topics]
