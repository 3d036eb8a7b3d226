"""A signal's handler, or a delivery callback, that flushes, polls or closes while a call of its thread's waits."""

import signal
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies
from tests.apart import apart

MESSAGES = 40
ROUND_TRIP_MS = 200
KINDS = {
    "plain": (confluent_kafka.Producer, "far"),
    "unlimited": (Producer, "far"),
    "spare": (Producer, "spare"),
    "paced": (Producer, "limited"),
}


@pytest.fixture(scope="module")
def road() -> Iterator[Proxies]:
    with Proxies(1) as proxies:
        yield proxies


@pytest.fixture(scope="module")
def brokers(road: Proxies) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=1) as cluster:
        road.stand_before(cluster)
        cluster.set_quota(client_id="limited", producer_byte_rate=20_000)
        cluster.set_quota(client_id="spare", producer_byte_rate=50_000_000)
        road.each(lambda proxy: proxy.delay(to_broker_ms=ROUND_TRIP_MS // 2, to_client_ms=ROUND_TRIP_MS // 2))
        yield cluster


@pytest.fixture
def interrupt(road: Proxies) -> Iterator[Callable[..., None]]:
    """Have a handler do something, so many seconds from now, and no answer come before it.

    One that ran within a callback could wait for nothing, and with plain would end the process: that of a delivery
    comes after it, and while `producer` is told of statistics, once a second, the handler comes a moment later.
    """
    before = signal.getsignal(signal.SIGALRM)

    def handle(work, producer):
        if isinstance(producer, Producer) and producer._kq_outbox.is_inside():
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        road.each(lambda proxy: proxy.resume())
        work()

    def after(work, wait_s, producer):
        signal.signal(signal.SIGALRM, lambda *_: handle(work, producer))
        signal.setitimer(signal.ITIMER_REAL, wait_s)

    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    road.each(lambda proxy: proxy.resume())


def ready(road, brokers, kind, topic, **conf):
    """A producer that knows its broker, with messages on a road that stands still; and what is reported of them."""
    make, name = KINDS[kind]
    brokers.create_topic(topic, 1)
    producer = make({"bootstrap.servers": brokers.bootstrap_servers, "client.id": name, "log_level": 0, **conf})
    producer.produce(topic, b"first")
    assert not producer.flush(20)
    time.sleep(0.3)
    reports = []
    road.each(lambda proxy: proxy.stall())
    for number in range(MESSAGES):
        producer.produce(topic, b"%05d" % number, on_delivery=lambda error, _: reports.append(error))
    return producer, reports


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["flush", "poll", "short poll"])
def test_all_is_delivered_when_the_handlers_flush_returns(road, brokers, interrupt, kind, call):
    producer, reports = ready(road, brokers, kind, f"flush-{kind}-{call}".replace(" ", "-"))
    left = []

    def handle():
        left.append((producer.flush(20), len(reports)))

    interrupt(handle, 0.05, producer)
    if call == "flush":
        assert not producer.flush(20)
    elif call == "poll":
        while not left:  # it returns for other events, too
            producer.poll(2)
    else:
        for _ in range(10):
            producer.poll(0.1)
    assert left == [(0, MESSAGES)]
    assert reports == [None] * MESSAGES
    producer.close()


@pytest.mark.parametrize("kind", ["unlimited", "spare", "paced"])  # with plain it never ends
@pytest.mark.parametrize("call", ["flush", "poll"])
def test_all_is_delivered_when_the_handler_closes(road, brokers, interrupt, kind, call):
    producer, reports = ready(road, brokers, kind, f"close-{kind}-{call}")

    class Ends(Exception):  # noqa: N818 - as SystemExit is named
        pass

    def handle():
        producer.flush(20)
        producer.close()
        raise Ends

    def wait():
        while True:  # a poll returns for other events, too
            producer.flush(20) if call == "flush" else producer.poll(2)

    interrupt(handle, 0.05, producer)
    with pytest.raises((Ends, RuntimeError)) as ended:
        wait()
    assert ended.type is Ends or "closed" in str(ended.value)
    assert reports == [None] * MESSAGES
    producer.close()


@pytest.mark.parametrize("call", ["flush", "poll", "close"])
def test_a_callback_may_do_so_too_and_does_not_end_the_process(brokers, call):
    reports = []

    def report(error, _):
        reports.append(error)
        getattr(producer, call)(*([] if call == "close" else [0]))

    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "client.id": "far", "log_level": 0})
    producer.produce("callback", b"first")
    assert not producer.flush(20)
    for number in range(MESSAGES):
        producer.produce("callback", b"%d" % number, on_delivery=report)
    apart(producer.flush, 20)  # where no handler can come in
    assert reports == [None] * MESSAGES
    assert producer.close()
