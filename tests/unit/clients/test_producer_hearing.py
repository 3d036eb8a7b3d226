"""What a producer makes of statistics, throttles and limits."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kclient_quota.clients.limits import UNKNOWN, Limit, warn_of_default_client_id
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.metrics import MetricName
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import LIMITED, NONE, core_of, hand, message


def made(limit: Limit, backoff: Backoff = Backoff.BLOCK) -> tuple[Hearing, ManualClock, Outbox]:
    clock = ManualClock(1_000)
    outbox = Outbox()
    outbox.is_open = True
    return Hearing(outbox, "app", limit, backoff, clock), clock, outbox


def throttle(throttle_ms: int, broker: int = 1, name: str = "host:9091/1") -> Any:
    return SimpleNamespace(broker_name=name, broker_id=broker, throttle_time=throttle_ms / 1000)


def statistics(node: int = 1, **counters: Any) -> str:
    broker = {"nodeid": node, "nodename": f"host:909{node}", "name": f"host:909{node}/{node}", **counters}
    return json.dumps({"brokers": {broker["name"]: broker}})


def test_a_throttle_that_no_quota_explains_steps_in_and_asks() -> None:
    hearing, clock, outbox = made(NONE)
    asked: list[int] = []
    started: list[None] = []
    hearing.ask_soon = lambda **_: asked.append(clock.now_ms())
    outbox.start = lambda: started.append(None)
    hearing.on_throttle(throttle(500))
    hearing.on_throttle(throttle(500))
    assert not outbox.is_open
    assert started
    assert asked == [1_000]
    core = core_of(NONE)
    assert not core.is_limited(clock.now_ms())
    hand(outbox, core, clock.now_ms())
    assert core.is_limited(clock.now_ms() + 60_000)
    assert not core.is_limited(clock.now_ms() + 60_501)


def test_that_distance_costs_a_processor_is_said_once_with_what_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    hearing, _, _ = made(NONE)
    far = {"rtt": {"avg": 22_600}}
    hearing.may_spin = True
    hearing.on_statistics(statistics(tx=180, wakeups=1_000, **far))
    hearing.on_statistics(statistics(tx=100_180, wakeups=501_000, **far))  # busy, not spinning
    assert not caplog.records
    hearing.on_statistics(statistics(tx=100_360, wakeups=1_491_000, **far))
    hearing.on_statistics(statistics(tx=100_540, wakeups=2_481_000, **far))
    (record,) = caplog.records
    assert "broker 1 is 23 ms away" in record.getMessage()
    assert "linger.ms=25 ends that" in record.getMessage()


@pytest.mark.parametrize(
    "why",
    [
        {"rtt": {"avg": 0}},  # none of the answers has come
        {"rtt": {"avg": 4_105_919}},
        {"rtt": {"avg": 276_000}, "throttle": {"cnt": 1, "sum": 900, "max": 900}},
    ],
    ids=["stalled", "stalled-before", "throttled"],
)
def test_a_broker_that_is_only_late_is_not_said_to_be_far(
    why: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A near one that throttled was "944 ms away", and linger.ms=1039 was to end that."""
    hearing, _, _ = made(NONE)
    hearing.may_spin = True
    hearing.on_statistics(statistics(tx=4, wakeups=1_117_909, **why))
    assert not [record for record in caplog.records if " ms away" in record.getMessage()]
    assert hearing.may_spin, "distance may still be said"


def test_a_broker_that_has_just_come_to_a_stand_is_not_said_to_be_far(caplog: pytest.LogCaptureFixture) -> None:
    hearing, _, _ = made(NONE)
    hearing.may_spin = True
    hearing.on_statistics(statistics(tx=40, wakeups=900_000, rtt={"avg": 1_400}))  # its last answers, and the stand
    hearing.on_statistics(statistics(tx=40, wakeups=1_900_000, rtt={"avg": 0}))
    hearing.on_statistics(statistics(tx=80, wakeups=2_800_000, rtt={"avg": 1_400}))
    assert not caplog.records


