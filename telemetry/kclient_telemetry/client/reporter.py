"""The client's end of KIP-714 as a state machine: events in, actions out, no clock, no socket, no thread.

It follows Apache Kafka 4.3.1's ClientTelemetryReporter, and recovers where that one stalls or gives up for ever:

* INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION, any code outside KIP-714's list, and a failure that is not
  retriable switch Kafka's client off until it is restarted. Here it asks again after 5 minutes, doubled up to an hour.
* A failed request costs Kafka's client 5 minutes. Here the first retry comes after about a second, doubled up to the
  push interval.
* A payload that cannot be built leaves Kafka's client in PUSH_IN_PROGRESS for ever. Here it is built again an interval
  later.
* A request that is never answered is given up at its deadline.
* A failed or refused push loses Kafka's client the deltas it carried. Here they are in the next push; if only the
  answer was lost, they are counted twice rather than not at all.
* UNSUPPORTED_COMPRESSION_TYPE rules that type out, TELEMETRY_TOO_LARGE halves what is sent; Kafka's client sends the
  same again.
* After a refused push the next one waits at least a whole interval, since shipped brokers throttle an earlier one.
* A GetTelemetrySubscriptions answered with an error that asks for an immediate repetition is not repeated in a loop.
* The `throttle_time_ms` of a response is honoured.
* A terminating push whose broker has gone since the push before is sent once more, which goes to another one; Kafka's
  client gives up what has come since then.
* On close, an answer still under way is waited for (within the deadline) before the terminating push is built, so that
  nothing is pushed twice; a subscription that arrives by then is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from kclient_telemetry import logger_of
from kclient_telemetry.client.actions import Action, Done, SendGet, SendPush, WaitUntil
from kclient_telemetry.client.payload import Compressor, PayloadBuilder, PayloadCounters, PointSource
from kclient_telemetry.client.retry import Retry
from kclient_telemetry.client.states import TERMINATING, VALID_NEXT_STATES, State
from kclient_telemetry.client.subscription import DEFAULT_PUSH_INTERVAL_MS, ClientSubscription, subscription_of
from kclient_telemetry.compression import compress
from kclient_telemetry.errors import ErrorCode, error_name
from kclient_telemetry.messages import (
    ZERO_UUID,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kclient_telemetry.metric import PushPoint

log = logger_of(__name__)

REQUEST_TIMEOUT_MS = 30_000

# Lower and upper bound of the factor on the first push after a subscription fetch: spreads the clients of a cluster.
_JITTER = (0.5, 1.5)

_PUSH_AT_FAULT = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_TOO_MUCH = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})


@dataclass(slots=True)
class ReporterCounters:
    """Subscriptions followed, pushes accepted, requests refused, requests without an answer."""

    subscriptions: int = 0
    pushes: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    request_id: int
    deadline_ms: int
    push: PushTelemetryRequest | None = None
    points: tuple[PushPoint, ...] = ()


class TelemetryReporter:
    """One client's telemetry.

    The adapter calls `tick`, does what it says, and reports what came of it with `subscription_received`,
    `push_answered` or `request_failed`; then it calls `tick` again. Nothing here blocks.

    Args:
        source: where points come from.
        uniform: a random number in [0, 1).
        request_timeout_ms: after which an unanswered request counts as failed.
        compressor: turns bytes into Kafka's framing of a compression type; may raise, which rules that type out.
    """

    def __init__(
        self,
        source: PointSource,
        *,
        uniform: Callable[[], float],
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        compressor: Compressor = compress,
    ) -> None:
        self.counters = ReporterCounters()
        self._builder = PayloadBuilder(source, compressor)
        self._uniform = uniform
        self._request_timeout_ms = request_timeout_ms
        self._state = State.SUBSCRIPTION_NEEDED
        self._subscription: ClientSubscription | None = None
        self._subscription_refused = False
        self._due_ms: int | None = None
        self._close_deadline_ms: int | None = None
        self._is_last_try = False
        self._flight: _Flight | None = None
        self._last_request_id = 0
        self._retry = Retry()

    @property
    def state(self) -> State:
        """Where the machine stands."""
        return self._state

    @property
    def client_instance_id(self) -> UUID | None:
        """The id under which this client pushes; None until a broker has given one."""
        return self._subscription.client_instance_id if self._subscription else None

    @property
    def payload_counters(self) -> PayloadCounters:
        """What did not fit, and what could not be compressed."""
        return self._builder.counters

    @property
    def subscription(self) -> ClientSubscription | None:
        """The subscription that is followed; None until a broker has given one."""
        return self._subscription

    def tick(self, now_ms: int, unix_ms: int) -> Action:
        """What to do now.

        Args:
            now_ms: monotonic milliseconds.
            unix_ms: wall-clock milliseconds since 1970, for the time of points.
        """
        self._expire(now_ms)
        if self._state is State.TERMINATED:
            return Done()
        if self._flight is not None:
            return WaitUntil(self._sooner_than_close(self._flight.deadline_ms))
        if self._state is State.TERMINATING_PUSH_NEEDED:
            return self._send_push(now_ms, unix_ms)
        if self._due_ms is not None and now_ms < self._due_ms:
            return WaitUntil(self._due_ms)
        if self._state is State.SUBSCRIPTION_NEEDED:
            return self._send_get(now_ms)
        return self._send_push(now_ms, unix_ms)

    def close(self, now_ms: int, deadline_ms: int) -> None:
        """Terminate, by `deadline_ms` at the latest; with a last push where Kafka's client makes one.

        There is none before the first subscription, nor while a new one is being waited for or nothing is asked for.
        """
        if self._state in TERMINATING:
            return
        subscribed = self._subscription is not None and bool(self._subscription.selection)
        if deadline_ms <= now_ms or self._state is State.SUBSCRIPTION_NEEDED or not subscribed:
            self._terminate()
            return
        self._close_deadline_ms = deadline_ms
        self._move(State.TERMINATING_PUSH_NEEDED)

    def subscription_received(self, request_id: int, response: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        """A GetTelemetrySubscriptions was answered; an answer that is no longer waited for is passed over."""
        if self._land(request_id) is None:
            return
        adopted = response.error_code == ErrorCode.NONE and self._adopt(response)
        if self._state is State.TERMINATING_PUSH_NEEDED:
            self._subscription_refused &= not adopted
            self._finish_unless_pushable()
        elif adopted:
            self._follow(response.throttle_time_ms, now_ms)
        else:
            self._refused(response.error_code, None, response.throttle_time_ms, now_ms)

    def push_answered(self, request_id: int, response: PushTelemetryResponse, now_ms: int) -> None:
        """A PushTelemetry was answered; an answer that is no longer waited for is passed over."""
        flight = self._land(request_id)
        if flight is None:
            return
        accepted = response.error_code == ErrorCode.NONE
        if accepted:
            self._accepted(flight)
        if self._state is State.TERMINATING_PUSH_IN_PROGRESS:
            self._terminate()
        elif self._state is State.TERMINATING_PUSH_NEEDED:
            self._subscription_refused |= response.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            self._finish_unless_pushable()
        elif accepted:
            self._move(State.PUSH_NEEDED)
            self._wait(self._interval_ms(), response.throttle_time_ms, now_ms)
        else:
            self._refused(response.error_code, flight.push, response.throttle_time_ms, now_ms)

    def log_in_anew(self, now_ms: int) -> None:
        """There are other credentials: what was refused to the old ones is asked for now."""
        if self._state is State.SUBSCRIPTION_NEEDED and self._retry.refusals:
            self._retry.clear()
            self._due_ms = now_ms

    def request_failed(self, request_id: int, now_ms: int, *, retriable: bool = True) -> None:
        """A request got no answer: no connection, disconnected, timed out; not `retriable`: refused for good."""
        if self._land(request_id) is None:
            return
        self.counters.failed += 1
        if self._state is State.TERMINATING_PUSH_NEEDED:
            self._finish_unless_pushable()
        elif self._state is State.TERMINATING_PUSH_IN_PROGRESS:
            if retriable and not self._is_last_try:
                self._is_last_try = True
                self._move(State.TERMINATING_PUSH_NEEDED)
            else:
                self._terminate()
        else:
            self._move(State.SUBSCRIPTION_NEEDED)
            delay_ms = (
                self._retry.after_failure_ms(self._interval_ms(), self._jitter())
                if retriable
                else self._retry.after_refusal_ms()
            )
            self._wait(delay_ms, 0, now_ms)

    def _send_get(self, now_ms: int) -> SendGet:
        flight = self._take_off(now_ms)
        self._move(State.SUBSCRIPTION_IN_PROGRESS)
        request = GetTelemetrySubscriptionsRequest(self.client_instance_id or ZERO_UUID)
        return SendGet(flight.request_id, request, flight.deadline_ms)

    def _send_push(self, now_ms: int, unix_ms: int) -> Action:
        subscription = self._subscription
        assert subscription is not None, "no state but SUBSCRIPTION_* is entered without a subscription"
        terminating = self._state is State.TERMINATING_PUSH_NEEDED
        payload = self._builder.build(subscription, unix_ms)
        if payload is None:
            return self._not_built(now_ms, terminating=terminating)
        request = PushTelemetryRequest(
            subscription.client_instance_id,
            subscription.subscription_id,
            terminating,
            payload.compression_type,
            payload.metrics,
        )
        flight = self._take_off(now_ms, request, payload.points)
        self._move(State.TERMINATING_PUSH_IN_PROGRESS if terminating else State.PUSH_IN_PROGRESS)
        return SendPush(flight.request_id, request, flight.deadline_ms)

    def _not_built(self, now_ms: int, *, terminating: bool) -> Action:
        if terminating:
            self._terminate()
            return Done()
        self._wait(self._interval_ms(), 0, now_ms)
        return WaitUntil(now_ms + self._interval_ms())

    def _adopt(self, response: GetTelemetrySubscriptionsResponse) -> bool:
        """Follow the subscription in `response`; False when it names no client instance id."""
        before = self._subscription
        subscription = subscription_of(response, self.client_instance_id)
        if subscription is None:
            log.warning("the broker answered a telemetry subscription without a client instance id")
            return False
        if before is not None and before.delta_temporality != subscription.delta_temporality:
            self._builder.reset()
        self._subscription = subscription
        self.counters.subscriptions += 1
        return True

    def _follow(self, throttle_ms: int, now_ms: int) -> None:
        """Wait for the first push of a subscription just adopted, or for the next one when it asks for nothing."""
        refused, self._subscription_refused = self._subscription_refused, False
        self._retry.failures = 0
        assert self._subscription is not None, "called with a subscription just adopted"
        if not self._subscription.selection:
            self._retry.clear()
            self._move(State.SUBSCRIPTION_NEEDED)
            self._wait(self._interval_ms(), throttle_ms, now_ms)
            return
        factor = self._jitter()
        if refused and factor < 1:
            # The refused push counts as this interval's; mirrored rather than cut, so that clients stay spread.
            factor = 2 - factor
        self._move(State.PUSH_NEEDED)
        self._wait(round(factor * self._interval_ms()), throttle_ms, now_ms)

    def _accepted(self, flight: _Flight) -> None:
        self._retry.clear()
        self.counters.pushes += 1
        self._builder.acknowledge(flight.points)

    def _refused(self, code: int, push: PushTelemetryRequest | None, throttle_ms: int, now_ms: int) -> None:
        """A request was answered with an error: ask for the subscription again, sooner or later."""
        self.counters.refused += 1
        self._move(State.SUBSCRIPTION_NEEDED)
        if push is not None:
            self._builder.learn(code, push)
        if code in _PUSH_AT_FAULT and push is not None:
            self._subscription_refused = True
            delay_ms = 0
        elif code in _PUSH_AT_FAULT or code in _TOO_MUCH:
            delay_ms = self._interval_ms()
        else:
            delay_ms = self._retry.after_refusal_ms()
            log.warning("the broker refused telemetry with %s; asking again in %d ms", error_name(code), delay_ms)
        self._wait(delay_ms, throttle_ms, now_ms)

    def _finish_unless_pushable(self) -> None:
        """While terminating, after an answer: a last push is pointless when its subscription is known to be refused."""
        subscription = self._subscription
        if subscription is None or not subscription.selection or self._subscription_refused:
            self._terminate()

    def _expire(self, now_ms: int) -> None:
        if self._close_deadline_ms is not None and now_ms >= self._close_deadline_ms:
            self._terminate()
        elif self._flight is not None and now_ms >= self._flight.deadline_ms:
            self.request_failed(self._flight.request_id, now_ms)

    def _take_off(
        self, now_ms: int, push: PushTelemetryRequest | None = None, points: tuple[PushPoint, ...] = ()
    ) -> _Flight:
        deadline_ms = self._sooner_than_close(now_ms + self._request_timeout_ms)
        self._last_request_id += 1
        self._flight = _Flight(self._last_request_id, deadline_ms, push, points)
        return self._flight

    def _sooner_than_close(self, at_ms: int) -> int:
        return at_ms if self._close_deadline_ms is None else min(at_ms, self._close_deadline_ms)

    def _land(self, request_id: int) -> _Flight | None:
        flight = self._flight
        if flight is None or flight.request_id != request_id:
            return None
        self._flight = None
        return flight

    def _terminate(self) -> None:
        if self._state is not State.TERMINATED:
            self._flight = None
            self._move(State.TERMINATED)

    def _move(self, state: State) -> None:
        assert state in VALID_NEXT_STATES[self._state], f"{self._state.name} is never followed by {state.name}"
        self._state = state

    def _wait(self, delay_ms: int, throttle_ms: int, now_ms: int) -> None:
        self._due_ms = now_ms + max(delay_ms, throttle_ms)

    def _interval_ms(self) -> int:
        return self._subscription.push_interval_ms if self._subscription else DEFAULT_PUSH_INTERVAL_MS

    def _jitter(self) -> float:
        low, high = _JITTER
        return low + self._uniform() * (high - low)
