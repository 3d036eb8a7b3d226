"""Filling a topic that the broker asked has not heard of yet, as where the cluster has only just made it."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.filling import fill
from kclient_quota.errors import ClusterError
from kclient_quota.testing.clock import ManualClock


class EventfulClock(ManualClock):
    """Something happens at its third pause."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.pauses = 0
        self._happens = happens

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(duration_ms)
        self.pauses += 1
        if self.pauses == 3:
            self._happens()


def test_a_topic_that_comes_a_moment_later_is_waited_for() -> None:
    with EmbeddedBroker() as broker:
        clock = EventfulClock(lambda: broker.create_topic("late", 2))
        fill(broker.bootstrap_servers, "late", 30, 100, 5, clock=clock)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
        found = [consumer.get_watermark_offsets(TopicPartition("late", partition), 10) for partition in range(2)]
        consumer.close()
    assert found == [(0, 15), (0, 15)]
    assert clock.pauses == 3


def test_a_topic_that_never_comes_is_named_and_not_made() -> None:
    with EmbeddedBroker() as broker:
        clock = ManualClock()
        with pytest.raises(ClusterError, match="filling nowhere: UNKNOWN_TOPIC_OR_PARTITION"):
            fill(broker.bootstrap_servers, "nowhere", 1, 100, 1, clock=clock)
        assert clock.now_ms() == 30_000
        with pytest.raises(ClusterError, match="filling nowhere"):
            fill(broker.bootstrap_servers, "nowhere", 1, 100, 1, clock=ManualClock())
