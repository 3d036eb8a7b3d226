"""Rows for client telemetry (KIP-714): what a broker answers to pushes."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.brokers.talker import Talker
from kclient_quota.certify.verdict import Verdict, absent, failed, passed
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)

_GET: Final = 71
_INTERVAL_MS: Final = 60_000
_ZERO: Final = UUID(int=0)
_GZIP, _NO_SUCH_COMPRESSION = 1, 9


class _Subscribed(NamedTuple):
    talker: Talker
    answer: GetTelemetrySubscriptionsResponse

    def push(
        self, metrics: bytes = b"", *, compression: int = 0, terminating: bool = False, subscription: int = 0
    ) -> int:
        """The error code of a push; `subscription` is added to the right id."""
        request = PushTelemetryRequest(
            client_instance_id=self.answer.client_instance_id,
            subscription_id=self.answer.subscription_id + subscription,
            terminating=terminating,
            compression_type=compression,
            metrics=metrics,
        )
        return int(self.talker.ask(request).answer.error_code)


def _judged(judge: Callable[[_Subscribed], Verdict]) -> Callable[[Probe], Verdict]:
    """Asked of those only who have the API."""

    def ask(probe: Probe) -> Verdict:
        if not probe.has_api(_GET):
            return absent("it does not advertise GetTelemetrySubscriptions")
        probe.subscribe(probe.name, _INTERVAL_MS)
        talker = probe.talker()
        answer = talker.ask(GetTelemetrySubscriptionsRequest(client_instance_id=_ZERO)).answer
        if answer.error_code:
            return failed(f"the subscription was refused: error {answer.error_code}")
        return judge(_Subscribed(talker, answer))

    return ask


def _told(found: int, wanted: ErrorCode) -> Verdict:
    name = ErrorCode(found).name if found in set(ErrorCode) else str(found)
    return passed(wanted.name) if found == wanted else failed(f"answered {name}, not {wanted.name}")


def _subscription(met: _Subscribed) -> Verdict:
    answer = met.answer
    if answer.client_instance_id == _ZERO:
        return failed("it gave no client instance id")
    if answer.push_interval_ms != _INTERVAL_MS or "org.apache.kafka." not in answer.requested_metrics:
        return failed(f"asks for {answer.requested_metrics} every {answer.push_interval_ms} ms")
    if not answer.accepted_compression_types or answer.telemetry_max_bytes <= 0:
        return failed("it names no compression or no largest payload")
    return passed(f"at most {answer.telemetry_max_bytes} bytes every {answer.push_interval_ms} ms")


def _first_push(met: _Subscribed) -> Verdict:
    return _told(met.push(), ErrorCode.NONE)


def _early_push(met: _Subscribed) -> Verdict:
    first = met.push()
    return _told(met.push(), ErrorCode.THROTTLING_QUOTA_EXCEEDED) if not first else failed(f"first push: error {first}")


def _early_question(met: _Subscribed) -> Verdict:
    again = GetTelemetrySubscriptionsRequest(client_instance_id=met.answer.client_instance_id)
    return _told(met.talker.ask(again).answer.error_code, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _last_push(met: _Subscribed) -> Verdict:
    first = met.push()
    last = met.push(terminating=True)
    if first or last:
        return failed(f"first push: error {first}; terminating push, early: error {last}")
    return _told(met.push(), ErrorCode.INVALID_REQUEST)


def _too_large(met: _Subscribed) -> Verdict:
    return _told(met.push(bytes(met.answer.telemetry_max_bytes + 1)), ErrorCode.TELEMETRY_TOO_LARGE)


def _inflated(met: _Subscribed) -> Verdict:
    packed = gzip.compress(b"no metrics")[:-12]
    return _told(met.push(packed, compression=_GZIP), ErrorCode.INVALID_RECORD)


_KIP_714: Final = "KIP-714"
_LIMITS: Final = "KIP-714, Rate-limiting and quotas"

_ROWS = (
    Row(
        "telemetry-subscription",
        "Whoever asks gets an id, an interval, what is asked for and how it may be packed.",
        f"{_KIP_714}, GetTelemetrySubscriptionsResponse",
        _judged(_subscription),
    ),
    Row("telemetry-first-push", "The first push is taken at any time.", f"{_KIP_714}, jitter", _judged(_first_push)),
    Row("telemetry-early-push", "One before its interval is over is not.", _LIMITS, _judged(_early_push)),
    Row("telemetry-early-question", "Nor is a question before that.", _LIMITS, _judged(_early_question)),
    Row(
        "telemetry-terminating",
        "A terminating push is taken early, once; nothing after it.",
        f"{_KIP_714}, Client termination",
        _judged(_last_push),
    ),
    Row(
        "telemetry-unknown-subscription",
        "Another subscription's id is answered UNKNOWN_SUBSCRIPTION_ID.",
        f"{_KIP_714}, Error codes",
        _judged(lambda met: _told(met.push(subscription=1), ErrorCode.UNKNOWN_SUBSCRIPTION_ID)),
    ),
    Row(
        "telemetry-too-large",
        "More than telemetry.max.bytes is answered TELEMETRY_TOO_LARGE.",
        f"{_KIP_714}, Error codes",
        _judged(_too_large),
    ),
    Row(
        "telemetry-unknown-compression",
        "A compression nobody knows is answered UNSUPPORTED_COMPRESSION_TYPE.",
        f"{_KIP_714}, Error codes",
        _judged(
            lambda met: _told(met.push(b"x", compression=_NO_SUCH_COMPRESSION), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        ),
    ),
    Row(
        "telemetry-broken-payload",
        "What cannot be unpacked is answered INVALID_RECORD.",
        f"{_KIP_714}, Error codes",
        _judged(_inflated),
    ),
)

ROWS = tuple(replace(row, alone=True) for row in _ROWS)
"""One at a time: a broker forgets what it knows of an instance when any subscription changes."""
