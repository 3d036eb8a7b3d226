"""Simulated and real clients get the same: the embedded broker and Apache Kafka beside virtual time."""

import pytest

from benchmarks.simulation import AGREE, Case, real, simulated
from kclient_quota.testing.apache import apache_kafka_unavailable_reason

SECONDS = 20
CASES = (
    Case("alone", 1, 51_200),
    Case("alone-faster", 1, 524_288),
    Case("alone-bigger-messages", 1, 204_800, message_bytes=10_000),
    Case("on-three-brokers", 1, 51_200, partitions=3),
    Case("reads", 1, 51_200, consume=True),
    Case("reads-bigger-batches", 1, 102_400, consume=True, batch_messages=16),
)


def agree(cases, *, kafka=False):
    found = real(cases, SECONDS, kafka=kafka)
    for case in cases:
        ours, theirs = simulated(case, SECONDS), found[case.name]
        assert ours.utilisation == pytest.approx(theirs.utilisation, rel=AGREE), case.name
        if not case.consume:
            assert ours.payload == pytest.approx(theirs.payload, rel=AGREE), case.name
    return found


@pytest.mark.slow
def test_the_embedded_broker_agrees_with_the_simulation():
    found = agree(CASES)
    assert all(finding.throttle_p99_ms <= 100 for finding in found.values())


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.skipif(apache_kafka_unavailable_reason() is not None, reason=str(apache_kafka_unavailable_reason()))
def test_apache_kafka_agrees_with_the_simulation():
    agree((CASES[1], CASES[-2]), kafka=True)
