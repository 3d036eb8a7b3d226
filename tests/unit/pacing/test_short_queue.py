"""Librdkafka's own queue is so short that it refuses most of what leaves: that costs nothing of the quota."""

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from tests.unit.pacing.told_pacer import T0, message

LIMIT = 51_200
SECONDS = 30


@pytest.mark.parametrize("places", [1, 2])
def test_a_queue_of_few_messages_has_the_whole_quota_used(places):
    """Each has been delivered when the next batch is tried, ten milliseconds later."""
    limited = Pacer(LIMIT)
    queue = SendQueue(SendPace(limited, BatchCost(), LIMIT))
    sent = 0
    for now_ms in range(T0, T0 + SECONDS * 1_000, 10):
        while queue.offer(message(now_ms, 1_000, partition=now_ms % 4)).accepted:
            pass
        grant = queue.next_grant(now_ms)
        if isinstance(grant, Grant):
            taken, refused = grant.messages[:places], grant.messages[places:]
            queue.put_back(refused)
            sent += sum(each.raw_bytes for each in taken)
            queue.pace.on_delivered(sum(each.raw_bytes for each in taken), now_ms + 5)
    assert sent == pytest.approx(LIMIT * SECONDS, rel=0.2)


def test_a_batch_that_is_refused_as_a_whole_costs_nothing():
    pacer = Pacer(LIMIT)
    pace = SendPace(pacer, BatchCost(), LIMIT)
    pace.on_granted(1_000, T0)
    pace.on_delivered(1_000, T0 + 5)
    pace.on_granted(900_000, T0 + 10)  # beyond what may go at once
    before = pacer.admit_at_ms(10_000, T0 + 10)
    assert before > T0 + 10
    for _ in range(100):
        pace.on_granted(5_000, T0 + 10, 2)
        pace.give_back(2_000)
        pace.give_back(3_000)
    assert pacer.admit_at_ms(10_000, T0 + 10) == before
    assert (pace.outstanding, pace._told.batches, len(pace._flying)) == (900_000, 2, 1)


def test_who_has_been_refused_is_asked_for_no_more_than_fits():
    """To take out hundreds of messages and put all but two back, a hundred times a second, takes a processor."""
    queue = SendQueue(SendPace(Pacer(1_000_000), BatchCost(), 1_000_000))
    now_ms, tried, sent = T0, 0, 0
    while now_ms < T0 + 10_000:
        while queue.offer(message(now_ms, 300, partition=now_ms % 4)).accepted:
            pass
        grants = []
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            grants.append(grant)
        every = [each for grant in grants for each in grant.messages]
        queue.put_back(every[2:])
        tried, sent = tried + len(every), sent + len(every[:2])
        queue.pace.on_delivered(sum(each.raw_bytes for each in every[:2]), now_ms + 5)
        now_ms += 10
    assert sent > 1_500
    assert tried < 2 * sent
