"""The asyncio pair that serializes: made, used and closed as confluent_kafka.aio's, error for error.

What is not, besides the exceptions of `test_aio_argument_shapes.py`: headers are sent, where theirs are refused; what
is being serialized while the producer is closed is refused, where theirs is taken and never sent.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.serialization import IntegerSerializer, StringSerializer

import kclient_quota.clients.aio
from kclient_quota.broker import EmbeddedBroker
from tests.integration.argument_shapes import SHAPES, does_not_fit

PLAIN: Final = confluent_kafka.aio
OURS: Final = kclient_quota.clients.aio
CLIENTS: Final = ("AsyncSerializingProducer", "AsyncDeserializingConsumer")
BASE: Final[dict[Any, Any]] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "enable.metrics.push": False}
LONG_S: Final = 30.0


def verdict(error: BaseException) -> tuple[Any, ...]:
    """An exception, what it wraps, and of which message it tells."""
    message = getattr(error, "kafka_message", None)
    about = None if message is None else (message.topic(), message.offset(), message.key(), message.value())
    text = re.sub("0x[0-9a-f]+", "", str(error)).partition(" (did you mean")[0].removesuffix('"}')
    return type(error).__name__, text, type(getattr(error, "exception", None)).__name__, about


async def outcome(door: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What becomes of a call."""
    try:
        found = await asyncio.wait_for(door(*args, **kwargs), LONG_S)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return verdict(error)
    if isinstance(found, confluent_kafka.Message):
        found = [found]
    if isinstance(found, list):
        return "messages", [(each.offset(), each.key(), each.value(), str(each.error())) for each in found]
    return "returns", type(found).__name__


# Made -------------------------------------------------------------------------------------------------------------


class Serde:
    """Serializes and deserializes nothing; notes in `log` what is done with it."""

    def __init__(self, log: list[str], name: str, *, fails: bool = False) -> None:
        self.log, self.name, self.fails = log, name, fails

    def __call__(self, given: Any, _context: Any) -> Any:
        return given

    def close(self) -> None:
        self.log.append(f"{self.name} closed")
        if self.fails:
            raise OSError(f"{self.name} cannot be closed")


class AsyncSerde(Serde):
    """The same, as those of a schema registry are."""

    async def aclose(self) -> None:
        self.close()

    def set_async_cluster_id_resolver(self, _resolver: Any) -> None:
        self.log.append(f"{self.name} may ask for the cluster")


