"""The heartbeat of an `AIOProducer`: what a callback raises within a beat ends none, whatever it says."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kclient_quota.clients.aio.heartbeat import Beats


class Fetching:
    """A consumer that is not of asyncio's, with workers of its own, which its rebalance callback has shut down."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.executor.shutdown()
        self.beats = 0

    def keep_alive(self) -> None:
        self.beats += 1
        if self.beats == 1:
            self.executor.submit(int)


async def test_workers_of_a_consumers_own_are_not_taken_for_those_that_beat() -> None:
    """It lost its group without a word."""
    consumer = Fetching()
    with ThreadPoolExecutor(1) as workers:
        beats = Beats(consumer, workers, consumer.keep_alive)
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            await beats.beat()
        await beats.beat()
    assert consumer.beats == 2


async def test_nobody_beats_once_the_workers_that_do_have_ended() -> None:
    consumer = Fetching()
    with ThreadPoolExecutor(1) as workers:
        beats = Beats(consumer, workers, consumer.keep_alive)
    await beats.beat()
    await beats.beat()
    assert consumer.beats == 0
