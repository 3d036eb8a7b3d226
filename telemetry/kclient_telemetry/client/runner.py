"""Runs a telemetry reporter: a thread, a clock, a transport."""

import threading
import time
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from kclient_telemetry import logger_of
from kclient_telemetry.client.actions import Done, SendGet, SendPush, WaitUntil
from kclient_telemetry.client.reporter import TelemetryReporter
from kclient_telemetry.client.retry import REFUSED_RETRY_MS
from kclient_telemetry.errors import TransportError
from kclient_telemetry.messages import (
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
    TelemetryRequest,
    TelemetryResponse,
)

log = logger_of(__name__)


class TelemetryClock(Protocol):
    """The two times a runner needs."""

    def now_ms(self) -> int:
        """Monotonic milliseconds since an arbitrary origin."""
        ...

    def unix_ms(self) -> int:
        """Wall-clock milliseconds since 1970."""
        ...


class SystemTelemetryClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        """Milliseconds of `time.monotonic`."""
        return time.monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Milliseconds of `time.time`."""
        return time.time_ns() // 1_000_000


class Transport(Protocol):
    """A connection to some broker; the runner never sends two requests at once."""

    def send(self, request: TelemetryRequest, timeout_ms: int) -> TelemetryResponse:
        """Send `request` and give the response to it within `timeout_ms`.

        Raises:
            TransportError: there is no answer; not retriable when asking again soon would be pointless.
        """
        ...

    def close(self) -> None:
        """Give up the connection; a `send` under way in another thread ends soon. May be called twice."""
        ...


class TelemetryRunner:
    """A reporter in a daemon thread of its own; it never keeps a process alive.

    Args:
        reporter: used by the runner's thread alone from `start` on.
        transport: closed when the reporter is done.
        clock: monotonic and wall-clock time.
        name: of the thread.
    """

    def __init__(
        self,
        reporter: TelemetryReporter,
        transport: Transport,
        *,
        clock: TelemetryClock | None = None,
        name: str = "kafka-client-telemetry",
    ) -> None:
        self._reporter = reporter
        self._transport = transport
        self._clock = clock or SystemTelemetryClock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # held until somebody wakes the thread: releasing it is safe in destructors, which may run anywhere
        self._asleep = threading.Lock()
        self._asleep.acquire()
        # held until there is an id; no event, within whose calls a signal's handler that closes would wait for ever
        self._unidentified = threading.Lock()
        self._unidentified.acquire()
        self._client_instance_id: UUID | None = None
        self._after_ms = 0
        self._has_other_credentials = False
        self._close_deadline_ms: int | None = None

    def start(self, *, after_ms: int = 0) -> None:
        """Begin; once only.

        Args:
            after_ms: before a broker is asked for the first time; whoever waits for the client's id ends that.
        """
        self._after_ms = after_ms
        self._thread.start()

    def client_instance_id(self, timeout_ms: int) -> UUID | None:
        """The id under which this client pushes; None when no broker has given one within `timeout_ms`.

        Raises:
            ValueError: `timeout_ms` is negative.
        """
        if timeout_ms < 0:
            raise ValueError("The timeout cannot be negative.")
        if timeout_ms > 0:
            self._wake()
            if self._unidentified.acquire(timeout=timeout_ms / 1000):
                self._tell_identified()  # the next one who waits
        return self._client_instance_id

    def log_in_anew(self) -> None:
        """The transport has other credentials from now on: what was refused to the old ones is asked for again."""
        self._has_other_credentials = True
        self._wake()

    def close(self, timeout_ms: int) -> bool:
        """Make the terminating push and end, within `timeout_ms`; True when the thread has ended by then.

        Where no subscription has ever come there is nothing to push, and nothing is waited for. May be called again;
        the first deadline counts.
        """
        self.abandon(timeout_ms)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(timeout_ms, 0) / 1000)
        self._transport.close()
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def abandon(self, timeout_ms: int) -> None:
        """As `close`, but waits for nothing; may be called by a destructor."""
        if self._close_deadline_ms is None:
            self._close_deadline_ms = self._clock.now_ms() + max(timeout_ms, 0)
        self._wake()
        if self._client_instance_id is None:
            self._transport.close()

    def step(self) -> int | None:
        """Do what the reporter asks for; how many milliseconds may pass until the next step, None when it is done.

        This is the thread's whole work; it is public for tests and for callers with a loop of their own.
        """
        if self._close_deadline_ms is not None:
            self._reporter.close(self._clock.now_ms(), self._close_deadline_ms)
        now_ms = self._clock.now_ms()
        if self._has_other_credentials:
            self._has_other_credentials = False
            self._reporter.log_in_anew(now_ms)
        action = self._reporter.tick(now_ms, self._clock.unix_ms())
        if isinstance(action, Done):
            return None
        if isinstance(action, WaitUntil):
            return max(action.at_ms - now_ms, 0)
        self._send(action, action.deadline_ms - now_ms)
        return 0

    def _send(self, action: SendGet | SendPush, timeout_ms: int) -> None:
        try:
            response = self._transport.send(action.request, timeout_ms)
        except TransportError as error:
            log.debug("a telemetry request got no answer: %s", error)
            self._reporter.request_failed(action.request_id, self._clock.now_ms(), retriable=error.retriable)
            return
        now_ms = self._clock.now_ms()
        if isinstance(action, SendGet) and isinstance(response, GetTelemetrySubscriptionsResponse):
            self._reporter.subscription_received(action.request_id, response, now_ms)
            self._identify()
        elif isinstance(action, SendPush) and isinstance(response, PushTelemetryResponse):
            self._reporter.push_answered(action.request_id, response, now_ms)
        else:
            log.warning("%s was answered with %s", type(action.request).__name__, type(response).__name__)
            self._reporter.request_failed(action.request_id, now_ms, retriable=False)

    def _identify(self) -> None:
        self._client_instance_id = self._reporter.client_instance_id
        if self._client_instance_id is not None:
            self._tell_identified()

    def _tell_identified(self) -> None:
        with suppress(RuntimeError):  # it has been told already
            self._unidentified.release()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it has been woken already
            self._asleep.release()

    def _run(self) -> None:
        wait_ms: int | None = self._after_ms
        while wait_ms is not None:
            if wait_ms > 0:
                self._asleep.acquire(timeout=min(wait_ms / 1000, threading.TIMEOUT_MAX))
            try:
                wait_ms = self.step()
            except BaseException:
                # What a transport should not raise, or an application's metric, costs telemetry a pause, not its life.
                log.exception("telemetry met an error it does not know; it pauses")
                wait_ms = None if self._close_deadline_ms is not None else REFUSED_RETRY_MS
        self._transport.close()
