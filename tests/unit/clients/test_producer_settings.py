"""What a producer's configuration becomes."""

from typing import Any
from unittest.mock import Mock

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from kclient_quota import AIOConsumer, Producer, SerializingProducer
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.producer.caller.batch import is_batch
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.clients.producer.settings import IDLE_MS, keep_alive, with_callbacks, with_defaults
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.errors import ConfigError
from kclient_quota.testing.clock import ManualClock

NONE = Limit(None, None, LimitSource.CLUSTER)
BY_REQUESTS = Limit(None, 5.0, LimitSource.CLUSTER)


def limited(rate: float) -> Limit:
    return Limit(rate, None, LimitSource.CONFIG)


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"acks": "all"},
        {"acks": -1},
        {"max.in.flight": 5},
        {"retries": 3},
        {"queue.buffering.backpressure.threshold": 1},
        {"transactional.id": "t"},
    ],
)
def test_idempotence_is_the_default_where_a_quota_may_apply_and_nothing_contradicts_it(conf: dict[str, Any]) -> None:
    for limit in (limited(51_200), UNKNOWN, BY_REQUESTS):
        assert with_defaults(conf, limit)["enable.idempotence"] is True


@pytest.mark.parametrize("conf", [{}, {"acks": "all"}, {"linger.ms": 3, "compression.type": "zstd"}])
def test_where_no_quota_applies_all_is_as_confluent_kafka_has_it(conf: dict[str, Any]) -> None:
    assert with_defaults(conf, NONE) == conf


@pytest.mark.parametrize(
    "conf",
    [
        {"acks": 1},
        {"acks": "0"},
        {"request.required.acks": 1},
        {"max.in.flight": 6},
        {"max.in.flight.requests.per.connection": 1000},
        {"retries": 0},
        {"message.send.max.retries": 0},
        {"queuing.strategy": "lifo"},
        {"queue.buffering.backpressure.threshold": "0x2"},
        {"default.topic.config": {"acks": 1}},
        {"acks": "all", "request.required.acks": 1},
        {"retries": 3, "message.send.max.retries": 0},
        {"max.in.flight": 5, "max.in.flight.requests.per.connection": 6},
    ],
)
def test_it_is_left_alone_where_the_users_settings_contradict_it(conf: dict[str, Any]) -> None:
    assert "enable.idempotence" not in with_defaults(conf, UNKNOWN)


def test_whatever_contradicts_it_a_producer_can_be_made_with_it() -> None:
    conf = {"queue.buffering.backpressure.threshold": 1_000}
    confluent_kafka.Producer(conf)
    confluent_kafka.Producer(with_defaults(conf, UNKNOWN))


@pytest.mark.parametrize("value", [True, False, "false"])
def test_the_users_own_choice_stands(value: Any) -> None:
    assert with_defaults({"enable.idempotence": value}, UNKNOWN)["enable.idempotence"] == value


@pytest.mark.parametrize(("rate", "expected"), [(20_000, 16_384), (100_000, 50_000), (50_000_000, 1_000_000)])
def test_a_batch_takes_half_a_second_of_the_limit_at_most(rate: float, expected: int) -> None:
    assert with_defaults({}, limited(rate))["batch.size"] == expected
    compressed = with_defaults({"compression.type": "zstd"}, limited(rate))["batch.size"]
    # Before compression; half a second of the quota may be several of messages.
    assert compressed == min(max(16_384, rate * 8), 1_000_000)
    assert with_defaults({"batch.size": 77}, limited(rate))["batch.size"] == 77


@pytest.mark.parametrize(("codec", "level"), [("zstd", 9), ("lz4", 9), ("gzip", 9), ("snappy", None), ("none", None)])
def test_a_small_quota_is_worth_harder_compression(codec: str, level: int | None) -> None:
    conf = {"compression.type": codec}
    assert with_defaults(conf, limited(51_200)).get("compression.level") == level
    assert with_defaults({"default.topic.config": conf}, limited(51_200)).get("compression.level") == level
    for unchanged in (limited(10_000_000), NONE, UNKNOWN):
        assert "compression.level" not in with_defaults(conf, unchanged)
    assert with_defaults({**conf, "compression.level": 1}, limited(51_200))["compression.level"] == 1
    topic_config = {"default.topic.config": {**conf, "compression.level": 1}}
    assert "compression.level" not in with_defaults(topic_config, limited(51_200))


