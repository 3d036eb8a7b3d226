"""A client that has nothing to pace is confluent_kafka's own again, without a line of Python between."""

import weakref
from collections.abc import Iterable
from typing import Any, TypeVar, cast

Client = TypeVar("Client")

_ASIDE: "weakref.WeakKeyDictionary[type[Any], type[Any]]" = weakref.WeakKeyDictionary()


def aside(cls: type[Client], ours: type[Any], plain: type[Any], doors: Iterable[str]) -> type[Client]:
    """`cls` with the plain client's methods in place of ours, except where a user's subclass has overridden them.

    Args:
        cls: the class of a client, `ours` or a subclass of it.
        ours: the class whose methods step aside.
        plain: the class whose methods take their place.
        doors: names of these methods.

    Returns:
        a subclass of `cls`, always the same one, by the name of `cls`, which it keeps as `class_gated`.
    """
    found = _ASIDE.get(cls)
    if found is None:
        methods = {door: getattr(plain, door) for door in doors if getattr(cls, door) is getattr(ours, door)}
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        found = _ASIDE[cls] = type(cls.__name__, (cls,), {**names, **methods, "__slots__": (), "class_gated": cls})
    return cast("type[Client]", found)
