"""Our clients as Python objects: copied, subclassed, left, closed and described as confluent_kafka's are."""

import asyncio
import copy
import json
import pickle
import pydoc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka.error import KeySerializationError
from confluent_kafka.serialization import StringDeserializer, StringSerializer

import kclient_quota
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.integration.argument_shapes import AT, does_not_fit

NAMES = ("Producer", "Consumer", "SerializingProducer", "DeserializingConsumer")
AIO = ("AIOProducer", "AIOConsumer", "AsyncSerializingProducer", "AsyncDeserializingConsumer")
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    (),
    (None,),
    (0.01,),
    ("t",),
    ("t", b"v"),
    ([],),
    ([AT],),
    (1, 0.01),
    ("u", "p"),
)
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reduce": lambda client: client.__reduce_ex__(2),
}


def classes(name: str) -> tuple[Any, Any]:
    """confluent_kafka's and ours."""
    return getattr(confluent_kafka.aio if name in AIO else confluent_kafka, name), getattr(kclient_quota, name)


def conf_of(name: str) -> dict[str, Any]:
    conf: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "enable.metrics.push": False}
    return {**conf, "group.id": "g"} if name.endswith("Consumer") else conf


def outcome(call: Callable[..., Any], *args: Any) -> tuple[str, str]:
    try:
        value = call(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error).__name__, re.sub("0x[0-9a-f]+|'(cimpl.)?(Producer|Consumer)'", "", str(error))
    return "returns", repr(value) if isinstance(value, int | str | None) else type(value).__name__


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_client_is_copied_no_more_than_the_plain_one(name: str, copied: Callable[[Any], Any]) -> None:
    found = []
    for cls in classes(name):
        client = cls(conf_of(name))
        found.append(outcome(copied, client))
        client.close()
    assert found[0][0] == "TypeError"
    assert found[1] == found[0]


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("name", AIO[:2])
def test_a_client_of_an_event_loop_is_copied_no_more_than_the_plain_one(
    name: str, copied: Callable[[Any], Any]
) -> None:
    async def tried(cls: Any) -> str:
        client = cls(conf_of(name))
        found = outcome(copied, client)[0]
        await client.close()
        return found

    plain, ours = (asyncio.run(tried(cls)) for cls in classes(name))
    assert ours == plain
    assert plain in {"TypeError", "PicklingError"}  # the latter from Python 3.14 on


@pytest.mark.parametrize("name", [*NAMES, *AIO])
def test_a_client_is_one_of_the_plain_kind_and_has_all_that_it_has(name: str) -> None:
    plain, ours = classes(name)
    assert issubclass(ours, plain)
    assert {base for base in plain.__mro__ if base is not object} <= set(ours.__mro__)
    assert set(dir(plain)) <= set(dir(ours))
    assert ours.__name__ == name
    assert ours.__doc__
    for door in dir(plain):
        if not door.startswith("_") and getattr(plain, door).__doc__:
            assert getattr(ours, door).__doc__, door
    assert f"class {name}(" in pydoc.plain(pydoc.render_doc(ours))


@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_has_arguments_of_its_own(name: str) -> None:
    for cls in classes(name):

        class Mine(cls):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, extra: int, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.extra = extra

        with Mine(conf_of(name), extra=5) as client:
            assert client.extra == 5
            assert isinstance(client, cls)


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_client_says_at_every_door_what_the_plain_one_says(name: str) -> None:
    pair = []
    for cls in classes(name):
        client = cls(conf_of(name))
        client.close()
        pair.append(client)
    doors = [door for door in dir(type(pair[0])) if not door.startswith("_") or door in {"__enter__", "__len__"}]
    for door in doors:
        for args in ARGUMENTS:
            first, second = (outcome(getattr(client, door), *args) for client in pair)
            assert first == second or (first[0] != "returns" and does_not_fit(second)), (door, args)


def forgetful(cls: Any) -> Any:
    class Forgetful(cls):  # type: ignore[misc]
        def __init__(self) -> None:
            """Forget it."""

    return Forgetful()


