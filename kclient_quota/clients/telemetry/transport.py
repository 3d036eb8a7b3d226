"""Carries a reporter's requests to a broker, over a connection with the client's own security."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kclient_telemetry.errors import TransportError
from kclient_telemetry.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
    TelemetryRequest,
    TelemetryResponse,
)

from kclient_quota.cluster.security import parse_bootstrap_servers, parse_security
from kclient_quota.config import whole_number
from kclient_quota.errors import ClusterError, KclientQuotaError
from kclient_quota.wire import messages as wire
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient_quota.clock import Clock

    Address = tuple[str, int]

_POINTLESS: Final = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
_METADATA_MS: Final = 5_000
_REST_MS: Final = 30_000
"""Where nothing is subscribed to and the next question is so far away, no connection is kept for it: brokers count
them. Where something is, the last push of a closing client must not wait for a new one."""
_PATIENCE_MS: Final = 30_000
_random = random.Random()  # noqa: S311 - nothing secret, and the application's own random numbers stay as they are


class BrokerTransport:
    """One connection while somebody subscribes, to the same broker as long as it holds; to another one when it breaks.

    Args:
        conf: the client's configuration, asked anew for every connection: credentials may change.
        clock: for deadlines.
    """

    def __init__(self, conf: Mapping[str, Any], clock: Clock) -> None:
        self._conf = conf
        self._clock = clock
        self._addresses: list[Address] = []
        self._connection: Connection | None = None
        self._closed = False
        # as for librdkafka, one is for a request, the other for a connection with its log-in, which takes more of them
        self._answer_ms = whole_number(conf, ["socket.timeout.ms"], _PATIENCE_MS)
        self._setup_ms = whole_number(conf, ["socket.connection.setup.timeout.ms"], _PATIENCE_MS)

    def send(self, request: TelemetryRequest, timeout_ms: int) -> TelemetryResponse:
        """Ask the broker; the next one is asked next time if it fails.

        Raises:
            TransportError: no answer; not retriable when the broker has no telemetry or refuses the credentials.
        """
        end_ms = self._clock.now_ms() + timeout_ms
        try:
            connection = self._connected(timeout_ms)
            left_ms = min(self._answer_ms, end_ms - self._clock.now_ms())
            answer = connection.send(_to_wire(request), timeout_ms=max(1, left_ms))
        except KclientQuotaError as error:
            raise self._failed(error) from error
        except Exception as error:  # an application's oauth_cb may raise anything
            raise self._failed(error) from error
        told = _from_wire(answer)
        if isinstance(told, GetTelemetrySubscriptionsResponse) and _is_pointless_to_stay(told):
            self._hang_up()
        return told

    def close(self) -> None:
        """Give up the connection; may be called again, and from another thread."""
        self._closed = True
        self._hang_up()

    def _connected(self, timeout_ms: int) -> Connection:
        if self._closed:
            raise ClusterError("telemetry is closed")
        connection = self._connection
        if connection is not None and self._must_log_in_again(connection):
            self._hang_up()
            connection = None
        if connection is None:
            if not self._addresses:
                self._addresses = parse_bootstrap_servers(self._conf)
                _random.shuffle(self._addresses)  # spreads clients over brokers
            settings = parse_security(self._conf).settings(*self._addresses[0])
            connection = Connection(settings, self._clock)
            # before it is open: close() must reach a connection that is still being made
            self._connection = connection
            if self._closed:
                raise ClusterError("telemetry is closed")
            connection.open(min(self._setup_ms, timeout_ms))
            self._learn(connection)
        return connection

    def _must_log_in_again(self, connection: Connection) -> bool:
        """Whether its session (KIP-368) is nearly over: a new one has the credentials of now, as librdkafka's has."""
        ends_ms = connection.reauthenticate_at_ms
        return ends_ms is not None and self._clock.now_ms() >= ends_ms

    def _learn(self, connection: Connection) -> None:
        """Which brokers there are beside those that were named: where to go when this one is gone."""
        told = connection.send(wire.MetadataRequest(topics=[]), timeout_ms=_METADATA_MS)
        others = [(broker.host, broker.port) for broker in told.brokers]
        _random.shuffle(others)
        self._addresses += [address for address in others if address not in self._addresses]

    def _failed(self, error: Exception) -> TransportError:
        self._hang_up()
        if self._addresses:
            self._addresses.append(self._addresses.pop(0))
        code = getattr(error, "error_code", None)
        return TransportError(str(error) or type(error).__name__, retriable=code not in _POINTLESS)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_pointless_to_stay(told: GetTelemetrySubscriptionsResponse) -> bool:
    return not told.requested_metrics and told.push_interval_ms >= _REST_MS


def _to_wire(
    request: TelemetryRequest,
) -> wire.GetTelemetrySubscriptionsRequest | wire.PushTelemetryRequest:
    if isinstance(request, GetTelemetrySubscriptionsRequest):
        return wire.GetTelemetrySubscriptionsRequest(client_instance_id=request.client_instance_id)
    return wire.PushTelemetryRequest(
        client_instance_id=request.client_instance_id,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression_type=request.compression_type,
        metrics=request.metrics or b"",
    )


def _from_wire(answer: Any) -> TelemetryResponse:
    if isinstance(answer, wire.PushTelemetryResponse):
        return PushTelemetryResponse(answer.throttle_time_ms, answer.error_code)
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=answer.throttle_time_ms,
        error_code=answer.error_code,
        client_instance_id=answer.client_instance_id,
        subscription_id=answer.subscription_id,
        accepted_compression_types=tuple(answer.accepted_compression_types),
        push_interval_ms=answer.push_interval_ms,
        telemetry_max_bytes=answer.telemetry_max_bytes,
        delta_temporality=answer.delta_temporality,
        requested_metrics=tuple(answer.requested_metrics),
    )
