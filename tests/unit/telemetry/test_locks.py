"""What a signal's handler raises while a lock is taken with `with` does not leave it held."""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import pytest
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.cluster.late_lock import LateLock
from tests.apart import apart

SIGNALS = 200
MOST_S = 0.0003
AGAIN_S = 2.0


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


def use(lock: Any, within_s: float) -> None:
    # Once more, should what the first one raises have been lost in a destructor, where Python only prints it.
    signal.setitimer(signal.ITIMER_REAL, within_s, AGAIN_S)
    try:
        while True:
            with lock:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize(
    ("make", "inner"),
    [(reentrant_lock, lambda lock: lock), (LateLock, lambda lock: lock._made["lock"])],
    ids=["reentrant", "late"],
)
def test_a_lock_that_was_interrupted_is_free(make: Callable[[], Any], inner: Callable[[Any], Any]) -> None:
    """From CPython 3.14 on half of them were held by nobody's block, and another thread waited for ever."""
    chance = random.Random(1)
    held = 0
    for _ in range(SIGNALS):
        lock = make()
        with lock:
            pass
        with pytest.raises(KeyboardInterrupt):
            use(lock, chance.uniform(0.00001, MOST_S))
        held += not apart(partial(inner(lock).acquire, blocking=False))
    assert held == 0


def test_it_is_reentrant_and_excludes_others() -> None:
    lock = reentrant_lock()
    with lock, lock:
        assert not apart(lambda: lock.acquire(blocking=False))
    assert apart(lambda: lock.acquire(blocking=False))


def test_what_stands_in_the_place_of_threadings_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """gevent's lets greenlets in; one of C's would stop them all."""
    theirs = threading.Lock()
    monkeypatch.setattr(threading, "RLock", lambda: theirs)
    assert reentrant_lock() is theirs
