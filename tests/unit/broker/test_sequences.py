"""Sequence numbers of idempotent producers wrap at 2^31, as Kafka's do."""

import pytest

from kclient_quota.broker.log.producers import ProducerStates, SequencedBatch, last_sequence
from kclient_quota.wire.error_codes import ErrorCode

MOST = 2**31 - 1


@pytest.mark.parametrize(("first", "records", "last"), [(0, 1, 0), (MOST, 1, MOST), (MOST, 2, 0), (MOST - 1, 5, 2)])
def test_the_last_of_a_batch(first, records, last):
    assert last_sequence(first, records) == last


@pytest.mark.parametrize(("last", "following", "wrong"), [(MOST, 0, 2**31), (MOST - 1, MOST, 0), (5, 6, 0)])
def test_what_follows_a_batch(last, following, wrong):
    states = ProducerStates()
    states.record(7, 0, SequencedBatch(last, last, 0, 0), 0)
    assert states.check(7, 0, following) is ErrorCode.NONE
    assert states.check(7, 0, wrong) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(7, 1, 0) is ErrorCode.NONE, "a new epoch begins anew"
    assert states.check(7, 1, following) is (
        ErrorCode.NONE if following == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
