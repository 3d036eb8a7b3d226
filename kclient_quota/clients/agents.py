"""Where tracing agents stand: between the application and our clients, as they stand before confluent_kafka's.

An agent puts a class of its own in the place of confluent_kafka's. If its methods call `super()`, it only has to come
first among the base classes. If it has `wrapt` wrap the C functions themselves, it would pass by ours: then the same
wrapper is put around ours. Whatever else reaches the C functions can only stand behind ours, which call it. So an
agent sees the calls of the application, in its threads and with its arguments, as with confluent_kafka alone.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.cimpl import Consumer as CConsumer
    from confluent_kafka.cimpl import Producer as CProducer
    from confluent_kafka.cimpl import ShareConsumer as CShareConsumer
else:
    from confluent_kafka import cimpl

    # Those before `object`: an agent that replaces them in the extension's own module puts a subclass there.
    CConsumer, CProducer, CShareConsumer = (
        cls.__mro__[-2] for cls in (cimpl.Consumer, cimpl.Producer, cimpl.ShareConsumer)
    )

__all__ = ["AsGiven", "CConsumer", "CProducer", "CShareConsumer", "given", "place", "place_behind", "with_methods"]

logger = logging.getLogger("kclient_quota")


def place(
    patched: Any, plain: type, ours: type, behind: tuple[type, ...] | None
) -> tuple[tuple[type[Any], ...], dict[str, Any]]:
    """Base classes for a client, and methods that it needs besides.

    Args:
        patched: what goes by confluent_kafka's name of the class.
        plain: confluent_kafka's own class.
        ours: our class, a subclass of that.
        behind: the base classes before `patched` where that has to stand behind ours; None where it cannot.
    """
    patched = given(patched, plain, ours)
    if patched is plain:
        return (ours,), {}
    if not _is_subclass(patched, plain):
        _do_without(patched, plain)
        return (ours,), {}
    before = patched.__mro__[: patched.__mro__.index(plain)]
    # By the class whose method would pass by ours. Where there are two agents, those of the other may stand above it:
    # they call `super()`, so that what is put right before this class is what they come to.
    methods: dict[type, dict[str, Any]] = {}
    for name in _overridden(ours, plain):
        doors = [(cls, vars(cls)[name]) for cls in before if name in vars(cls)]
        passing = [(cls, door) for cls, door in doors if _unwrapped(door) is getattr(plain, name)]
        if not passing:
            continue
        cls, door = passing[0]
        if not _is_wrapper(door):
            if behind is None:
                _do_without(patched, plain)
                return (ours,), {}
            return (*behind, patched), {}
        methods.setdefault(cls, {})[name] = _around(door, getattr(ours, name))
    under: tuple[type[Any], ...] = (ours,)
    for cls in reversed(before):
        if cls in methods and cls is not patched:
            under = (type(cls.__name__, (cls, *under), methods[cls]),)
    return (patched, *under), methods.get(patched, {})


def place_behind(patched: Any, plain: type, ours: type, behind: tuple[type, ...]) -> tuple[type[Any], ...]:
    """Base classes for a client of ours that calls what goes by confluent_kafka's name; arguments as of `place`."""
    patched = given(patched, plain, ours)
    return (*behind, patched) if patched is not plain and _is_subclass(patched, plain) else (ours,)


def given(patched: Any, plain: type, ours: type) -> Any:
    """What goes by confluent_kafka's name; where somebody has put a class of ours there, what that was made of.

    `confluent_kafka.Producer = kclient_quota.Producer` moves a whole application, its frameworks too. Classes of ours
    that are loaded after it would otherwise take that for an agent's.
    """
    if not _is_subclass(patched, ours):
        return patched
    mine = ours.__mro__[: ours.__mro__.index(plain)]
    agents = (cls for cls in patched.__mro__ if issubclass(cls, plain) and not issubclass(cls, ours))
    return next(cls for cls in agents if cls not in mine)


def with_methods(methods: dict[str, Any]) -> Callable[[type], type]:
    """A decorator that gives a class these."""

    def given(cls: type) -> type:
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return given


class AsGiven:
    """Before a class that stands behind ours: it is called with no more arguments than the application has given."""

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, callback: Any, *, timestamp: int, headers: Any
    ) -> None:
        """confluent_kafka's, as our producer calls it."""
        told = {
            "value": value,
            "key": key,
            "partition": None if partition < 0 else partition,
            "on_delivery": callback,
            "timestamp": timestamp or None,
            "headers": headers,
        }
        super().produce(topic, **{name: there for name, there in told.items() if there is not None})  # type: ignore[misc]


def _do_without(patched: Any, plain: type) -> None:
    logger.warning(
        "%s.%s has been replaced by %r, which cannot stand before ours: kclient_quota's does without, so what that "
        "does (tracing, mostly) is not done",
        plain.__module__,
        plain.__name__,
        patched,
    )


def _is_subclass(patched: Any, plain: type) -> bool:
    """Whether it is a class, which proxies pretend to be, and can stand in line."""
    return issubclass(type(patched), type) and issubclass(patched, plain)


def _overridden(ours: type, plain: type) -> set[str]:
    """Names of methods that are ours in place of confluent_kafka's."""
    mine = [cls for cls in ours.__mro__ if not issubclass(plain, cls)]
    return {name for cls in mine for name, there in vars(cls).items() if callable(there) and hasattr(plain, name)}


def _unwrapped(door: Any) -> Any:
    while hasattr(door, "__wrapped__"):
        door = door.__wrapped__
    return door


def _is_wrapper(door: Any) -> bool:
    """Whether this is one of wrapt's, and all that it wraps."""
    return not hasattr(door, "__wrapped__") or (hasattr(door, "_self_wrapper") and _is_wrapper(door.__wrapped__))


def _around(door: Any, method: Any) -> Any:
    """The same wrappers, around another method."""
    if not hasattr(door, "__wrapped__"):
        return method
    return type(door)(_around(door.__wrapped__, method), door._self_wrapper)  # noqa: SLF001 - wrapt's name for it


def is_watched(method: Callable[..., Any]) -> bool:
    """Whether a method is not librdkafka's own but somebody's, who may look at the caller's context."""
    return type(method) is not type(len)  # a proxy's `isinstance` tells what it stands for
