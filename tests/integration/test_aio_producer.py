"""AIOProducer under a quota: the event loop never waits, and whatever is cancelled, nothing is lost or doubled."""

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AIOProducer
from kclient_quota.errors import ConfigError, QuotaThrottledError
from tests.read_committed import ids, read_ids

PAD = b"x" * 990
PRODUCE = 0

pytestmark = pytest.mark.usefixtures("patiently_asked")


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **more}


async def throttled(broker: EmbeddedBroker, throttle_ms: int, **more: Any) -> AIOProducer:
    """A producer whose first message was answered with a throttle."""
    producer = AIOProducer(conf(broker, **{"linger.ms": 0, **more}))
    broker.throttle_next(PRODUCE, throttle_ms)
    await producer.produce("orders", b"000000")
    await producer.flush(60)
    await producer.poll(0.3)
    assert [state.throttled_until_ms > 0 for state in producer.quota_state().values()] == [True]
    return producer


@pytest.mark.parametrize("quota", [None, 100_000])
async def test_what_was_given_may_be_gone_on_with(broker: EmbeddedBroker, quota: float | None) -> None:
    """Messages wait for a second: all had the headers that their caller had filled in for the last one."""
    if quota is not None:
        broker.set_quota(client_id="app", producer_byte_rate=quota)
    headers: dict[str, str] = {}
    named = [("number", "")]
    value = (ctypes.c_char * 1)()
    async with AIOProducer(conf(broker)) as producer:
        for number in range(3):
            headers["number"] = str(number)
            await producer.produce("orders", b"in a dict", headers=headers)
            named[0] = ("number", str(number))
            await producer.produce("orders", b"in a list", headers=named)
            value[0] = b"%d" % number
            await producer.produce("orders", value, value)
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    reader.assign([TopicPartition("orders", 0, 0)])
    messages = reader.consume(9, 60)
    reader.close()
    assert [dict(message.headers() or []).get("number") or message.value() for message in messages] == [
        each for number in (b"0", b"1", b"2") for each in (number, number, number)
    ]
    assert [message.key() for message in messages[2::3]] == [b"0", b"1", b"2"]


async def test_the_quota_is_kept(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=60_000)
    async with AIOProducer(conf(broker), batch_size=50) as producer:
        begin = time.monotonic()
        delivered = [await producer.produce("orders", b"%06d" % number + PAD) for number in range(200)]
        assert await producer.flush() == 0
        took_s = time.monotonic() - begin
        assert all(future.done() for future in delivered)
        assert [future.result().offset() for future in delivered] == list(range(200))
        assert [state.limit for state in producer.quota_state().values()] == [60_000]
    assert len(producer) == 0
    # A second's quota may go ahead.
    assert took_s >= 2.0
    assert read_ids(broker, "orders") == ids(200)


async def test_messages_go_without_being_flushed(broker: EmbeddedBroker) -> None:
    producer = AIOProducer(conf(broker), buffer_timeout=0.2)
    first = await producer.produce("orders", b"a", "k", partition=0, timestamp=1_234, headers={"h": b"v"})
    message = await asyncio.wait_for(first, 60)
    assert (message.key(), message.timestamp()[1]) == (b"k", 1_234)
    heard: list[Any] = []
    second = await producer.produce("orders", b"b", on_delivery=lambda error, _: heard.append(error))
    await asyncio.wait_for(second, 60)
    await asyncio.sleep(0)
    assert heard == [None]
    await producer.close()
    assert set(read_ids(broker, "orders")) == {b"a", b"b"}


async def test_cancelled_calls_lose_and_double_nothing(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=100_000)
    producer = AIOProducer(conf(broker), batch_size=20, buffer_timeout=0.05)
    taken: list[tuple[bytes, asyncio.Future[Any]]] = []
    refused = 0
    deadline = time.monotonic() + 60
    while (refused <= 20 or len(taken) <= 50) and time.monotonic() < deadline:
        value = b"%06d" % (refused + len(taken))
        # Shorter than most waits, longer than some.
        task = asyncio.create_task(producer.produce("orders", value + PAD))
        done, _ = await asyncio.wait([task], timeout=0.005)
        if done:
            taken.append((value, task.result()))
            continue
        task.cancel()
        refused += 1
        flush = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.002)
        flush.cancel()
    assert refused > 20
    assert len(taken) > 50
    if taken[-1][1].cancel():
        taken.pop()
    await producer.close()
    assert all(future.done() and future.exception() is None for _, future in taken)
    seen = read_ids(broker, "orders")
    assert max(seen.values()) == 1
    assert {value for value, _ in taken} <= set(seen)
    assert len(seen) - len(taken) <= 1


