"""Arguments of every shape, and configurations: taken or refused as by plain confluent_kafka, in its words.

What is not, and why, is `EXCEPTIONS`, all of it.
"""

import asyncio
import logging
import types
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import pytest

import kclient_quota
from tests.integration.argument_shapes import CONSUMER, PRODUCER, calls, does_not_fit, outcome

EXCEPTIONS = {
    "signature": "a call that does not fit the signature is a TypeError in Python's words, whatever else is wrong with "
    "it; plain has C's words for it",
    "hint": "an unknown configuration key is refused with the one that was probably meant in brackets",
    "store": "store_offsets() with enable.auto.offset.store says that first, with the remedy",
    "text": "a configuration that is no UTF-8 is refused with the error itself; plain loses it in a SystemError",
    "time": "a time-out of more than 24 days is waited for; plain's overflows, and its consume() does not wait at all",
}
STATES = ("fresh", "closed", "limited", "transactional")


def made(cls: Any, state: str) -> Any:
    """A client that reaches nobody."""
    conf: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    conf["enable.metrics.push"] = False
    if issubclass(cls, confluent_kafka.Consumer):
        conf["group.id"] = "g"
        limit = {"consumer_byte_rate": 1_000}
    else:
        conf["message.timeout.ms"] = 1_000
        limit = {"producer_byte_rate": 1_000}
    if state == "limited" and cls.__module__.startswith("kclient_quota"):
        conf |= limit
    if state == "transactional":
        conf["transactional.id"] = "t"
    client = cls(conf)
    if state == "closed":
        client.close()
    return client


def differences(plain: Any, ours: Any, state: str, door: str) -> list[str]:
    """Calls that ours answers otherwise; the exceptions are none."""
    found, pair = [], [made(plain, state), made(ours, state)]
    for args, named in calls(door):
        first, second = (outcome(getattr(client, door), args, named) for client in pair)
        if "returns" in {first[0], second[0]} and state != "closed":
            pair = [made(plain, state), made(ours, state)]
        if "_TIMED_OUT" in first[1] + second[1]:
            continue  # it was taken; whether librdkafka then answered within 10 ms, the machine decides
        is_stored = door == "store_offsets" and second[1].endswith('(set enable.auto.offset.store to false)"}')
        if first != second and not (is_stored or (first[0] != "returns" and does_not_fit(second))):
            found.append(f"{door}{args}{named}: plain {first}, ours {second}")
    return found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("door", PRODUCER)
def test_a_producer_takes_and_refuses_arguments_as_the_plain_one(door: str, state: str) -> None:
    assert differences(confluent_kafka.Producer, kclient_quota.Producer, state, door) == []


@pytest.mark.parametrize("state", STATES[:3])
@pytest.mark.parametrize("door", CONSUMER)
def test_a_consumer_takes_and_refuses_arguments_as_the_plain_one(door: str, state: str) -> None:
    assert differences(confluent_kafka.Consumer, kclient_quota.Consumer, state, door) == []


# Configurations ---------------------------------------------------------------------------------------------------


class Five(IntEnum):
    """A number."""

    FIVE = 5


class Servers(StrEnum):
    """A text."""

    ONE = "127.0.0.1:1"


BASE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "enable.metrics.push": False}
KEYS = (
    *("client.id", "statistics.interval.ms", "stats_cb", "throttle_cb", "error_cb", "oauth_cb", "linger.ms"),
    *("message.timeout.ms", "max.poll.interval.ms", "fetch.max.bytes", "enable.auto.offset.store", "partitioner"),
    *("enable.auto.commit", "compression.type", "default.topic.config", "sasl.username", "group.protocol"),
    *("max.in.flight", "retries", "socket.timeout.ms"),
    *("enable.idempotence", "acks", "queued.max.messages.kbytes", "on_delivery", "on_commit", "logger"),
)
VALUES = (
    *(None, 5, -5, 5.5, True, False, Five.FIVE, "5", "x", "", [1], {"acks": "1"}, b"5", print, 2**70, " 5 "),
    *("5e3", "0x10", "+5", "99999999"),
)
GIVEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda cls: cls(),
    "keywords": lambda cls: cls(**BASE),
    "a dict and keywords": lambda cls: cls(BASE, **{"client.id": "x"}),
    "pairs": lambda cls: cls(list(BASE.items())),
    "two dicts": lambda cls: cls(BASE, BASE),
    "a logger by position": lambda cls: cls(BASE, logging.getLogger("x")),
    "a logger by name": lambda cls: cls(BASE, logger=logging.getLogger("x")),
    "a mapping that is no dict": lambda cls: cls(types.MappingProxyType(BASE)),
    "an enumeration's text": lambda cls: cls({**BASE, "bootstrap.servers": Servers.ONE}),
    "a number for a key": lambda cls: cls({**BASE, 5: "x"}),
    "bytes for a key": lambda cls: cls({**BASE, b"client.id": "x"}),
    "None for a key": lambda cls: cls({**BASE, None: "x"}),
}
PAIRS = [
    (confluent_kafka.Producer, kclient_quota.Producer),
    (confluent_kafka.Consumer, kclient_quota.Consumer),
]


