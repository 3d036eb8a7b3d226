"""Simulated and real clients get the same: the embedded broker and Apache Kafka beside virtual time."""

import pytest

from benchmarks.simulation import AGREE, Case, real, simulated
from tests.measured.hosted import in_another_process
from tests.measured.scenes import IN_EVERY_MANNER
from tests.required import require_apache_kafka

SECONDS = 20
MOST_THROTTLE_MS = 100
CASES = (
    Case("alone", 1, 51_200),
    Case("alone-faster", 1, 524_288),
    Case("alone-bigger-messages", 1, 204_800, message_bytes=10_000),
    Case("on-three-brokers", 1, 51_200, partitions=3),
    Case("reads", 1, 51_200, consume=True),
    Case("reads-bigger-batches", 1, 102_400, consume=True, batch_messages=16),
)


def on_the_embedded_broker(_cluster):
    return in_another_process(real, CASES, SECONDS)


ROUND = IN_EVERY_MANNER
ON_THEIR_OWN = [on_the_embedded_broker]


def disagreements(cases, found, *, kafka=False):
    """What the real ones of these cases did otherwise than the simulated ones, by case."""
    told = {}
    for case in cases:
        ours, theirs = simulated(case, SECONDS), found[case.name]
        is_same = ours.utilisation == pytest.approx(theirs.utilisation, rel=AGREE)
        if not case.consume:
            is_same = is_same and ours.payload == pytest.approx(theirs.payload, rel=AGREE)
        if not kafka:
            # What comes at once may be a batch more than there was room for.
            batch_ms = case.batch_messages * case.message_bytes * 1_000 / case.quota
            is_same = is_same and theirs.throttle_p99_ms <= max(MOST_THROTTLE_MS, batch_ms)
        if not is_same:
            told[case] = (ours, theirs)
    return told


@pytest.mark.timeout(400)
def test_the_embedded_broker_agrees_with_the_simulation(played):
    assert disagreements(CASES, played(on_the_embedded_broker)) == {}


@pytest.mark.timeout(400)
def test_apache_kafka_agrees_with_the_simulation():
    require_apache_kafka()
    cases = (CASES[1], CASES[-2])
    assert disagreements(cases, real(cases, SECONDS, kafka=True), kafka=True) == {}
