"""`ShareConsumer` on Apache Kafka: under a quota nothing is lost."""

import gc
import time
import weakref
from collections.abc import Iterator

import pytest
from confluent_kafka.serialization import StringDeserializer

import kclient_quota
from kclient_quota.testing.apache import ApacheKafka
from tests.required import require_apache_kafka
from tests.share_groups import prepared

pytestmark = pytest.mark.timeout(180)
QUOTA = 60_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafka]:
    require_apache_kafka()
    with ApacheKafka() as running:
        yield running


def test_one_that_is_dropped_or_closed_is_collected() -> None:
    for closes in (False, True):
        conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "socket.timeout.ms": 100, "log_level": 0}
        consumer = kclient_quota.ShareConsumer(conf)
        if closes:
            consumer.close()
        seen = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert seen() is None


def test_nothing_is_lost(cluster: ApacheKafka) -> None:
    conf = prepared(cluster, "paced", 300, 15, consumer_byte_rate=QUOTA)
    seen: set[int | None] = set()
    consumer = kclient_quota.ShareConsumer(conf)
    try:
        consumer.subscribe(["paced"])
        until = time.monotonic() + 120
        while len(seen) < 300 and time.monotonic() < until:
            for message in consumer.poll(0.5):
                assert message.error() is None
                seen.add(message.offset())
        ((broker, state),) = consumer.quota_state().items()
    finally:
        consumer.close()
    assert seen == set(range(300))
    assert (broker, state.limit, state.source, state.stall) == (1, QUOTA, "cluster", None)


def test_a_batch_that_fits_no_window_is_told_of_and_not_used_up(cluster: ApacheKafka) -> None:
    conf = prepared(cluster, "huge", 450, 450, consumer_byte_rate=20_000)
    consumer = kclient_quota.ShareConsumer(conf)
    try:
        consumer.subscribe(["huge"])
        until = time.monotonic() + 60
        while _stall(consumer) is None and time.monotonic() < until:
            assert len(consumer.poll(0.5)) == 0
        began = time.monotonic()
        assert len(consumer.poll(2.0)) == 0
        assert time.monotonic() - began >= 1.9
        stall = _stall(consumer)
    finally:
        consumer.close()
    assert stall is not None
    assert "raise the quota" in stall


def _stall(consumer: kclient_quota.ShareConsumer) -> str | None:
    return next((state.stall for state in consumer.quota_state().values() if state.stall), None)


def test_without_a_quota_it_goes_straight_on_and_deserializes(cluster: ApacheKafka) -> None:
    conf = prepared(cluster, "free", 300, 15)
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
