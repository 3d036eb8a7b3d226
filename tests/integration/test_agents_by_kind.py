"""Tracing agents of every kind see of our clients what they see of confluent_kafka's, in the application's own threads.

Each kind puts something else in the place of confluent_kafka's classes; those kinds are ddtrace's, New Relic's,
Instana's, Dynatrace's and SkyWalking's, and two of them at once. `wrapt` comes with OpenTelemetry's instrumentation.
"""

import pytest

from tests.integration.agents_runs import MESSAGES, printed

pytest.importorskip("wrapt")

KINDS = [
    "wrapt over a mixin",
    "wrapt over a mixin of all",
    "wrapt in the extension",
    "wrapt over methods",
    "wrapt with headers to fill",
    "wrapt over a mixin and another in the extension",
    "wrapt over methods and another over a mixin",
]

SCRIPT = """
import importlib, json, sys, threading
import confluent_kafka
import wrapt
from confluent_kafka import TopicPartition, cimpl, deserializing_consumer, serializing_producer

servers, kind, whose, limit, serializing, messages = json.loads(sys.argv[1])
seen = []
main = threading.get_ident()

def in_producer(wrapped, instance, args, kwargs):
    seen.append(["produce", len(args), sorted(kwargs), instance.servers, threading.get_ident() == main])
    headers = kwargs.pop("headers", None)
    kwargs["headers"] = [*(headers or []), ("trace", b"1")]
    return wrapped(*args, **kwargs)

def fills(wrapped, instance, args, kwargs):
    headers = kwargs.get("headers", [])
    headers.append(("trace", b"1"))  # of None it would fail
    return in_producer(wrapped, instance, args, {**kwargs, "headers": headers[:-1]})

def in_consumer(name):
    def wrapper(wrapped, instance, args, kwargs):
        found = wrapped(*args, **kwargs)
        seen.append([name, found is None if name == "poll" else len(found or ()), instance.servers])
        return found
    return wrapper

def in_init(wrapped, instance, args, kwargs):
    wrapped(*args, **kwargs)
    instance.servers = (args[0] if args else kwargs)["bootstrap.servers"]

class Mixin:
    def __init__(self, config=None, *args, **kwargs):
        config = config or kwargs
        super().__init__(config, *args, **kwargs)
        self.servers = config["bootstrap.servers"]
    def __bool__(self):
        return True

DOORS = {
    "Producer": {"produce": in_producer},
    "Consumer": {name: in_consumer(name) for name in ("poll", "consume", "commit")},
}

def replace(name, cls, *, init):
    doors = dict(DOORS[name], __init__=in_init) if init else DOORS[name]
    for door, wrapper in doors.items():
        wrapt.wrap_function_wrapper(cls, door, wrapper)
    return cls

def extend():
    for name in DOORS:
        setattr(cimpl, name, replace(name, type(name, (getattr(cimpl, name),), {}), init=True))
        setattr(confluent_kafka, name, getattr(cimpl, name))

if kind.endswith("in the extension"):
    extend()
if kind.endswith("another in the extension"):
    # New Relic is there before the serializing classes are made, which then are made of its own
    for module in (serializing_producer, deserializing_consumer):
        name = module.__name__.rpartition(".")[2].title().replace("_", "")
        setattr(confluent_kafka, name, getattr(importlib.reload(module), name))
if kind.startswith("wrapt over a mixin") or kind.endswith("over a mixin"):
    if kind.endswith("of all"):
        DOORS["SerializingProducer"] = DOORS["Producer"]
        # consume() raises NotImplementedError there
        DOORS["DeserializingConsumer"] = {name: in_consumer(name) for name in ("poll", "commit")}
    for name in DOORS:
        mixed = type("Traced" + name, (Mixin, getattr(confluent_kafka, name)), {})
        setattr(confluent_kafka, name, replace(name, mixed, init=False))
if kind.startswith("wrapt over methods"):
    mixins = () if kind.endswith("over a mixin") else (Mixin,)
    class Producer(*mixins, confluent_kafka.Producer):
        def produce(self, topic, *args, **kwargs):
            return super().produce(topic, *args, **kwargs)
    class Consumer(*mixins, confluent_kafka.Consumer):
        def poll(self, timeout=-1):
            return super().poll(timeout)
        def consume(self, *args, **kwargs):
            return super().consume(*args, **kwargs)
        def commit(self, *args, **kwargs):
            return super().commit(*args, **kwargs)
    confluent_kafka.Producer = replace("Producer", Producer, init=False)
    confluent_kafka.Consumer = replace("Consumer", Consumer, init=False)
if kind == "wrapt with headers to fill":
    DOORS["Producer"] = {"produce": fills}
    for name in DOORS:
        setattr(confluent_kafka, name, replace(name, type(name, (getattr(confluent_kafka, name),), {}), init=True))

if whose == "ours":
    import kclient_quota as used
else:
    used = confluent_kafka

conf = {"bootstrap.servers": servers, "client.id": "app", "enable.metrics.push": False}
limits = {"producer_byte_rate": limit, "consumer_byte_rate": limit} if limit and whose == "ours" else {}
told = {key: limit for key, limit in limits.items() if key.startswith("producer")}
producer = (used.SerializingProducer if serializing else used.Producer)({**conf, **told})
topic = f"{kind}-{whose}-{limit}-{serializing}".replace(" ", "-")
reports = []
for number in range(messages):
    if number % 3 == 0:
        producer.produce(topic, value=b"x" * 500, partition=0)
    elif number % 3 == 1 and not serializing:
        producer.produce(topic, b"x" * 500, b"key", 0, lambda error, _: reports.append(error))
    else:
        producer.produce(topic, value=b"x" * 500, partition=0, headers=[("own", b"2")],
                         on_delivery=lambda error, _: reports.append(error))
assert producer.flush(60) == 0
assert not any(reports) and len(reports) == messages - messages // 3, reports

if not serializing and whose == "ours":
    import asyncio

    async def send():
        before = len(seen)
        producer = used.AIOProducer({**conf, **told}, batch_size=10, buffer_timeout=0.01)
        sent = [await producer.produce("aio-" + topic, b"x" * 500) for _ in range(messages)]
        await producer.flush()
        assert len({(await each).offset() for each in sent}) == messages
        await producer.close()
        agents = 2 if "another" in kind else 1
        assert len(seen) - before == agents * messages  # each once, however often the quota has sent it back
        del seen[before:]

    asyncio.run(send())
told = {key: limit for key, limit in limits.items() if key.startswith("consumer")}
conf = {**conf, **told, "group.id": topic, "enable.auto.commit": False}  # else there may be nothing left to commit
consumer = (used.DeserializingConsumer if serializing else used.Consumer)(conf)
assert type(consumer) is (used.DeserializingConsumer if serializing else used.Consumer)
consumer.assign([TopicPartition(topic, 0, 0)])
got = []
while len(got) < messages // 2:
    got.append(consumer.poll(60))
if serializing:
    while len(got) < messages:
        got.append(consumer.poll(60))
else:
    got += consumer.consume(messages - len(got), 60)
assert consumer.poll(0.7) is None
assert [message.offset() for message in got] == list(range(messages))
headers = [message.headers() for message in got]
consumer.commit(asynchronous=False)
consumer.close()
print(json.dumps([seen, [[key for key, _ in found or ()] for found in headers]]))
"""