def test_a_producer_that_is_not_idempotent_is_not_told_what_that_costs(caplog: pytest.LogCaptureFixture) -> None:
    hearing, _, _ = made(NONE)
    hearing.on_statistics(statistics(tx=180, wakeups=990_000, rtt={"avg": 22_600}))
    assert not caplog.records


@pytest.mark.parametrize("by", ["throttle", "limit"])
def test_what_was_free_before_a_throttle_or_another_limit_is_asked_for_anew(by: str) -> None:
    """However late the sender looks: a hundred messages must not pass between a throttle and its first step."""
    hearing, _, outbox = made(NONE)
    outbox.free_bytes = {"": 1_000_000}
    if by == "throttle":
        hearing.on_throttle(throttle(500))
    else:
        hearing.on_limit(LIMITED)
    assert outbox.free_bytes == {"": 0}


def test_where_nothing_is_to_be_done_a_throttle_is_known_of_and_no_more() -> None:
    hearing, clock, outbox = made(NONE, Backoff.OFF)
    hearing.on_throttle(throttle(500))
    assert outbox.is_open
    core = core_of(NONE)
    hand(outbox, core, clock.now_ms())
    assert core.throttles_ms(clock.now_ms()) == [500]


def test_a_quota_is_told_when_it_is_found_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kclient_quota"):
        hearing, clock, outbox = made(LIMITED)
        assert caplog.text.count("50,000 B/s per broker, from cluster, {client-id=app}") == 1
        assert (caplog.records[0].client_id, caplog.records[0].byte_rate) == ("app", 50_000)  # type: ignore[attr-defined]
        caplog.clear()
        other = Limit(60_000, None, LimitSource.CLUSTER)
        hearing.on_limit(other)
        hearing.on_limit(other)
    assert caplog.text.count("60,000 B/s") == 1
    assert not outbox.is_open
    core = core_of(LIMITED)
    hand(outbox, core, clock.now_ms())
    assert core.state(-1, clock.now_ms())[-1].limit == 60_000


def test_throttling_is_logged_when_it_starts_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kclient_quota"):
        hearing, clock, _ = made(LIMITED)
        caplog.clear()
        for _ in range(10):
            hearing.on_throttle(throttle(700))
            clock.sleep_ms(700)
            hearing.on_statistics(statistics())
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        for _ in range(10):
            clock.sleep_ms(1_000)
            hearing.on_statistics(statistics())
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        hearing.on_throttle(throttle(700))
        clock.sleep_ms(10_000)
        hearing.on_statistics(statistics())
    # Within a minute of the first warning the second stretch stays silent, at both ends.
    assert len(caplog.records) == 2


def test_a_coordinators_throttle_goes_to_the_broker_at_its_address() -> None:
    hearing, clock, outbox = made(LIMITED)
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1, 1: 2}}, 2, clock.now_ms())
    hearing.on_statistics(statistics(node=2))
    hearing.on_throttle(throttle(5_000, -1, "host:9092/bootstrap"))
    hand(outbox, core, clock.now_ms())
    assert core.state(-1, clock.now_ms())[2].throttled_until_ms == 5_000


def test_metrics_count_unthrottled_responses_too() -> None:
    hearing, _, _ = made(LIMITED)
    hearing.on_statistics(statistics(rx=10, tx=10, txbytes=1_000, throttle={"cnt": 2, "sum": 500, "max": 300}))
    found = hearing.metrics()
    tags = (("client-id", "app"),)
    assert found[MetricName("produce-throttle-time-avg", "producer-metrics", tags)] == 50.0
    assert found[MetricName("produce-throttle-time-max", "producer-metrics", tags)] == 300.0


def test_metrics_are_zero_when_nothing_happened() -> None:
    assert set(made(LIMITED)[0].metrics().values()) == {0.0}


