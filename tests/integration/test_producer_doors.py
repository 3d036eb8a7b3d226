"""The other doors of a gated producer: interceptors, transactions, a consumer's heartbeat, threads, callbacks."""

import gc
import threading
import time
import weakref
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.interceptor import ProducerInterceptor, ProducerRecord
from kclient_quota.clients.producer import Producer
from kclient_quota.errors import QuotaThrottledError
from kclient_quota.metrics import MetricName
from tests.integration.made_producers import made
from tests.read_committed import committed

pytestmark = pytest.mark.usefixtures("only_what_is_new")

PRODUCE = 0


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0, **more}


class Watching(ProducerInterceptor):
    """Upper-cases values and remembers what it was told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.acknowledged: list[tuple[int, Any]] = []
        self.closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record.value)
        return ProducerRecord(record.topic, record.value.upper(), record.key, headers=record.headers)

    def on_acknowledgement(self, metadata: Any, exception: Any, headers: Any) -> None:
        self.acknowledged.append((metadata.offset, exception))

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("more", [{}, {"producer_byte_rate": 1_000_000}, {"quota.backoff": "off"}])
def test_interceptors_see_every_record_gated_or_not(broker: EmbeddedBroker, more: dict[str, Any]) -> None:
    watching = Watching()
    order: list[str] = []
    values: list[Any] = []
    producer = made(conf(broker, **{"interceptor.classes": [watching], **more}))

    def on_delivery(error: Any, message: Any) -> None:
        order.append("acknowledged" if watching.acknowledged else "first")
        values.append(message.value())

    producer.produce("orders", b"one", on_delivery=on_delivery)
    producer.produce_batch("orders", [{"value": b"two"}], on_delivery=on_delivery)
    assert producer.flush(60) == 0
    producer.close()
    assert watching.sent == [b"one", b"two"]
    assert [offset for offset, _ in watching.acknowledged] == [0, 1]
    assert values == [b"ONE", b"TWO"]
    assert order == ["acknowledged", "acknowledged"]
    assert watching.closed


def test_an_interceptor_is_told_the_headers_that_a_record_had(broker: EmbeddedBroker) -> None:
    """By which it tells records apart: of a dict that is filled in anew for each, all had those of the last."""

    class Naming(Watching):
        def on_acknowledgement(self, metadata: Any, exception: Any, headers: Any) -> None:
            self.acknowledged.append((metadata.offset, dict(headers)))

    naming = Naming()
    headers: dict[str, str] = {}
    with made(conf(broker, **{"interceptor.classes": [naming]})) as producer:
        for number in range(3):
            headers["number"] = str(number)
            producer.produce("orders", b"x", headers=headers)
        assert producer.flush(60) == 0
    assert naming.acknowledged == [(number, {"number": str(number)}) for number in range(3)]


def test_a_refused_record_is_acknowledged_with_its_error(broker: EmbeddedBroker) -> None:
    watching = Watching()
    producer = made(conf(broker, **{"interceptor.classes": [watching], "quota.backoff": "raise"}))
    broker.throttle_next(PRODUCE, 50_000)
    producer.produce("orders", b"x")
    producer.flush(60)
    producer.poll(0.2)
    with pytest.raises(QuotaThrottledError):
        producer.produce("orders", b"y")
    assert isinstance(watching.acknowledged[-1][1], QuotaThrottledError)


def test_a_waiting_produce_keeps_a_consumer_alive(broker: EmbeddedBroker) -> None:
    class EnoughError(Exception):
        pass

    class Beating:
        left = 10**9

        def keep_alive(self) -> None:
            self.left -= 1
            if not self.left:
                raise EnoughError

    consumer = Beating()
    producer = made(conf(broker, **{"max.block.ms": 60_000}), heartbeat=consumer)
    broker.throttle_next(PRODUCE, 50_000)
    producer.produce("orders", b"x")
    producer.flush(60)
    producer.poll(0.2)
    consumer.left = 5
    with pytest.raises(EnoughError):
        producer.produce("orders", b"y")
    confluent_kafka.Producer.produce(producer, "orders", b"z")
    consumer.left = 5
    with pytest.raises(EnoughError):
        producer.flush(60)


@pytest.mark.parametrize("consumer_class", [confluent_kafka.Consumer, Consumer], ids=["plain", "ours"])
def test_a_consumer_outlives_its_poll_interval_while_produce_waits(
    broker: EmbeddedBroker, consumer_class: type[confluent_kafka.Consumer]
) -> None:
    broker.create_topic("source", 1)
    group = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "copy", "auto.offset.reset": "earliest"}
    consumer = consumer_class({**group, "max.poll.interval.ms": 10_000, "session.timeout.ms": 10_000})
    consumer.subscribe(["source"])
    deadline = time.monotonic() + 60
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    producer = made(conf(broker, **{"max.block.ms": 12_000}), heartbeat=consumer)
    broker.throttle_next(PRODUCE, 50_000)
    producer.produce("orders", b"x")
    producer.flush(60)
    producer.poll(0.2)
    with pytest.raises(QuotaThrottledError):
        producer.produce("orders", b"y")
    message = consumer.poll(0.5)
    assert message is None or message.error() is None
    assert consumer.assignment()
    consumer.close()


def test_a_message_that_librdkafka_refuses_costs_nothing(broker: EmbeddedBroker) -> None:
    producer = made(conf(broker, producer_byte_rate=100_000))
    before = producer.quota_state()[-1].outstanding
    for _ in range(20):
        with pytest.raises(confluent_kafka.KafkaException):
            producer.produce("orders", b"x" * 2_000_000)
    assert producer.quota_state()[-1].outstanding == before
    with pytest.raises(TypeError):
        producer.produce("orders", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.produce_batch("orders", ["text"])  # type: ignore[list-item]
    producer.close()


def test_headers_keys_and_text_arrive_as_given(broker: EmbeddedBroker) -> None:
    producer = made(conf(broker, producer_byte_rate=100_000))
    headers: dict[str, bytes | None] = {"a": b"1", "b": None}
    producer.produce("orders", "wärt", "schlüssel", 0, headers=headers, timestamp=1_700_000_000_000)
    headers.clear()  # what was given is copied
    assert producer.flush(60) == 0
    producer.close()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r"})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert (message.value(), message.key()) == ("wärt".encode(), "schlüssel".encode())
    assert message.headers() == [("a", b"1"), ("b", None)]
    assert message.timestamp()[1] == 1_700_000_000_000


def test_the_default_delivery_callback_hears_of_every_message(broker: EmbeddedBroker) -> None:
    heard: list[Any] = []
    default = {"on_delivery": lambda error, message: heard.append(error), "producer_byte_rate": 1_000_000}
    producer = made(conf(broker, **default))
    for _ in range(500):
        producer.produce("orders", b"x" * 100)
    assert producer.flush(60) == 0
    producer.close()
    assert heard == [None] * 500


def test_errors_only_still_lets_deliveries_be_followed(broker: EmbeddedBroker) -> None:
    heard: list[Any] = []
    only = {"delivery.report.only.error": True, "producer_byte_rate": 100_000, "max.block.ms": 60_000}
    producer = made(conf(broker, **only))
    for _ in range(150):
        producer.produce("orders", b"x" * 1_000, on_delivery=lambda error, message: heard.append(error))
    assert producer.flush(60) == 0
    producer.close()
    assert heard == []


@pytest.mark.parametrize("limit", [0, 10_000])
@pytest.mark.parametrize("way", ["own", "default", "batch"])
def test_who_is_told_of_errors_only_is_told_of_each(way: str, limit: int) -> None:
    """Messages of a broker that is away fail later than others behind them are delivered."""
    heard: list[int] = []

    def note(error: Any, message: Any) -> None:
        heard.append(int(message.value()[:4]))

    with EmbeddedBroker(brokers=2, topics={"orders": 2}) as cluster:
        more: dict[str, Any] = {"message.timeout.ms": 3_000, "log_level": 0, "linger.ms": 0}
        more |= {"producer_byte_rate": limit} if limit else {"quota.limit.source": "cluster"}
        more |= {"on_delivery": note} if way == "default" else {}
        producer = made(conf(cluster, **more, **{"delivery.report.only.error": True}))
        own, sent = None if way == "default" else note, []
        for number in [0, 1, *[0] * 5, *[1] * 5, *[0] * 5, *[1] * 5]:
            value = b"%04d" % number + b"x" * 100
            if way == "batch":
                producer.produce_batch("orders", [{"value": value, "callback": own}], partition=number)
            else:
                producer.produce("orders", value, partition=number, on_delivery=own)
            producer.flush(0.2)  # what can be delivered is, before those behind it come
            if len(sent := [*sent, number]) == 2:
                assert producer.flush(60) == 0  # who leads the partitions is known
                cluster.stop_broker(2)
        assert producer.flush(60) == 0
        producer.close()
    assert heard in ([0] * 10, [1] * 10)


def test_a_callback_that_throttles_in_passes_the_users_own_callbacks_on(broker: EmbeddedBroker) -> None:
    throttles: list[float] = []
    statistics: list[str] = []
    own = {
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
        "stats_cb": statistics.append,
        "statistics.interval.ms": 200,
    }
    producer = made(conf(broker, **own))
    broker.throttle_next(PRODUCE, 400)
    producer.produce("orders", b"x")
    producer.flush(60)
    deadline = time.monotonic() + 60
    while not (throttles and statistics) and time.monotonic() < deadline:
        producer.poll(0.5)
    assert type(producer) is Producer
    assert 0.4 in throttles
    assert statistics
    producer.close()


def test_an_event_of_the_last_moment_is_heard_and_nothing_is_left_then(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    producer = made(conf(broker, stats_cb=heard.append))
    stop = producer._kq_stop_sender

    def hear_and_stop() -> None:
        producer._kq_outbox.reports.append((heard.append, "statistics"))
        stop()

    monkeypatch.setattr(producer, "_kq_stop_sender", hear_and_stop)
    producer.close()
    assert heard == ["statistics"]
    assert len(producer) == 0


def test_a_thread_that_was_never_seen_polling_waits_without_polling(broker: EmbeddedBroker) -> None:
    producer = made(conf(broker, **{"max.block.ms": 300}))
    broker.throttle_next(PRODUCE, 50_000)
    producer.produce("orders", b"x")
    producer.flush(60)
    producer.poll(0.2)
    refused: list[BaseException] = []

    def work() -> None:
        try:
            producer.produce("orders", b"y")
        except QuotaThrottledError as error:
            refused.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(refused) == 1
    producer.close()


def test_the_time_spent_waiting_is_counted(broker: EmbeddedBroker) -> None:
    producer = made(conf(broker, **{"producer_byte_rate": 5_000, "quota.backoff": "block"}))
    name = MetricName("quota-wait-time-total", "producer-metrics", (("client-id", "app"),))
    assert producer.metrics()[name] == 0
    begin = time.monotonic()
    while producer.metrics()[name] <= 100:
        assert time.monotonic() - begin < 60
        producer.produce("orders", b"x" * 1_000)
    waited_ms = producer.metrics()[name]
    assert waited_ms <= (time.monotonic() - begin) * 1_000 + 1, "in whole milliseconds"
    producer.purge()


def test_a_dropped_producer_leaves_no_thread_behind(broker: EmbeddedBroker) -> None:
    before = set(threading.enumerate())
    producer = Producer(conf(broker))
    assert set(threading.enumerate()) - before
    alive = weakref.ref(producer)
    del producer
    deadline = time.monotonic() + 60
    while alive() is not None:  # its thread may have hold of it for a moment
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= before


def test_transactions_go_through_the_gate(broker: EmbeddedBroker) -> None:
    producer = made(conf(broker, **{"transactional.id": "t1", "producer_byte_rate": 200_000}))
    producer.init_transactions(60)
    for round_ in range(2):
        producer.begin_transaction()
        for _ in range(100):
            producer.produce("orders", b"x" * 1_000)
        if round_:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    producer.close()
    assert len(committed(broker, "orders")) == 100
