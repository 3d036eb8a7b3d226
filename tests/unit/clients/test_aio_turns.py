"""Turns of an asyncio consumer's calls: one at a time, in order, whatever becomes of the loops they are made in."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from kclient_quota.clients.aio.turns import CallTurns, Work


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that stands still."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def begun(loop: asyncio.AbstractEventLoop, unreceived: Callable[[Any], None] | None = None) -> Work:
    """A worker is at it."""
    work = Work(loop, unreceived)
    work.job = Future()
    return work


def end(work: Work, result: Any) -> None:
    """Its worker has done it."""
    assert work.job is not None
    work.job.set_result(work.end(result))


async def test_one_after_another_in_order() -> None:
    turns, order = CallTurns(), []

    async def call(number: int) -> None:
        work = begun(asyncio.get_running_loop())
        assert await turns.take(work) is None
        order.append(number)
        assert turns.are_taken()
        await asyncio.sleep(0)
        assert order[-1] == number
        turns.end(work)

    await asyncio.gather(*(call(number) for number in range(5)))
    assert order == list(range(5))
    assert not turns.are_taken()


async def test_who_is_cancelled_while_waiting_stands_in_nobodys_way() -> None:
    turns, loop = CallTurns(), asyncio.get_running_loop()
    works = [begun(loop) for _ in range(3)]
    await turns.take(works[0])
    tasks = [asyncio.create_task(turns.take(work)) for work in works[1:]]
    await asyncio.sleep(0)
    turns.end(works[0])
    tasks[0].cancel()
    await asyncio.wait_for(tasks[1], 1)
    turns.end(works[2])
    assert not turns.are_taken()


async def test_a_turn_of_a_loop_that_stands_ends_with_its_worker(other: asyncio.AbstractEventLoop) -> None:
    """What came of it is given back by who comes next, once, and its call does not have it."""
    turns, back = CallTurns(), []
    left = begun(other, back.append)
    turns._given(left, None)
    mine = begun(asyncio.get_running_loop())
    task = asyncio.create_task(turns.take(mine))
    await asyncio.sleep(0)
    assert turns.are_taken()
    assert not task.done()
    end(left, "message")
    assert await asyncio.wait_for(task, 1) is left
    assert left.is_lost
    assert back == []
    left.give_back()
    left.abandon()
    assert back == ["message"]
    turns.end(left)
    assert turns.are_taken()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_abandoned_is_given_back_once(other: asyncio.AbstractEventLoop, when: str) -> None:
    back: list[Any] = []
    work = begun(other, back.append)
    if when == "before":
        work.abandon()
    end(work, "message")
    work.abandon()
    work.abandon()
    assert back == ["message"]
