"""The consumer's core and what listens for it, without a broker."""

import json
import logging
from typing import Any

import pytest
from confluent_kafka import Message, ThrottleEvent

from kclient_quota.clients.consumer import settings
from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.consumer.receiving.listening import Listener
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.throttle_log import ThrottleLog
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.metrics import MetricName
from kclient_quota.pacing.fetching.fetch_sizes import OPEN, FetchSizes, sizes_for, with_sizes
from kclient_quota.pacing.fetching.fetch_statistics import fetch_statistics
from kclient_quota.testing.clock import ManualClock

QUOTA = 100_000.0


def limit_of(byte_rate: float | None) -> Limit:
    return Limit(byte_rate, None, LimitSource.CONFIG)


class Driven:
    """A core, told what librdkafka says by its listener, and asked as `Receiving` asks."""

    def __init__(self, core: ConsumerCore, clock: ManualClock, backoff: Backoff = Backoff.BLOCK) -> None:
        self.core = core
        self.clock = clock
        self.listener = Listener(core, clock, ThrottleLog("app", "fetches are spaced", backoff))
        self.credit = 0.0

    def ask(self) -> int:
        if self.credit > 0.0:
            return 0
        self.credit, wait_ms = self.core.grant(self.clock.now_ms())
        return wait_ms

    def charge(self, messages: list[Message]) -> None:
        self.credit -= self.core.charge(messages)

    def on_statistics(self, text: str) -> None:
        self.listener.events.append(text)
        assert self.listener.hear()

    def on_throttle(self, name: str, broker_id: int, throttle_ms: int) -> None:
        self.listener.events.append(ThrottleEvent(name, broker_id, throttle_ms / 1000))
        assert not self.listener.hear()

    def other_sizes(self, now_ms: int) -> FetchSizes | None:
        wanted = self.core.other_sizes(now_ms)
        if wanted is not None:
            self.core.change_sizes(wanted)
        return wanted

    def state(self) -> dict[int, BrokerQuotaState]:
        return self.core.state(self.clock.now_ms())

    def metrics(self) -> dict[MetricName, float]:
        return self.core.metrics(self.clock.now_ms())


def gate_of(
    clock: ManualClock,
    byte_rate: float | None = QUOTA,
    *,
    sized_for: float | None = QUOTA,
    backoff: Backoff = Backoff.BLOCK,
    queue_kbytes: int | None = None,
    limit: Limit | None = None,
) -> Driven:
    theirs = {} if queue_kbytes is None else {"queued.max.messages.kbytes": queue_kbytes}
    _, sizes = with_sizes(theirs, sized_for)
    core = ConsumerCore(backoff, "app", limit or limit_of(byte_rate), sizes, 300_000, clock.now_ms())
    return Driven(core, clock, backoff)


def statistics(
    at_ms: int,
    *,
    received: int = 0,
    queued: tuple[int, int] = (0, 0),
    messages: int = 0,
    brokers: int = 1,
    throttled: int = 0,
) -> str:
    """librdkafka's JSON, what of it counts."""
    window = {"cnt": throttled, "sum": throttled * 300, "max": 300 if throttled else 0}
    return json.dumps(
        {
            "ts": at_ms * 1000,
            "rxmsgs": messages,
            "brokers": {
                f"b{node}:9092/{node}": {
                    "name": f"b{node}:9092/{node}",
                    "nodeid": node,
                    "nodename": f"b{node}:9092",
                    "source": "learned",
                    "rx": received // 1_000,
                    "rxbytes": received,
                    "throttle": window,
                }
                for node in range(1, brokers + 1)
            },
            "topics": {
                "t": {
                    "partitions": {
                        str(number): {
                            "partition": number,
                            "broker": number + 1,
                            "fetchq_size": queued[0],
                            "fetchq_cnt": queued[1],
                            "fetch_state": "active",
                        }
                        for number in range(brokers)
                    }
                }
            },
        }
    )


def message(size: int = 990, partition: int = 0) -> Message:
    return Message(topic="t", partition=partition, offset=0, value=b"x" * size)