@pytest.mark.parametrize("name", ["Producer", "Consumer", "ShareConsumer"])
def test_a_subclass_that_forgets_to_call_init_hears_what_it_hears_of_the_plain_one(name: str) -> None:
    pair = list(map(forgetful, classes(name)))
    for door in (door for door in dir(type(pair[0])) if not door.startswith("_")):
        for args in ARGUMENTS:
            first, second = (outcome(getattr(client, door), *args) for client in pair)
            assert first == second or (first[0] != "returns" and does_not_fit(second)), (door, args)


@pytest.mark.parametrize("name", ["Producer", "Consumer", "ShareConsumer"])
def test_a_subclass_that_forgets_to_call_init_hears_the_same_at_doors_of_ours(name: str) -> None:
    plain, ours = map(forgetful, classes(name))
    said = outcome(plain.poll, 0)
    assert said[0] != "returns"
    found = {call: outcome(call) for call in (ours.metrics, ours.quota_state, lambda: ours.metric("x"))}
    assert set(found.values()) == {said}


REPLACED: dict[str, Any] = {
    "Producer": {"__len__": lambda _: 7, "close": None, "flush": None, "poll": None, "purge": None, "produce": None},
    "Consumer": {"position": None, "close": None, "poll": None, "consume": None, "keep_alive": None, "commit": None},
}
LIMITS: dict[str, Any] = {"free": {}, "limited": {"producer_byte_rate": 100_000, "consumer_byte_rate": 100_000}}


def replaced(name: str, cls: Any, calls: list[str]) -> Any:
    """A subclass that has something else by these names, as wrappers that people write do."""

    def something_else(door: str) -> Any:
        def method(_self: Any) -> None:
            calls.append(door)

        return method

    return type("Mine", (cls,), {door: there or something_else(door) for door, there in REPLACED[name].items()})


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_what_a_subclass_has_in_place_of_a_method_is_called_by_its_caller_alone(
    kafka_broker: KafkaBroker, limit: dict[str, Any]
) -> None:
    for cls in classes("Producer"):
        calls: list[str] = []
        conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "enable.metrics.push": False}
        if cls is kclient_quota.Producer:
            conf = {**conf, **limit}
        with replaced("Producer", cls, calls)(conf) as producer:
            cls.produce(producer, "t", b"v")
            assert cls.flush(producer, 10) == 0
            cls.poll(producer, 0)
            cls.purge(producer)
        assert (calls, cls.close(producer)) == ([], True)
    for cls in classes("Consumer"):
        calls = []
        conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "enable.metrics.push": False}
        conf.update({"group.id": cls.__module__, "auto.offset.reset": "earliest"})
        if cls is kclient_quota.Consumer:
            conf = {**conf, **limit}
        with replaced("Consumer", cls, calls)(conf) as consumer:
            consumer.subscribe(["t"])
            received = 0
            while received < 2:
                received += cls.poll(consumer, 1.0) is not None
            cls.commit(consumer, asynchronous=False)
            committed = cls.committed(consumer, cls.assignment(consumer), 10)
        assert (calls, sum(part.offset for part in committed if part.offset > 0)) == ([], 2)


OF_OURS = ("_kq_", "register_", "unregister_")
PUBLIC = {"blocking_at_most", "client_instance_id", "keep_alive", "metric", "metrics", "quota_state"}


@pytest.mark.parametrize("name", [*NAMES, "ShareConsumer", "DeserializingShareConsumer"])
def test_no_name_of_ours_is_one_that_a_subclass_may_have_by_chance(name: str) -> None:
    plain, ours = (cls(conf_of(name)) for cls in classes(name))
    mine = (set(dir(ours)) | set(vars(ours))) - set(dir(plain)) - PUBLIC
    assert [each for each in sorted(mine) if not each.startswith((*OF_OURS, "__")) and "librdkafka" not in each] == []
    for client in (plain, ours):
        client.close()


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_subclass_has_names_of_its_own_whether_a_quota_applies_or_not(
    kafka_broker: KafkaBroker, limit: dict[str, Any]
) -> None:
    class MyProducer(kclient_quota.Producer):
        def __init__(self, conf: dict[str, Any]) -> None:
            super().__init__(conf)
            self._closed, self._waiting, self._transaction = None, 0, "none"

        def _produce(self, number: int) -> None:
            self.produce("t", str(number))

        def _serve(self) -> None:
            self.poll(0)

    class MyConsumer(kclient_quota.Consumer):
        def __init__(self, conf: dict[str, Any]) -> None:
            super().__init__(conf)
            self._paused, self._positions, self._events, self._metrics = False, 0, "", None
            self._received: list[bytes | None] = []

        def _poll(self) -> Any:
            return self.poll(1.0)

        def _receive(self) -> None:
            message = self._poll()
            if message is not None:
                self._received.append(message.value())

    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, **limit}
    with MyProducer(conf) as producer:
        for number in range(20):
            producer._produce(number)
            producer._serve()
        assert producer.flush(10) == 0
    with MyConsumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        while len(consumer._received) < 20:
            consumer._receive()
        consumer.commit(asynchronous=False)
    assert sorted(int(value or b"") for value in consumer._received) == list(range(20))


