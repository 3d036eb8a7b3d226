"""`ShareConsumer` on the embedded broker: what it tells of itself, each broker's account, and how it ends."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import confluent_kafka
import pytest

import kclient_quota
from kclient_quota import ConsumerInterceptor
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.filling import fill
from kclient_quota.certify.scenes.preparing import configure_group

pytestmark = pytest.mark.timeout(180)
SHARE_FETCH = 78
RECORDS = 150
EMPTY_BYTES = 100


class Hiding(ConsumerInterceptor):
    """Counts what passes and hides every tenth."""

    def __init__(self) -> None:
        self.seen = 0

    def on_consume(self, records: list[Any]) -> list[Any]:
        self.seen += len(records)
        return [record for record in records if record.offset() % 10]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as running:
        prepare(running, RECORDS)
        yield running


def prepare(cluster: EmbeddedBroker, records: int) -> None:
    fill(cluster.bootstrap_servers, "t", records, 1_000, 15)
    configure_group(cluster.bootstrap_servers, "g", {"share.auto.offset.reset": "earliest"})


def conf(broker: EmbeddedBroker, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "app", **more}


@pytest.mark.parametrize("timeout", [float("inf"), float("nan")])
def test_a_poll_without_end_returns_what_has_come(broker: EmbeddedBroker, timeout: float) -> None:
    """As confluent_kafka's, which C takes any such number of seconds for; it was an OverflowError, or a ValueError."""
    with kclient_quota.ShareConsumer(conf(broker)) as consumer:
        consumer.subscribe(["t"])
        assert len(consumer.poll(timeout)) > 0


def place(message: Any) -> tuple[int, int]:
    return message.partition(), message.offset()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def test_it_tells_of_itself_as_a_consumer_does(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", consumer_byte_rate=200_000)
    broker.set_client_metrics("all", interval_ms=1_000)
    interceptor, throttles, got = Hiding(), [], []
    settings = {"interceptor.classes": [interceptor], "throttle_cb": throttles.append}
    with kclient_quota.ShareConsumer(conf(broker, **settings)) as consumer:
        assert list(consumer.quota_state()) == [-1]
        consumer.subscribe(["t"])
        until(lambda: got.extend(consumer.poll(0.5)) or interceptor.seen >= RECORDS)
        assert {message.offset() for message in got} == {number for number in range(RECORDS) if number % 10}
        ((number, state),) = consumer.quota_state().items()
        assert (number, state.limit, state.source, state.stall) == (1, 200_000, "cluster", None)
        assert state.admitted >= RECORDS * 1_000
        until(lambda: consumer.poll(0.1) is not None and broker.pushes)
        broker.throttle_next(SHARE_FETCH, 1_500, client_id="app")
        until(lambda: consumer.poll(0.2) is not None and any(each.throttle_time >= 1.5 for each in throttles))
        found = {name.name: value for name, value in consumer.metrics().items() if "node-id" not in dict(name.tags)}
    assert found["fetch-throttle-time-max"] >= 1_500
    until(lambda: any(push.terminating for push in broker.pushes))


def pushed(broker: EmbeddedBroker) -> Counter[str]:
    """What sums without attributes have come to."""
    found: Counter[str] = Counter()
    for push in broker.pushes:
        for resource in push.decode().resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (point for point in metric.sum.data_points if not point.attributes):
                    found[metric.name.removeprefix("org.apache.kafka.consumer.share.")] += (
                        point.as_int or point.as_double
                    )
    return found


def test_what_it_pushes_is_what_it_has_done(broker: EmbeddedBroker) -> None:
    """Throttles and traffic; all of it was 0, as nobody had asked librdkafka."""
    broker.set_client_metrics("all", interval_ms=500)
    heard: list[str] = []
    settings = {"stats_cb": heard.append, "statistics.interval.ms": 2_000}
    with kclient_quota.ShareConsumer(conf(broker, **settings)) as consumer:
        consumer.subscribe(["t"])
        broker.throttle_next(SHARE_FETCH, 1_500, client_id="app")
        least = Counter(
            {
                "fetch.manager.fetch.throttle.time.total": 1_500,
                "incoming.byte.total": RECORDS * 1_000,
                "request.total": 5,
            }
        )
        until(lambda: consumer.poll(0.2) is not None and least <= pushed(broker))
        until(lambda: consumer.poll(0.2) is not None and heard)


@pytest.mark.parametrize("records_a_batch", [1, 15])
def test_no_byte_that_a_broker_counts_is_overlooked(broker: EmbeddedBroker, records_a_batch: int) -> None:
    """Keys, headers, and batches of one record each, whose headers are as large as they are."""
    broker.create_topic("small", 1)
    with confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}) as producer:
        for number in range(RECORDS):
            producer.produce("small", b"v" * 30, b"k" * 20, headers=[("traceparent", b"h" * 55), ("state", b"s" * 40)])
            if number % records_a_batch == records_a_batch - 1:
                producer.flush()
    broker.set_quota(client_id="app", consumer_byte_rate=200_000)
    with kclient_quota.ShareConsumer(conf(broker)) as consumer:
        consumer.subscribe(["small"])
        seen: set[int] = set()
        until(lambda: seen.update(message.offset() for message in consumer.poll(0.5)) or len(seen) >= RECORDS)
        ((_, state),) = consumer.quota_state().items()
    answers = [request.response_bytes for request in broker.requests if request.api_key == SHARE_FETCH]
    counted = sum(nbytes for nbytes in answers if nbytes > EMPTY_BYTES)
    assert 0.98 * counted <= state.admitted <= 1.25 * counted  # what comes last may not fill an answer


