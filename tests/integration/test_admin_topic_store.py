"""The compacted topic of source values, on the embedded broker and its faults."""

import pytest

from kclient_quota.admin import topic_store
from kclient_quota.admin.topic_store import DEFAULT_TOPIC, TopicStore
from kclient_quota.admin.units import QuotaUnit, Sources
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.configs import ResourceType, describe_configs
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.testing.clock import ManualClock

PRODUCE, FETCH = 0, 1
BPS = QuotaUnit("producer_byte_rate", "bps")
of = ClientQuotaEntity.of


@pytest.fixture
def broker():
    with EmbeddedBroker(brokers=2) as running:
        yield running


@pytest.fixture
def client(broker):
    with ClusterClient({"bootstrap.servers": broker.bootstrap_servers}, SYSTEM_CLOCK) as made:
        yield made


def many(count, value=1.0):
    return Sources({of(user=f"u{n}", client_id=DEFAULT): {BPS: value + n} for n in range(count)}, {"a": 5.0})


def test_what_is_kept_is_found_again(client):
    store = TopicStore(client, SYSTEM_CLOCK)
    assert not store.load()
    store.save(Sources(), Sources())
    assert not store.load()
    states = [many(3), many(2, value=7.0), Sources(), many(1)]
    before = Sources()
    for state in states:
        store.save(before, state)
        assert TopicStore(client, SYSTEM_CLOCK).load() == state
        before = state
    found = describe_configs(client, ResourceType.TOPIC, DEFAULT_TOPIC)
    assert found["cleanup.policy"].value == "compact"


def test_more_than_a_fetch_holds(client, monkeypatch):
    monkeypatch.setattr(topic_store, "_MAX_BYTES", 10_000)
    store = TopicStore(client, SYSTEM_CLOCK)
    store.save(Sources(), many(3_000))
    assert store.load() == many(3_000)


def test_a_producer_quota_is_waited_out_and_holds_nothing_up(broker, client):
    store = TopicStore(client, SYSTEM_CLOCK, timeout_ms=50_000)
    broker.throttle_next(PRODUCE, 300)
    start = SYSTEM_CLOCK.now_ms()
    store.save(Sources(), many(1_500))
    assert SYSTEM_CLOCK.now_ms() - start >= 300
    broker.throttle_next(PRODUCE, 60_000)
    store.save(many(1_500), many(1_501))
    start = SYSTEM_CLOCK.now_ms()
    assert store.load() == many(1_501)
    assert SYSTEM_CLOCK.now_ms() - start < 40_000
    broker.throttle_next(PRODUCE, 60_000)
    with pytest.raises(ClusterError, match="a producer_byte_rate makes us wait 60000 ms"):
        store.save(Sources(), many(3_000))


def test_a_record_that_is_none_of_ours(broker, client):
    from confluent_kafka import Producer

    broker.create_topic(DEFAULT_TOPIC)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(DEFAULT_TOPIC, b"hello", key=b"x")
    assert producer.flush(60) == 0
    with pytest.raises(ConfigError, match="the record at offset 0 is no quota source"):
        TopicStore(client, SYSTEM_CLOCK).load()


class Leaping(ManualClock):
    """So that what waits for a minute has waited long enough after three pauses, each request having its time."""

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(max(20_000, duration_ms))


def test_a_topic_without_a_leader_is_waited_for_and_then_told(broker, client):
    store = TopicStore(client, Leaping(), timeout_ms=60_100)
    broker.create_topic("first")  # leaders are given in turn: ours goes to the other broker
    broker.create_topic(DEFAULT_TOPIC)
    said = []
    for broker_id in (1, 2):
        broker.stop_broker(broker_id)
        try:
            store.load()
        except ClusterError as error:
            said.append(str(error))
        broker.start_broker(broker_id)
    assert any("LEADER_NOT_AVAILABLE" in words for words in said), said
