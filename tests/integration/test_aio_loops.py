"""An asyncio client that outlives its event loop: what `asyncio.run()` twice, and fixtures of tests, do."""

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import TopicPartition

from kclient_quota import AIOConsumer, AIOProducer, Producer
from kclient_quota.clients.aio.loops import InLoop
from kclient_quota.clients.producer.transaction import Transaction
from kclient_quota.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.usefixtures("only_what_is_new")

WITHIN_S = 30
RATE = 20_000
TOPIC = "orders"


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    """Its only topic has one partition."""
    kafka_broker.create_topic(TOPIC, 1)
    return kafka_broker


def read(broker: KafkaBroker) -> list[bytes]:
    """All values of the topic, in order."""
    return [record.value or b"" for record in broker.records(TOPIC)]


def by_run(work: Coroutine[Any, Any, Any]) -> Any:
    """What is left in the loop is cancelled before it is closed."""
    return asyncio.run(work)


def by_hand(work: Coroutine[Any, Any, Any]) -> Any:
    """What is left in the loop is never told."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def begun(cls: type, broker: KafkaBroker) -> Any:
    """A producer that has taken two messages, which wait for somebody to flush."""
    producer = cls({"bootstrap.servers": broker.bootstrap_servers}, buffer_timeout=0)
    for value in (b"a", b"b"):
        await producer.produce(TOPIC, value)
    return producer


def limited(broker: KafkaBroker, batch_size: int = 1_000) -> AIOProducer:
    """One that has to wait for its quota."""
    broker.set_quota(client_id="app", producer_byte_rate=RATE)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}
    return AIOProducer(conf, batch_size=batch_size, buffer_timeout=0.01)


async def rest(producer: Any) -> list[bytes]:
    """Produce two more, deliver everything, close."""
    futures = [await producer.produce(TOPIC, value) for value in (b"c", b"d")]
    assert await asyncio.wait_for(producer.flush(), WITHIN_S) in {0, None}
    delivered = [(await asyncio.wait_for(future, WITHIN_S)).value() for future in futures]
    await asyncio.wait_for(producer.close(), WITHIN_S)
    return delivered


@pytest.mark.parametrize("cls", [AIOProducer, confluent_kafka.aio.AIOProducer], ids=["ours", "plain"])
@pytest.mark.parametrize("run", [by_run, by_hand])
def test_a_producer_goes_on_in_the_next_loop(broker: KafkaBroker, cls: type, run: Run) -> None:
    """What was taken in the first loop and not handed over goes first."""
    producer = run(begun(cls, broker))
    assert run(rest(producer)) == [b"c", b"d"]
    assert read(broker) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("run", [by_run, by_hand])
@pytest.mark.parametrize("waits", ["for the quota", "for room"])
def test_a_producer_goes_on_that_was_waiting_for_its_quota(broker: KafkaBroker, run: Run, waits: str) -> None:
    """Each message once at the most and in order, those of the second loop all; nothing waits for the first one."""
    most = 5 if waits == "for room" else 1000

    async def begin() -> Any:
        producer = limited(broker, batch_size=most)
        tasks = [asyncio.create_task(producer.produce(TOPIC, b"%03d" % n + bytes(2_000))) for n in range(30)]
        await asyncio.wait(tasks, timeout=0.3)
        assert sum(task.done() for task in tasks) < len(tasks) or waits == "for the quota"
        return producer

    producer = run(begin())
    assert run(rest(producer)) == [b"c", b"d"]
    values = read(broker)
    assert values[-2:] == [b"c", b"d"]
    before = [value[:3] for value in values[:-2]]
    assert before
    assert before == sorted(set(before))


def test_who_waited_in_the_loop_before_takes_nothing_with_it_when_it_is_collected_as_garbage(
    broker: KafkaBroker,
) -> None:
    async def begin() -> Any:
        producer = limited(broker, batch_size=5)
        tasks = [asyncio.create_task(producer.produce(TOPIC, b"%03d" % n + bytes(2_000))) for n in range(30)]
        await asyncio.wait(tasks, timeout=0.3)
        return producer

    async def go_on(producer: Any) -> None:
        producer._here()
        gc.collect()
        assert await rest(producer) == [b"c", b"d"]

    by_hand(go_on(by_hand(begin())))
    assert read(broker)[-2:] == [b"c", b"d"]


class SlowReports:
    """A worker has a report, which is not counted any more, and has not told of it yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought, self.may_be_told = threading.Event(), threading.Event()
        hear = InLoop.hear

        def late(home: InLoop, report: Any) -> None:
            self._wait()
            hear(home, report)

        monkeypatch.setattr(InLoop, "hear", late)

    def _wait(self) -> None:
        self.brought.set()
        assert self.may_be_told.wait(WITHIN_S)

    async def told(self, producer: AIOProducer, future: asyncio.Future[Any]) -> Any:
        """What comes of it once nobody looks for reports any more."""
        assert await asyncio.to_thread(self.brought.wait, WITHIN_S)
        poller = producer._here().poller
        if poller is not None:
            await asyncio.wait([poller], timeout=WITHIN_S)
        self.may_be_told.set()
        return (await asyncio.wait_for(future, WITHIN_S)).value()


