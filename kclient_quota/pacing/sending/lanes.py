"""Lanes: which messages go first while there is too little for all of them, and what waits in each."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.fair import Fair
from kclient_quota.pacing.sending.turns import Line, Partition, Turns, Waiting

DEFAULT_LANE: Final = ""
"""Where messages wait that no lane was named for."""

MOST_SPARE: Final = 1_000
"""Empty lines that are kept: to make one anew takes longer than all else that is done with it."""
NO_TENANT: Final = ()
"""Stands for None, which `Fair` says when nobody waits."""


class Full(StrEnum):
    """What becomes of a message when its lane has no room for it."""

    BLOCK = "block"
    """Its caller waits."""
    RAISE = "raise"
    """Its caller is told, and when to come again."""
    DROP_OLDEST = "drop-oldest"
    """It takes the place of those that have waited longest; they are reported as dropped."""
    DROP_NEWEST = "drop-newest"
    """It is reported as dropped itself."""


@dataclass(frozen=True, slots=True)
class Lane:
    """How the messages of one lane are treated.

    Attributes:
        name: its name; DEFAULT_LANE for all messages without a lane of their own.
        strict: whether it goes before all that come after it, whatever they wait for.
        weight: of lanes that are not strict, how much of what strict ones leave, beside the others' weights.
        full: what becomes of a message when there is no room.
        deadline_ms: how long a message is worth sending; None: as long as it takes.
        newest: whether of the waiting messages of one topic, partition and key only the newest is worth sending. It
            takes the place of the one that it replaces.
    """

    name: str = DEFAULT_LANE
    strict: bool = False
    weight: float = 1.0
    full: Full = Full.BLOCK
    deadline_ms: int | None = None
    newest: bool = False

    @property
    def drops(self) -> bool:
        """Whether a message is dropped when there is no room."""
        return self.full is Full.DROP_OLDEST or self.full is Full.DROP_NEWEST

    @property
    def raises(self) -> bool:
        """Whether the caller is told when there is no room."""
        return self.full is Full.RAISE

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"lane {self.name!r}: weight must be above 0, not {self.weight}")
        if self.deadline_ms is not None and self.deadline_ms < 1:
            raise ConfigError(f"lane {self.name!r}: deadline.ms must be at least 1, not {self.deadline_ms}")


_KEYS: Final = ("priority", "weight", "full", "deadline.ms", "newest")


def lanes_of(configured: Mapping[str, Mapping[str, Any]], full: Full = Full.BLOCK) -> tuple[Lane, ...]:
    """The lanes of `quota.lanes`, in their order: of two strict ones the first goes first.

    Args:
        configured: `{"alerts": {"priority": "strict"}, "orders": {"weight": 3, "full": "drop-oldest"}}`; keys are
            `priority` ("strict"), `weight`, `full`, `deadline.ms` and `newest`.
        full: what a full lane does where it does not say.

    Raises:
        ConfigError: it cannot be understood; the message names the lane and the key.
    """
    return tuple(_lane(name, given, full) for name, given in configured.items())


def _lane(name: str, given: Mapping[str, Any], full: Full) -> Lane:
    if not isinstance(given, Mapping):
        raise ConfigError(f"quota.lanes: lane {name!r} must be a mapping as {{'weight': 3}}, not {given!r}")
    unknown = sorted(set(given) - set(_KEYS))
    if unknown:
        raise ConfigError(f"quota.lanes: lane {name!r} has unknown {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    priority = given.get("priority")
    if priority not in {None, "strict"}:
        raise ConfigError(f"quota.lanes: lane {name!r}: priority must be 'strict' or left out, not {priority!r}")
    does = given.get("full", full)
    if does not in set(Full):
        raise ConfigError(f"quota.lanes: lane {name!r}: full must be one of {', '.join(Full)}, not {does!r}")
    newest = given.get("newest", False)
    if not isinstance(newest, bool):
        raise ConfigError(f"quota.lanes: lane {name!r}: newest must be True or False, not {newest!r}")
    try:
        deadline = given.get("deadline.ms")
        return Lane(
            name,
            strict=priority == "strict",
            weight=float(given.get("weight", 1.0)),
            full=Full(does),
            deadline_ms=None if deadline is None else int(deadline),
            newest=newest,
        )
    except ConfigError as error:
        raise ConfigError(f"quota.lanes: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"quota.lanes: lane {name!r}: weight and deadline.ms must be numbers: {error}") from None


@dataclass(frozen=True, slots=True)
class LaneState:
    """What waits in one lane.

    Attributes:
        messages: how many.
        raw_bytes: of keys, values, headers and records.
        waits_ms: how long the oldest has waited.
    """

    messages: int
    raw_bytes: int
    waits_ms: int


class Waits:
    """What waits in one lane: the turns of the partitions, and before them, when those are full, tenants' lines."""

    __slots__ = ("_spare", "fair", "lane", "length", "newest", "raw_bytes", "tenants", "turns")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.turns = Turns()
        self.tenants: dict[Hashable, Line] = {}  # of those for whom messages wait to have turns
        self._spare: list[Line] = []  # empty, for the next ones
        self.fair: Fair[Hashable] = Fair()  # who of them is next
        self.newest: dict[tuple[Partition, Hashable], Waiting] = {}
        self.length = 0
        self.raw_bytes = 0

    def find(self, tenant: Hashable) -> Line | None:
        """A tenant's line, if it has one."""
        return self.tenants.get(NO_TENANT if tenant is None else tenant)

    def line_of(self, tenant: Hashable) -> Line:
        """A tenant's line."""
        line = self.find(tenant)
        if line is None:
            tenant = NO_TENANT if tenant is None else tenant
            line = self.tenants[tenant] = self._spare.pop() if self._spare else Line()
            self.fair.join(tenant)
        return line

    def leave(self, tenant: Hashable) -> None:
        """A tenant's line is empty."""
        self.drop(tenant)
        self.fair.leave(tenant)

    def drop(self, tenant: Hashable) -> None:
        """The line of a tenant who has left is kept for another."""
        line = self.tenants.pop(tenant)
        if len(self._spare) < MOST_SPARE:
            self._spare.append(line)

    def forget(self, message: Waiting) -> None:
        """A message does not wait any more."""
        self.length -= 1
        self.raw_bytes -= message.raw_bytes
        if self.newest and self.newest.get((message.place, message.key)) is message:
            del self.newest[message.place, message.key]
