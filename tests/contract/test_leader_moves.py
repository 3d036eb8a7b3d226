"""Apache Kafka moves a partition's leadership to another broker while a throttled producer writes: it is followed."""

import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from kclient_quota.clients.producer import Producer, routes
from tests.read_committed import committed

QUOTA = 40_000
PAD = b"x" * 994


class Writer:
    """A throttled producer of keyed messages: what became of them, and for which brokers they waited."""

    def __init__(self, cluster: Any) -> None:
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app", "linger.ms": 0}
        self.producer = Producer({**conf, "enable.metrics.push": False})
        self.failed: list[str] = []
        self.sent = 0

    def write_for(self, seconds: float) -> dict[int, int]:
        """Write; returns how many bytes were admitted for each broker that was given any."""
        before = self._admitted()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.producer.produce("orders", b"%06d" % self.sent + PAD, b"key", on_delivery=self._on_delivery)
            self.sent += 1
        given = {node: count - before.get(node, 0) for node, count in self._admitted().items()}
        return {node: count for node, count in given.items() if count}

    def _admitted(self) -> dict[int, int]:
        return {node: state.admitted for node, state in self.producer.quota_state().items()}

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed.append(error.name())


def leader(cluster: Any) -> int:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("orders", timeout=60)
    return int(found.topics["orders"].partitions[0].leader)


def move(cluster: Any, node: int) -> None:
    """Give the partition, and so its leadership, to another broker."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        admin.alter_partition_reassignments({TopicPartition("orders", 0): [node]})
    finally:
        admin.close()
    deadline = time.monotonic() + 60
    while leader(cluster) != node:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# The embedded broker cannot reassign replicas; where its leaders move, a broker has stopped.
@pytest.mark.parametrize("broker_kind", ["apache-kafka"])
def test_a_leader_that_moves_is_followed_and_its_own_quota_waited_for(
    three_brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "ROUTE_MS", 500)  # half a minute in an application
    three_brokers.create_topic("orders", 1)
    three_brokers.set_quota(client_id="app", producer_byte_rate=QUOTA)
    writer = Writer(three_brokers)
    old = leader(three_brokers)
    new = 1 + old % 3
    writer.write_for(3)
    assert set(writer.write_for(1)) == {old}
    move(three_brokers, new)
    deadline = time.monotonic() + 60
    while set(writer.write_for(1)) != {new}:
        assert time.monotonic() < deadline
    given = writer.write_for(3)
    # All that is written now waits for the new leader, which has a quota of its own.
    assert set(given) == {new}
    assert given[new] < 3 * QUOTA * 3
    state = writer.producer.quota_state()[new]
    assert (state.limit, state.source) == (QUOTA, "cluster")
    assert writer.producer.flush(60) == 0
    writer.producer.close()
    assert writer.failed == []
    assert [value[:6] for value in committed(three_brokers, "orders")] == [b"%06d" % n for n in range(writer.sent)]
