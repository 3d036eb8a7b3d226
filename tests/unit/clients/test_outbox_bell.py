"""What wakes a sender and its callers: heard once, by one, and never waited for longer than was said."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kclient_quota.clients.calls import Bell
from kclient_quota.clients.producer.outbox import Inbox, Outbox


def seconds(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def test_rung_before_anybody_waits_it_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert seconds(lambda: bell.wait(90)) < 60
    assert seconds(lambda: bell.wait(0.01)) >= 0.01


def test_what_was_put_is_not_waited_for() -> None:
    inbox = Inbox()
    inbox.put(1)
    inbox.put(2)
    assert seconds(lambda: inbox.wait(90)) < 60
    assert [inbox.items.popleft(), inbox.items.popleft(), inbox.empty()] == [1, 2, True]


def test_nobody_waits_for_longer_than_he_said_while_others_hear() -> None:
    """As three callers of one producer do; `SimpleQueue.get(timeout=...)` lost one of them within seconds."""
    bell, stops = Bell(), threading.Event()
    have_begun = [threading.Event() for _ in range(3)]

    def listen(number: int) -> None:
        while not stops.is_set():
            bell.wait(0.001)
            have_begun[number].set()

    listeners = [threading.Thread(target=listen, args=(number,), daemon=True) for number in range(3)]
    for listener in listeners:
        listener.start()
    for _ in range(20_000):
        bell.ring()
    for began in have_begun:  # a thread may begin late
        assert began.wait(60)
    stops.set()
    for listener in listeners:
        listener.join(60)
    assert not any(listener.is_alive() for listener in listeners)


def test_who_finds_the_queue_opened_meanwhile_hands_his_message_over_himself() -> None:
    """Put into the inbox it would be overtaken by what its caller produces next."""
    outbox = Outbox()
    outbox.is_open = True
    assert not outbox.put(object())
    assert (len(outbox), outbox.inbox.empty()) == (0, True)
    outbox.is_open = False
    assert outbox.put(object())
    assert (len(outbox), outbox.inbox.empty()) == (1, False)


def test_what_is_put_keeps_later_ones_from_overtaking_it() -> None:
    outbox = Outbox()
    outbox.is_spare, outbox.spare = True, 100.0
    assert not outbox.put(object())
    outbox.spare = 0.0
    assert outbox.put(object())
    outbox.spare = 100.0
    assert not outbox.has_spare


@pytest.mark.parametrize("kind", [ValueError, StopIteration, IndexError, GeneratorExit])
def test_whatever_a_callback_raises_its_caller_hears_and_the_rest_is_served_later(kind: type[BaseException]) -> None:
    outbox, heard = Outbox(), []

    def fail(error: Any, message: Any) -> None:
        raise kind

    def note(error: Any, message: Any) -> None:
        heard.append(message)

    outbox.reports.extend([(note, None, 1), (fail, None, 2), (note, None, 3)])
    with pytest.raises(kind):
        outbox.serve()
    assert (heard, outbox.calling) == ([1], {})
    assert outbox.serve() == 1
    assert heard == [1, 3]


class Own(BaseException):
    """An application's, or a test's that fails in a callback."""


@pytest.mark.parametrize(
    "theirs", [ValueError(1), StopIteration(1), IndexError(1), SystemExit(1), GeneratorExit(1), Own(1)]
)
def test_all_are_served_before_what_one_raises_is(theirs: BaseException) -> None:
    outbox, heard = Outbox(), []

    def fail(error: Any, message: Any) -> None:
        heard.append(message)
        raise theirs

    outbox.reports.extend([(fail, None, number) for number in range(3)])
    assert outbox.serve_all() == 3
    assert heard == [0, 1, 2]
    with pytest.raises(type(theirs)) as raised:
        outbox.raise_kept()
    assert raised.value is theirs


def test_a_ctrl_c_ends_that_at_once() -> None:
    outbox, heard = Outbox(), []

    def stop(error: Any, message: Any) -> None:
        heard.append(message)
        raise KeyboardInterrupt

    outbox.reports.extend([(stop, None, number) for number in range(3)])
    with pytest.raises(KeyboardInterrupt):
        outbox.serve_all()
    assert (heard, len(outbox.reports)) == ([0], 2)