class Builder:
    """Builds what it was given, or raises it."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def build(self, conf: dict[str, Any], _is_key: bool) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result(conf) if callable(self.result) else self.result


class AsyncBuilder(Builder):
    """The same, awaited."""

    async def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        return super().build(conf, is_key)


BUILT: dict[str, Callable[[list[str]], Any]] = {
    **{repr(wrong): (lambda _log, wrong=wrong: wrong) for wrong in (None, (1,), "ab", (1, 2), ValueError("no"))},
    "one": lambda log: lambda conf: (Serde(log, "value"), conf),
    "one of asyncio": lambda log: lambda conf: (AsyncSerde(log, "value"), conf),
    "one that cannot be closed": lambda log: lambda conf: (AsyncSerde(log, "value", fails=True), conf),
    "one that takes its key": lambda log: lambda c: (Serde(log, "value"), {k: v for k, v in c.items() if k != "own"}),
    "one that adds a key": lambda log: lambda conf: (Serde(log, "value"), {**conf, "nonsense": 1}),
    "none": lambda _log: lambda conf: (None, conf),
}
WRONG_CONF: Final[tuple[Any, ...]] = (None, 5, "x", b"x", [], (), {}, dict, list(BASE.items()))
Made = Callable[[Any, dict[str, Any], str, list[str]], Any]


def ways() -> Iterator[tuple[str, Made]]:
    """To make a client: of its class, a good configuration, the key of what serializes values, and a log."""
    for conf in WRONG_CONF:
        yield f"the configuration {conf!r}", lambda cls, _base, _key, _log, conf=conf: cls(conf)
    yield "nothing", lambda cls, _base, _key, _log: cls()
    yield "keywords", lambda cls, base, _key, _log: cls(**base)
    yield "by position", lambda cls, base, _key, _log: cls(base, 4)
    yield "by name", lambda cls, base, _key, _log: cls(conf=base)
    yield "an unknown argument", lambda cls, base, _key, _log: cls(base, nonsense=1)
    for wrong in (0, "x", None):
        yield f"workers {wrong!r}", lambda cls, base, _key, _log, wrong=wrong: cls(base, max_workers=wrong)
    for serde in (None, 5, "x", print, 0):
        yield f"{serde!r}", lambda cls, base, key, _log, serde=serde: cls({**base, key: serde})
    yield "both", lambda cls, base, key, _log: cls({**base, key: print, f"{key}.builder": Builder(1)})
    yield "no builder", lambda cls, base, key, _log: cls({**base, f"{key}.builder": 5})
    for kind in (Builder, AsyncBuilder):
        for name, built in BUILT.items():

            def make(cls: Any, base: Any, key: str, log: list[str], built: Any = built, kind: Any = kind) -> Any:
                first = kind(lambda conf: (Serde(log, "key", fails=True), conf))
                both = {key.replace("value", "key") + ".builder": first, f"{key}.builder": kind(built(log))}
                return cls({**base, "own": 1, **both})

            yield f"{kind.__name__} of {name}", make


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in ways()])
async def test_it_is_made_and_closed_as_the_plain_one(name: str, make: Made) -> None:
    key = "value.deserializer" if "Consumer" in name else "value.serializer"

    async def told(cls: Any) -> list[Any]:
        log: list[str] = []
        base = {**BASE, "group.id": "g"} if "Consumer" in name else dict(BASE)
        try:
            client = await make(cls, base, key, log)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            first, text, *_ = verdict(error)
            return [first, "" if does_not_fit((first, text)) else text, log]
        return [[await outcome(client.close) for _ in range(3)], log]

    assert await told(getattr(OURS, name)) == await told(getattr(PLAIN, name))


# Used -------------------------------------------------------------------------------------------------------------

PRODUCED: Final = (("topic", "t"), ("key", "k"), ("value", 7), ("partition", -1), ("timestamp", 0), ("headers", None))


def produced() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of `produce()`: too many, unknown ones, and each in every shape; headers are another matter."""
    values = tuple(value for _, value in PRODUCED)
    yield (), {}
    yield (*values, None), {}
    yield ("t",), {"on_delivery": print}
    yield ("t",), {"topic": "t"}
    for number, (name, _) in enumerate(PRODUCED[:-1]):
        for shape in SHAPES:
            yield (*values[:number], shape, *values[number + 1 :]), {}
            yield values[:number], {name: shape, **dict(PRODUCED[number + 1 :])}


@pytest.mark.parametrize("state", ["open", "closed"])
async def test_arguments_of_produce_are_taken_and_refused_as_by_the_plain_one(state: str) -> None:
    serializers = {"key.serializer": StringSerializer(), "value.serializer": IntegerSerializer()}
    pair = [await m.AsyncSerializingProducer({**BASE, **serializers}, buffer_timeout=0) for m in (PLAIN, OURS)]
    if state == "closed":
        for client in pair:
            await client.close()
    found = []
    for args, named in produced():
        plain, ours = [await outcome(client.produce, *args, **named) for client in pair]
        if plain != ours:
            found.append((args, named, plain, ours))
    assert found == []
    if state == "open":
        for client in pair:
            await client.purge()
            await client.close()