def test_messages_are_granted_at_the_pace_of_the_quota() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    taken = 0
    while clock.now_ms() < 10_000:
        wait_ms = gate.ask()
        if wait_ms:
            clock.sleep_ms(wait_ms)
        else:
            gate.charge([message()])
            taken += 1_000
    assert taken == pytest.approx(0.99 * QUOTA * 10, rel=0.01)


def test_nothing_waits_where_nothing_limits_where_pacing_is_off_and_where_the_sizes_do_not_fit() -> None:
    clock = ManualClock()
    for gate in (
        gate_of(clock, None, sized_for=None),
        gate_of(clock, backoff=Backoff.OFF),
        gate_of(clock, QUOTA, queue_kbytes=65_536),
    ):
        assert not gate.core.paced
        assert gate.ask() == 0
        assert gate.credit == float("inf")
        assert gate.core.most_messages(1_000, gate.credit) == 1_000
    assert gate_of(clock).core.paced


def test_as_many_messages_are_taken_at_once_as_the_grant_is_worth() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.on_statistics(statistics(0, queued=(99_000, 100)))
    clock.sleep_ms(1_000)
    assert gate.ask() == 0
    assert 1 <= gate.core.most_messages(1_000, gate.credit) <= 6


def test_each_broker_pays_for_its_own_messages() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.on_statistics(statistics(0, brokers=2))
    taken = 0
    turn = 0
    while clock.now_ms() < 10_000:
        wait_ms = gate.ask()
        if wait_ms:
            clock.sleep_ms(wait_ms)
        else:
            gate.charge([message(partition=turn % 2)])
            turn += 1
            taken += 1_000
    assert taken == pytest.approx(2 * 0.99 * QUOTA * 10, rel=0.06)


def test_a_limit_that_is_found_later_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    gate = gate_of(clock, None, sized_for=QUOTA)
    assert (gate.ask(), gate.core.paced) == (0, False)
    gate.core.on_limit(limit_of(QUOTA))
    with caplog.at_level(logging.INFO, "kclient_quota"):
        gate.on_statistics(statistics(0))
    assert gate.core.paced
    assert caplog.text.count("From now on the consumer quota of client 'app' is 100,000 B/s") == 1
    gate.credit = 0.0
    gate.charge([message(50_000)])
    assert gate.ask() > 0


def test_sizes_change_with_the_limit_and_not_too_often() -> None:
    clock = ManualClock()
    gate = gate_of(clock, None, sized_for=None)
    assert gate.other_sizes(0) is None
    gate.core.on_limit(limit_of(QUOTA))
    gate.on_statistics(statistics(0))
    assert gate.other_sizes(0) == sizes_for(QUOTA)
    gate.core.on_limit(limit_of(200 * QUOTA))
    gate.on_statistics(statistics(1_000))
    assert gate.other_sizes(1_000) is None
    assert gate.other_sizes(5_000) == sizes_for(200 * QUOTA)
    gate.core.on_limit(limit_of(250 * QUOTA))
    gate.on_statistics(statistics(20_000))
    assert gate.other_sizes(20_000) is None
    gate.core.on_limit(limit_of(None))
    gate.on_statistics(statistics(20_000))
    assert gate.other_sizes(20_000) == OPEN
    assert not gate.core.paced


def test_sizes_that_nobody_can_fetch_in_change_nothing() -> None:
    """As where a second client cannot be made: the first one's queue was paid for anew every five seconds."""
    clock = ManualClock()
    wants, asks_never = (gate_of(clock, 60 * QUOTA, sized_for=None) for _ in range(2))
    asked = 0
    for tick in range(60):
        for gate in (wants, asks_never):
            gate.on_statistics(statistics(clock.now_ms(), received=tick * 1_500_000, messages=tick * 1_500))
        asked += wants.core.other_sizes(clock.now_ms()) is not None
        for gate in (wants, asks_never):
            if gate.ask() == 0:
                gate.charge([message(100_000)] * 6)
        assert (wants.credit, wants.state()) == (asks_never.credit, asks_never.state())
        clock.sleep_ms(250)
    assert asked == 3


