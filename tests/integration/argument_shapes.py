"""Arguments of every shape for the doors of a client, and what became of a call; needs no broker."""

import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from confluent_kafka import TopicPartition

Call = tuple[tuple[Any, ...], dict[str, Any]]

AT = TopicPartition("t", 0)
SHAPES: tuple[Any, ...] = (
    None,
    0,
    0.01,
    -5,
    True,
    "x",
    b"x",
    "",
    [],
    ["t"],
    [1],
    [None],
    (),
    {},
    {"t"},
    object(),
    print,
    AT,
    [AT],
    Decimal("0.01"),
    2**70,
    float("nan"),
    memoryview(b"x"),
    1j,
    "a\0b",
    "\ud800",
)
GOOD: dict[str, tuple[tuple[str, Any], ...]] = {
    "produce": (
        ("topic", "t"),
        ("value", b"v"),
        ("key", None),
        ("partition", -1),
        ("callback", None),
        ("on_delivery", None),
        ("timestamp", 0),
        ("headers", None),
    ),
    "produce_batch": (("topic", "t"), ("messages", [{"value": b"v"}]), ("partition", -1), ("callback", None)),
    "purge": (("in_queue", True), ("in_flight", True), ("blocking", True)),
    "close": (),
    "begin_transaction": (),
    "init_transactions": (("timeout", 0.01),),
    "commit_transaction": (("timeout", 0.01),),
    "abort_transaction": (("timeout", 0.01),),
    "send_offsets_to_transaction": (("positions", []), ("group_metadata", None), ("timeout", 0.01)),
    "__exit__": (("exc_type", None), ("exc_value", None), ("exc_traceback", None)),
    "set_sasl_credentials": (("username", "u"), ("password", "p")),
    "subscribe": (("topics", ["t"]), ("on_assign", print), ("on_revoke", print), ("on_lost", print)),
    "unsubscribe": (),
    "assign": (("partitions", [AT]),),
    "incremental_assign": (("partitions", [AT]),),
    "incremental_unassign": (("partitions", [AT]),),
    "unassign": (),
    "assignment": (),
    "seek": (("partition", AT),),
    "pause": (("partitions", [AT]),),
    "resume": (("partitions", [AT]),),
    "position": (("partitions", [AT]),),
    "store_offsets": (("message", None), ("offsets", [AT])),
}
"""The arguments of each door, which are taken; not those that wait for a broker, whose timing decides what they say."""
PRODUCER = (
    *("produce", "produce_batch", "purge", "close", "__exit__", "set_sasl_credentials"),
    *("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"),
    "send_offsets_to_transaction",
)
CONSUMER = (
    *("subscribe", "unsubscribe", "assign", "incremental_assign", "incremental_unassign", "unassign", "assignment"),
    *("seek", "pause", "resume", "position", "store_offsets", "close", "__exit__", "set_sasl_credentials"),
)
WAIT_S = 5.0
_FITS = re.compile(r"takes (from|\d+ pos)|missing|unexpected keyword|multiple values|positional-only")


def calls(door: str) -> Iterator[Call]:
    """Each argument in each shape, by position and by name; too many, and one that nobody knows."""
    good = GOOD[door]
    yield (), {}
    yield (None,) * (len(good) + 1), {}
    yield (), {"nonsense": 1}
    for number, (name, _) in enumerate(good):
        before = tuple(value for _, value in good[:number])
        for shape in SHAPES:
            yield (*before, shape), {}
            yield (*before[:1], shape) if number == 1 else before, {} if number == 1 else {name: shape}
            yield (), {**dict(good[: number + 1]), name: shape}


def outcome(call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, str]:
    """What a call returns or raises; in a thread, as one that waits must not stop everything."""
    found: list[tuple[str, str]] = []

    def run() -> None:
        try:
            found.append(("returns", _short(call(*args, **named))))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is compared
            found.append((type(error).__name__, re.sub("0x[0-9a-f]+", "", str(error))))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return found[0] if found else ("waits", "")


def does_not_fit(ours: tuple[str, str]) -> bool:
    """Whether Python itself has refused the call: its words for that are others than C's."""
    return ours[0] == "TypeError" and _FITS.search(ours[1]) is not None


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, (int, str, list, type(None))) else type(value).__name__