def test_a_limit_that_could_not_be_asked_for_is_asked_for_again_once_the_broker_answers() -> None:
    hearing, clock, _ = made(UNKNOWN)
    asked: list[tuple[int, bool]] = []
    hearing.ask_soon = lambda *, anew: asked.append((clock.now_ms(), anew))
    for _ in range(40):
        hearing.on_statistics(statistics())
        clock.sleep_ms(1_000)
    assert asked == [(1_000, False), (31_000, False)], "an answer that is under way does, and others wait for theirs"


@pytest.mark.parametrize(
    ("conf", "limit", "said"),
    [
        ({}, LIMITED, True),
        ({"client.id": "rdkafka"}, LIMITED, True),
        ({"client.id": "app"}, LIMITED, False),
        ({}, Limit(50_000, None, LimitSource.CLUSTER, "{user=alice}"), False),
        ({}, NONE, False),
    ],
)
def test_the_default_client_id_under_a_client_id_quota_is_warned_of(
    conf: dict[str, Any], limit: Limit, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_default_client_id(conf, limit)
    assert ("client.id" in caplog.text) is said


@pytest.mark.parametrize(
    ("code", "runs", "lost"),
    [
        (KafkaError._ALL_BROKERS_DOWN, True, {"orders", "sales"}),
        (KafkaError._TRANSPORT, True, set()),
        (KafkaError._ALL_BROKERS_DOWN, False, set()),  # nobody sends, and so nobody would take what piles up
    ],
)
def test_when_all_connections_are_lost_it_is_to_be_asked_who_leads_what(code: int, runs: bool, lost: set[str]) -> None:
    hearing, clock, outbox = made(LIMITED)
    outbox.is_running = runs
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1}, "sales": {0: 2}}, 2, clock.now_ms())
    hearing.on_error(KafkaError(code))
    assert len(outbox.notices) == bool(lost)
    hand(outbox, core, clock.now_ms())
    assert core.brokers.lost == lost


SENT_BYTES_PER_S = 60_000


def sends(hearing: Hearing, clock: ManualClock, *, node: int, seconds: int, kind: str = "Produce") -> None:
    """Librdkafka sends a broker ten requests a second, and says so each time."""
    for second in range(1, seconds + 1):
        clock.sleep_ms(1_000)
        counted = {"tx": 10 * second, "txbytes": SENT_BYTES_PER_S * second, "req": {kind: 10 * second}}
        hearing.on_statistics(statistics(node, **counted))


@pytest.mark.parametrize("brokers", [1, 3])
def test_what_went_straight_counts_when_a_limit_has_to_be_learnt_from_the_throttle_that_ends_that(brokers: int) -> None:
    """A producer that a minute of calm has let go: of what it sent then its pace knew nothing, and stood still."""
    hearing, clock, outbox = made(UNKNOWN)
    core = core_of(UNKNOWN)
    core.brokers.learn_routes({"orders": {0: 1, 1: 2}}, brokers, clock.now_ms())
    sends(hearing, clock, node=2, seconds=100)
    assert not outbox.notices  # who is never throttled keeps no more than a window
    hearing.on_throttle(throttle(500, 2))
    hand(outbox, core, clock.now_ms())
    state = core.state(-1, clock.now_ms())[2 if brokers > 1 else -1]
    assert 0.85 * SENT_BYTES_PER_S < state.rate < 1.1 * SENT_BYTES_PER_S  # told in lumps of a second


