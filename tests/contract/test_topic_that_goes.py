"""A topic is deleted under a producer that has another one, too: that one goes on; and what is made anew is found."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kclient_quota import Producer
from tests.contract.scenes import Scenes, named

EMBEDDED = {"properties": {"auto.create.topics.enable": "false"}}  # as Apache Kafka's here
pytestmark = pytest.mark.timeout(120)
QUOTA = 50_000
GAP_S = 0.02
LONGEST_S = 4.0
"""Librdkafka tries what it has for a topic that is gone again and again, and is throttled for a second at a time."""
SETTLED_S = 5.0
"""What went before the topic was known to be another, with a number that it has no more, is reported until then."""


class Two:
    """A producer of two topics."""

    def __init__(self, cluster: Any) -> None:
        self.goes, self.stays, app = named("goes"), named("stays"), named("app")
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        self.make(self.goes, 4)
        self.make(self.stays, 4)
        cluster.set_quota(client_id=app, producer_byte_rate=QUOTA)
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "log_level": 0})
        self.longest_s = 0.0
        self.reports: dict[str, Counter[str]] = {self.goes: Counter(), self.stays: Counter()}

    def make(self, topic: str, partitions: int) -> None:
        conf = {"min.insync.replicas": "1"}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=conf)])[topic].result(20)

    def delete(self) -> None:
        self.admin.delete_topics([self.goes])[self.goes].result(20)

    def send_for(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        while time.monotonic() < until:
            for topic in self.goes, self.stays:
                began = time.monotonic()
                self.producer.produce(topic, b"x" * 400, on_delivery=self._counts(topic))
                self.producer.poll(0)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                time.sleep(GAP_S)

    def _counts(self, topic: str) -> Callable[[Any, Any], None]:
        return lambda error, _: self.reports[topic].update([error.name() if error else "delivered"])


def one_is_deleted(cluster: Any) -> None:
    two = Two(cluster)
    two.send_for(2)
    two.delete()
    two.send_for(15)
    assert two.longest_s < LONGEST_S
    assert set(two.reports[two.stays]) == {"delivered"}
    two.producer.purge()
    two.producer.close()


def one_is_made_anew_with_fewer_partitions(cluster: Any) -> None:
    two = Two(cluster)
    two.send_for(2)
    two.delete()
    two.send_for(2)
    two.make(two.goes, 1)
    two.send_for(SETTLED_S)
    assert not two.producer.flush(30)
    two.reports[two.goes].clear()
    two.send_for(5)
    assert not two.producer.flush(30)
    assert set(two.reports[two.goes]) == {"delivered"}
    assert set(two.reports[two.stays]) == {"delivered"}
    assert two.longest_s < LONGEST_S
    two.producer.close()


SCENES = [one_is_deleted, one_is_made_anew_with_fewer_partitions]


@pytest.mark.parametrize("scene", SCENES)
def test_the_other_one_goes_on(scenes: Scenes, scene: Callable[[Any], None]) -> None:
    scenes(scene)
