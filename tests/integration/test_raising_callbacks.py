"""Delivery callbacks that raise: everything is delivered all the same, and `poll()`, `flush()` or `close()` says so."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

import confluent_kafka
import pytest

from kclient_quota import AIOProducer, Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies
from tests.apart import apart

MESSAGES = 40
QUOTA = 5_000
ROUND_TRIP_MS = 150


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[EmbeddedBroker, Proxies]]:
    with Proxies(1) as proxies, EmbeddedBroker(brokers=1) as cluster:
        proxies.stand_before(cluster)
        cluster.set_quota(client_id="limited", producer_byte_rate=QUOTA)
        cluster.set_quota(client_id="spare", producer_byte_rate=50_000_000)
        yield cluster, proxies


class Scene:
    """A producer whose callbacks all raise, and what they were called with."""

    raises = ValueError
    made: ClassVar[list["Scene"]] = []

    def __init__(self, brokers, kind, name, topic, **conf):
        self.cluster, self.proxies = brokers
        self.topic, self.called = topic, []
        self.cluster.create_topic(topic, 1)
        kept = {"heartbeat": conf.pop("heartbeat")} if "heartbeat" in conf else {}
        conf = {"batch.size": 2_000, "message.timeout.ms": 60_000, "log_level": 0, "client.id": name, **conf}
        servers = self.cluster.bootstrap_servers
        self.producer = kind({"bootstrap.servers": servers, "enable.idempotence": True, **conf}, **kept)
        self.made.append(self)

    def report(self, error, message):
        self.called.append(error)
        raise self.raises(len(self.called))

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
    while Scene.made:  # confluent_kafka keeps what a callback has raised for good, and with it who called
        producer = Scene.made.pop().producer
        if isinstance(producer, Producer):
            with suppress(Exception):
                producer.close()


def test_plain_delivers_all_in_a_flush_and_then_raises(brokers):
    delivers_all(Scene(brokers, confluent_kafka.Producer, "far", "plain"), "flush")


@pytest.mark.parametrize("last", ["flush", "close"])
@pytest.mark.parametrize("name", ["far", "spare", "with heartbeat"])
def test_so_do_ours_and_a_close_too(brokers, name, last):
    conf = {"client.id": "far", "heartbeat": Beats()} if name == "with heartbeat" else {}
    scene = Scene(brokers, Producer, name, f"{name.replace(' ', '-')}-{last}", **conf)
    apart(delivers_all, scene, last)
    assert scene.producer.close(), "once more, or at last"


class Beats:
    """A consumer to be kept alive."""

    def keep_alive(self):
        """Do nothing."""


def delivers_all(scene, last):
    scene.warm()
    scene.send()
    with pytest.raises(scene.raises, match=str(MESSAGES)):
        getattr(scene.producer, last)()
    assert scene.called == [None] * MESSAGES, "all are told of, as delivered"
    if last == "flush":
        assert scene.producer.flush() == 0, "it is told once"


@pytest.mark.parametrize("name", ["far", "spare", "limited"])
def test_events_are_no_other(brokers, name):
    events, is_far = [], []

    def hear(event):
        if is_far:
            events.append(event)
            raise ValueError(len(events))

    def flush_and_hear():
        scene.producer.flush()
        assert events == [], "it raises what one of them has"
        scene.producer.poll(10)  # on a busy machine none came meanwhile

    scene = Scene(brokers, Producer, name, f"events-{name}", **{"stats_cb": hear, "statistics.interval.ms": 50})
    scene.warm()
    is_far.append(True)
    for _ in range(20):
        scene.producer.produce(scene.topic, b"x" * 100, on_delivery=lambda error, _: scene.called.append(error))
    with pytest.raises(ValueError, match=r"^\d+$"):
        apart(flush_and_hear)
    assert (scene.called, bool(events)) == ([None] * 20, True)
    try:
        scene.producer.close()
    except ValueError:
        assert scene.producer.close()


@pytest.mark.parametrize("name", ["far", "limited"])
def test_an_asyncio_producer_delivers_all_and_then_raises(brokers, name):
    cluster, proxies = brokers
    cluster.create_topic(f"aio-{name}", 1)
    proxies.each(lambda proxy: proxy.delay(to_broker_ms=ROUND_TRIP_MS // 2, to_client_ms=ROUND_TRIP_MS // 2))

    async def hear(_event):
        raise ValueError("an event")

    async def play():
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": name, "statistics.interval.ms": 50}
        producer = AIOProducer({**conf, "stats_cb": hear}, buffer_timeout=0.01)
        futures = [await producer.produce(f"aio-{name}", value=b"x" * 200) for _ in range(MESSAGES)]
        with pytest.raises(ValueError, match="an event"):
            await producer.flush()
        assert all(future.done() and future.result().error() is None for future in futures)
        with suppress(ValueError):  # events come until the end
            await producer.close()

    asyncio.run(play())


class Own(BaseException):
    """An application's, or a test's that fails in a callback."""


@pytest.mark.parametrize("last", ["flush", "close"])
@pytest.mark.parametrize("name", ["far", "spare"])
def test_what_is_no_exception_ends_no_flush_either(brokers, name, last):
    scene = Scene(brokers, Producer, name, f"own-{name}-{last}")
    scene.raises = Own
    delivers_all(scene, last)


@pytest.mark.parametrize("raises", [ValueError, SystemExit, RuntimeError, Own, asyncio.CancelledError])
@pytest.mark.parametrize("last", ["flush", "close"])
def test_under_a_quota_no_waiting_produce_raises(brokers, last, raises):
    scene = Scene(brokers, Producer, "limited", f"limited-{last}-{raises.__name__}", **{"quota.max.delay.ms": 500})
    scene.raises = raises
    scene.send()
    assert scene.called, "some were called while it waited"
    with pytest.raises(raises, match=r"^\d+$"):
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


@pytest.mark.parametrize("name", ["far", "spare", "limited"])
def test_a_commit_raises_what_a_callback_has_and_may_be_called_again(brokers, name):
    topic = f"committed-{name}"
    scene = Scene(brokers, Producer, name, topic, **{"transactional.id": topic, "quota.max.delay.ms": 200})
    scene.producer.init_transactions()
    for again in (scene.producer.commit_transaction, scene.producer.abort_transaction):
        scene.called.clear()
        scene.producer.begin_transaction()
        scene.send()
        with pytest.raises(ValueError, match=f"^{MESSAGES}$"):
            scene.producer.commit_transaction()
        assert scene.called == [None] * MESSAGES, "all are told of, as delivered"
        again()
    scene.producer.close()


def test_a_commit_does_not_raise_what_an_aborted_transactions_callbacks_have(brokers):
    scene = Scene(brokers, Producer, "limited", "begun-anew", **{"transactional.id": "begun-anew"})
    scene.producer.init_transactions()
    scene.producer.begin_transaction()
    scene.producer.produce(scene.topic, b"x" * 20_000, on_delivery=scene.report)
    scene.producer.produce(scene.topic, b"x", on_delivery=scene.report)
    scene.producer.abort_transaction()
    scene.producer.begin_transaction()
    scene.producer.produce(scene.topic, b"x")
    scene.producer.commit_transaction()
    with pytest.raises(ValueError, match="2"):
        scene.producer.close()


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