async def test_a_sender_that_takes_its_time_to_answer_takes_no_message_beyond_max_block_ms(
    broker: EmbeddedBroker,
) -> None:
    producer = await throttled(broker, 50_000, **{"max.block.ms": 500})
    lock, is_held = producer._producer._kq_sender.lock, threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            time.sleep(0.3)  # as on a machine that is busy with other things

    holding = threading.Thread(target=hold)
    holding.start()
    is_held.wait()
    waiting = await producer.produce("orders", b"000001")
    assert await producer.flush(10) == 0
    holding.join()
    assert isinstance(waiting.exception(), QuotaThrottledError)
    await producer.close()


async def test_a_produce_that_waited_for_max_block_ms_is_refused(broker: EmbeddedBroker) -> None:
    producer = await throttled(broker, 50_000, **{"max.block.ms": 500})
    waiting = await producer.produce("orders", b"000001")
    begin = time.monotonic()
    assert await producer.flush(60) == 0
    assert time.monotonic() - begin < 60
    error = waiting.exception()
    assert isinstance(error, QuotaThrottledError)
    assert 10_000 < error.retry_after_ms <= 50_000
    full = [producer.produce("orders", b"%06d" % number) for number in range(2, 1_012)]
    results = await asyncio.gather(*full, return_exceptions=True)
    assert sum(isinstance(result, QuotaThrottledError) for result in results) <= 10
    begin = time.monotonic()
    await producer.close()
    assert time.monotonic() - begin < 60
    futures = [result for result in results if isinstance(result, asyncio.Future)]
    assert all(isinstance(future.exception(), QuotaThrottledError) for future in futures)
    with pytest.raises(RuntimeError, match="closed"):
        await producer.produce("orders", b"x")


async def test_raise_says_when_to_try_again(broker: EmbeddedBroker) -> None:
    async with await throttled(broker, 50_000, **{"quota.backoff": "raise"}) as producer:
        with pytest.raises(QuotaThrottledError) as caught:
            await asyncio.wait_for(producer.produce("orders", b"refused"), 60)
        assert 10_000 < caught.value.retry_after_ms <= 50_000
    own = {"client.id": "another", "linger.ms": 0}
    async with AIOProducer(conf(broker, **own, **{"quota.backoff": "raise"})) as producer:
        broker.throttle_next(PRODUCE, 4_000)
        await producer.produce("orders", b"000001")
        await producer.flush(60)
        await producer.poll(0.3)
        retry_after_ms = 0
        try:
            delivered = await producer.produce("orders", b"000002")
        except QuotaThrottledError as error:  # unless a machine that stood still has let the time pass
            retry_after_ms = error.retry_after_ms
            await asyncio.sleep(retry_after_ms / 1000 + 0.05)
            delivered = await producer.produce("orders", b"000002")
        assert (await asyncio.wait_for(delivered, 60)).offset() == 2
    assert retry_after_ms <= 4_000
    assert read_ids(broker, "orders") == ids(3)


async def test_what_is_cancelled_while_it_is_to_raise_is_not_sent(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=1_000_000)
    producer = AIOProducer(conf(broker, **{"quota.backoff": "raise"}))
    taken, cancelled = set(), set()
    for number in range(300):
        value = b"%06d" % number
        task = asyncio.create_task(producer.produce("orders", value))
        for _ in range(number % 3):
            await asyncio.sleep(0.001 * (number % 2))
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            cancelled.add(value)
        elif task.exception() is None:
            taken.add(value)
    assert len(cancelled) >= 100
    assert len(taken) >= 100
    await producer.close()
    assert set(read_ids(broker, "orders")) == taken


async def test_a_cancelled_close_goes_on(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=50_000)
    producer = AIOProducer(conf(broker))
    delivered = [await producer.produce("orders", b"%06d" % number + PAD) for number in range(100)]
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.2)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await producer.close()
    assert all(future.exception() is None for future in delivered)
    assert read_ids(broker, "orders") == ids(100)