def test_sizes_of_the_users_own_stay_whatever_the_limit() -> None:
    gate = gate_of(ManualClock(), 1_000.0, queue_kbytes=65_536)
    assert gate.other_sizes(0) is None


def test_who_learns_fetches_more_as_more_comes_without_being_refused() -> None:
    clock = ManualClock()
    unknown = Limit(None, None, LimitSource.LEARNED)
    core = ConsumerCore(Backoff.BLOCK, "app", unknown, sizes_for(None), 300_000, 0)
    gate = Driven(core, clock)
    received = 0
    fetched = [core.sizes.fetch_bytes]
    for _ in range(80):
        clock.sleep_ms(250)
        received += 2_500_000
        gate.on_statistics(statistics(clock.now_ms(), received=received))
        if gate.other_sizes(clock.now_ms()) is not None:
            received = 0
            fetched.append(core.sizes.fetch_bytes)
    assert fetched == [4_096, 65_536]


def test_the_first_quota_that_is_found_is_told_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kclient_quota"):
        gate_of(ManualClock(), None, sized_for=None).listener.tell()
        gate_of(ManualClock(), backoff=Backoff.OFF).listener.tell()
        assert caplog.records == []
        gate_of(ManualClock()).listener.tell()
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == "The consumer quota of client 'app' is 100,000 B/s per broker, from config"
    assert (record.__dict__["client_id"], record.__dict__["consumer_byte_rate"]) == ("app", QUOTA)


def test_a_cause_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    with caplog.at_level(logging.INFO, "kclient_quota"):
        for second in range(130):
            gate.core.on_limit(limit_of(50_000 if second % 2 else 60_000))
            gate.on_statistics(statistics(clock.now_ms()))
            clock.sleep_ms(1_000)
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "is 50,000 B/s" in text]) == 3


def test_what_was_granted_before_a_limit_was_learnt_does_not_outlast_it() -> None:
    clock = ManualClock()
    gate = gate_of(clock, None, sized_for=None)
    assert (gate.ask(), gate.credit) == (0, float("inf"))
    gate.on_statistics(statistics(0))
    clock.sleep_ms(250)
    gate.on_statistics(statistics(250, received=2_000_000))
    gate.on_throttle("b1:9092/1", 1, 2_000)
    assert not gate.core.paced, "64 MB cannot hold fetches back"
    sizes = gate.other_sizes(clock.now_ms())
    assert sizes is not None
    assert sizes.queue_bytes <= 200_000
    assert gate.other_sizes(clock.now_ms() + 60_000) is None
    assert gate.core.paced
    gate.credit = 0.0
    assert gate.ask() == 2_000
    clock.sleep_ms(2_000)
    assert gate.ask() == 0
    assert 0.0 < gate.credit < float("inf")


def test_a_throttle_is_told_once_when_it_begins_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    asked: list[int] = []
    gate.listener.ask_soon = lambda: asked.append(clock.now_ms())
    gate.on_statistics(statistics(0))
    with caplog.at_level(logging.INFO, "kclient_quota"):
        for _ in range(20):
            gate.on_throttle("b1:9092/1", 1, 500)
            gate.on_throttle("b1:9092/1", 1, 0)
            clock.sleep_ms(500)
            gate.on_statistics(statistics(clock.now_ms()))
        clock.sleep_ms(6_000)
        gate.on_statistics(statistics(clock.now_ms()))
        gate.on_statistics(statistics(clock.now_ms()))
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "throttles client 'app' for 500 ms" in text]) == 1
    assert texts.count("Throttling of client 'app' has ended") == 1
    assert asked == [0]


def test_a_throttle_of_the_coordinator_goes_to_its_broker_by_address() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.on_statistics(statistics(0))
    gate.on_throttle("b1:9092", -1, 700)
    assert gate.state()[1].throttled_until_ms == 700