def verdict(make: Callable[[Any], Any], cls: Any) -> tuple[str, str]:
    """Whether a client can be made so; a hint in an error's text is none of confluent_kafka's."""
    try:
        make(cls)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error).__name__, str(error).partition(" (did you mean")[0].removesuffix('"}')
    return "made", ""


@pytest.mark.parametrize("make", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize(("plain", "ours"), PAIRS, ids=["producer", "consumer"])
def test_a_configuration_is_given_as_to_the_plain_one(plain: Any, ours: Any, make: Callable[[Any], Any]) -> None:
    assert verdict(make, ours) == verdict(make, plain)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("plain", "ours"), PAIRS, ids=["producer", "consumer"])
def test_a_setting_is_taken_and_refused_as_by_the_plain_one(plain: Any, ours: Any, key: str) -> None:
    for value in VALUES:
        conf = {**BASE, key: value}
        assert verdict(lambda cls, conf=conf: cls(conf), ours) == verdict(lambda cls, conf=conf: cls(conf), plain), (
            value
        )


# In an event loop -------------------------------------------------------------------------------------------------

AIO: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "poll of a producer": (*(cls.AIOProducer for cls in (confluent_kafka.aio, kclient_quota)), lambda c, t: c.poll(t)),
    "flush": (*(cls.AIOProducer for cls in (confluent_kafka.aio, kclient_quota)), lambda c, t: c.flush(t)),
    "poll": (*(cls.AIOConsumer for cls in (confluent_kafka.aio, kclient_quota)), lambda c, t: c.poll(t)),
    "consume": (*(cls.AIOConsumer for cls in (confluent_kafka.aio, kclient_quota)), lambda c, t: c.consume(1, t)),
    "consume how many": (
        *(cls.AIOConsumer for cls in (confluent_kafka.aio, kclient_quota)),
        lambda c, t: c.consume(t, 0.01),
    ),
    "None by name": (
        *(cls.AIOConsumer for cls in (confluent_kafka.aio, kclient_quota)),
        lambda c, t: c.subscribe(["t"], on_assign=None),
    ),
    "None by position": (
        *(cls.AIOConsumer for cls in (confluent_kafka.aio, kclient_quota)),
        lambda c, t: c.subscribe(["t"], None),
    ),
}
TIMES = (None, "x", b"x", [], {}, object, Decimal("0.01"), 0.01, 0, 1j, confluent_kafka.TopicPartition("t", 0))


async def answer(cls: Any, call: Callable[[Any, Any], Any], shape: Any) -> tuple[str, str]:
    """What one call comes to."""
    client = cls({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "enable.metrics.push": False} | group_of(cls))
    try:
        await call(client, shape)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error).__name__, str(error)
    else:
        return "returns", ""  # what, time decides
    finally:
        await client.close()


def group_of(cls: Any) -> dict[str, Any]:
    """What a consumer needs besides."""
    return {"group.id": "g"} if issubclass(cls, confluent_kafka.aio.AIOConsumer) else {}


@pytest.mark.parametrize(("plain", "ours", "call"), AIO.values(), ids=AIO)
def test_a_client_of_an_event_loop_takes_and_refuses_arguments_as_the_plain_one(
    plain: Any, ours: Any, call: Callable[[Any, Any], Any]
) -> None:
    for shape in TIMES:
        first, second = (asyncio.run(answer(cls, call, shape)) for cls in (plain, ours))
        assert first == second, shape