def test_without_a_limit_batches_are_librdkafkas() -> None:
    assert "batch.size" not in with_defaults({}, NONE)
    assert "batch.size" not in with_defaults({}, UNKNOWN)


def test_linger_is_set_only_where_the_user_has_not() -> None:
    assert "linger.ms" in with_defaults({}, UNKNOWN)
    assert with_defaults({"linger.ms": 0}, UNKNOWN)["linger.ms"] == 0
    assert "linger.ms" not in with_defaults({"queue.buffering.max.ms": 7}, UNKNOWN)


@pytest.mark.parametrize(("most", "lingers"), [(1, False), (9_999, False), (10_000, True), (0, True)])
def test_a_short_queue_is_not_full_for_a_linger_of_ours(most: int, lingers: bool) -> None:
    assert ("linger.ms" in with_defaults({"queue.buffering.max.messages": most}, UNKNOWN)) is lingers


@pytest.mark.parametrize(("timeout_ms", "is_patient"), [(5, False), (100, False), (499, False), (500, True), (0, True)])
def test_messages_that_are_given_up_soon_neither_linger_nor_wait_for_a_round_trip(
    timeout_ms: int, is_patient: bool
) -> None:
    of_both = {"message.timeout.ms": 60_000, "delivery.timeout.ms": timeout_ms}  # librdkafka takes the last one
    of_topics = {"default.topic.config": {"message.timeout.ms": timeout_ms}}
    for conf in ({"message.timeout.ms": timeout_ms}, {"delivery.timeout.ms": timeout_ms}, of_both, of_topics):
        ours = with_defaults(conf, UNKNOWN)
        assert ("linger.ms" in ours, "enable.idempotence" in ours) == (is_patient, is_patient)


def with_ours(conf: dict[str, Any], limit: Limit, clock: ManualClock) -> dict[str, Any]:
    hearing = Hearing(Outbox(), "app", limit, Backoff.BLOCK, clock)
    return with_callbacks(conf, hearing, limit, lambda call: call, clock=clock)


def test_errors_are_heard_with_the_users_callback_and_without() -> None:
    down, told = KafkaError(KafkaError._ALL_BROKERS_DOWN), list[KafkaError]()
    for conf in ({}, {"error_cb": told.append}):
        outbox = Outbox()
        outbox.is_running = True
        hearing = Hearing(outbox, "app", NONE, Backoff.BLOCK, ManualClock(0))
        with_callbacks(conf, hearing, NONE, lambda call: call)["error_cb"](down)
        assert len(outbox.notices) == 1
    assert told == [down]


def test_the_users_statistics_keep_their_own_period() -> None:
    clock = ManualClock()
    seen: list[str] = []
    conf = {"stats_cb": seen.append, "statistics.interval.ms": 5_000}
    out = with_ours(conf, limited(50_000), clock)
    assert out["statistics.interval.ms"] == 1_000
    for _ in range(20):
        clock.sleep_ms(1_000)
        out["stats_cb"]('{"brokers": {}}')
    assert len(seen) == 4


def test_a_faster_period_of_the_user_is_taken_over() -> None:
    seen: list[str] = []
    conf = {"stats_cb": seen.append, "statistics.interval.ms": 200}
    out = with_ours(conf, limited(50_000), ManualClock())
    assert out["statistics.interval.ms"] == 200
    out["stats_cb"]('{"brokers": {}}')
    assert len(seen) == 1


def test_statistics_that_the_user_did_not_ask_for_are_not_told() -> None:
    seen: list[str] = []
    out = with_ours({"stats_cb": seen.append}, NONE, ManualClock())
    out["stats_cb"]('{"brokers": {}}')
    assert seen == []
    assert out["statistics.interval.ms"] == 5_000


