"""How large a batch is taken for, from the first one on."""

import json

from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.test_consumer_core import Driven, gate_of, statistics

BATCH = 477_000


def joined(gate: Driven, at_ms: int, *, received: int, responses: int, fetched: int) -> None:
    """What a member of a group is told: a dozen responses that joining took came before, or with, the first batch."""
    told = json.loads(statistics(at_ms, received=received))
    for broker in told["brokers"].values():
        broker.update(rx=responses, waitresp_cnt=0, req={"Fetch": fetched, "Metadata": 2, "ListOffsets": 6})
    gate.on_statistics(json.dumps(told))


def test_responses_of_joining_a_group_make_the_first_batch_no_smaller() -> None:
    """A batch of 4.8 s of the quota was taken for one of a third of a second, so that the next did not wait for it."""
    gate = gate_of(ManualClock())
    joined(gate, 0, received=1_000, responses=3, fetched=0)
    joined(gate, 250, received=1_000 + BATCH, responses=17, fetched=1)
    (pace,) = gate.core._pacer.paces.values()
    assert pace.batch == BATCH
    assert gate.core.grants_one