@pytest.mark.parametrize("name", ["Producer", "Consumer", "ShareConsumer"])
def test_a_subclass_notes_what_is_set_before_it_calls_init(name: str) -> None:
    for cls in classes(name):

        class Noting(cls):  # type: ignore[misc, valid-type]
            def __init__(self, conf: dict[str, Any]) -> None:
                self.__dict__["noted"] = []
                super().__init__(conf)

            def __setattr__(self, name: str, value: object) -> None:
                self.noted.append(name)
                super().__setattr__(name, value)

        client = Noting(conf_of(name))
        client.mine = 1
        assert client.noted[-1] == "mine"
        client.close()


@pytest.mark.parametrize("name", [*NAMES, "ShareConsumer"])
def test_a_subclass_may_be_a_dataclass_which_has_no_hash(name: str) -> None:
    for cls in classes(name):

        @dataclass
        class Mine(cls):  # type: ignore[misc, valid-type]
            topic: str
            conf: dict[str, Any]

            def __post_init__(self) -> None:
                super().__init__(self.conf)

        Mine("t", conf_of(name)).close()


# What serializes --------------------------------------------------------------------------------------------------


def to_json(value: Any, _context: Any) -> bytes:
    return json.dumps(value).encode()


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"topic": 5},
    {"topic": None},
    {"topic": ""},
    {"topic": "t"},
    {"topic": "t", "key": 5},
    {"topic": "t", "key": b"x"},
    {"topic": "t", "value": object()},
    {"topic": "t", "value": {"a": 1}},
    {"topic": "t", "callback": print},
    {"topic": "t", "partition": "x"},
    {"topic": "t", "timestamp": None},
    {"topic": "t", "timestamp": 2**70},
    {"topic": "t", "headers": 5},
    {"topic": "t", "headers": [("h", 5)]},
)


@pytest.mark.parametrize("limit", [{}, {"producer_byte_rate": 1_000}], ids=["free", "limited"])
def test_what_is_serialized_is_taken_and_refused_as_by_the_plain_producer(limit: dict[str, Any]) -> None:
    plain, ours = classes("SerializingProducer")
    conf = {**conf_of("SerializingProducer"), "key.serializer": StringSerializer(), "value.serializer": to_json}
    pair = [plain({**conf, "message.timeout.ms": 100}), ours({**conf, "message.timeout.ms": 100, **limit})]
    for shape in SHAPES:
        first, second = (outcome(lambda client=client, shape=shape: client.produce(**shape)) for client in pair)
        assert first == second, shape
    with pytest.raises(KeySerializationError):
        pair[1].produce("t", key=5)
    for client in pair:
        client.close()


def test_serializers_are_refused_where_the_plain_clients_refuse_them() -> None:
    for name, side in (("SerializingProducer", "serializer"), ("DeserializingConsumer", "deserializer")):
        for wrong in (5, "x", None, StringDeserializer):
            conf = {**conf_of(name), f"key.{side}": wrong, f"value.{side}.builder": None}
            first, second = (outcome(cls, conf) for cls in classes(name))
            assert first[0] == second[0], (name, wrong)
        wrongs: tuple[tuple[Any, ...], ...] = ((), (5,), ({}, {}), ([],))
        for given in wrongs:
            first, second = (outcome(cls, *given) for cls in classes(name))
            assert first == second or does_not_fit(second), (name, given)
