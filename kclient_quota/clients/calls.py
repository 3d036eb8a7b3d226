"""Calls of confluent_kafka's: which arguments they take, and what a Ctrl-C does that comes into one.

In one of its callbacks, or while it waits without limit.
"""

import _thread
import atexit
import logging
import operator
import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found] # signal's makes enumeration's members: 99 us
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from math import isnan
from typing import Any, Final, SupportsFloat, SupportsIndex, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clock import monotonic, sleep
from kclient_quota.errors import MISTAKEN, lost_interrupt

logger = logging.getLogger("kclient_quota")

LEAST_NAP_S: Final = 0.0002
MOST_NAP_S: Final = 0.01
NAP: Final = 1 / 20
"""How long it is waited until the next look: of the time that has passed, so that nobody hears much later."""

LONGEST_LOCK_S: Final = 0.05
"""For how long a thread of ours waits for a lock that an application's call may hold, which takes a microsecond."""

ENDLESS_S: Final = 2**31 / 1000
"""So long a time-out is one without end: more milliseconds than C's int holds."""

TEXT: Final = (bytes, str, type(None))
"""What a message's value and key are, mostly."""

_SIGNALS: Final = tuple(map(int, signal.valid_signals()))


def is_main_thread() -> bool:
    """Whether this is the thread in which Python runs the handlers of signals."""
    return threading.get_ident() == threading.main_thread().ident


def may_be_a_handlers() -> bool:
    """Whether what comes in between may be a handler of a signal: the main thread runs them, if there are any.

    Python's own for Ctrl-C does not count: what that raises is no `Exception`.
    """
    if not is_main_thread():
        return False
    return any(callable(handler) and handler is not signal.default_int_handler for handler in map(getsignal, _SIGNALS))


def moments(timeout_s: float, waited_s: float) -> Iterator[None]:
    """When to look, for so long, while it is waited here and not within confluent_kafka.

    In there a signal's handler could neither flush nor close. The caller has waited for `waited_s` before.
    """
    began = monotonic()
    passed_s = 0.0
    yield
    while passed_s < timeout_s:
        sleep(min(timeout_s - passed_s, max(LEAST_NAP_S, (waited_s + passed_s) * NAP), MOST_NAP_S))
        passed_s = monotonic() - began
        yield


def seconds(timeout: Any) -> Any:
    """A time-out as a number, as C reads it, numpy's and Decimal's too; what is none stays so, to be refused there."""
    if isinstance(timeout, int | float) or not isinstance(timeout, SupportsFloat | SupportsIndex):
        return timeout
    return float(timeout)


def real(timeout: Any) -> Any:
    """The same; what is none is refused, in the words of C."""
    timeout = seconds(timeout)
    isnan(timeout)  # which has these words
    return timeout


def ends_ms(timeout: Any, now_ms: int) -> int | None:
    """Until when a call may take that begins now; None: without end, as C takes nan, too. Refuses what `real` does."""
    timeout = real(timeout)
    return now_ms + round(timeout * 1000) if 0 <= timeout < ENDLESS_S else None


def whole(count: Any) -> Any:
    """A count as an int; what is none stays what it is, for confluent_kafka to refuse."""
    if type(count) is int or not isinstance(count, SupportsIndex):
        return count
    return int(operator.index(count))


def in_bytes(is_parsed: Callable[[Any, Any], bool], value: Any, key: Any) -> tuple[Any, Any]:
    """A value and a key in bytes where C takes them for such: an array of numpy, of which it makes a copy at once.

    What it does not take, by `is_parsed`, it says itself what is wrong with.
    """
    if (isinstance(value, TEXT) and isinstance(key, TEXT)) or not is_parsed(value, key):
        return value, key
    # Not by a memoryview: that also wants to know what an array is of, and there are dates that it does not know.
    value, key = (it if isinstance(it, TEXT) else b"".join((it,)) for it in (value, key))
    return value, key