@pytest.mark.parametrize("serializing", [False, True], ids=["plain values", "serializing"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_sees_what_it_sees_with_confluent_kafka(servers: str, kind: str, serializing: bool) -> None:
    plain_seen, plain_headers = printed(SCRIPT, servers, kind, "plain", 0, serializing)
    assert len(plain_headers) == MESSAGES
    for limit in (0, 20_000):
        seen, headers = printed(SCRIPT, servers, kind, "ours", limit, serializing)
        assert seen == plain_seen
        assert headers == plain_headers


NO_SUBCLASS = """
import json, logging, sys
import confluent_kafka
import wrapt

servers, how, messages = json.loads(sys.argv[1])
told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("kclient_quota").addHandler(handler)

class Proxy(wrapt.ObjectProxy):
    def __init__(self, *args, **kwargs):
        super().__init__(inner(*args, **kwargs))

inner = confluent_kafka.Producer
plain = confluent_kafka.Consumer
confluent_kafka.Producer = Proxy if how == "class" else wrapt.ObjectProxy(inner)
confluent_kafka.Consumer = Proxy if how == "class" else wrapt.ObjectProxy(plain)
from kclient_quota import Consumer, DeserializingConsumer, Producer, SerializingProducer

reports = []
for cls in (Producer, SerializingProducer):
    producer = cls({"bootstrap.servers": servers, "producer_byte_rate": 50_000})
    for _ in range(messages):
        producer.produce("proxied-" + how, value=b"x", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(60) == 0
assert reports == [None] * 2 * messages
for cls in (Consumer, DeserializingConsumer):
    consumer = cls({"bootstrap.servers": servers, "group.id": cls.__name__ + how, "consumer_byte_rate": 50_000})
    consumer.assign([confluent_kafka.TopicPartition("proxied-" + how, 0, 0)])
    assert [consumer.poll(60).offset() for _ in range(messages)] == list(range(messages))
    consumer.close()
print(json.dumps(told))
"""


@pytest.mark.parametrize("how", ["class", "object"])
def test_who_cannot_be_subclassed_is_done_without_and_named(servers: str, how: str) -> None:
    told = printed(NO_SUBCLASS, servers, how)
    assert len([line for line in told if "cimpl.Producer has been replaced by" in line]) == 1
    assert len([line for line in told if "cimpl.Consumer has been replaced by" in line]) == 1


NO_PLACE = """
import json, logging, sys
import confluent_kafka
import wrapt
from confluent_kafka import cimpl

servers, messages = json.loads(sys.argv[1])
told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("kclient_quota").addHandler(handler)

class PassesBy(confluent_kafka.DeserializingConsumer):
    def commit(self, *args, **kwargs):
        return cimpl.Consumer.commit(self, *args, **kwargs)

confluent_kafka.DeserializingConsumer = PassesBy
PassesBy.commit.__wrapped__ = cimpl.Consumer.commit
confluent_kafka.SerializingProducer = wrapt.ObjectProxy(confluent_kafka.SerializingProducer)
from kclient_quota import DeserializingConsumer, SerializingProducer

producer = SerializingProducer({"bootstrap.servers": servers, "producer_byte_rate": 50_000})
for _ in range(messages):
    producer.produce("no-place", value=b"x")
assert producer.flush(60) == 0
consumer = DeserializingConsumer({"bootstrap.servers": servers, "group.id": "no-place", "consumer_byte_rate": 50_000})
consumer.assign([confluent_kafka.TopicPartition("no-place", 0, 0)])
assert [consumer.poll(60).offset() for _ in range(messages)] == list(range(messages))
assert [part.offset for part in consumer.commit(asynchronous=False)] == [messages]
consumer.close()
print(json.dumps(told))
"""


def test_who_has_no_place_before_a_serializing_client_is_done_without_and_named(servers: str) -> None:
    told = printed(NO_PLACE, servers)
    assert len([line for line in told if "SerializingProducer has been replaced by" in line]) == 1
    assert len([line for line in told if "PassesBy'>, which cannot stand before ours" in line]) == 1
