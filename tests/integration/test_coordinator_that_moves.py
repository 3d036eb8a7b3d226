"""The group's coordinator becomes another broker while another client fetches: it is asked where partitions begin."""

import time
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker, Intercepted
from kclient_quota.clients.consumer import Consumer
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import OffsetFetchResponse
from tests.integration.changing_quota import Changing

PARTITIONS, EACH = 3, 1_000


class Reader:
    """A consumer in a group that another client of librdkafka's fetches for."""

    def __init__(self, cluster: EmbeddedBroker, **conf: Any) -> None:
        quota = Changing()
        self.next: dict[int, int] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "client.id": "app",
                "enable.metrics.push": False,
                "client.quota.callback.class": quota,
                **conf,
            }
        )
        begun: set[int] = set()

        def ask(seen: Intercepted) -> None:
            begun.update(part.partition_index for topic in seen.request.topics for part in topic.partitions)

        # all are to be read from here on, `latest`, before there is anything
        cluster.control("ListOffsets", ask, times=None)
        self.consumer.subscribe(["orders"])
        self.until(lambda: len(begun) == PARTITIONS)
        cluster.clear_controls()
        fill(cluster)
        self.until(lambda: len(self.next) == PARTITIONS)
        quota.limit = 1_000_000
        self.until(lambda: self.consumer._kq_fetcher is not None)

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, (self.next, self.consumer.assignment())
            message = self.consumer.poll(0.1)
            if message is not None:
                partition, offset = message.partition() or 0, message.offset() or 0
                assert message.error() is None, message.error()
                assert offset == self.next.get(partition, offset)
                self.next[partition] = offset + 1


def fill(cluster: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 10})
    for number in range(EACH * PARTITIONS):
        producer.produce("orders", b"x" * 1_000, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def is_not_coordinator(code: int, request: Any) -> OffsetFetchResponse:
    """What Kafka answers of a group that it does not coordinate: of its partitions it says nothing."""
    groups = [
        OffsetFetchResponse.OffsetFetchResponseGroup(group_id=g.group_id, error_code=code) for g in request.groups
    ]
    return OffsetFetchResponse(error_code=code, groups=groups)


@pytest.mark.parametrize(
    ("protocol", "reset", "code"),
    [
        ("classic", "latest", ErrorCode.NOT_COORDINATOR),
        ("classic", "earliest", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("consumer", "earliest", ErrorCode.NOT_COORDINATOR),
    ],
)
def test_who_fetches_asks_again_where_partitions_begin(protocol: str, reset: str, code: int) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as cluster:
        reader = Reader(cluster, **{"group.protocol": protocol, "auto.offset.reset": reset})
        reader.consumer.unsubscribe()
        reader.until(lambda: not reader.consumer.assignment())
        fill(cluster)
        asked: list[None] = []

        def answer(seen: Intercepted) -> OffsetFetchResponse:
            asked.append(None)
            return is_not_coordinator(code, seen.request)

        # The member and who fetches for it ask once each; librdkafka asks again for neither.
        cluster.control("OffsetFetch", answer, times=2)
        reader.consumer.subscribe(["orders"])
        reader.until(lambda: len(asked) == 2)
        reader.until(lambda: min(reader.next.values()) == 2 * EACH)
        reader.consumer.close()
