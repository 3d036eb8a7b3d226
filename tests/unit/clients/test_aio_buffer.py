"""Slots of an asyncio producer's buffer: none is lost, none is given twice, and who waits longest has the next one."""

import asyncio
import itertools
import random
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kclient_quota.clients.aio.buffer import Buffer, hand_over
from kclient_quota.clients.aio.loops import InLoop
from kclient_quota.clients.aio.pending import message_of
from kclient_quota.clients.producer.sorting import NO_PLACE
from kclient_quota.errors import quota_used_up

SIZE = 2
LONG_S = 60.0


def message() -> Any:
    """One that nobody has taken."""
    return message_of(InLoop(asyncio.get_running_loop(), None), "t", b"v", None)  # type: ignore[arg-type]


async def claimed(buffer: Buffer, order: list[int], number: int) -> Any:
    """A message with a slot, waited for if need be; `order` has who got one."""
    pending = message()
    if not buffer.claim(pending):
        await buffer.wait_for_slot(pending, LONG_S)
    order.append(number)
    return pending


async def taken(buffer: Buffer, within: int) -> list[Any]:
    """So many messages as there are slots for, of those that are wanted."""
    tasks = [asyncio.create_task(claimed(buffer, [], 0)) for _ in range(within)]
    for _ in range(5):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return [task.result() for task in tasks if not task.cancelled()]


@pytest.fixture
def buffer() -> Buffer:
    return Buffer(SIZE, ())


async def test_who_waits_longest_has_the_next_slot(buffer: Buffer) -> None:
    order: list[int] = []
    held = [await claimed(buffer, order, number) for number in range(SIZE)]
    waiting = [asyncio.create_task(claimed(buffer, order, number)) for number in range(SIZE, 5)]
    await asyncio.sleep(0)
    assert order == [0, 1]
    for pending in held:
        buffer.release(pending)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert order == [0, 1, 2, 3]
    buffer.release(waiting[0].result())
    await waiting[2]
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("others", [0, 1])
async def test_a_slot_for_one_who_is_cancelled_at_that_moment_goes_to_the_next(buffer: Buffer, others: int) -> None:
    held = [await claimed(buffer, [], 0) for _ in range(SIZE)]
    waiting = [asyncio.create_task(claimed(buffer, [], 0)) for _ in range(1 + others)]
    await asyncio.sleep(0)
    buffer.release(held.pop())
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    held += [await task for task in waiting[1:]]
    assert len(await taken(buffer, 4)) == SIZE - len(held)


async def test_one_who_has_waited_in_vain_leaves_his_place(buffer: Buffer) -> None:
    held = [await claimed(buffer, [], 0) for _ in range(SIZE)]
    late = message()
    assert not buffer.claim(late)
    with pytest.raises(TimeoutError):
        await buffer.wait_for_slot(late, 0)
    buffer.release(held.pop())
    assert buffer.claim(message())
    assert not buffer.claim(message())


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_there_are_as_many_slots_as_there_were(buffer: Buffer, seed: int) -> None:
    chance, numbers = random.Random(seed), itertools.count()
    tasks: list[asyncio.Task[Any]] = []
    held: list[Any] = []
    for _ in range(300):
        what = chance.randrange(4)
        if what == 0:
            tasks.append(asyncio.create_task(claimed(buffer, [], next(numbers))))
        elif what == 1 and tasks:
            chance.choice(tasks).cancel()
        elif what == 2 and held:
            buffer.release(held.pop(chance.randrange(len(held))))
        else:
            await asyncio.sleep(0)
        for task in [each for each in tasks if each.done()]:
            tasks.remove(task)
            with suppress(asyncio.CancelledError):
                held.append(task.result())
        assert len(held) <= SIZE
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    held += [task.result() for task in tasks if not task.cancelled()]
    held += await taken(buffer, 2 * SIZE)
    assert len(held) == SIZE
    for pending in held:
        buffer.release(pending)
    assert NO_PLACE not in buffer._lines


class Taking:
    """A producer of which the application's function raises this."""

    def __init__(self, raises: BaseException) -> None:
        self._raises = raises

    def produce(self, *_args: Any, **_kwargs: Any) -> None:
        raise self._raises

    def never_fits(self, _pending: Any) -> bool:
        return False


def taking(raises: BaseException) -> Any:
    """Such a producer."""
    return Taking(raises)


class Own(BaseException):
    """An application's."""


FULL = BufferError("Local: Queue full")
THROTTLED = quota_used_up(1)
THEIRS = [
    BufferError("mine"),
    Own(),
    asyncio.CancelledError(),
    GeneratorExit(),
    KafkaException("text"),
    KafkaException(),
]


@pytest.mark.parametrize("full", [FULL, THROTTLED])
async def test_what_there_is_no_room_for_is_offered_again(full: BufferError) -> None:
    pending = message()
    assert hand_over(taking(full), [pending]) == {NO_PLACE: full}
    assert (pending.handed, pending.error) == (False, None)


@pytest.mark.parametrize("theirs", THEIRS, ids=repr)
async def test_what_the_applications_function_raises_is_told_by_the_messages_future(theirs: BaseException) -> None:
    pending = message()
    assert hand_over(taking(theirs), [pending]) == {}
    assert pending.handed
    pending.fail(pending.error)
    with pytest.raises(type(theirs)):
        await pending.delivered


async def test_a_future_tells_of_a_stop_iteration_which_it_cannot_raise() -> None:
    pending, theirs = message(), StopIteration("mine")
    hand_over(taking(theirs), [pending])
    pending.fail(pending.error)
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        await pending.delivered
    assert raised.value.__cause__ is theirs