@pytest.fixture
def filled(broker: EmbeddedBroker) -> EmbeddedBroker:
    """Five messages in a partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(5):
        producer.produce("orders", b"%d" % number, b"k%d" % number, headers=[("h", b"x")])
    producer.flush(LONG_S)
    producer.close()
    return broker


class Reads:
    """Deserializes, but not these; `seen` is what it was given."""

    def __init__(self, *bad: bytes) -> None:
        self.bad = bad
        self.seen: list[Any] = []

    async def __call__(self, given: bytes, context: Any) -> Any:
        self.seen.append((given, context.topic, context.field, context.headers))
        if given in self.bad:
            raise ValueError(given)
        return "read", given


async def poll(client: Any) -> list[Any]:
    """One after the other, beyond the end, and once it is closed."""
    found = [await outcome(client.poll, LONG_S) for _ in range(6)]
    await client.close()
    return [*found, await outcome(client.poll, 1), await outcome(client.close)]


async def consume(client: Any) -> list[Any]:
    """All at once, and again, and once it is closed."""
    found = [await outcome(client.consume, 6, LONG_S), await outcome(client.consume, 6, 0.1)]
    await client.close()
    return [*found, await outcome(client.consume, 1, 1), await outcome(client.close)]


async def cut_short(client: Any) -> list[Any]:
    """The first is cancelled while it waits for its schema."""
    arrived, read = asyncio.Event(), client._value_deserializer

    async def slow(_given: bytes, _context: Any) -> Any:
        arrived.set()
        await asyncio.sleep(LONG_S)

    client._value_deserializer = slow
    polling = asyncio.create_task(client.poll(LONG_S))
    await asyncio.wait_for(arrived.wait(), LONG_S)
    polling.cancel()
    await asyncio.wait([polling])
    client._value_deserializer = read
    return [polling.cancelled(), await outcome(client.poll, LONG_S), await outcome(client.close)]


@pytest.mark.parametrize("read", [poll, consume, cut_short])
async def test_messages_and_what_is_wrong_with_them_come_as_from_the_plain_one(
    filled: EmbeddedBroker, read: Callable[[Any], Any]
) -> None:
    async def told(cls: Any) -> Any:
        keys, values = Reads(b"k3"), Reads(*(() if read is cut_short else (b"1",)))
        conf = {**BASE, "bootstrap.servers": filled.bootstrap_servers, "group.id": cls.__module__}
        own = {"enable.partition.eof": True, "key.deserializer": keys, "value.deserializer": values}
        client = await cls({**conf, **own})
        await client.assign([TopicPartition("orders", 0, 0)])
        return await read(client), keys.seen, values.seen

    assert await told(OURS.AsyncDeserializingConsumer) == await told(PLAIN.AsyncDeserializingConsumer)


async def test_what_cannot_be_serialized_is_told_as_by_the_plain_one_and_is_not_sent(broker: EmbeddedBroker) -> None:
    def fails(_given: Any, _context: Any) -> bytes:
        raise KeyError("no")

    async def told(cls: Any) -> list[Any]:
        found = []
        for key in ("key.serializer", "value.serializer"):
            client = await cls({**BASE, "bootstrap.servers": broker.bootstrap_servers, key: fails})
            found += [await outcome(client.produce, "orders", "k", "v"), len(client), await outcome(client.close)]
        return found

    assert await told(OURS.AsyncSerializingProducer) == await told(PLAIN.AsyncSerializingProducer)


async def test_a_message_that_is_still_being_serialized_when_the_producer_is_closed_is_refused(
    broker: EmbeddedBroker,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(given: bytes, _context: Any) -> bytes:
        begun.set()
        await go_on.wait()
        return given

    conf = {**BASE, "bootstrap.servers": broker.bootstrap_servers, "value.serializer": slow}
    producer = await OURS.AsyncSerializingProducer(conf)
    producing = asyncio.create_task(producer.produce("orders", value=b"late"))
    await begun.wait()
    await producer.close()
    go_on.set()
    with pytest.raises(RuntimeError, match="closed"):
        await producing


@pytest.mark.parametrize("module", [PLAIN, OURS], ids=["plain", "ours"])
async def test_subclasses_are_asked_as_those_of_the_plain_ones(broker: EmbeddedBroker, module: Any) -> None:
    asked = []

    class Mine(module.AsyncSerializingProducer):
        async def __init__(self, conf: dict[str, Any], *, extra: int) -> None:
            await super().__init__(conf, batch_size=extra)
            asked.append("init")

        async def produce(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("produce")
            return await super().produce(*args, **kwargs)

    class Its(module.AsyncDeserializingConsumer):
        async def poll(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("poll")
            return await super().poll(*args, **kwargs)

        async def consume(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("consume")
            return await super().consume(*args, **kwargs)

    conf = {**BASE, "bootstrap.servers": broker.bootstrap_servers}
    async with await Mine(conf, extra=5) as producer:
        delivered = await producer.produce("orders", value=b"v")
        await producer.flush(LONG_S)
    assert (await delivered).value() == b"v"
    async with await Its({**conf, "group.id": "g"}) as consumer:
        await consumer.poll(0.01)
        await consumer.consume(1, 0.01)
    assert asked == ["init", "produce", "poll", "consume"]