def test_each_broker_has_an_account_of_its_own() -> None:
    got: set[tuple[int, int]] = set()
    with EmbeddedBroker(brokers=3, topics={"t": 3}) as cluster:
        prepare(cluster, 3 * RECORDS)
        cluster.set_quota(client_id="app", consumer_byte_rate=200_000)
        with kclient_quota.ShareConsumer(conf(cluster)) as consumer:
            consumer.subscribe(["t"])
            until(lambda: got.update(map(place, consumer.poll(0.5))) or len(got) >= 3 * RECORDS)
            states = consumer.quota_state()
    assert {number: state.admitted for number, state in states.items()} == dict.fromkeys(
        (1, 2, 3), pytest.approx(RECORDS * 1_020, rel=0.02)
    )


def test_where_nobody_tells_who_leads_all_brokers_have_one_account(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kclient_quota.cluster.asking.Asking.leaders", lambda *_: {})
    with kclient_quota.ShareConsumer(conf(broker, consumer_byte_rate=200_000)) as consumer:
        consumer.subscribe(["t"])
        seen: set[int] = set()
        until(lambda: seen.update(message.offset() for message in consumer.poll(0.5)) or len(seen) >= RECORDS)
        assert list(consumer.quota_state()) == [-1]


def test_it_closes_within_seconds_although_its_broker_has_muted_it(broker: EmbeddedBroker) -> None:
    broker.throttle_next(SHARE_FETCH, 3_600_000, times=3)
    consumer = kclient_quota.ShareConsumer(conf(broker))
    closing = Thread(target=consumer.close, daemon=True)
    try:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.2) is not None and any(r.api_key == SHARE_FETCH for r in broker.requests))
    finally:
        closing.start()
        closing.join(40)  # librdkafka's own takes socket.timeout.ms, a minute
    assert not closing.is_alive()


@pytest.mark.parametrize("kind", [confluent_kafka.ShareConsumer, kclient_quota.ShareConsumer], ids=["plain", "ours"])
def test_an_acknowledgement_callback_cannot_close_it(
    broker: EmbeddedBroker, kind: type[confluent_kafka.ShareConsumer]
) -> None:
    refused: list[Exception] = []

    def close(*_committed: object) -> None:
        try:
            consumer.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test compares it
            refused.append(error)

    consumer = kind(conf(broker, **{"share.acknowledgement.mode": "explicit"}))
    consumer.set_acknowledgement_commit_callback(close)
    consumer.subscribe(["t"])
    received: list[Any] = []
    until(lambda: received.extend(consumer.poll(0.5)) or received)
    for message in received:
        consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
    consumer.commit_async()
    until(lambda: consumer.poll(0.1) is not None and refused)
    assert [type(error) for error in refused] == [confluent_kafka.IllegalStateException]
    assert "acknowledgement commit callback" in str(refused[0])
    assert consumer.subscription() == ["t"]
    if isinstance(consumer, kclient_quota.ShareConsumer):
        assert consumer.client_instance_id(30)  # telemetry goes on
    consumer.set_acknowledgement_commit_callback(None)
    consumer.close()
    assert consumer.close() is None


AT_THE_END = """
import kclient_quota

class Keeper:
    def __init__(self):
        self.consumer = kclient_quota.ShareConsumer({conf})
        self.consumer.subscribe(["t"])
        self.consumer.poll(1)

    def __del__(self):
        self.consumer.close()

keeper = Keeper()
"""


def test_a_destructor_closes_it_as_the_interpreter_ends(broker: EmbeddedBroker) -> None:
    script = AT_THE_END.format(conf=conf(broker))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "Exception ignored" in ended.stderr) == (0, False), ended.stderr


def test_a_throttle_cb_that_raises_takes_no_messages_along(broker: EmbeddedBroker) -> None:
    raised: list[str] = []
    got: set[int] = set()

    def hear(_event: Any) -> None:
        raise ValueError("theirs")

    def receive(consumer: Any) -> bool:
        # another broker's, which comes in the same poll as the records of this one
        consumer._kq_events.append(confluent_kafka.ThrottleEvent("other:9092/2", 2, 0.001))
        try:
            got.update(message.offset() for message in consumer.poll(0.5))
        except ValueError as error:
            raised.append(str(error))
        return len(got) == RECORDS and len(raised) > 0

    with kclient_quota.ShareConsumer(conf(broker, throttle_cb=hear)) as consumer:
        consumer.subscribe(["t"])
        until(lambda: receive(consumer))
