"""While most of a large quota is unused messages go straight to librdkafka; the rest is paced, and none overtakes."""

import ctypes
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import producer as module
from kclient_quota.clients.producer.caller.taking import raw_bytes
from kclient_quota.clients.producer.outbox import RECORD_BYTES
from tests.read_committed import committed

THREADS = 4


def run(broker: EmbeddedBroker, each: int, size: int, pause_every: int) -> tuple[Producer, list[object]]:
    """So many messages of each of four threads, with pauses in which the quota is to spare again."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 5})

    def report(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    def produce(thread: int) -> None:
        for number in range(each):
            while True:
                try:
                    value = b"%d %06d" % (thread, number) + b"x" * size
                    producer.produce("orders", value, partition=0, callback=report)
                except BufferError:
                    producer.poll(0.05)  # librdkafka's queue is full, as with plain
                else:
                    break
            if not number % 100:
                producer.poll(0)
            if not number % pause_every:
                time.sleep(0.05)

    threads = [threading.Thread(target=produce, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(60) == 0
    return producer, failed


@pytest.mark.parametrize(
    ("quota", "each", "size", "pause_every"),
    [(1_000_000_000, 20_000, 20, 20_000), (12_000_000, 4_000, 1_500, 4_000), (12_000_000, 3_000, 1_500, 150)],
    ids=["little-of-a-large-one", "more-than-there-is", "now-and-then"],
)
def test_each_threads_messages_come_once_and_in_order(quota: int, each: int, size: int, pause_every: int) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=quota)
        producer, failed = run(broker, each, size, pause_every)
        came = defaultdict(list)
        for value in committed(broker, "orders"):
            thread, number = value[:8].split()
            came[int(thread)].append(int(number))
        assert not failed
        assert came == {thread: list(range(each)) for thread in range(THREADS)}
        if quota < 100_000_000:
            assert sum(state.admitted for state in producer.quota_state().values()) > 0, "nothing was paced"
        producer.close()


def test_a_flush_does_not_wait_for_what_lingers(broker: EmbeddedBroker) -> None:
    """Neither of the sender's nor of what callers have handed over themselves."""
    broker.set_quota(client_id="app", producer_byte_rate=1_000_000_000)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 100_000}
    with Producer(conf) as producer:
        for _ in range(50):
            producer.produce("orders", b"x")
        assert producer.flush(10) == 0
    assert len(committed(broker, "orders")) == 50


def test_a_message_counts_by_its_bytes_with_its_headers_whichever_way_it_goes() -> None:
    """Headers, and all but a third of Chinese text, were not counted where most of the quota was unused."""
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer(conf) as producer:
        producer._kq_outbox.is_spare, producer._kq_outbox.spare = True, 10_000.0
        producer.produce("orders", "漢" * 1_000, key="é", headers=[("h", b"y" * 2_000)])
        assert 5_000 < 10_000 - producer._kq_outbox.spare < 5_050
        producer._kq_outbox.is_spare = False
        free = producer._kq_outbox.free_bytes  # the sender begins with this message, and then makes another one
        (before,) = free.values()
        producer.produce("orders", "漢" * 1_000, key="é", headers=[("h", b"y" * 2_000)])
        (after,) = free.values()
        assert 5_000 < before - after < 5_050


def begun(producer: Producer, broker: EmbeddedBroker) -> int:
    """Sends until messages go straight; returns how many there are then."""
    until = time.monotonic() + 30
    while not producer._kq_outbox.has_spare:
        assert time.monotonic() < until
        producer.produce("orders", b"x", partition=0)
        producer.poll(0.01)
    producer.flush()
    return len(committed(broker, "orders"))


class Reading(ctypes.Structure):
    """What confluent_kafka takes for a value, and has no length."""

    _fields_ = (("sensor", ctypes.c_int32), ("degrees", ctypes.c_int32))


