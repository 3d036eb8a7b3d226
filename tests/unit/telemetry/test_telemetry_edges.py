"""What telemetry's cores remember, count and wait for just below, at and above their bounds."""

from dataclasses import replace

from kclient_telemetry.client.actions import SendGet, SendPush
from kclient_telemetry.client.temporality import Ledger
from kclient_telemetry.messages import PushTelemetryResponse
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.receiver.manager import CACHE_EXPIRY_MS, CACHE_SIZE, TELEMETRY_MAX_BYTES
from kclient_telemetry.receiver.stats import Windowed

from tests.unit.telemetry.manager_broker import Broker
from tests.unit.telemetry.reporter_bench import ANSWER, INTERVAL, Bench

KEY = PointKey("events", ())


def counted(value: int) -> Point:
    return Point(KEY, MetricKind.SUM, value)


def told(point: PushPoint) -> tuple[object, int | None, bool]:
    return point.value, point.start_unix_ms, point.delta


def test_the_bounds_of_a_receiver_are_kafkas() -> None:
    assert (CACHE_SIZE, CACHE_EXPIRY_MS, TELEMETRY_MAX_BYTES) == (16_384, 60_000, 1_048_576)


def test_events_are_counted_over_one_to_two_half_minutes() -> None:
    events = Windowed()
    for now_ms in (0, 29_999, 30_000):
        events.record(now_ms)
    assert events.ever == 3
    assert events.average(30_000) == 1.0
    assert events.rate(30_000) == 3 / 30  # two windows have not been yet, so that the begun one counts as whole
    assert events.rate(60_000) == 3 / 60
    assert events.rate(89_998) == 3_000 / 89_998
    assert events.rate(89_999) == 1_000 / 59_999  # what came 60 s ago is gone, and its sample with it
    assert events.rate(90_000) == 0.0


def test_an_event_that_has_just_come_counts_in_a_whole_window() -> None:
    events = Windowed()
    events.record(5, 8.0)
    events.record(5, 2.0)
    assert (events.rate(5), events.average(5), events.maximum(5)) == (2 / 30, 5.0, 8.0)


def test_deltas_reach_back_to_the_last_push_that_was_taken() -> None:
    ledger = Ledger()
    (first,) = ledger.prepare([counted(3)], delta=True, unix_ms=10)
    assert told(first) == (3, 10, True)
    (second,) = ledger.prepare([counted(5)], delta=True, unix_ms=20)
    assert told(second) == (5, 10, True)
    ledger.acknowledge([second])
    (third,) = ledger.prepare([counted(9)], delta=True, unix_ms=30)
    assert told(third) == (4, 20, True)
    (whole,) = ledger.prepare([counted(9)], delta=False, unix_ms=40)
    assert told(whole) == (9, 10, False)


def test_a_counter_that_began_anew_counts_since_it_was_last_seen() -> None:
    ledger = Ledger()
    ledger.acknowledge(ledger.prepare([counted(5)], delta=True, unix_ms=10))
    (anew,) = ledger.prepare([counted(2)], delta=True, unix_ms=20)
    assert told(anew) == (2, 10, True)


def test_a_reset_forgets_what_was_taken() -> None:
    ledger = Ledger()
    ledger.acknowledge(ledger.prepare([counted(5)], delta=True, unix_ms=10))
    ledger.reset()
    (anew,) = ledger.prepare([counted(7)], delta=True, unix_ms=20)
    assert told(anew) == (7, 10, True)


def test_every_hundredth_collection_forgets_the_series_that_the_last_hundred_were_without() -> None:
    def seen_last_at(collection: int, collections: int) -> int | None:
        ledger = Ledger()
        for number in range(1, collections + 1):
            ledger.prepare([counted(1)] if number == collection else [], delta=False, unix_ms=number)
        (again,) = ledger.prepare([counted(2)], delta=False, unix_ms=999)
        return again.start_unix_ms

    assert seen_last_at(1, 100) == 1
    assert seen_last_at(1, 199) == 1
    assert seen_last_at(100, 199) == 100
    assert seen_last_at(100, 200) == 999
    assert seen_last_at(101, 200) == 101


def test_a_tracked_series_that_was_never_seen_is_kept() -> None:
    ledger = Ledger()
    ledger.track(KEY, 7)
    for _ in range(200):
        ledger.prepare([], delta=False, unix_ms=100)
    (point,) = ledger.prepare([counted(1)], delta=False, unix_ms=300)
    assert told(point) == (1, 7, False)
    ledger.forget(KEY)
    (point,) = ledger.prepare([counted(1)], delta=False, unix_ms=400)
    assert told(point) == (1, 400, False)


def test_every_request_has_a_number_of_its_own_and_a_late_answer_is_passed_over() -> None:
    bench = Bench()
    bench.subscribe()
    bench.wait()
    late = bench.push(None)
    bench.now += 30_000
    bench.tick()  # given up
    bench.wait()
    again = bench.tick()
    assert isinstance(late, SendPush)
    assert isinstance(again, SendGet)
    assert again.request_id != late.request_id
    bench.reporter.push_answered(late.request_id, PushTelemetryResponse(), bench.now)
    assert bench.reporter.counters.pushes == 0
    bench.reporter.subscription_received(again.request_id, ANSWER, bench.now)
    assert bench.reporter.counters.subscriptions == 2


def test_the_first_push_comes_after_half_to_one_and_a_half_intervals() -> None:
    waits = []
    for uniform in (0.0, 0.5, 1.0):
        bench = Bench(uniform=uniform)
        bench.subscribe()
        waits.append(bench.wait())
    assert waits == [INTERVAL // 2, INTERVAL, INTERVAL * 3 // 2]


def test_a_throttle_that_is_longer_than_the_interval_is_waited_for() -> None:
    for throttle_ms, waited_ms in ((INTERVAL - 1, INTERVAL), (INTERVAL + 1, INTERVAL + 1)):
        bench = Bench()
        action = bench.tick()
        bench.reporter.subscription_received(
            action.request_id, replace(ANSWER, throttle_time_ms=throttle_ms), bench.now
        )
        assert bench.wait() == waited_ms


def test_who_is_closed_when_the_time_is_over_pushes_nothing() -> None:
    for late_ms in (0, 1, 5):
        bench = Bench().ready()
        bench.reporter.close(bench.now, bench.now - late_ms)
        assert bench.reporter.state.name == "TERMINATED"
    bench = Bench().ready()
    bench.reporter.close(bench.now, bench.now + 1)
    assert bench.reporter.state.name == "TERMINATING_PUSH_NEEDED"


def test_an_instance_is_forgotten_three_intervals_after_it_was_last_heard_of() -> None:
    def instances(*heard_after_ms: int, at_ms: int) -> int:
        broker = Broker(interval=1_000)
        begin_ms = broker.now
        broker.get()
        for after_ms in heard_after_ms:
            broker.now = begin_ms + after_ms
            broker.push()
        broker.now = begin_ms + at_ms
        broker.manager.expire(broker.now)
        return len(broker.manager._instances)

    assert instances(at_ms=2_999) == 1
    assert instances(at_ms=3_001) == 0
    assert instances(1_000, at_ms=3_001) == 1
    assert instances(1_000, at_ms=3_999) == 1
    assert instances(1_000, at_ms=4_001) == 0
    assert instances(1_000, 2_000, 3_000, at_ms=5_999) == 1
    assert instances(1_000, 2_000, 3_000, at_ms=6_001) == 0
