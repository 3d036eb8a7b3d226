"""A `ShareConsumer` that is in time is never throttled, so that every record comes at the first attempt."""

import time

import pytest

import kclient_quota
from kclient_quota.testing.apache import ApacheKafka
from tests.measured.scenes import named
from tests.share_groups import prepared

QUOTA = 60_000
RECORDS = 1_200
"""Twice what a window takes."""


@pytest.mark.timeout(180)
def test_every_record_comes_at_the_first_attempt(apache_kafka: ApacheKafka) -> None:
    conf = prepared(apache_kafka, named("paced"), RECORDS, 15, consumer_byte_rate=QUOTA)
    counts: dict[int | None, int | None] = {}
    consumer = kclient_quota.ShareConsumer(conf)
    try:
        consumer.subscribe([conf["client.id"]])
        until = time.monotonic() + 120
        while len(counts) < RECORDS and time.monotonic() < until:
            for message in consumer.poll(0.5):
                counts[message.offset()] = message.delivery_count()
        throttled = [value for name, value in consumer.metrics().items() if name.name == "fetch-throttle-count"]
    finally:
        consumer.close()
    assert len(counts) == RECORDS
    assert set(counts.values()) == {1}
    assert set(throttled) == {0.0}