def encoded(text: Any) -> Any:
    """A text in bytes; what is none stays what it is."""
    return text.encode() if isinstance(text, str) else text


def named(headers: Any) -> Any:
    """Headers whose names are texts, which C makes of any; what else is wrong with them it says itself."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        return headers
    return [(str(pair[0]), *pair[1:]) if isinstance(pair, tuple) and pair else pair for pair in pairs]


def merged(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as confluent_kafka's constructors take it: one dict, keywords, or both.

    Raises:
        TypeError: it is none, in confluent_kafka's words.
    """
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    given = args[0] if args else {}
    if not isinstance(given, dict) or not (args or kwargs):
        raise TypeError("expected configuration dict")
    return {**given, **kwargs}


def refused_callbacks(conf: Mapping[str, Any]) -> dict[str, Any]:
    """What stands where a callback should, in whose place ours are put: confluent_kafka says what is wrong with it."""
    return {
        key: conf[key] for key in ("stats_cb", "throttle_cb", "error_cb") if key in conf and not callable(conf[key])
    }


def cause_of(error: BaseException) -> KafkaError | None:
    """What librdkafka says is wrong; None of any other error, a `KafkaException` of the application's own included."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return cause if isinstance(cause, KafkaError) else None


def is_fatal(error: BaseException) -> bool:
    """Whether a client is of no use after it."""
    cause = cause_of(error)
    return cause is not None and cause.fatal()


def has_started(start: Callable[[], object], purpose: str) -> bool:
    """Whether a thread has been started that a client is better with, but can do without."""
    if sys.is_finalizing():  # no thread begins any more: a destructor that starts one waits for ever
        return False
    try:
        start()
    except RuntimeError as error:  # as many threads as there may be, or no memory for one
        logger.warning("No thread can be started to %s: %s", purpose, error)
        return False
    return True


class CallApart:
    """A call that may not keep its own time, made in a thread of its own, so that whoever waits for it can leave.

    Not one of `threading`'s: who starts one in a signal's handler that has come into the start of another waits for
    ever.

    Attributes:
        is_done: whether it has returned.
    """

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        self.is_done, self._bell = False, Bell()
        self._work: Callable[[], Any] | None = lambda: work(*args)
        self._result: Any = None
        self._error: BaseException | None = None
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:  # noqa: BLE001 - raised again where the application waits
            self._error = error
        del work  # with what it holds on to, before anybody goes on
        self.is_done = True
        self._bell.ring()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has returned, within so many seconds."""
        self._bell.wait(timeout_s)
        if self.is_done:
            self._bell.ring()  # for the next one who waits
        return self.is_done

    def result(self) -> Any:
        """What it has returned.

        Raises:
            BaseException: what it has raised.
        """
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame, which would keep it, and all callers, until a collection
        return self._result


def undisturbed(lock: AbstractContextManager[Any], work: Callable[..., Any], *args: Any) -> Any:
    """Do something under a lock that threads of ours want, too: never where a signal's handler may come in between.

    One that flushes there would wait for a sender, and one that joins a thread for its poll, which waits for this.
    """
    apart = None
    if may_be_a_handlers():
        with suppress(RuntimeError):  # no thread can be started
            apart = CallApart(needed, _held, lock, work, args)
    if apart is None:
        return needed(_held, lock, work, args)
    apart.wait(threading.TIMEOUT_MAX)
    return apart.result()


