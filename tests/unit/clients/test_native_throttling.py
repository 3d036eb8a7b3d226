"""A librdkafka that waits out throttles by itself: simulated, as none is released."""

import json
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ThrottleEvent

from kclient_quota.clients import producer_settings
from kclient_quota.clients.aside import CallbackGuard
from kclient_quota.clients.gate import ProducerGates
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.native_throttling import LAST_WITHOUT, NEEDED, NativeThrottling
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.testing.clock import ManualClock

LATER = LAST_WITHOUT + 0x10000
THROTTLE_MS = 4_000


def statistics(sent: int, *, kind: str = "Produce", work: bool = True, unanswered: int = 0, broker: int = 1) -> str:
    partition: dict[str, Any] = {"partition": 0, "broker": broker, "fetchq_cnt": 0, "fetchq_size": 0}
    if kind == "Produce":
        partition |= {"msgq_cnt": 5 if work else 0, "xmit_msgq_cnt": 0, "fetch_state": "none"}
    else:
        partition |= {"msgq_cnt": 0, "fetch_state": "active", "fetchq_cnt": 0 if work else 9}
    entry = {"nodeid": broker, "name": f"b:9092/{broker}", "nodename": "b:9092", "source": "learned"}
    counted = {"req": {kind: sent, "Metadata": 1}, "waitresp_cnt": unanswered, "rxbytes": 10 * sent, "rx": sent}
    return json.dumps({"brokers": {"b": {**entry, **counted}}, "topics": {"t": {"partitions": {"0": partition}}}})


def observed(version: int = LATER) -> tuple[NativeThrottling, list[bool]]:
    told: list[bool] = []
    return NativeThrottling(version, told.append), told


def throttles(native: NativeThrottling, count: int, *, per_second: int = 0, begin: int = 0, **what: Any) -> None:
    """So many throttles with an event every second, in which requests may go on being sent."""
    sent = 0
    for number in range(count):
        now_ms = (begin + number) * 2 * THROTTLE_MS
        native.on_throttle(1, THROTTLE_MS, now_ms)
        for second in range(1, 8):
            # After the throttle anybody sends.
            sent += per_second if second < 4 else 7
            native.on_statistics(statistics(sent, **what), now_ms + second * 1_000)


@pytest.mark.parametrize("kind", ["Produce", "Fetch"])
def test_one_that_is_silent_in_every_throttle_is_recognised(kind: str) -> None:
    native, told = observed()
    throttles(native, NEEDED - 1, kind=kind)
    assert not native.recognised
    throttles(native, 1, begin=NEEDED, kind=kind)
    assert native.recognised
    assert told == [True]


def test_one_that_goes_on_sending_is_not_and_one_request_is_proof_enough() -> None:
    native, told = observed()
    throttles(native, 10, per_second=1)
    assert told == []
    throttles(native, NEEDED, begin=10)
    assert told == [True]
    throttles(native, 1, begin=20, per_second=1)
    assert told == [True, False]
    throttles(native, NEEDED - 1, begin=30)
    assert not native.recognised


@pytest.mark.parametrize("what", [{"work": False}, {"unanswered": 1}, {"kind": "Fetch", "work": False}])
def test_who_had_nothing_to_send_or_could_not_proves_nothing(what: dict[str, Any]) -> None:
    """Today's librdkafka: one Fetch, or max.in.flight Produce requests, that the muted broker leaves unanswered."""
    native, told = observed()
    throttles(native, 10, **what)
    assert told == []


@pytest.mark.parametrize("version", [LAST_WITHOUT, 0x020200FF])
def test_versions_known_not_to_are_not_looked_at(version: int) -> None:
    native, told = observed(version)
    throttles(native, 10)
    native.on_statistics("not even read", 0)
    assert told == []


def test_short_throttles_and_what_was_on_its_way_prove_nothing() -> None:
    native, told = observed()
    for number in range(20):
        native.on_throttle(1, 900, number * 1_000)
        native.on_statistics(statistics(number), number * 1_000 + 100)
        native.on_statistics(statistics(number), number * 1_000 + 850)
    assert told == []


def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("2.17.0", LATER))


def throttled_by(conf: dict[str, Any], clock: ManualClock, kind: str) -> None:
    """What such a librdkafka tells through its callbacks."""
    for number in range(NEEDED):
        conf["throttle_cb"](ThrottleEvent("b:9092/1", 1, THROTTLE_MS / 1000))
        for _ in range(7):
            clock.sleep_ms(1_000)
            conf["stats_cb"](statistics(number, kind=kind))


def test_a_producer_is_not_throttled_twice_but_what_is_on_its_way_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later_version(monkeypatch)
    clock = ManualClock()
    limit = Limit(10_000, None, LimitSource.CONFIG)
    gates = ProducerGates(Backoff.BLOCK, "app", limit, clock)
    conf = producer_settings.with_callbacks({}, gates, CallbackGuard(), limit)
    gate = gates.only
    assert gate is not None
    assert gates.admit(gate, 1_000) == 0
    gates.settled(gate, gate.handed)
    throttled_by(conf, clock, "Produce")
    conf["throttle_cb"](ThrottleEvent("b:9092/1", 1, 600.0))
    assert gates.state()[1].throttled_until_ms == 600_000
    admitted = 0
    while (wait_ms := gates.admit(gate, 1_000)) == 0:
        admitted += 1
        assert admitted < 100
    # Librdkafka waits for ten minutes; here only deliveries are waited for.
    assert gate.waits_for_deliveries
    assert wait_ms <= 1_000
    # At 10,000 B/s that is about half a second's.
    assert 1 <= admitted <= 20
    gates.settled(gate, gate.handed)
    assert gates.admit(gate, 1_000) == 0