async def test_purge_forgets_what_waits(broker: EmbeddedBroker) -> None:
    producer = await throttled(broker, 50_000)
    waiting = [await producer.produce("orders", b"%06d" % number) for number in range(1, 11)]
    flush = asyncio.create_task(producer.flush())
    await asyncio.sleep(0.3)
    assert len(producer) == 10
    await producer.purge()
    assert await asyncio.wait_for(flush, 60) == 0
    assert all(future.cancelled() for future in waiting)
    await asyncio.wait_for(producer.close(), 60)
    assert read_ids(broker, "orders") == ids(1)


async def test_what_librdkafka_refuses_fails_its_own_future_only(broker: EmbeddedBroker) -> None:
    async with AIOProducer(conf(broker, **{"message.max.bytes": 2_000})) as producer:
        good = await producer.produce("orders", b"000000")
        big = await producer.produce("orders", b"x" * 5_000)
        wrong = await producer.produce("orders", 7)
        also = await producer.produce("orders", b"000001")
    assert isinstance(big.exception(), KafkaException)
    assert isinstance(wrong.exception(), TypeError)
    assert (good.exception(), also.exception()) == (None, None)
    assert read_ids(broker, "orders") == ids(2)


@pytest.mark.parametrize("limit", [None, 20_000])
async def test_what_librdkafka_never_has_room_for_fails_its_own_future_at_once(
    broker: EmbeddedBroker, limit: int | None
) -> None:
    """It held up all others for `max.block.ms`, and took them with it."""
    if limit is not None:
        broker.set_quota(client_id="app", producer_byte_rate=limit)
    producer = AIOProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "queue.buffering.max.kbytes": 1}
    )
    sent = [await producer.produce("orders", b"x" * size) for size in (10, 1_025, 20)]
    await asyncio.wait_for(producer.flush(), 10)
    assert [(await sent[0]).error(), (await sent[2]).error()] == [None, None]
    with pytest.raises(KafkaException, match="_QUEUE_FULL"):
        await sent[1]
    await producer.close()


async def test_transactions_commit_what_was_taken_and_abort_what_was_not(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=50_000)
    producer = AIOProducer(conf(broker, **{"transactional.id": "t"}), batch_size=40)
    await producer.init_transactions(60)
    await producer.begin_transaction()
    for number in range(100):
        await producer.produce("orders", b"%06d" % number + PAD)
    await producer.commit_transaction()
    await producer.begin_transaction()
    lost = [await producer.produce("orders", b"aborted" + PAD) for _ in range(60)]
    await producer.abort_transaction()
    await producer.flush(60)
    assert isinstance(lost[-1].exception(), KafkaException)
    await producer.close()
    assert read_ids(broker, "orders", isolation="read_committed") == ids(100)


