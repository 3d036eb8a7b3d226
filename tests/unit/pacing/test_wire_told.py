"""What is learnt of bytes on the wire when data change, with a fifth of what is granted always on its way."""

from typing import Any

import pytest

from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.wire_told import CHEAP_LOOKS, LOOKS
from tests.unit.pacing.told_pacer import T0, ToldPacer

BATCH = 10_000
BATCHES = 10
"""In a second."""
FRAMING = 150


class World:
    """A pace and what librdkafka tells it of."""

    def __init__(self) -> None:
        self.cost = BatchCost(compressed=True)
        pacer: Any = ToldPacer()
        self.pace = SendPace(pacer, self.cost)
        self.parts: list[float] = []
        self.is_elsewhere = False

    def second(self, part: float, *, arrives: bool = True, sent_here: int | None = None) -> float:
        """Batches of which every byte takes so much; what their messages are then taken to cost."""
        for _ in range(BATCHES):
            self.pace.on_granted(BATCH, T0, 20)
            self.parts.append(part)
        sent, self.parts = self.parts[:-2], self.parts[-2:]
        self.pace.on_delivered(BATCH * len(sent), T0, arrived=arrives)
        wire = sum(int(FRAMING + each * BATCH) for each in sent) if arrives else FRAMING
        self.is_elsewhere = self.pace.on_wire(wire if sent_here is None else sent_here, T0)
        return self.cost.part

    def seconds(self, count: int, part: float) -> float:
        return [self.second(part) for _ in range(count)][-1]


def test_data_that_compress_again_are_known_once_nothing_else_is_among_what_was_heard() -> None:
    """It was averaged with what had been before, over two to three times eight seconds."""
    world = World()
    assert world.seconds(3 * LOOKS, 1.0) == pytest.approx(1.0, abs=0.01)
    assert world.seconds(LOOKS + CHEAP_LOOKS, 0.05) == pytest.approx(0.05, abs=0.03)


def test_data_that_are_cheap_for_a_moment_are_not_taken_for_other_data() -> None:
    world = World()
    world.seconds(3 * LOOKS, 1.0)
    learnt = [world.second(0.05 if number % 4 == 0 else 1.0) for number in range(40)]
    assert min(learnt) > 0.6


@pytest.mark.parametrize("others", [0, 60, 200])
def test_what_has_gone_to_another_broker_is_no_cheap_data(others: int) -> None:
    """Its leader is another one, which is not known here for up to half a minute: too little even for the framing.

    Taken for data that compress to nothing it was sent at 200 times the quota.
    """
    world = World()
    world.seconds(3 * LOOKS, 1.0)
    assert not world.is_elsewhere
    assert min(world.second(1.0, sent_here=others) for _ in range(3 * LOOKS)) > 0.9
    assert world.is_elsewhere
    assert world.seconds(LOOKS, 1.0) == pytest.approx(1.0, abs=0.05)
    assert not world.is_elsewhere


def test_what_is_given_up_and_was_never_sent_is_no_cheap_data() -> None:
    world = World()
    world.seconds(3 * LOOKS, 1.0)
    assert min(world.second(1.0, arrives=False) for _ in range(LOOKS - 1)) > 0.5
