"""What a test may see of requests and do to the next ones."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kclient_quota.wire.messages import API
from kclient_quota.wire.schema import Request, Response


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request that was answered.

    Attributes:
        at_ms: when it was answered, milliseconds since 1970.
        api_key: Kafka's number of the API.
        api_version: version the client spoke.
        client_id: None when null.
        principal: the user.
        broker_id: who answered.
        size_bytes: of the request as quotas count it (without the 4 bytes of its length).
        response_bytes: of the response on the wire.
        throttle_time_ms: what the response said and the connection was muted for.
    """

    at_ms: int
    api_key: int
    api_version: int
    client_id: str | None
    principal: str
    broker_id: int
    size_bytes: int
    response_bytes: int
    throttle_time_ms: int

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, such as "Produce"."""
        return API[self.api_key].name


@dataclass(frozen=True, slots=True)
class Intercepted:
    """A request that a control function is shown before any handler.

    Attributes:
        api_key: Kafka's number of the API.
        api_version: version the client speaks.
        client_id: None when null.
        broker_id: who was asked.
        principal: the user.
        request: the message; its records are only valid during the call.
    """

    api_key: int
    api_version: int
    client_id: str | None
    broker_id: int
    principal: str
    request: Request


class Break(Enum):
    """What a control function may return in place of a response."""

    HANG_UP = "hang up"
    """Close the connection without an answer."""
    IGNORE = "ignore"
    """Never answer; the connection stays open and reads nothing more."""


HANG_UP = Break.HANG_UP
IGNORE = Break.IGNORE

ControlResult: TypeAlias = "Response | Break | None"
ControlFunction: TypeAlias = Callable[[Intercepted], ControlResult]


@dataclass(slots=True)
class _Control:
    api_key: int | None
    function: ControlFunction
    times: int | None


@dataclass(slots=True)
class _Throttle:
    api_key: int | None
    client_id: str | None
    throttle_time_ms: int
    times: int


class Controls:
    """Functions and throttle times that wait for their request.

    Attributes:
        is_armed: whether there is any control function.
        failures: what control functions have raised, for the test that made them.
    """

    def __init__(self) -> None:
        self._controls: list[_Control] = []
        self._throttles: list[_Throttle] = []
        self.failures: list[Exception] = []
        self.is_armed = False
        self.has_throttles = False

    def add(self, api_key: int | None, function: ControlFunction, times: int | None) -> None:
        """Show requests of one API (None: any) to `function` until it has handled `times` of them (None: for ever)."""
        self._controls.append(_Control(api_key, function, times))
        self.is_armed = True

    def add_throttle(self, api_key: int | None, client_id: str | None, throttle_time_ms: int, times: int) -> None:
        """Let the next `times` responses of one API (None: of any) to one client (None: to any) be throttled."""
        self._throttles.append(_Throttle(api_key, client_id, throttle_time_ms, times))
        self.has_throttles = True

    def clear(self) -> None:
        """Forget all of them."""
        self._controls.clear()
        self._throttles.clear()
        self.is_armed = self.has_throttles = False

    def ask(self, seen: Intercepted) -> ControlResult:
        """What the first function that has anything to say makes of a request; None lets it pass."""
        for control in list(self._controls):
            if control.api_key is not None and control.api_key != seen.api_key:
                continue
            try:
                result = control.function(seen)
            except Exception as error:  # noqa: BLE001 - a test's own assertion, mostly: it must come to light there
                self.failures.append(error)
                result = HANG_UP
            if result is not None:
                self._use_up(control)
                return result
        return None

    def take_throttle(self, api_key: int, client_id: str | None) -> int:
        """The throttle time that waits for this response, or 0; each is taken as often as was said."""
        for throttle in self._throttles:
            if throttle.api_key in {None, api_key} and throttle.client_id in {None, client_id}:
                throttle.times -= 1
                if throttle.times <= 0:
                    self._throttles.remove(throttle)
                    self.has_throttles = bool(self._throttles)
                return throttle.throttle_time_ms
        return 0

    def _use_up(self, control: _Control) -> None:
        if control.times is None:
            return
        control.times -= 1
        if control.times <= 0 and control in self._controls:
            self._controls.remove(control)
            self.is_armed = bool(self._controls)