def test_a_stall_is_in_the_log_the_state_and_the_metrics_until_messages_come(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    gate = gate_of(clock, 20_000, sized_for=20_000)
    gate.on_statistics(statistics(0))
    name = MetricName("fetch-stalled-brokers", "consumer-fetch-manager-metrics", (("client-id", "app"),))
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        gate.on_throttle("b1:9092/1", 1, 13_500)
        clock.sleep_ms(13_500)
        assert gate.state()[1].stall is None
        gate.on_throttle("b1:9092/1", 1, 13_500)
    assert "470,000" in str(gate.state()[1].stall)
    assert caplog.text.count("never be delivered") == 1
    assert gate.metrics()[name] == 1.0
    gate.on_statistics(statistics(clock.now_ms(), messages=5))
    assert gate.state()[1].stall is None
    assert gate.metrics()[name] == 0.0


def test_a_crowd_that_refuses_who_learns_again_and_again_is_no_stall() -> None:
    clock = ManualClock()
    gate = gate_of(clock, None, sized_for=None)
    for _ in range(30):
        gate.on_statistics(statistics(clock.now_ms()))
        gate.on_throttle("b1:9092/1", 1, 1_300)
        clock.sleep_ms(1_300)
    assert [state.stall for state in gate.state().values()] == [None]


def test_a_request_quotas_throttle_is_no_stall() -> None:
    clock = ManualClock()
    gate = gate_of(clock, sized_for=20_000, limit=Limit(20_000, 5.0, LimitSource.CONFIG))
    gate.on_statistics(statistics(0))
    for _ in range(30):
        gate.on_throttle("b1:9092/1", 1, 1_000)
        clock.sleep_ms(1_000)
    gate.on_statistics(statistics(clock.now_ms()))
    assert gate.state()[1].stall is None


def test_throttle_times_count_every_response_and_polling_has_its_metrics() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.on_statistics(statistics(0))
    clock.sleep_ms(250)
    gate.on_statistics(statistics(250, received=10_000, throttled=1))
    clock.sleep_ms(2_000)
    found = {(name.name, name.tag("node-id")): value for name, value in gate.metrics().items()}
    assert found["fetch-throttle-time-avg", None] == 30
    assert found["fetch-throttle-time-max", "node-1"] == 300
    assert found["last-poll-seconds-ago", None] == 2.0
    assert found["poll-headroom-ms", None] == 298_000


def test_a_clock_that_jumps_does_not_make_statistics_old() -> None:
    clock = ManualClock(5_000_000)
    gate = gate_of(clock)
    gate.on_statistics(statistics(1_000))
    assert gate.core._made_at_ms({"ts": 1_250_000}, 5_000_300) == 5_000_250
    assert gate.core._made_at_ms({"ts": 1_500_000}, 9_000_000) == 9_000_000
    assert gate.core._made_at_ms({"ts": 1_750_000}, 9_000_260) == 9_000_250


def test_statistics_of_the_coordinators_connection_and_of_idle_partitions_do_not_count() -> None:
    seen = json.loads(statistics(0, received=7_000, queued=(500, 2)))
    seen["brokers"]["GroupCoordinator"] = {"nodeid": 1, "source": "logical", "rxbytes": 99}
    seen["topics"]["t"]["partitions"]["-1"] = {
        "partition": -1,
        "broker": -1,
        "fetchq_size": 0,
        "fetchq_cnt": 0,
        "fetch_state": "none",
    }
    found = fetch_statistics(seen, {1: 4}, 77)
    assert found.received == {1: (7_000, 4)}
    assert found.leaders == {("t", 0): 1}
    assert (found.queued_bytes, found.queued_count, found.at_ms) == (500, 2, 77)


def test_what_a_seek_or_a_rebalance_forgets_is_lost_quota_and_counted_once() -> None:
    gate = gate_of(ManualClock(1_000))
    gate.on_statistics(statistics(1_000, received=10_000, queued=(4_000, 4), brokers=2))
    gate.on_statistics(statistics(1_250, received=60_000, queued=(4_000, 4), brokers=2))
    queued = gate.core._pacer.queued_bytes
    assert queued >= 4_000
    gate.core.on_forgotten(0, [("unknown", 3)])
    assert not gate.core._pacer._is_torn
    gate.core.on_forgotten(1_000, [("t", 1), ("unknown", 3)])
    assert {number: state.lost for number, state in gate.state().items()} == {1: 0, 2: 1_000 + round(queued / 2)}
    assert gate.core._pacer._is_torn
    gate.core.on_forgotten(0, [("t", 1)])
    gate.core.on_forgotten(0)  # the rest of it
    found = {metric.name: value for metric, value in gate.metrics().items()}
    assert found["quota-fetch-lost-bytes-total"] == pytest.approx(1_000 + queued, abs=2)
    assert found["quota-fetch-lost-ratio"] == pytest.approx(found["quota-fetch-lost-bytes-total"] / 120_000)


# Configuration


def callbacks_of(conf: dict[str, Any], driven: Driven) -> dict[str, Any]:
    return driven.listener.callbacks(conf, ConsumerInterceptors([]))


@pytest.mark.parametrize(
    ("theirs", "byte_rate", "period_ms"),
    [(None, QUOTA, 250), (None, None, 1_000), (100, QUOTA, 100), (60_000, QUOTA, 250), ("oops", QUOTA, "oops")],
)
def test_statistics_come_as_often_as_the_quicker_of_us_needs(
    theirs: Any, byte_rate: float | None, period_ms: Any
) -> None:
    conf = {} if theirs is None else {"statistics.interval.ms": theirs, "stats_cb": lambda text: None}
    driven = gate_of(ManualClock(), byte_rate)
    assert callbacks_of(conf, driven)["statistics.interval.ms"] == period_ms


def test_the_users_statistics_come_as_often_as_they_asked_for() -> None:
    clock = ManualClock()
    seen: list[int] = []
    conf = {"statistics.interval.ms": 1_000, "stats_cb": lambda text: seen.append(clock.now_ms())}
    driven = gate_of(clock)
    stats_cb = callbacks_of(conf, driven)["stats_cb"]
    for _ in range(40):
        clock.sleep_ms(250)
        stats_cb(statistics(clock.now_ms()))
        driven.listener.hear()
    assert seen == list(range(1_000, 10_001, 1_000))


def test_callbacks_of_the_users_are_called_after_ours_and_marked() -> None:
    clock = ManualClock()
    gate = gate_of(clock)
    gate.on_statistics(statistics(0))
    seen: list[tuple[str, bool, int]] = []

    def hear(name: str) -> Any:
        return lambda *_: seen.append((name, gate.listener.in_callback, gate.state()[1].throttled_until_ms))

    conf = {"throttle_cb": hear("throttle"), "error_cb": hear("error"), "on_commit": hear("commit")}
    out = callbacks_of(conf, gate)
    out["throttle_cb"](ThrottleEvent("b1:9092/1", 1, 0.4))
    assert seen == []
    gate.listener.hear()
    out["error_cb"]("error")
    out["on_commit"](None, [])
    assert seen == [("throttle", True, 400), ("error", True, 400), ("commit", True, 400)]
    assert not gate.listener.in_callback


def test_a_throttle_of_the_client_that_fetches_no_more_is_none_of_ours() -> None:
    """One that had asked for megabytes is refused later, and looked like one for the 16 kB that are asked now."""
    clock = ManualClock()
    driven = gate_of(clock)
    driven.on_statistics(statistics(0))
    seen: list[float] = []
    callbacks_of({"throttle_cb": lambda event: seen.append(event.throttle_time)}, driven)
    driven.listener.is_split = True
    driven.on_throttle("b1:9092/1", 1, 2_000)
    assert driven.state()[1].throttled_until_ms == 0
    driven.listener.fetcher_events.append(ThrottleEvent("b1:9092/1", 1, 0.4))
    assert not driven.listener.hear()
    assert driven.state()[1].throttled_until_ms == 400
    assert seen == [2.0, 0.4]


def test_what_is_left_of_a_fetcher_says_nothing_of_the_next_one() -> None:
    """All that the one before had received was counted once more, as if the next one had received it at once."""
    clock = ManualClock()
    driven = gate_of(clock)
    seen: list[float] = []
    callbacks_of({"throttle_cb": lambda event: seen.append(event.throttle_time)}, driven)
    listener = driven.listener
    listener.on_other_fetcher()
    listener.fetcher_events.append(statistics(0, received=50_000))
    listener.hear()
    driven.core.change_sizes(OPEN)
    listener.fetcher_events += [statistics(0, received=60_000), ThrottleEvent("b1:9092/1", 1, 2.0)]
    listener.on_other_fetcher()
    assert listener.is_split
    listener.fetcher_events.append(statistics(0, received=1_000))
    listener.hear()
    pace = driven.core._pacer.paces[1]
    assert pace.window.total(0) == 51_000
    assert pace.throttled_until_ms == 0
    assert seen == [2.0]


def test_what_was_on_its_way_to_the_client_that_fetches_no_more_is_counted_as_ours() -> None:
    """That was the quota of ten seconds: who knew nothing of it took a twentieth of the quota for all that is his."""
    clock = ManualClock()
    driven = gate_of(clock, None, limit=Limit(None, None, LimitSource.LEARNED))

    def tell(received: int, *, waits: int) -> None:
        clock.sleep_ms(250)
        told = json.loads(statistics(clock.now_ms(), received=received))
        told["brokers"]["b1:9092/1"]["waitresp_cnt"] = waits
        driven.on_statistics(json.dumps(told))

    tell(2_000, waits=1)
    tell(3_000, waits=1)
    driven.listener.is_split = True
    tell(3_500, waits=1)
    tell(1_003_500, waits=1)
    tell(1_005_000, waits=0)
    tell(9_000_000, waits=0)  # nothing was on its way any more: not of fetches
    driven.listener.fetcher_events.append(ThrottleEvent("b1:9092/1", 1, 0.5))
    driven.listener.hear()
    assert driven.state()[1].rate == pytest.approx((3_000 + 1_001_500 + 1_000) / 10.75)  # the last: what was refused


def test_and_says_nothing_to_who_knows_the_limit() -> None:
    driven = gate_of(ManualClock())
    driven.on_statistics(statistics(0))
    driven.core.on_late_fetch(1, 1_000_000, 0)
    assert driven.core._pacer.paces[1].window.total(0) == 0


def test_what_our_callbacks_do_runs_no_python_in_which_a_signal_could_be_handled() -> None:
    driven = gate_of(ManualClock())
    out = callbacks_of({"stats_cb": print, "statistics.interval.ms": 100, "throttle_cb": print}, driven)
    assert all(type(out[name]) is type([].append) for name in ("stats_cb", "throttle_cb"))


def test_what_we_fail_to_understand_is_logged_and_the_users_callback_is_called_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    driven = gate_of(ManualClock())
    callbacks_of({"stats_cb": seen.append, "statistics.interval.ms": 250}, driven)
    driven.clock.sleep_ms(250)  # type: ignore[attr-defined]
    driven.listener.events.append("no JSON")
    assert driven.listener.hear()
    assert "could not be handled" in caplog.text
    assert seen == ["no JSON"]


def test_what_the_users_callback_raises_goes_to_whoever_polls_and_the_next_event_is_heard() -> None:
    def theirs(event: ThrottleEvent) -> None:
        raise LookupError(event.throttle_time)

    driven = gate_of(ManualClock())
    callbacks_of({"throttle_cb": theirs}, driven)
    driven.listener.events.extend([ThrottleEvent("b1:9092/1", 1, 0.4), statistics(0)])
    with pytest.raises(LookupError):
        driven.listener.hear()
    assert not driven.listener.in_callback
    assert driven.listener.hear()
    assert list(driven.state()) == [1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 300_000), ({"max.poll.interval.ms": "6000"}, 6_000), ({"max.poll.interval.ms": "x"}, 300_000)],
)
def test_the_poll_interval_is_librdkafkas(given: dict[str, Any], expected: int) -> None:
    assert settings.max_poll_interval_ms(given) == expected