def test_what_a_broker_is_sent_that_led_nothing_counts_at_once_and_who_leads_what_is_asked_for_anew() -> None:
    """One that has been added, and given partitions: what waited for their former leaders has gone to it."""
    hearing, clock, outbox = made(UNKNOWN)
    outbox.is_running = True
    core = core_of(UNKNOWN)
    core.brokers.learn_routes({"orders": {0: 1}, "bills": {0: 2}}, 4, clock.now_ms())
    sends(hearing, clock, node=4, seconds=1)
    hand(outbox, core, clock.now_ms())
    assert core.brokers.routes.old(clock.now_ms()) == ["orders", "bills"]
    core.brokers.learn_routes({"orders": {0: 4}, "bills": {0: 2}}, 4, clock.now_ms())
    sends(hearing, clock, node=4, seconds=20)
    assert core.brokers.routes.old(clock.now_ms()) == []
    hand(outbox, core, clock.now_ms())
    hearing.on_throttle(throttle(500, 4))
    hand(outbox, core, clock.now_ms())
    assert core.state(-1, clock.now_ms())[4].rate > 0.85 * SENT_BYTES_PER_S


def test_a_broker_that_is_asked_and_never_sent_messages_is_none_of_a_producers() -> None:
    hearing, clock, outbox = made(UNKNOWN)
    outbox.is_running = True
    core = core_of(UNKNOWN)
    core.brokers.learn_routes({"orders": {0: 1}}, 4, clock.now_ms())
    sends(hearing, clock, node=4, seconds=20, kind="Metadata")
    hand(outbox, core, clock.now_ms())
    assert 4 not in core.state(-1, clock.now_ms())
    assert core.brokers.routes.old(clock.now_ms()) == []


def of_each(*sent: int) -> str:
    """Statistics of as many brokers, to each of which so many bytes have gone."""
    brokers = {
        f"host:{number}/{number}": {
            "nodeid": number,
            "nodename": f"host:{number}",
            "name": f"host:{number}/{number}",
            "tx": 10,
            "txbytes": nbytes,
            "req": {"Produce": 10},
        }
        for number, nbytes in enumerate(sent, 1)
    }
    return json.dumps({"brokers": brokers})


@pytest.mark.parametrize("limit", [LIMITED, UNKNOWN])
def test_what_each_broker_was_sent_before_its_quota_came_is_no_strangers(limit: Limit) -> None:
    """All of it stood with whoever was the only one as long as nobody had asked who leads what."""
    hearing, clock, outbox = made(NONE)
    hearing.on_statistics(of_each(0, 0, 0))
    for seconds in range(1, 11):
        clock.sleep_ms(1_000)
        hearing.on_statistics(of_each(*(100_000 * seconds,) * 3))
    hearing.on_limit(limit)
    core = core_of(NONE)
    hand(outbox, core, clock.now_ms())
    core.brokers.learn_routes({"orders": {0: 1, 1: 2, 2: 3}}, 3, clock.now_ms())
    hearing.on_throttle(throttle(9_000, broker=2))
    hand(outbox, core, clock.now_ms())
    rate = core.brokers.get(2).queue.pace._pacer._share.rate  # what is paid back first apart
    assert 0.9 * 50_000 < rate < 1.1 * 50_000


def test_what_waits_for_the_only_broker_is_not_overtaken_when_there_is_another_one() -> None:
    """Who leads what is known by then, and may not be asked for again before a throttle ends."""
    hearing, clock, outbox = made(LIMITED)
    outbox.is_running = True
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1}}, 1, clock.now_ms())
    produced = [message(2_000, clock.now_ms(), key=str(number)) for number in range(8)]
    sent = []
    for number, one in enumerate(produced):
        if number == 4:
            hearing.on_statistics(of_each(100, 0))
            hand(outbox, core, clock.now_ms())
        core.offer(one, clock.now_ms())
        sent += [each.payload for grant in core.sent(clock.now_ms()) for each in grant.messages]
    while len(sent) < len(produced):
        clock.sleep_ms(10)
        list(core.admit(clock.now_ms(), lambda _: True, lambda _: None))
        sent += [each.payload for grant in core.sent(clock.now_ms()) for each in grant.messages]
    assert [payload.key for payload in sent] == [one.payload.key for one in produced]