def test_a_report_is_told_that_a_flush_brings_which_nobody_waits_for_any_more(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowReports(monkeypatch)

    async def work() -> None:
        producer = limited(broker)
        monkeypatch.setattr(
            producer._producer, "serve", lambda _: time.sleep(0.01)
        )  # so that it is flush() that brings it
        future = await producer.produce(TOPIC, b"a")
        flushing = asyncio.create_task(producer.flush())
        assert await asyncio.to_thread(slow.brought.wait, WITHIN_S)
        flushing.cancel()
        await asyncio.wait([flushing])
        assert await slow.told(producer, future) == b"a"
        await producer.close()

    asyncio.run(work())


def test_a_report_is_told_that_a_worker_of_the_loop_before_brings(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, may_poll = SlowReports(monkeypatch), threading.Event()

    async def begin() -> Any:
        producer = limited(broker)
        poll = producer._producer.serve

        def late(_: float) -> None:
            assert may_poll.wait(WITHIN_S)
            while not slow.brought.is_set():
                poll(0.1)

        asyncio.get_running_loop().run_in_executor(producer.executor, producer._served, late, 0)
        monkeypatch.setattr(producer._producer, "serve", lambda _: time.sleep(0.01))
        return producer

    async def go_on(producer: Any) -> None:
        future = await producer.produce(TOPIC, b"a")
        producer._start_pump()
        may_poll.set()
        assert await slow.told(producer, future) == b"a"
        await producer.close()

    by_hand(go_on(by_hand(begin())))


def test_a_pump_that_is_destroyed_after_its_loop_touches_nothing_of_the_next_one(broker: KafkaBroker) -> None:
    pumps = []

    async def begin() -> Any:
        producer = limited(broker)
        for _ in range(30):
            await producer.produce(TOPIC, bytes(2_000))
        await asyncio.sleep(0.3)
        pumps.append(producer._here().pump)
        return producer

    async def go_on(producer: Any) -> None:
        future = await producer.produce(TOPIC, b"new")
        producer._start_pump()
        pumps.pop().get_coro().close()  # as when it is destroyed: the first loop is gone
        await asyncio.wait_for(producer.flush(), WITHIN_S)
        assert (await asyncio.wait_for(future, WITHIN_S)).value() == b"new"
        await producer.close()

    producer = by_hand(begin())
    assert pumps[0] is not None
    by_hand(go_on(producer))


@pytest.mark.parametrize("cls", [AIOConsumer, confluent_kafka.aio.AIOConsumer], ids=["ours", "plain"])
@pytest.mark.parametrize("run", [by_run, by_hand])
def test_a_consumer_goes_on_in_the_next_loop(broker: KafkaBroker, cls: type, run: Run) -> None:
    async def fill() -> None:
        await (await begun(AIOProducer, broker)).close()

    async def first() -> Any:
        consumer = cls({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        await consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = await consumer.poll(WITHIN_S)
        assert message.value() == b"a"
        return consumer

    async def second(consumer: Any) -> None:
        message = await consumer.poll(WITHIN_S)
        assert message.value() == b"b"
        await asyncio.wait_for(consumer.close(), WITHIN_S)

    asyncio.run(fill())
    run(second(run(first())))


COUNT = 200


def filled(broker: KafkaBroker) -> TopicPartition:
    """Has as many messages, whose values are their numbers."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(COUNT):
            producer.produce(TOPIC, b"%d" % number)
    return TopicPartition(TOPIC, 0, 0)


@pytest.mark.parametrize("run", [by_run, by_hand])
@pytest.mark.parametrize("rate", [None, 100_000], ids=["free", "limited"])
def test_a_consumer_goes_on_whose_poll_was_waiting_when_its_loop_ended(
    broker: KafkaBroker, run: Run, rate: int | None
) -> None:
    """What the worker still received that nobody waited for any more is received in the next loop."""
    begin = filled(broker)
    conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
    if rate is not None:
        conf["consumer_byte_rate"] = rate
    got: list[int] = []
    began = asyncio.Event()

    async def receive(consumer: AIOConsumer, until: int) -> None:
        while len(got) < until:
            message = await consumer.poll(WITHIN_S)
            assert message is not None
            got.append(int(message.value()))
            if len(got) == COUNT // 4:
                began.set()

    async def first() -> Any:
        consumer = AIOConsumer(conf)
        await consumer.assign([begin])
        task = asyncio.create_task(receive(consumer, COUNT))
        await began.wait()
        return consumer, task

    async def idle(consumer: AIOConsumer) -> Any:
        """A worker waits in vain when the loop ends."""
        task = asyncio.create_task(consumer.poll(WITHIN_S))
        await asyncio.sleep(0.01)
        return task

    async def last(consumer: AIOConsumer) -> None:
        await consumer.keep_alive()
        assert await asyncio.wait_for(consumer.poll(0), WITHIN_S) is None
        assert not consumer._turns.are_taken()
        await asyncio.wait_for(consumer.close(), WITHIN_S)

    consumer, tasks = run(first())
    run(asyncio.wait_for(receive(consumer, COUNT), WITHIN_S))
    assert got == list(range(COUNT))
    tasks = [tasks, run(idle(consumer))]
    run(last(consumer))
    del tasks


def test_a_consumer_is_closed_in_the_next_loop_whose_close_was_cancelled_with_all_other_tasks(
    broker: KafkaBroker,
) -> None:
    async def begin() -> Any:
        consumer = AIOConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        assert closing.cancelled()
        await asyncio.wait_for(consumer.close(), WITHIN_S)
        return consumer

    consumer = by_run(begin())
    by_run(consumer.close())
    with pytest.raises(RuntimeError, match="closed"):
        by_run(consumer.poll(0))


def numbered(broker: KafkaBroker) -> list[int]:
    """The numbers of what is in the topic, in order."""
    return [int(value[:3]) for value in read(broker)]


async def cancel_all_others() -> None:
    """What applications do when they are told to end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("then", ["flush", "close", "wait for their futures"])
def test_what_was_taken_is_sent_though_all_tasks_are_cancelled(broker: KafkaBroker, then: str) -> None:
    async def work() -> None:
        producer = limited(broker)
        futures = [await producer.produce(TOPIC, b"%03d" % n + bytes(1_000)) for n in range(30)]
        await asyncio.sleep(0.1)
        assert numbered(broker) != list(range(30))
        await cancel_all_others()
        if then == "flush":
            assert await asyncio.wait_for(producer.flush(), WITHIN_S) == 0
        elif then == "close":
            await asyncio.wait_for(producer.close(), WITHIN_S)
        await asyncio.wait_for(asyncio.gather(*futures), WITHIN_S)
        await producer.close()

    by_run(work())
    assert numbered(broker) == list(range(30))


@pytest.mark.parametrize("run", [by_run, by_hand])
def test_what_was_taken_in_the_loop_before_is_sent_once_and_in_order(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """What a worker had been given when the loop ended as well."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    async def begin() -> Any:
        producer = limited(broker)
        produce = producer._producer.produce

        def late(*args: Any, **kwargs: Any) -> None:
            has_begun.set()
            assert may_go_on.wait(WITHIN_S)
            produce(*args, **kwargs)

        monkeypatch.setattr(producer._producer, "produce", late)
        for number in range(30):
            await producer.produce(TOPIC, b"%03d" % number + bytes(1_000))
        assert await asyncio.to_thread(has_begun.wait, WITHIN_S)
        return producer

    async def go_on(producer: AIOProducer) -> None:
        may_go_on.set()
        future = await producer.produce(TOPIC, b"030")
        await asyncio.wait_for(producer.flush(), WITHIN_S)
        assert future.done()
        await producer.close()

    run(go_on(run(begin())))
    assert numbered(broker) == list(range(31))


def test_a_producer_is_closed_whose_close_was_cancelled_with_all_other_tasks(broker: KafkaBroker) -> None:
    async def work() -> None:
        producer = limited(broker)
        futures = [await producer.produce(TOPIC, b"%03d" % n + bytes(1_000)) for n in range(30)]
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        await cancel_all_others()
        assert closing.cancelled()
        await asyncio.wait_for(producer.close(), WITHIN_S)
        assert all(future.done() and future.exception() is None for future in futures)

    by_run(work())
    assert numbered(broker) == list(range(30))


def test_who_had_room_in_the_loop_before_takes_none_of_another_when_it_is_collected_as_garbage(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> Any:
        producer = limited(broker, batch_size=5)

        async def never_ends(_era: int | None) -> None:
            await asyncio.Event().wait()

        eras = itertools.count(1)  # as within a transaction that is over
        monkeypatch.setattr(Transaction, "open_era", property(lambda _: next(eras)))
        monkeypatch.setattr(producer, "_insist", never_ends)
        return producer, asyncio.create_task(producer.produce(TOPIC, b"in the loop before")), await asyncio.sleep(0.05)

    async def go_on(producer: AIOProducer, tasks: list[Any]) -> None:
        await producer.produce(TOPIC, b"b")
        tasks.clear()
        gc.collect()
        assert await rest(producer) == [b"c", b"d"]

    producer, *tasks = by_hand(begin())
    monkeypatch.undo()
    by_hand(go_on(producer, tasks))
    assert read(broker) == [b"b", b"c", b"d"]