async def test_nothing_is_logged_of_the_messages_of_a_transaction_that_its_application_aborts(
    broker: EmbeddedBroker,
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    producer = AIOProducer(conf(broker, **{"transactional.id": "t"}), buffer_timeout=0.01)
    await producer.init_transactions(60)
    for pause_s in (0, 0.2):  # before, and after they have been handed over
        await producer.begin_transaction()
        for _ in range(40):
            await producer.produce("orders", bytes(1_000))
        await asyncio.sleep(pause_s)
        await producer.abort_transaction(60)
    await producer.close()
    gc.collect()
    assert told == []


async def test_a_transaction_that_lost_a_message_to_the_quota_is_not_committed(broker: EmbeddedBroker) -> None:
    producer = AIOProducer(conf(broker, **{"transactional.id": "t", "max.block.ms": 300, "linger.ms": 0}))
    await producer.init_transactions(60)
    await producer.begin_transaction()
    broker.throttle_next(PRODUCE, 50_000)
    await producer.produce("orders", b"000000")
    await producer.flush(60)
    await producer.poll(0.3)
    refused = await producer.produce("orders", b"000001")
    await producer.flush(60)
    assert isinstance(refused.exception(), QuotaThrottledError)
    with pytest.raises(KafkaException) as caught:
        await producer.commit_transaction(60)
    assert caught.value.args[0].txn_requires_abort()
    await producer.close()


async def overdue(broker: EmbeddedBroker, **more: Any) -> AIOProducer:
    """In a transaction that the throttle will have time out."""
    own = {"transactional.id": "t", "transaction.timeout.ms": 60_000, "quota.transaction.timeout": "abort"}
    producer = AIOProducer(conf(broker, **own, **more), batch_size=2)
    await producer.init_transactions(60)
    await producer.begin_transaction()
    broker.throttle_next(PRODUCE, 3_600_000)
    await producer.produce("orders", b"000000" + PAD)
    await producer.flush(60)
    await producer.poll(0.3)
    return producer


async def fill_up(producer: AIOProducer) -> None:
    for _ in range(200):
        await producer.produce("orders", b"x" * 1_000)


async def flush_and_go_on(producer: AIOProducer) -> None:
    await producer.flush()
    await producer.produce("orders", b"after")


@pytest.mark.parametrize("call", [fill_up, flush_and_go_on, AIOProducer.commit_transaction])
async def test_a_transaction_that_would_time_out_is_aborted_within_an_await_of_the_applications(
    broker: EmbeddedBroker, call: Callable[[AIOProducer], Awaitable[None]]
) -> None:
    producer = await overdue(broker)
    # The first that waits beyond a grant: the pump meets the gate while the application awaits nothing.
    waiting = [await producer.produce("orders", b"x" * 1_000) for _ in range(2)]
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted") as caught:
        await call(producer)
    assert time.monotonic() - begin < 60
    assert caught.value.args[0].txn_requires_abort()
    assert isinstance(waiting[-1].exception(), KafkaException)
    await producer.abort_transaction()
    await begin_in_vain(producer)
    await producer.close()


async def begin_in_vain(producer: AIOProducer) -> None:
    """The broker throttles for longer than another transaction may take."""
    producer._max_block_ms = 300
    begin = time.monotonic()
    with pytest.raises(QuotaThrottledError, match="would have to be aborted"):
        await producer.begin_transaction()
    assert 0.2 < time.monotonic() - begin < 60


async def test_what_only_waits_for_its_futures_learns_from_them_and_aborts_itself(broker: EmbeddedBroker) -> None:
    producer = await overdue(broker)
    futures = [await producer.produce("orders", b"x" * 1_000) for _ in range(2)]
    told = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 60)
    assert any(isinstance(error, KafkaException) and error.args[0].txn_requires_abort() for error in told)
    # Nothing was done behind the application's back: the transaction is there still, for it to abort.
    await producer.abort_transaction(60)
    await begin_in_vain(producer)
    await producer.close()


async def test_raising_instead_of_waiting_aborts_it_too(broker: EmbeddedBroker) -> None:
    producer = await overdue(broker, **{"quota.backoff": "raise"})
    with pytest.raises(KafkaException, match="it was aborted"):
        await fill_up(producer)
    await producer.abort_transaction()
    await producer.close()


async def test_an_executor_of_ones_own_stays_open_and_configuration_untouched(broker: EmbeddedBroker) -> None:
    async def on_stats(_text: str) -> None: ...

    mine = conf(broker, stats_cb=on_stats)
    before = dict(mine)
    with ThreadPoolExecutor(2) as executor:
        async with AIOProducer(mine, executor=executor) as producer:
            await producer.produce("orders", b"000000")
        assert executor.submit(int).result() == 0
    assert mine == before
    with pytest.raises(ConfigError):
        AIOProducer(conf(broker, **{"quota.backof": "raise"}))


async def test_nothing_is_left_running(broker: EmbeddedBroker) -> None:
    before = set(threading.enumerate())
    async with AIOProducer(conf(broker)) as producer:
        await producer.produce("orders", b"000000")
    left = {thread for thread in set(threading.enumerate()) - before if not thread.daemon}
    # asyncio's own default executor is what closes ours.
    assert [thread.name for thread in left if not thread.name.startswith("asyncio")] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("kind", ["asyncio", "plain"])
async def test_a_consumer_is_kept_alive_while_messages_wait(broker: EmbeddedBroker, kind: str) -> None:
    beats: list[str] = []

    class Beating:
        def keep_alive(self) -> None:
            beats.append(threading.current_thread().name)

    class AsyncBeating(confluent_kafka.aio.AIOConsumer):
        def __init__(self) -> None:
            """Consume nothing."""

        async def keep_alive(self) -> None:
            beats.append("loop")

    broker.set_quota(client_id="app", producer_byte_rate=5_000)
    heartbeat = AsyncBeating() if kind == "asyncio" else Beating()
    async with AIOProducer(conf(broker), heartbeat=heartbeat) as producer:
        until = time.monotonic() + 30
        while len(beats) < 3 and time.monotonic() < until:
            await producer.produce("orders", PAD)
    assert len(beats) >= 3
    assert (set(beats) == {"loop"}) == (kind == "asyncio")