class Ambiguous(bytes):
    """Neither true nor false, as an array of numpy."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


@pytest.mark.parametrize("odd", [Reading(1, 2), Ambiguous(b"8 bytes.")], ids=["no-length", "no-truth"])
def test_what_plain_confluent_kafka_takes_is_counted_by_its_bytes(broker: EmbeddedBroker, odd: Any) -> None:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "producer_byte_rate": 1_000_000_000}
    producer = Producer(conf)
    begun(producer, broker)
    producer.produce("orders", odd, partition=0)
    producer.produce("orders", b"x", key=odd, partition=0)
    producer.close()
    assert raw_bytes(odd, odd, None) == RECORD_BYTES + 2 * 8
    assert list(committed(broker, "orders"))[-2:] == [bytes(odd), b"x"]


def test_what_librdkafka_has_no_room_for_waits_for_it_where_a_quota_applies(broker: EmbeddedBroker) -> None:
    """`produce()` waits for the quota, and nobody who relies on that looks for a full queue of librdkafka's."""
    broker.set_quota(client_id="app", producer_byte_rate=50_000_000)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "queue.buffering.max.messages": 1_000}
    with Producer(conf) as producer:
        before = begun(producer, broker)
        for number in range(20_000):  # and nobody polls meanwhile
            producer.produce("orders", b"%d" % number, partition=0)
    values = committed(broker, "orders")[before:]
    assert values == [b"%d" % number for number in range(20_000)]


def test_who_polls_only_when_librdkafka_is_full_leaves_nothing_in_the_queue(broker: EmbeddedBroker) -> None:
    """Nobody would hand over what waits there before it expires: `produce()` raises nothing that tells to poll."""
    broker.set_quota(client_id="app", producer_byte_rate=50_000_000)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "queue.buffering.max.messages": 1_000}
    with Producer(conf) as producer:
        before = begun(producer, broker)
        for _ in range(2_500):
            try:
                producer.produce("orders", b"x", partition=0)
            except BufferError:
                producer.poll(1)
                producer.produce("orders", b"x", partition=0)
        until = time.monotonic() + 30
        while len(committed(broker, "orders")) < before + 2_500:  # and the application calls nothing any more
            assert time.monotonic() < until
            time.sleep(0.1)


def test_who_is_not_to_wait_hears_that_librdkafka_is_full() -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer({**conf, "quota.backoff": "raise", "queue.buffering.max.messages": 10}) as producer:
        producer._kq_outbox.is_spare, producer._kq_outbox.spare = True, 10_000.0
        for _ in range(10):
            producer.produce("orders", b"x", partition=0)
        with pytest.raises(BufferError, match="Queue full"):
            producer.produce("orders", b"x", partition=0)


def test_a_full_librdkafka_is_told_as_plain_does_once_no_quota_applies_any_more() -> None:
    """Not after a thousand tries, each within the last one."""
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer({**conf, "queue.buffering.max.messages": 10}) as producer:
        producer._kq_outbox.is_open = True
        for _ in range(10):
            producer.produce("orders", b"x", partition=0)
        with pytest.raises(BufferError, match="Queue full"):
            producer._kq_hand_over("orders", b"x", None, 0, None, 0, None)


def test_what_several_threads_take_from_what_is_to_spare_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others had handed over while one was reckoning was forgotten: four used more than the quota."""
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer(conf) as producer:
        outbox = producer._kq_outbox
        outbox.is_spare, outbox.spare = True, 10_000.0

        def reckon(*_args: object) -> int:
            outbox.spare -= 1_000  # as another thread does just then
            return 10

        monkeypatch.setattr(module, "raw_bytes", reckon)
        outbox.is_watched = False  # as after the first message
        producer.produce("orders", b"x", key=b"k", partition=0)
        assert outbox.spare == 10_000 - 1_010


def test_what_is_taken_while_the_sender_reckons_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "producer_byte_rate": 80_000_000, "max.block.ms": 0}
    with Producer(conf) as producer:
        outbox, sender = producer._kq_outbox, producer._kq_sender
        outbox.is_running = True

        def reckon(_now_ms: int, _left: float, *, may: bool, wants: bool) -> float:
            outbox.spare -= 1_000  # as another thread does just then
            return 5_000.0

        monkeypatch.setattr(sender.core, "spare_bytes", reckon)
        sender.set_free(0)
        outbox.is_running = False
        assert outbox.spare == 4_000
