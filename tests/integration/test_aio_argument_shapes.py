"""Arguments of the asyncio clients: taken or refused as by confluent_kafka.aio's, in its words.

What is not, besides the exceptions of `test_argument_shapes.py`: `produce()` takes and refuses what the synchronous one
does, where theirs knows no headers and no times, drops a place given by position, and arguments that it does not know;
a closed producer refuses messages, where theirs takes them and never sends them; it may be closed again; a `batch_size`
that is none is refused at once.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka.aio
import pytest

import kclient_quota
from tests.integration.argument_shapes import AT, SHAPES, Call, does_not_fit

PRODUCERS: Final = (confluent_kafka.aio.AIOProducer, kclient_quota.AIOProducer)
CONSUMERS: Final = (confluent_kafka.aio.AIOConsumer, kclient_quota.AIOConsumer)


async def called(*_: Any) -> None:
    """A callback."""


PRODUCING: dict[str, tuple[tuple[str, Any], ...]] = {
    "poll": (("timeout", 0.01),),
    "flush": (("timeout", 0.01),),
    "purge": (("in_queue", True), ("in_flight", True), ("blocking", True)),
    "list_topics": (("topic", "t"), ("timeout", 0.01)),
    "cluster_id": (("timeout", 0.01),),
    "set_sasl_credentials": (("username", "u"), ("password", "p")),
    "init_transactions": (("timeout", 0.01),),
    "begin_transaction": (),
    "send_offsets_to_transaction": (("positions", []), ("group_metadata", None), ("timeout", 0.01)),
    "commit_transaction": (("timeout", 0.01),),
    "abort_transaction": (("timeout", 0.01),),
}
CONSUMING: dict[str, tuple[tuple[str, Any], ...]] = {
    "poll": (("timeout", 0.01),),
    "consume": (("num_messages", 1), ("timeout", 0.01)),
    "subscribe": (("topics", ["t"]), ("on_assign", called), ("on_revoke", called), ("on_lost", called)),
    "unsubscribe": (),
    "seek": (("partition", AT),),
    "pause": (("partitions", [AT]),),
    "resume": (("partitions", [AT]),),
    "assign": (("partitions", [AT]),),
    "incremental_assign": (("partitions", [AT]),),
    "incremental_unassign": (("partitions", [AT]),),
    "unassign": (),
    "assignment": (),
    "position": (("partitions", [AT]),),
    "committed": (("partitions", [AT]), ("timeout", 0.01)),
    "get_watermark_offsets": (("partition", AT), ("timeout", 0.01), ("cached", False)),
    "offsets_for_times": (("partitions", [AT]), ("timeout", 0.01)),
    "set_sasl_credentials": (("username", "u"), ("password", "p")),
}


def calls(good: tuple[tuple[str, Any], ...]) -> Iterator[Call]:
    """Too many arguments, too few, unknown ones, each twice, and each in every shape."""
    values = tuple(value for _, value in good)
    if not any(name == "timeout" for name, _ in good):  # left out, it is for ever
        yield (), {}
    yield (None,) * (len(good) + 1), {}
    yield (*values, None), {}
    yield values, {"nonsense": 1}
    for number, (name, value) in enumerate(good):
        yield values, {name: value}
        yield values[: number + 1], {name: None}
        for shape in (*SHAPES, float("inf")):
            if name == "timeout" and not _is_short(shape):
                continue
            yield (*values[:number], shape, *values[number + 1 :]), {}
            yield values[:number], {name: shape, **dict(good[number + 1 :])}


def _is_short(shape: Any) -> bool:
    """Whether it may be waited for; with less than 0 one waits for ever, as with what is no number of C's."""
    return not isinstance(shape, int | float) or 0 <= shape < 2


async def made(cls: Any, state: str) -> Any:
    """A client that reaches nobody."""
    conf: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "enable.metrics.push": False}
    if issubclass(cls, confluent_kafka.aio.AIOConsumer):
        conf["group.id"] = "g"
    if state == "transactional":
        conf["transactional.id"] = "t"
    client = cls(conf)
    if state == "closed":
        await client.close()
    return client


async def outcome(client: Any, door: str, call: Call) -> tuple[str, str]:
    """What a call returns or raises."""
    try:
        value = await asyncio.wait_for(getattr(client, door)(*call[0], **call[1]), 3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error).__name__, str(error)
    return "returns", type(value).__name__


