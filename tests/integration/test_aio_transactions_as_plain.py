"""Transactions of `AIOProducer`, called in every order, and once it is fenced: answered as by confluent_kafka.aio's.

What is not: messages that wait when a transaction is aborted fail as purged, where theirs are sent first, to be aborted
then; a closed producer refuses messages, where theirs takes them and never sends them, and it may be closed again.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaException, TopicPartition

import kclient_quota
from kclient_quota.broker import EmbeddedBroker
from tests.read_committed import committed

PAIR: Final = (confluent_kafka.aio.AIOProducer, kclient_quota.AIOProducer)
PRODUCE: Final = 0
AT_ONCE: Final = 12
"""So many producers are tried side by side."""
LONG_S: Final = 30.0
Told = tuple[Any, ...]


def conf(broker: EmbeddedBroker, name: str, **more: Any) -> dict[str, Any]:
    """A transactional producer's, that says nothing but what it raises."""
    quiet = {"log_level": 0, "enable.metrics.push": False, "linger.ms": 0}
    return {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, **quiet, **more}


@pytest.fixture(scope="module")
def group() -> Any:
    """The metadata of a group whose consumer is gone: offsets may be committed for it all the same."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    return metadata


def steps(group: Any) -> dict[str, Callable[[Any], Awaitable[Any]]]:
    """What may be called."""
    return {
        "init": lambda producer: producer.init_transactions(LONG_S),
        "begin": lambda producer: producer.begin_transaction(),
        "produce": lambda producer: producer.produce("orders", b"v"),
        "flush": lambda producer: producer.flush(LONG_S),
        "offsets": lambda p: p.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], group, LONG_S),
        "commit": lambda producer: producer.commit_transaction(LONG_S),
        "abort": lambda producer: producer.abort_transaction(LONG_S),
        "close": lambda producer: producer.close(),
    }


def verdict(error: BaseException) -> Told:
    """An exception, as an application sees it; plain, which sends batches, has other words for a message."""
    if not isinstance(error, KafkaException):
        return type(error).__name__, str(error)
    it = error.args[0]
    text = it.str().replace("Message failed", "Unable to produce message")
    return type(error).__name__, it.name(), text, it.fatal(), it.retriable(), it.txn_requires_abort()


async def outcome(call: Awaitable[Any]) -> Any:
    """What becomes of a call: a verdict, or what it returns."""
    try:
        return await asyncio.wait_for(call, 3 * LONG_S)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return verdict(error)


async def told(producer: Any, calls: Sequence[Callable[[Any], Awaitable[Any]]]) -> list[Any]:
    """What each call, the closing, and each future of a message comes to."""
    found = [await outcome(call(producer)) for call in calls]
    if not producer._is_closed:
        found.append(await outcome(producer.close()))
    futures = [each for each in found if asyncio.isfuture(each)]
    return [
        *(each for each in found if not asyncio.isfuture(each)),
        *("in vain" if each.exception() is None else verdict(each.exception()) for each in futures),
    ]


def is_as_theirs(order: Sequence[str]) -> bool:
    """Whether it has nothing of what is done otherwise on purpose."""
    after_close = order[order.index("close") + 1 :] if "close" in order else ()
    waits = False
    for step in order:
        if step == "abort" and waits:
            return False
        waits = step == "produce" or (waits and step != "flush")
    return not {"produce", "close"} & set(after_close)


@pytest.mark.parametrize(
    "before", [(), ("init",), ("init", "begin"), ("init", "begin", "produce", "flush")], ids="-".join
)
async def test_calls_in_any_order_are_answered_as_by_the_plain_one(
    broker: EmbeddedBroker, group: Any, before: Sequence[str]
) -> None:
    doors, turn, number = steps(group), asyncio.Semaphore(AT_ONCE), itertools.count()

    async def answers(cls: Any, order: Sequence[str]) -> list[Any]:
        async with turn:
            return await told(cls(conf(broker, f"t{next(number)}")), [doors[step] for step in order])

    orders = [(*before, *rest) for rest in itertools.product(doors, repeat=2)]
    orders = [order for order in orders if is_as_theirs(order)]
    assert len(orders) > 40
    plain, ours = [await asyncio.gather(*(answers(cls, order) for order in orders)) for cls in PAIR]
    answered = zip(orders, plain, ours, strict=True)
    assert [each for each in answered if each[1] != each[2]] == []


# Ours also closes the synchronous producer inside, which warns of what the last abort has raised already.
@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
@pytest.mark.parametrize("before", [("init",), ("init", "begin"), ("init", "begin", "produce", "flush")], ids="-".join)
@pytest.mark.parametrize("door", ["init", "begin", "flush", "offsets", "commit", "abort"])
async def test_who_is_fenced_is_told_as_by_the_plain_one(
    broker: EmbeddedBroker, group: Any, before: Sequence[str], door: str
) -> None:
    doors = steps(group)

    async def answers(cls: Any) -> list[Any]:
        producer = cls(conf(broker, cls.__module__))
        for step in before:
            await doors[step](producer)
        newer = confluent_kafka.Producer(conf(broker, cls.__module__))
        await asyncio.to_thread(newer.init_transactions, LONG_S)
        return await told(producer, [doors[step] for step in (door, "abort", "begin")])

    plain, ours = [await answers(cls) for cls in PAIR]
    assert ours == plain


# What a refused call leaves as it was -----------------------------------------------------------------------------


WRONG: Final[dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "a text": (("x",), {}),
    "none": ((None,), {}),
    "too many": ((1, 2), {}),
    "by name": ((), {"timeout": 1}),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_abort_that_is_refused_takes_no_message_out_of_its_transaction(
    broker: EmbeddedBroker, wrong: tuple[tuple[Any, ...], dict[str, Any]]
) -> None:
    producer = kclient_quota.AIOProducer(conf(broker, "t"))
    await producer.init_transactions(LONG_S)
    await producer.begin_transaction()
    futures = [await producer.produce("orders", b"%d" % number) for number in range(3)]
    with pytest.raises(TypeError):
        await producer.abort_transaction(*wrong[0], **wrong[1])
    await producer.commit_transaction(LONG_S)
    await producer.close()
    assert [future.exception() for future in futures] == [None] * 3
    assert await asyncio.to_thread(committed, broker, "orders") == [b"0", b"1", b"2"]


async def test_where_no_transaction_is_open_an_abort_takes_no_message(broker: EmbeddedBroker) -> None:
    without = conf(broker, "t")
    del without["transactional.id"]
    producer = kclient_quota.AIOProducer(without)
    delivered = await producer.produce("orders", b"v")
    with pytest.raises(KafkaException, match="Transactional API"):
        await producer.abort_transaction()
    await producer.close()
    assert delivered.exception() is None


@pytest.mark.parametrize(
    ("again", "text"),
    [((), "Operation not valid in state"), (("x",), "begin_transaction")],
    ids=["a second one", "wrong arguments"],
)
async def test_a_begin_that_is_refused_does_not_forget_that_a_message_was_kept_out(
    broker: EmbeddedBroker, again: tuple[Any, ...], text: str
) -> None:
    producer = kclient_quota.AIOProducer(conf(broker, "t", **{"max.block.ms": 300}))
    await producer.init_transactions(LONG_S)
    await producer.begin_transaction()
    broker.throttle_next(PRODUCE, 50_000)
    await producer.produce("orders", b"first")
    await producer.flush(LONG_S)
    await producer.poll(0.3)
    kept_out = await producer.produce("orders", b"second")
    await producer.flush(LONG_S)
    assert isinstance(kept_out.exception(), kclient_quota.QuotaThrottledError)
    with pytest.raises((KafkaException, TypeError), match=text):
        await producer.begin_transaction(*again)
    with pytest.raises(KafkaException, match="kept messages out"):
        await producer.commit_transaction(LONG_S)
    await producer.close()