def _held(lock: AbstractContextManager[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with lock:
        return work(*args)


_Result = TypeVar("_Result")

_needed: Final[set[int]] = set()
_put_off: Final[set[CallApart]] = set()
_left: Final[deque[Callable[[], Any]]] = deque()


def needed(work: Callable[..., _Result], *args: Any) -> _Result:
    """Do what others wait for: a sender's work, or what is done under a lock that one wants.

    Destructors run in any thread, between any two lines: one that flushes there would wait for this.
    """
    ident = threading.get_ident()
    is_inner = ident in _needed
    try:
        _needed.add(ident)
        return work(*args)
    finally:
        if not is_inner:
            _needed.discard(ident)


def is_needed() -> bool:
    """Whether others wait for this thread, so that it must wait for none of them."""
    return threading.get_ident() in _needed


def put_off(work: Callable[..., Any], *args: Any) -> None:
    """Have done by another thread what cannot be waited for here; the process does not end before that.

    Where no thread can be started, as when Python 3.12 has begun to end, that end does it itself.
    """
    for call in list(_put_off):
        if call.is_done:
            _put_off.discard(call)
    try:
        _put_off.add(CallApart(work, *args))
    except RuntimeError:
        _left.append(partial(work, *args))


@atexit.register
def do_put_off() -> None:
    """Before the process ends."""
    while _put_off or _left:  # what is done may put off more
        for call in list(_put_off):
            call.wait(threading.TIMEOUT_MAX)
            _put_off.discard(call)
        while _left:
            with suppress(Exception):  # of nobody who could hear it
                _left.popleft()()


def _after_fork() -> None:
    _needed.clear()
    _put_off.clear()
    _left.clear()


os.register_at_fork(after_in_child=_after_fork)


def briefly(lock: Any) -> AbstractContextManager[Any]:
    """A lock of figures, to hold with `with`; another thread than the main one goes on without it before long.

    A signal's handler may have come to the main one while it holds that, and wait for this thread. What both change
    then is a figure.
    """
    return cast("AbstractContextManager[Any]", lock) if is_main_thread() else held_briefly(lock)


@contextmanager
def held_briefly(lock: Any) -> Iterator[bool]:
    """Whether a lock is held meanwhile, which one may be kept from in a signal's handler, and wait for this thread."""
    is_held = lock.acquire(timeout=LONGEST_LOCK_S)
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()


def log_in_as(asks_with: dict[str, Any], username: str, password: str) -> bool:
    """Have the cluster asked with these from now on; whether the user, whose quota applies, is another one."""
    is_another = asks_with.get("sasl.username") != username
    asks_with.update({"sasl.username": username, "sasl.password": password})
    return is_another


def interruptible(work: Callable[..., Any], *args: Any) -> Any:
    """Call what may serve callbacks."""
    try:
        return work(*args)
    except MISTAKEN as error:
        raise lost_interrupt(error) from None


def held_with() -> threading.RLock:
    """A lock to be held with `with`."""
    from kclient_telemetry.locks import reentrant_lock  # noqa: PLC0415 - with the first client that is made

    return reentrant_lock()


def inside(calling: dict[int, bool], work: Callable[..., Any], *args: Any) -> Any:
    """Do what is done within librdkafka, and note so in `calling`, as `Outbox` has it: what is called must not wait."""
    ident = threading.get_ident()
    outer = calling.get(ident)
    calling[ident] = True
    try:
        return work(*args)
    finally:
        if outer is None:
            calling.pop(ident, None)
        else:
            calling[ident] = outer


class NotMade:
    """In place of what `__init__` makes, where a subclass has not called it: says what confluent_kafka says then."""

    def __init__(self, error: type[Exception], said: str) -> None:
        self._said = error, said

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # somebody looks at the class
            raise AttributeError(name)
        return self()

    def __call__(self) -> Any:
        """Say so, too."""
        error, said = self._said
        raise error(said)


class Bell:
    """Rung by anybody, a signal's handler or a destructor among them; heard by one of those who wait.

    `queue.SimpleQueue.get(timeout=...)` would do the same, but in CPython 3.11 waits for ever when its time runs out
    while another thread takes what came.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Wake one who waits, or the next one who would."""
        if self._silent.locked():
            with suppress(RuntimeError):  # somebody else has rung just now
                self._silent.release()

    def wait(self, timeout_s: float) -> None:
        """Until it has been rung, or not."""
        self._silent.acquire(timeout=timeout_s)
