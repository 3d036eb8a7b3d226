"""Delivery callbacks that raise: everything is delivered all the same, and `poll()`, `flush()` or `close()` says so."""

import signal
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies

MESSAGES = 40
QUOTA = 5_000
ROUND_TRIP_MS = 150


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[EmbeddedBroker, Proxies]]:
    with Proxies(1) as proxies, EmbeddedBroker(brokers=1) as cluster:
        proxies.stand_before(cluster)
        for name in ("far", "limited"):
            cluster.set_quota(client_id=name, producer_byte_rate=QUOTA if name == "limited" else None)
        yield cluster, proxies


class Scene:
    """A producer whose callbacks all raise, and what they were called with."""

    def __init__(self, brokers, kind, name, topic, **conf):
        self.cluster, self.proxies = brokers
        self.topic, self.called = topic, []
        self.cluster.create_topic(topic, 1)
        conf = {"batch.size": 2_000, "message.timeout.ms": 60_000, "log_level": 0, **conf}
        servers = self.cluster.bootstrap_servers
        self.producer = kind({"bootstrap.servers": servers, "client.id": name, "enable.idempotence": True, **conf})

    def report(self, error, message):
        self.called.append(error)
        raise ValueError(len(self.called))

    def send(self):
        for number in range(MESSAGES):
            self.producer.produce(self.topic, b"%05d" % number + b"x" * 200, on_delivery=self.report)

    def warm(self):
        """What comes next is not in the first round trips; and far away from here."""
        self.producer.produce(self.topic, b"first")
        self.producer.flush()
        self.proxies.each(lambda proxy: proxy.delay(to_broker_ms=ROUND_TRIP_MS // 2, to_client_ms=ROUND_TRIP_MS // 2))


@pytest.fixture(autouse=True)
def near(brokers) -> Iterator[None]:
    yield
    brokers[1].each(lambda proxy: proxy.delay())


@pytest.mark.parametrize("kind", [confluent_kafka.Producer, Producer], ids=["plain", "ours"])
def test_a_flush_delivers_all_and_then_raises(brokers, kind):
    scene = Scene(brokers, kind, "far", f"flush-{kind.__module__}")
    scene.warm()
    scene.send()
    with pytest.raises(ValueError, match=str(MESSAGES)):
        scene.producer.flush()
    assert scene.called == [None] * MESSAGES, "all are told of, as delivered"
    assert scene.producer.flush() == 0, "it is told once"


def test_so_does_a_close(brokers):
    scene = Scene(brokers, Producer, "far", "close")
    scene.warm()
    scene.send()
    with pytest.raises(ValueError, match=str(MESSAGES)):
        scene.producer.close()
    assert scene.called == [None] * MESSAGES, "all are told of, as delivered"
    assert scene.producer.close()


@pytest.mark.parametrize("last", ["flush", "close"])
def test_under_a_quota_no_waiting_produce_raises(brokers, last):
    scene = Scene(brokers, Producer, "limited", f"limited-{last}", **{"quota.max.delay.ms": 500})
    scene.send()
    assert scene.called, "some were called while it waited"
    with pytest.raises(ValueError, match=r"^\d+$"):
        getattr(scene.producer, last)()
    assert scene.called == [None] * MESSAGES, "all are told of, as delivered"


def test_poll_says_what_a_waiting_produce_has_met(brokers):
    scene = Scene(brokers, Producer, "limited", "polled", **{"quota.max.delay.ms": 500})
    scene.send()
    told = len(scene.called)
    with pytest.raises(ValueError, match=f"^{told}$"):
        scene.producer.poll(0)
    assert len(scene.called) == told, "before anything else"
    scene.producer.purge()
    with pytest.raises(ValueError, match=r"^\d+$"):
        scene.producer.close()


def test_an_abort_is_over_whatever_the_reports_of_its_messages_raise(brokers):
    scene = Scene(brokers, Producer, "limited", "aborted", **{"transactional.id": "aborted"})
    scene.producer.init_transactions()
    scene.producer.begin_transaction()
    scene.producer.produce(scene.topic, b"x" * 20_000, on_delivery=scene.report)
    scene.producer.produce(scene.topic, b"x", on_delivery=scene.report)
    scene.producer.abort_transaction()
    scene.producer.begin_transaction()
    scene.producer.abort_transaction()
    with pytest.raises(ValueError, match="2"):
        scene.producer.close()
    assert len(scene.called) == 2


@pytest.mark.parametrize("name", ["far", "limited"])
def test_what_a_handler_of_a_signal_raises_ends_a_flush_at_once(brokers, name):
    def handle(*_):
        raise TimeoutError("alarm")

    scene = Scene(brokers, Producer, name, f"alarm-{name}")
    scene.warm()
    scene.proxies.each(lambda proxy: proxy.stall())
    scene.producer.produce(scene.topic, b"y" * 2_000)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            scene.producer.flush()
        assert time.monotonic() - began < 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        scene.proxies.each(lambda proxy: proxy.resume())
    scene.producer.close()
