"""Waiting without an event loop: what a handler awaits, and what drives it.

A handler is a coroutine that awaits nothing but `Promise`s, so a request that need not wait is answered within one call
(no task, no loop turn), and a unit test drives handlers with a manual clock.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

ValueT = TypeVar("ValueT")


class Promise(Generic[ValueT]):
    """A value that comes later, once. Resolving it a second time does nothing."""

    __slots__ = ("_callbacks", "_value", "is_resolved")

    def __init__(self) -> None:
        self.is_resolved = False
        self._value: ValueT | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def value(self) -> ValueT:
        """What it has been resolved with; only once it is."""
        return cast("ValueT", self._value)

    def resolve(self, value: ValueT) -> None:
        """Hand over the value and resume whoever awaits it, before this call returns."""
        if self.is_resolved:
            return
        self.is_resolved = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_resolved(self, callback: Callable[[], None]) -> None:
        """Call back once it is resolved; at once when it is."""
        if self.is_resolved:
            callback()
        else:
            self._callbacks.append(callback)

    def __await__(self) -> "Generator[Promise[ValueT], None, ValueT]":
        if not self.is_resolved:
            yield self
        return cast("ValueT", self._value)


class CalledOff(Exception):  # noqa: N818 - nothing has gone wrong
    """Nobody waits for the answer of what would have to wait."""


class Turn(Promise[None]):
    """What is awaited so that others have their turn: it comes whether or not anybody asks for it still."""

    __slots__ = ()


class Drive(Generic[ValueT]):
    """Runs one coroutine over `Promise`s to its end.

    Args:
        coroutine: awaits only promises.
        done: called with what the coroutine returned, possibly before the constructor returns.
        failed: called with the exception it raised.
    """

    __slots__ = ("_awaited", "_coroutine", "_done", "_failed", "_is_called_off", "is_finished")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, ValueT],
        done: Callable[[ValueT], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._coroutine = coroutine
        self._done = done
        self._failed = failed
        self.is_finished = False
        self._is_called_off = False
        self._awaited: Promise[Any] | None = None
        self._step()

    def cancel(self) -> bool:
        """End the coroutine where it waits; neither `done` nor `failed` is called then.

        Returns:
            Whether it goes on nevertheless, since it waits for nothing but its next turn: what it has begun is not left
            half done. It ends as it would have, or with `CalledOff` where it would wait for something else.
        """
        self._is_called_off = True
        if not self.is_finished and not isinstance(self._awaited, Turn):
            self.is_finished = True
            self._coroutine.close()
        return not self.is_finished

    def _step(self) -> None:
        if self.is_finished:
            return
        try:
            promise: Promise[Any] = self._coroutine.send(None)
        except StopIteration as stop:
            self.is_finished = True
            self._finish(stop.value)
        except Exception as error:  # noqa: BLE001 - handed on to the owner, whose loop must outlive one bad request
            self.is_finished = True
            self._failed(error)
        else:
            self._awaited = promise
            if self._is_called_off and not isinstance(promise, Turn):
                self.cancel()
                self._failed(CalledOff())
            else:
                promise.on_resolved(self._step)

    def _finish(self, value: ValueT) -> None:
        """Hand over the result; what goes wrong there is this request's alone, not its who resolved a promise."""
        try:
            self._done(value)
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)