def test_keep_alive_prefers_ours_and_takes_nothing_from_a_plain_consumer() -> None:
    beats: list[Any] = []

    class Ours:
        def keep_alive(self) -> None:
            beats.append("ours")

    class Plain:
        def consume(self, number: int, timeout: float) -> None:
            beats.append((number, timeout))

    class Closed:
        def consume(self, number: int, timeout: float) -> None:
            raise RuntimeError("Consumer closed")

    assert keep_alive(None) is None
    for heartbeat in (Ours(), Plain(), Closed()):
        keep = keep_alive(heartbeat)
        assert keep is not None
        keep()
    assert beats == ["ours", (0, 0)]


@pytest.mark.parametrize("said", ["the store is away", "cannot schedule new futures after shutdown"])
def test_what_a_rebalance_callback_raises_within_a_beat_is_not_taken_for_a_consumer_that_is_closed(said: str) -> None:
    class Consumer:
        def keep_alive(self) -> None:
            raise RuntimeError(said)

    keep = keep_alive(Consumer())
    assert keep is not None
    with pytest.raises(RuntimeError, match=said):
        keep()


def test_a_consumer_of_asyncio_is_none_for_a_producer_that_is_not() -> None:
    """Its beats were never awaited: it lost its group without a word."""

    class Ours:
        async def keep_alive(self) -> None: ...

    class Theirs:
        async def consume(self, number: int, within_s: float) -> None: ...

    for heartbeat in (Ours(), Theirs(), AIOConsumer.__new__(AIOConsumer)):
        with pytest.raises(ConfigError, match=r"heartbeat: .*AIOProducer"):
            keep_alive(heartbeat)
        with pytest.raises(ConfigError, match=r"heartbeat: .*AIOProducer"):
            Producer({"bootstrap.servers": "localhost:1"}, heartbeat=heartbeat)
        with pytest.raises(ConfigError, match=r"heartbeat: .*AIOProducer"):
            SerializingProducer({"bootstrap.servers": "localhost:1"}, heartbeat=heartbeat)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"value": b"v", "key": "k", "partition": 1}], True),
        ([{}], True),
        ([], True),
        (({"value": b"v"},), False),
        (["text"], False),
        ([{"value": 5}], False),
        ([{"key": 5}], False),
        ([{"partition": "1"}], False),
        ([{"timestamp": 5}], False),
    ],
)
def test_what_counts_as_a_batch(messages: Any, expected: bool) -> None:
    assert is_batch(messages) is expected


def test_transactions_keep_the_brokers_they_know_when_all_connections_break() -> None:
    """Librdkafka's bootstrapping anew gives the coordinator up, and `send_offsets_to_transaction()` waits for ever."""
    key = "metadata.recovery.strategy"
    assert with_defaults({"transactional.id": "t"}, NONE)[key] == "none"
    assert with_defaults({"transactional.id": "t", key: "rebootstrap"}, NONE)[key] == "rebootstrap"
    assert key not in with_defaults({}, NONE)


def test_connections_of_transactions_are_closed_for_want_of_use() -> None:
    """What waits for a coordinator that is gone looks for another one when a connection comes or goes, not before."""
    key = "connections.max.idle.ms"
    assert with_defaults({"transactional.id": "t"}, NONE)[key] == IDLE_MS
    assert with_defaults({"transactional.id": "t", key: 0}, NONE)[key] == 0
    assert key not in with_defaults({}, NONE)


def test_what_has_piled_up_in_an_hour_without_a_poll_is_not_read_but_for_its_last_minute() -> None:
    clock, telemetry = ManualClock(5_000), Mock()
    seen: list[str] = []
    conf = {"stats_cb": seen.append, "statistics.interval.ms": 1_000}
    hearing = Hearing(Outbox(), "app", NONE, Backoff.BLOCK, clock)
    out = with_callbacks(conf, hearing, NONE, lambda call: call, telemetry, clock)
    clock.sleep_ms(3_600_000)
    told = [
        f'{{"name": "app", "ts": 5, "age": {age_ms * 1_000}, "brokers": {{}}}}' for age_ms in (1, 3_540_000, 3_540_001)
    ]
    for text in told:
        out["stats_cb"](text)
    telemetry.on_statistics.assert_called_once_with(told[-1])
    assert seen == told  # what is the user's own is his