async def differences(classes: Any, state: str, door: str, good: tuple[tuple[str, Any], ...]) -> list[str]:
    """Calls that ours answers otherwise."""
    found, pair = [], [await made(cls, state) for cls in classes]
    for call in calls(good):
        first, second = [await outcome(client, door, call) for client in pair]
        for _ in range(20):  # a busy machine has plain ones run out of a time of 0 or 10 ms
            if "_TIMED_OUT" not in first[1] or first == second:
                break
            await asyncio.sleep(0.01)
            first = await outcome(pair[0], door, call)
        is_timed_out = "_TIMED_OUT" in first[1] + second[1]  # it was taken: what librdkafka says then is not ours
        if first != second and not (first[0] != "returns" and does_not_fit(second)) and not is_timed_out:
            found.append(f"{door}{call}: plain {first}, ours {second}")
        if state != "closed" and door.endswith(("scribe", "assign")) and "returns" in {first[0], second[0]}:
            for client in pair:
                await client.close()
            pair = [await made(cls, state) for cls in classes]
    if state != "closed":
        for client in pair:
            await client.close()
    return found


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
@pytest.mark.parametrize("state", ["fresh", "closed", "transactional"])
@pytest.mark.parametrize("door", PRODUCING)
def test_a_producer_of_an_event_loop_takes_and_refuses_arguments_as_the_plain_one(door: str, state: str) -> None:
    assert asyncio.run(differences(PRODUCERS, state, door, PRODUCING[door])) == []


@pytest.mark.parametrize("state", ["fresh", "closed"])
@pytest.mark.parametrize("door", CONSUMING)
def test_a_consumer_of_an_event_loop_takes_and_refuses_arguments_as_the_plain_one(door: str, state: str) -> None:
    assert asyncio.run(differences(CONSUMERS, state, door, CONSUMING[door])) == []


# Constructors -----------------------------------------------------------------------------------------------------


class Falsy(concurrent.futures.ThreadPoolExecutor):
    """An executor whose length is nothing."""

    def __len__(self) -> int:
        return 0


BASE: Final[dict[Any, Any]] = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "log_level": 0,
    "enable.metrics.push": False,
}
CONFIGURATIONS: Final[tuple[Any, ...]] = (None, 5, 1.5, "abc", b"x", [], (), {}, {"t"}, dict, list(BASE.items()))
NUMBERS: Final[tuple[Any, ...]] = (None, 0, -1, [], {}, 2**70)
WRONG: Final[tuple[Any, ...]] = (1, 1.5, "x", b"x", {1})


def given(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Makes a client with these."""
    return lambda cls: cls(*args, **kwargs)


MADE: dict[str, Callable[[Any], Any]] = {
    **{f"the configuration {conf!r}": given(conf) for conf in CONFIGURATIONS},
    **{f"{key} {wrong!r}": given(BASE, **{key: wrong}) for key in ("max_workers", "executor") for wrong in WRONG},
    **{f"workers {wrong!r}": given(BASE, wrong) for wrong in NUMBERS},
    "nothing": given(),
    "keywords": given(**BASE),
    "an unknown argument": given(BASE, nonsense=1),
    "too many": given(BASE, 4, None, 1_000, 1.0, None),
    "wrong workers and a wrong configuration": given({**BASE, "nonsense": 1}, max_workers=0),
    "an executor and no workers": lambda cls: cls(BASE, max_workers=0, executor=Falsy(2)),
    "an executor that is falsy": lambda cls: cls(BASE, executor=Falsy(2)),
    "a key that is none": given({**BASE, 5: 1}),
    "a callback that is none": given({**BASE, "stats_cb": 5}),
}
TIMED: tuple[Any, ...] = (None, "x", b"x", [], {}, object, 0, -1, 0.5, float("nan"), True)


def verdict(make: Callable[[Any], Any], cls: Any) -> tuple[str, str]:
    """Whether a client can be made so, and where it works."""

    async def attempt() -> tuple[str, str]:
        try:
            client = make(cls)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            return type(error).__name__, str(error).partition(" (did you mean")[0].removesuffix('"}')
        where = type(client.executor).__name__
        if hasattr(client.executor, "submit"):
            await client.close()
        return "made", where

    first, text = asyncio.run(attempt())
    return (first, "") if does_not_fit((first, text)) else (first, text)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize(("plain", "ours"), [PRODUCERS, CONSUMERS], ids=["producer", "consumer"])
def test_a_client_of_an_event_loop_is_made_as_the_plain_one(plain: Any, ours: Any, make: Callable[[Any], Any]) -> None:
    assert verdict(make, ours) == verdict(make, plain)


@pytest.mark.parametrize("timed", TIMED, ids=repr)
def test_a_buffers_time_is_taken_and_refused_as_by_the_plain_producer(timed: Any) -> None:
    first, second = (verdict(lambda cls: cls({**BASE}, buffer_timeout=timed), cls) for cls in PRODUCERS)
    assert first == second


def test_a_time_of_none_is_as_if_it_were_left_out() -> None:
    async def produced(cls: Any) -> str:
        client = cls({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 10})
        delivered = await client.produce("t", b"v", timestamp=None)
        await client.flush(5)
        await client.close()
        return str(delivered.exception().args[0].name())

    assert [asyncio.run(produced(cls)) for cls in PRODUCERS] == ["_MSG_TIMED_OUT"] * 2
