"""`ShareConsumer` on Apache Kafka: under a quota nothing is lost, and every record's delivery count is 1."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.serialization import StringDeserializer

import kclient_quota
from benchmarks.share_groups import start_from_earliest
from kclient_quota.certify.filling import fill
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.testing.apache import ApacheKafka
from tests.required import require_apache_kafka

pytestmark = pytest.mark.timeout(180)
QUOTA = 60_000
RECORDS = 1_200
"""Twice what a window takes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafka]:
    require_apache_kafka()
    with ApacheKafka() as running:
        yield running


def _prepared(cluster: ApacheKafka, name: str, records: int, per_batch: int, **quota: float) -> dict[str, str]:
    cluster.create_topic(name, 1)
    fill(cluster.bootstrap_servers, name, records, 1_000, per_batch)
    if quota:
        cluster.set_quota(client_id=name, **quota)
    with ClusterClient({"bootstrap.servers": cluster.bootstrap_servers}, SYSTEM_CLOCK) as client:
        start_from_earliest(client, name)
    return {"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "client.id": name}


def test_nothing_is_refused_so_nothing_is_lost(cluster: ApacheKafka) -> None:
    conf = _prepared(cluster, "paced", RECORDS, 15, consumer_byte_rate=QUOTA)
    counts: dict[int, int] = {}
    consumer = kclient_quota.ShareConsumer(conf)
    try:
        consumer.subscribe(["paced"])
        until = time.monotonic() + 120
        while len(counts) < RECORDS and time.monotonic() < until:
            for message in consumer.poll(0.5):
                assert message.error() is None
                counts[message.offset()] = message.delivery_count()
        state = consumer.quota_state()[-1]
        throttled = [value for name, value in consumer.metrics().items() if name.name == "fetch-throttle-count"]
    finally:
        consumer.close()
    assert sorted(counts) == list(range(RECORDS))
    assert set(counts.values()) == {1}
    assert (state.limit, state.source, state.stall) == (QUOTA, "cluster", None)
    assert set(throttled) == {0.0}


def test_a_batch_that_fits_no_window_is_told_of_and_not_used_up(cluster: ApacheKafka) -> None:
    conf = _prepared(cluster, "huge", 450, 450, consumer_byte_rate=20_000)
    consumer = kclient_quota.ShareConsumer(conf)
    try:
        consumer.subscribe(["huge"])
        until = time.monotonic() + 60
        while consumer.quota_state()[-1].stall is None and time.monotonic() < until:
            assert len(consumer.poll(0.5)) == 0
        began = time.monotonic()
        assert len(consumer.poll(2.0)) == 0
        assert time.monotonic() - began >= 1.9
        stall = consumer.quota_state()[-1].stall
    finally:
        consumer.close()
    assert stall is not None
    assert "raise the quota" in stall


def test_without_a_quota_it_goes_straight_on_and_deserializes(cluster: ApacheKafka) -> None:
    conf = _prepared(cluster, "free", 300, 15)
    deserializer = StringDeserializer("utf_8")
    got: list[str] = []
    consumer = kclient_quota.DeserializingShareConsumer({**conf, "value.deserializer": deserializer})
    try:
        consumer.subscribe(["free"])
        until = time.monotonic() + 60
        while len(got) < 300 and time.monotonic() < until:
            got += [str(message.value()) for message in consumer.poll(1.0)]
    finally:
        consumer.close()
    assert [int(value[:10]) for value in got] == list(range(300))
